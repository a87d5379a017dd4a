#!/usr/bin/env bash
# lost_ranks.sh MPIRUN TRAIN WATCHED_TRAIN [memory|traced|frozen]: ranks that die, stop or fall asleep end the job in time, named; a job
# that was only paused goes on. Else one case, that cannot be had everywhere: `memory`, a rank that its control group kills for
# want of memory; `traced`, a rank whose main thread hangs in a system call, in which strace holds it; `frozen`, a rank that its
# control group of version 1 or 2 freezes.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2") watched=$(realpath "$3") part=${4:-}
enter_folder
export TMPDIR=$dir  # where reports go
mkdir -m 700 "ompi.$(hostname).$(id -u)"  # that of Open MPI 4.1, which fails where two jobs make it at once
groups=/sys/fs/cgroup/memory memory_limit=memory.limit_in_bytes  # version 1, or 2:
[ -e /sys/fs/cgroup/cgroup.controllers ] && groups=/sys/fs/cgroup memory_limit=memory.max
export GROUP=$groups/ringtrain-$$
at_end 'rmdir "$GROUP" 2>/dev/null'
at_end end_jobs  # before it

start() { # NAME RANKS [OPTION]...: a job that runs until something happens
  begin_named "$1" "$2" "$train" --model mlp --data shapes --batch 32 --threads 1 --log-every 100 --eval-every 0 --steps 5000000 "${@:3}"
}
trains() { log=$1/log await 60 has_records "$1/metrics"; }  # NAME: until it does
fault() { # NAME SIGNAL RANK...
  local name=$1 signal=$2
  shift 2
  date +%s.%N >"$name/fault"
  for rank in "$@"; do kill "-$signal" "$(cat "$name/$rank")"; done
}
# Whether other work makes a wall clock measure that instead.
crowded() { (($(bc <<<"$(cut -d' ' -f1 /proc/loadavg) > 4 * $(nproc)"))); }
# ends_well NAME SECONDS CODE TEXT: within that time of the fault, with this code and this text once. On a crowded machine it is the time
# that the verdict tells, which counts ticks of the rank that judges.
ends_well() {
  local name=$1 code seconds told
  finishes "$name"
  seconds=$(bc <<<"$(cat "$name/end") - $(cat "$name/fault")")
  echo "$name: ended $seconds s after the fault with $code"
  if crowded; then
    told=$(grep -E "$4" "$name/log" | grep -oE ' for [0-9]+ s' | head -n 1 | tr -dc 0-9)
    ((${told:-0} <= $2)) || wrong_in "$name" "was told after $told s, more than $2"
  else
    (($(bc <<<"$seconds <= $2"))) || wrong_in "$name" "took longer than $2 s"
  fi
  [[ " $3 " == *" $code "* ]] || wrong_in "$name" "ended with $code, not $3"
  (($(grep -cE "$4" "$name/log") == 1)) || wrong_in "$name" "does not say once: $4"
}

tells() { grep -qE "^fault: $2" "$1/log" || wrong_in "$1" "has no line for programs: fault: $2"; } # NAME PATTERN

# Open MPI 5 ends the other ranks before they miss the one that died, and names that itself.
died() { # RANK
  case $("$mpirun" --version | head -n 1) in
    *' 5.'*) echo "noticed that process rank $1 " ;;
    *) echo "rank $1 on .* has ended without a word" ;;
  esac
}

killed_for_memory() {
  { mkdir "$GROUP" && echo 600M >"$GROUP/$memory_limit" && sh -c "echo \$\$ >'$GROUP/cgroup.procs'"; } 2>why ||
    skip "no control group can limit memory here: $(tail -n 1 why)"
  train=$watched LIMITED=2 HUNGRY="2 300" start hungry 3
  trains hungry
  until grep -qs '^oom_kill [1-9]' "$GROUP"/memory.oom_control "$GROUP"/memory.events || ! alive "$(cat hungry/mpirun)"; do
    sleep 0.05
  done
  date +%s.%N >hungry/fault
  ends_well hungry 5 "71 137" "$(died 2)"
  grep -qs '^oom_kill [1-9]' "$GROUP"/memory.oom_control "$GROUP"/memory.events || wrong_in hungry "was not out of memory"
}

held_in_a_call() {
  need_strace -e inject=all:delay_enter=1
  start hung 2
  trains hung
  # The main thread alone, at its next system call.
  fault hung CONT 1
  strace -qq -o /dev/null -e inject=all:delay_enter=1000000000 -p "$(cat hung/1)" 2>strace &
  tracer=$!
  # Rank 0 ends by itself. Open MPI 5's mpirun waits for rank 1 too, whose end strace also holds up.
  timeout 120 tail --pid="$(cat hung/0)" -f /dev/null || wrong_in hung "rank 0 is still there"
  kill "$tracer"
  # What strace holds is not gone before strace is: three seconds more.
  ends_well hung 33 72 'rank 1 on .* has been in .* its limit is'
  grep -q 'report: ' hung/log || wrong_in hung "names no report"
}

