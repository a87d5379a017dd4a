#!/usr/bin/env bash
# [DRIFT_S=N] [BESIDE=yes] slow_downs.sh MPIRUN TRAIN SLOWFS [CASE]...: each case slows a job down in its way, at once or, with DRIFT_S,
# little by little within N seconds. Before that it tells nothing. Then what it says must name the cause and the rank, within a minute:
# of what comes little by little, of when a step took a quarter longer. Prints the sentences. BESIDE: other work comes and goes on all CPUs.
# What fails is tried once more, as other work disturbs it: slow_downs.sh then starts itself again with SECOND_TRY=yes. With TRIAL=yes it
# judges nothing, and prints "trial CASE: right", unknown, wrong or untold.
# Cases: stopped, core, quota, disk, link, pair; two: two of the first five, others at each commit. Ends with 77 if a case could not be had
# here and nothing else is wrong.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2") slowfs=$3
shift 3
script=$(realpath "$0")
drift_s=${DRIFT_S:-0}
enter_folder
export TMPDIR=$dir XDG_CACHE_HOME=$dir/cache HOSTS_RUN=$dir  # what earlier runs reached is no part of this
harm=() # processes that slow it down
left_out=()
groups=/sys/fs/cgroup/cpu
[[ -d $groups ]] || groups=/sys/fs/cgroup
group=$groups/$(basename "$dir")
end_group() {
  rmdir "$group" 2>/dev/null
  [[ ! ${delegated:-} ]] || echo -cpu >"$groups/cgroup.subtree_control"
}
at_end end_group
at_end '"$hosts" down 2>/dev/null'
at_end 'fusermount3 -qu disk'
at_end end_jobs  # before what follows them is taken away
at_end end_harm