mounted() { awk -v kind="$1" '$3 == kind && (kind == "cgroup2" || $4 ~ /(^|,)freezer(,|$)/) { print $2; exit }' /proc/mounts; } # KIND
freeze_ranks() { # GROUP 1|0
  local state
  case $1 in
    */freezer*) (($2)) && state=FROZEN || state=THAWED; echo $state >"$1/freezer.state" ;;
    *) echo "$2" >"$1/cgroup.freeze" ;;
  esac
}
release() { # GROUP: its processes go on, to their end
  freeze_ranks "$1" 0
  wait_for 10 rmdir "$1" 2>/dev/null
}
frozen() {
  local name rank group groups=()
  for group in $(mounted cgroup) $(mounted cgroup2); do
    group=$group/ringtrain-$$
    mkdir "$group" 2>why || continue
    at_end "[ ! -d '$group' ] || release '$group'"
    freeze_ranks "$group" 1 2>why && groups+=("$group")
    freeze_ranks "$group" 0 2>/dev/null
  done
  ((${#groups[@]})) || skip "no control group can be frozen here: $(cat why)"
  for group in "${!groups[@]}"; do start "frozen$group" 3; done
  for group in "${!groups[@]}"; do
    name=frozen$group rank=$((1 - group)) # rank 0 in the second
    trains "$name"
    cat "$name/$rank" >"${groups[group]}/cgroup.procs" || wrong_in "$name" "its rank cannot be put into ${groups[group]}"
    freeze_ranks "${groups[group]}" 1
    date +%s.%N >"$name/fault"
  done
  for group in "${!groups[@]}"; do
    ends_well "frozen$group" 15 71 "rank $((1 - group)) .*has not been heard for [1-9][0-9] s: its process is frozen by its control group"
    echo "frozen by ${groups[group]}"
    release "${groups[group]}"
  done
}

case $part in
  frozen) frozen; exit $bad ;;
  memory) killed_for_memory; exit $bad ;;
  traced) held_in_a_call; exit $bad ;;
esac

start killed 3
trains killed
fault killed KILL 2
# mpirun may notice first, too
ends_well killed 5 "71 137" "$(died 2)"

start first_killed 3
trains first_killed
fault first_killed KILL 0
ends_well first_killed 5 "71 137" 'rank 0 .*has ended without a word|noticed that process rank 0 '

start stopped 3
start first_stopped 3
start paused 2
sleepy() { # NAME WHEN [OPTION]...: rank 1, or as WHEN says
  local train=$watched
  export ASLEEP=$2
  start "$1" 2 "${@:3}"
  unset ASLEEP
}
sleepy in_data "1 data 300" --seed 2
sleepy in_sums "1 all-reduce 300" --seed 3
sleepy in_save "0 save 1" --steps 300 --checkpoint-dir "$dir/in_save_checkpoints" --checkpoint-every 100 --final-save-timeout 1s
for name in stopped first_stopped paused in_data in_sums in_save; do trains $name; done
fault stopped STOP 1
fault first_stopped STOP 0
fault paused STOP 0 1
sleep 14
fault paused CONT 0 1
ends_well stopped 15 71 'rank 1 on .* has not been heard for [1-9][0-9] s: its process is stopped'
ends_well first_stopped 15 71 'rank 0 has not been heard for [1-9][0-9] s'
tells stopped 'kind=rank_lost code=71 rank=0 host=[^ ]+ step=[1-9][0-9]* resume=none how=silent ranks=1 hosts=[^ ]+$'
tells first_stopped 'kind=rank_lost code=71 rank=[12] host=[^ ]+ step=[1-9][0-9]* resume=none how=silent ranks=0$'
before=$(records paused/metrics)
sleep 12
has_records paused/metrics $((before + 1)) || { crowded && wait_for 60 has_records paused/metrics $((before + 1)); } ||
  wrong_in paused "does not go on"
kill -TERM "$(cat paused/0)"
wait "$(cat paused/mpirun)"
grep -q 'the job cannot go on' paused/log && wrong_in paused "was ended by the watchdog"
ends_well in_data 30 72 'rank 1 on .* has been in data of step 300 for .* its limit is 26 s'
ends_well in_sums 30 72 'rank 1 on .* has been in all-reduce of step 300 for .* its limit is 26 s'
for name in in_data in_sums; do tells $name 'kind=stuck code=72 rank=0 .* how=stuck ranks=1 hosts=[^ ]+$'; done
grep -q 'pause' in_sums/log || wrong_in in_sums "does not show where rank 1 sleeps"
ends_well in_save 34 72 'rank 0 on .* has been in save of step 300 for .* its limit is 31 s'
grep -q 'the last durable checkpoint in .*in_save_checkpoints is of step [23]00; to go on from it, start all ranks again' in_save/log ||
  wrong_in in_save "does not say how to go on"
grep -q 'watched_train --model mlp --data shapes .*--checkpoint-every 100' in_save/log || wrong_in in_save "does not name the command"
exit $bad