# start NAME COMMAND...: a job on several ranks
start() {
  mkdir "$1"
  # at the recipe's learning rate it diverges within some thousands of steps
  FOLDER=$dir/$1 "${@:2}" --batch "${batch:-32}" --lr 0.001 --threads 1 --log-every 20 --eval-every "${eval_every:-0}" --steps "${steps:-100000000}" --metrics "$dir/$1/metrics" \
    >"$1/log" 2>&1 &
  echo $! >"$1/mpirun"
  log=$1/log await 60 has_records "$1/metrics"
}
settle() { # NAME: until the job's usual speed is known, and what its steps are made of
  log=$1/log await 150 grep -q speed_share "$1/metrics"
  sleep 5
  before_harm=$(times "$1" slow_down)
  ((before_harm == 0)) || [[ ${TRIAL:-} ]] || wrong_in "$1" "tells of a slow-down before there is one"
}
two_ranks() { echo "$mpirun" -np 2 --oversubscribe "$support/rank.sh" "$train"; }
end_harm() {
  ((${#harm[@]})) && kill "${harm[@]}" 2>/dev/null && wait "${harm[@]}" 2>/dev/null
  harm=()
}
times() { log=$1/log count "rank 0: $2: "; }  # NAME EVENT
more() { (($(times "$1" "$2") > $3)); }
# told NAME SECONDS WHAT TEXT COUNT: within that time there are more than COUNT events WHAT in the log, and one in the metrics; the
# first new one says TEXT
told() {
  local line
  wait_for "$2" more "$1" "$3" "$5"
  line=$(grep -hE "rank 0: $3: " "$1/log" | sed -n "$(($5 + 1))p" | sed "s/^[^:]*:[^:]*:[^:]*: rank 0: /$1: /")
  echo "$line"
  grep -q "\"what\":\"$3\"" "$1/metrics" || wrong_in "$1" "no event $3"
  grep -qE "$4" <<<"$line" || wrong_in "$1" "does not say: $4"
}
# slow_down NAME TEXT HARM [LINKS DRIFT]: HARM SHARE slows the job down, 0 not at all, 1 most. LINKS: what is then said of them. DRIFT: what
# is said of little by little, if not TEXT.
slow_down() {
  local text=$2
  settle "$1"
  if ((drift_s > 0)); then
    text=${5:-$2}
    drift "$1" "$text" "$3"
  else
    $3 1
    [[ ${TRIAL:-} ]] && wait_for 90 more "$1" slow_down "$before_harm"
    [[ ${TRIAL:-} ]] || told "$1" 60 slow_down "$text" "$before_harm"
  fi
  [[ ${TRIAL:-} ]] && verdict "$1" "$text"
  [[ ${TRIAL:-} || ! ${4:-} ]] || told "$1" 20 link_speeds "$4" 0
  $3 0
  kill "$(cat "$1/mpirun")"
  wait "$(cat "$1/mpirun")"
}
verdict() { # NAME TEXT: of what was said last. Beside other work, to name that is right, too
  local line what=wrong right=$2${BESIDE:+|CPUs used by other processes}
  line=$(grep -hE "rank 0: slow_down: " "$1/log" | tail -n "+$((before_harm + 1))" | tail -n 1)
  [[ $line ]] || what=untold
  ! grep -q 'cause unknown' <<<"$line" || what=unknown
  ! grep -qE "$right" <<<"$line" || what=right
  echo "trial $1${BESIDE:+ beside other work}, $( ((drift_s)) && echo "within $drift_s s" || echo "at once"): $what: ${line#*rank 0: }"
}
drift() { # NAME TEXT HARM
  local begin=$SECONDS lately_s=$((drift_s > 300 ? drift_s / 60 : 5)) share line='' quarter='' usual
  usual=$(step_ms "$1" 30)
  while ((SECONDS - begin < drift_s + 120 && SECONDS - ${quarter:-$SECONDS} < 65)); do
    share=$(bc -l <<<"($SECONDS - $begin) / $drift_s")
    $3 "$(bc -l <<<"if ($share < 1) $share else 1")"
    line=$(grep -hE "rank 0: slow_down: " "$1/log" | tail -n "+$((before_harm + 1))" | grep -E "$2" | head -n 1)
    [[ $line ]] && break
    kill -0 "$(cat "$1/mpirun")" 2>/dev/null || { wrong_in "$1" "has ended"; break; }
    if (($(step_ms "$1" "$lately_s") * 100 < usual * 125)); then quarter=; else quarter=${quarter:-$SECONDS}; fi
    sleep "$((drift_s > 300 ? 3 : 1))"
  done
  echo "$1: after $((SECONDS - begin)) s of a drift of $drift_s s, ${quarter:+$((SECONDS - quarter)) s after a step took a quarter longer, }in" \
    "report $(($(times "$1" slow_down) - before_harm)): ${line#*rank 0: }"
  [[ $line || ${TRIAL:-} ]] || wrong_in "$1" "does not say: $2"
}
step_ms() { # NAME SECONDS: what a step took, in hundredths of milliseconds, the mean of so many last seconds; a record is of 20 steps
  tail -n 1000 "$1/metrics" | grep '"kind":"step"' | sed 's/.*"seconds_per_batch":\([0-9.e-]*\).*/\1/' | tac |
    awk -v "seconds=$2" '{ sum += $1; if (20 * sum >= seconds) exit } END { printf "%d\n", 1e5 * sum / NR }'
}
skipped() { # NAME WHY
  echo "skipped: $1: $2"
  left_out+=("$1")
}
# keep_on SHARE CODE COUNT [ARGUMENT]...: so many processes run Python's CODE, which asks share() each time, until SHARE is 0. They are
# started once: starting them anew for each SHARE would slow the job down by itself.
keep_on() {
  echo "$1" >share.new && mv share.new share
  [[ $1 == 0 ]] && { end_harm; return; }
  while ((${#harm[@]} < $3)); do
    python3 -c "import os, signal, sys, time
share = lambda: float(open('share').read())
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
$2" "${@:4}" &
    harm+=($!)
  done
}
# busy SHARE CPU: wants so much of a CPU, three times
busy() {
  keep_on "$1" 'os.sched_setaffinity(0, {int(sys.argv[1])})
while True:
    wanted = share()
    end = time.monotonic() + 0.05 * wanted
    while time.monotonic() < end: pass
    if wanted < 1: time.sleep(0.05 * (1 - wanted))' 3 "$2"
}
# stop SHARE: rank 1 of $stopped stands still most of the time
stop() {
  [[ $1 != 0 ]] || kill -CONT "$stopped"
  keep_on "$1" 'pid = int(sys.argv[1])
try:
    while True:
        still = 0.35 * share()
        os.kill(pid, signal.SIGSTOP)
        time.sleep(still)
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.5 - still)
finally:
    os.kill(pid, signal.SIGCONT)' 1 "$stopped"
}
core() { busy "$1" 1; }
between() { bc -l <<<"scale = 9; $1 * e($3 * l($2 / $1))" | cut -d. -f1; } # FROM TO SHARE: in even steps of a factor
quota() { # SHARE: of 110 % of a CPU, down to 40 %
  local us
  us=$(between 110000 40000 "$1")
  [[ $1 == 0 ]] && us=-1
  if [[ -e $group/cpu.max ]]; then
    echo "${us/-1/max} 100000" >"$group/cpu.max"
  else
    echo "$us" >"$group/cpu.cfs_quota_us"
  fi
}
disk() { # SHARE
  if [[ $1 == 0 ]]; then rm -f faults; else echo "delay read $(bc -l <<<"3 * $1")" >faults; fi
}
link() { # SHARE: from 10 Gbit/s, which changes no step, to 50 Mbit/s. The burst lets whole GSO packets through: cutting them costs CPU
  local old
  old=$("$hosts" exec 2 tc qdisc show dev eth0)
  if [[ $1 == 0 ]]; then
    [[ $old != *tbf* ]] || "$hosts" exec 2 tc qdisc del dev eth0 root
  else
    "$hosts" exec 2 tc qdisc "$([[ $old == *tbf* ]] && echo change || echo add)" dev eth0 root tbf rate "$(between 10000 50 "$1")mbit" burst 128kb latency 20ms
  fi
}

beside_other_work() { # for 2 s of 6, one CPU's worth, wherever there is room
  python3 -c "import time
while True:
    end = time.monotonic() + 2
    while time.monotonic() < end: pass
    time.sleep(4)" &
  at_end "kill $!"
}

case_stopped() { # rank 1 stands still most of the time
  # shellcheck disable=SC2046
  batch=8 start stopped $(two_ranks) --model cifar10_cnn --data synthetic
  stopped=$(rank_of stopped 1)
  slow_down stopped 'on rank 1 .*; with it moved, on .*: (the process stood still|the training thread had no CPU)' stop
}
case_core() { # something else wants the core of rank 1
  # evaluations and saves are no slow-down
  # shellcheck disable=SC2046
  eval_every=1500 start core $(two_ranks) --model cifar10_cnn --data synthetic --checkpoint-dir "$dir/core/saved" --checkpoint-every 500
  taskset -apc 0 "$(rank_of core 0)" >/dev/null
  taskset -apc 1 "$(rank_of core 1)" >/dev/null
  slow_down core '(forward|backward) grew .* on rank 1 .*(CPUs used by other processes|tasks that want a CPU|times preempted)' core
}
case_quota() { # the control group of rank 1 gets a quota
  if [[ $groups != */cpu && " $(cat "$groups/cgroup.subtree_control" 2>"group") " != *" cpu "* ]]; then
    { echo +cpu >"$groups/cgroup.subtree_control"; } 2>"group" && delegated=yes
  fi
  mkdir "$group" 2>"group" && [[ $groups == */cpu || -e $group/cpu.max ]] ||
    { skipped quota "no control group can be made here: $(cat "group")"; return; }
  cat >"in_group.sh" <<END
[ "\$OMPI_COMM_WORLD_RANK" = 1 ] && echo \$\$ >"$group/cgroup.procs"
exec "$support/rank.sh" "\$@"
END
  start quota "$mpirun" -np 2 --oversubscribe sh "in_group.sh" "$train" --model cifar10_cnn --data synthetic
  slow_down quota 'on rank 1 .*; with it moved, on .*: (the process stood still .*)?held up by its CPU quota' quota
}
case_disk() { # the data's disk gets slow
  mount_slowfs "$slowfs" || { skipped disk "$(tail -n 1 why)"; return; }
  python3 - backing <<'END'
import os, struct, sys, zlib
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
for part, count in (("train", 512), ("val", 4)):
    for i in range(count):
        folder = f"{sys.argv[1]}/{part}/{i % 2}"
        os.makedirs(folder, exist_ok=True)
        rows = b"".join(b"\0" + os.urandom(96) for _ in range(32))
        with open(f"{folder}/{i}.png", "wb") as file:
            file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">2I5B", 32, 32, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
END
  # shellcheck disable=SC2046
  steps=$((120000 + 500 * drift_s)) start disk $(two_ranks) --model cifar10_cnn --data images:disk --classes 2
  # What comes little by little first takes the CPUs, with the threads that read: then backward grows before training waits for data.
  slow_down disk '(data wait grew .* on (all ranks|rank [01] )|with it moved, on .*: .*CPUs waiting for disks)' disk
}
case_link() { # the link of host 2 gets slow
  local why_not
  why_not=$("$hosts" check 50mbit) || { skipped link "$why_not"; return; }
  "$hosts" up 3
  start link "$hosts" mpirun 1 "$support/rank.sh" "$train" --model cifar10_cnn --data synthetic
  slow_down link "exposed communication grew .* on all ranks, and no rank's own work did; [^ ]*-2 sends [0-9]+ % of the time, others [0-9]+ %: they wait for its link; with it moved, on [^:]*-2: .*round trip" link \
    'from [^ ]*-2 to [^ ]*-0 [5-8][.0-9]* MB/s, [0-9.e+]+ at the start; 2 of 3 hold up no step; ' \
    "exposed communication grew .* on all ranks, and no rank's own work did; [^ ]*-2 sends [0-9]+ % of the time, others [0-9]+ %: they wait for its link; .*what to do: see what else uses its link"
  "$hosts" down
}
case_pair() { # of two hosts, what the second sends gets slow, and what it receives does not
  local why_not
  why_not=$("$hosts" check 50mbit) || { skipped pair "$why_not"; return; }
  "$hosts" up 2 1gbit
  start pair "$hosts" mpirun 1 "$support/rank.sh" "$train" --model cifar10_cnn --data synthetic
  settle pair
  "$hosts" exec 1 tc qdisc change dev eth0 root tbf rate 250mbit burst 24kb latency 20ms
  told pair 60 slow_down "exposed communication grew .* on all ranks, and no rank's own work did" 0
  told pair 5 link_speeds 'from [^ ]*-1 to [^ ]*-0 (2[6-9]|3[0-2])[0-9.]* MB/s, (9[0-9]|1[0-2][0-9])[0-9.]* at the start; 1 of 2 hold up no step; ' 0
  "$hosts" exec 1 tc qdisc change dev eth0 root tbf rate 1gbit burst 24kb latency 20ms
  told pair 400 slow_down_over 'examples/s again; .* examples/s, cost ' 0
  kill "$(cat pair/mpirun)"
  wait "$(cat pair/mpirun)"
  "$hosts" down
}
# shellcheck disable=SC2046
[[ $1 != two ]] || set -- $(two_of stopped core quota disk link)
[[ ! ${BESIDE:-} ]] || beside_other_work
failed=()
for name; do
  before=$bad bad=0
  "case_$name"
  ((!bad)) || failed+=("$name")
  ((!before)) || bad=1
done
if ((bad)) && [[ ! ${SECOND_TRY:-} ]]; then
  echo "once more: ${failed[*]}"
  clean_up
  exec env -u TMPDIR -u XDG_CACHE_HOME -u HOSTS_RUN SECOND_TRY=yes "$script" "$mpirun" "$train" "$slowfs" "${failed[@]}"
fi
[ $bad -ne 0 ] || [ ${#left_out[@]} -eq 0 ] || exit 77
exit $bad
