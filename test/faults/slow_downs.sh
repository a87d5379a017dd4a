#!/usr/bin/env bash
# slow_downs.sh MPIRUN TRAIN SLOWFS [CASE]...: each case slows a job down in its way; what the job says of it must name the cause
# and the rank. Prints the sentences. Cases: stopped, core, quota, disk, link, quiet; all but quiet without any. Ends with 77 if
# a case could not be had here and nothing else is wrong.
set -u
mpirun=$1 train=$2 slowfs=$3 bad=0
shift 3
here=$(dirname "$(readlink -f "$0")")
hosts=$here/../support/hosts/hosts.sh
work=$(mktemp -d)
export TMPDIR=$work
HOSTS_RUN=$(mktemp -d "$work/XXXXXX")
export HOSTS_RUN
harm=() # processes that slow it down
left_out=()
trap 'heal; end_jobs; fusermount3 -qu "$work/images"; "$hosts" down 2>"$work/down"; rmdir "$group" 2>"$work/group"; rm -rf "$work"' EXIT
group=/sys/fs/cgroup/cpu/$(basename "$work")

end_jobs() { # those that still run
  local pids=() pid
  for pid in $(jobs -pr); do mapfile -t -O "${#pids[@]}" pids < <(echo "$pid"; pgrep -P "$pid"); done
  ((${#pids[@]})) && kill "${pids[@]}" 2>/dev/null
  for pid in "${pids[@]}"; do timeout 10 tail --pid="$pid" -f /dev/null; done
}
wrong() { # NAME WHAT
  echo "$1: $2"
  tail -30 "$work/$1/log"
  bad=1
}
# start NAME COMMAND...: a job on several ranks, until it is known what is usual: 20 windows of 0.5 s and two steps
start() {
  mkdir "$work/$1"
  FOLDER=$work/$1 "${@:2}" --batch "${batch:-32}" --threads 1 --log-every 20 --eval-every 0 --steps "${steps:-100000000}" --metrics "$work/$1/metrics" \
    >"$work/$1/log" 2>&1 &
  echo $! >"$work/$1/mpirun"
  reaches "$1" 1 || { wrong "$1" "does not train"; exit 1; }
  sleep 12
  reaches "$1" 4 || { wrong "$1" "trains too slowly"; exit 1; }
}
reaches() { # NAME COUNT: has so many step records, within a minute
  local records
  for _ in {1..600}; do
    records=$(grep -c '"kind":"step"' "$work/$1/metrics" 2>/dev/null)
    ((${records:-0} >= $2)) && return
    sleep 0.1
  done
  return 1
}
two_ranks() { echo "$mpirun" -np 2 --oversubscribe "$here/rank.sh" "$train"; }
heal() {
  ((${#harm[@]})) && kill "${harm[@]}" 2>/dev/null && wait "${harm[@]}" 2>/dev/null
  harm=()
}
# told NAME SECONDS WHAT TEXT: within that time there is an event WHAT in the metrics and the log that says that
told() {
  for ((i = 0; i < 10 * $2; i++)); do
    grep -qE "rank 0: $3: .*$4" "$work/$1/log" && break
    sleep 0.1
  done
  grep -h "rank 0: $3: " "$work/$1/log" | sed "s/^[^:]*:[^:]*:[^:]*: rank 0: /$1: /"
  grep -q "\"what\":\"$3\"" "$work/$1/metrics" || wrong "$1" "no event $3"
  grep -qE "rank 0: $3: .*$4" "$work/$1/log" || wrong "$1" "does not say: $4"
}
over() { # NAME: the harm is gone, and so is the slow-down
  heal
  [[ $quick ]] || told "$1" 30 slow_down_over 'examples/s again, after [0-9]+ s'
  kill "$(cat "$work/$1/mpirun")"
  wait "$(cat "$work/$1/mpirun")"
}
rank() { cat "$work/$1/$2"; }
skipped() { # NAME WHY
  echo "skipped: $1: $2"
  left_out+=("$1")
}

case_stopped() { # rank 1 stands still most of the time; where other work disturbs that, it is tried once more
  stop_rank stopped
  ((bad)) || return
  bad=0
  stop_rank stopped_again
}
stop_rank() { # NAME
  # shellcheck disable=SC2046
  batch=8 start "$1" $(two_ranks) --model cifar10_cnn --data synthetic
  local pid
  pid=$(rank "$1" 1)
  (trap 'kill -CONT $pid; exit' TERM; while kill -STOP "$pid"; do sleep 0.35; kill -CONT "$pid"; sleep 0.15; done) &
  harm=($!)
  told "$1" 60 slow_down 'on rank 1 .*; with it moved, on .*: the process stood still'
  over "$1"
}
case_core() { # something else wants the core of rank 1
  # shellcheck disable=SC2046
  start core $(two_ranks) --model cifar10_cnn --data synthetic
  taskset -apc 0 "$(rank core 0)" >/dev/null
  taskset -apc 1 "$(rank core 1)" >/dev/null
  sleep 7
  for _ in 1 2 3; do
    taskset -c 1 sh -c 'while :; do :; done' &
    harm+=($!)
  done
  told core 30 slow_down '(forward|backward) grew .* on rank 1 .*(CPUs used by other processes|tasks that want a CPU|times preempted)'
  over core
}
case_quota() { # the control group of rank 1 gets a quota
  mkdir "$group" 2>/dev/null || { skipped quota "no control group of version 1 can be made here"; return; }
  cat >"$work/in_group.sh" <<END
[ "\$OMPI_COMM_WORLD_RANK" = 1 ] && echo \$\$ >"$group/cgroup.procs"
exec "$here/rank.sh" "\$@"
END
  start quota "$mpirun" -np 2 --oversubscribe sh "$work/in_group.sh" "$train" --model cifar10_cnn --data synthetic
  echo 40000 >"$group/cpu.cfs_quota_us"
  told quota 20 slow_down 'on rank 1 .*; with it moved, on .*: (the process stood still .*)?held up by its CPU quota'
  echo -1 >"$group/cpu.cfs_quota_us"
  over quota
}
case_disk() { # the data's disk gets slow
  [[ -x $slowfs && -w /dev/fuse ]] || { skipped disk "no slowfs, or no /dev/fuse"; return; }
  mkdir "$work/backing" "$work/images"
  python3 - "$work/backing" <<'END'
import os, struct, sys, zlib
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
for part, count in (("train", 64), ("val", 4)):
    for i in range(count):
        folder = f"{sys.argv[1]}/{part}/{i % 2}"
        os.makedirs(folder, exist_ok=True)
        rows = b"".join(b"\0" + os.urandom(96) for _ in range(32))
        with open(f"{folder}/{i}.png", "wb") as file:
            file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">2I5B", 32, 32, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
END
  "$slowfs" "$work/backing" "$work/images" "$work/disk_faults" 2>"$work/slowfs" &
  local disk=$!
  sleep 1
  # shellcheck disable=SC2046
  steps=60000 start disk $(two_ranks) --model cifar10_cnn --data "images:$work/images" --classes 2
  echo "delay read 3" >"$work/disk_faults"
  told disk 20 slow_down 'data wait grew .* on (all ranks|rank [01] )'
  rm "$work/disk_faults"
  over disk
  kill "$disk"
  wait "$disk"
}
case_link() { # the link of host 2 gets slow
  local why_not
  why_not=$("$hosts" check 50mbit) || { skipped link "$why_not"; return; }
  "$hosts" up 3
  start link "$hosts" mpirun 1 "$here/rank.sh" "$train" --model cifar10_cnn --data synthetic
  "$hosts" exec 2 tc qdisc add dev eth0 root tbf rate 50mbit burst 24kb latency 20ms
  told link 30 slow_down "exposed communication grew .* on all ranks, and no rank's own work did; [^ ]*-2 sends [0-9]+ % of the time, others [0-9]+ %: they wait for its link; with it moved, on [^:]*-2: .*round trip"
  "$hosts" exec 2 tc qdisc del dev eth0 root
  over link
  "$hosts" down
}
case_quiet() { # nothing slows it down but evaluations and saves: nothing is told
  mkdir "$work/quiet" "$work/checkpoints"
  timeout 40 "$mpirun" -np 2 --oversubscribe "$train" --model cifar10_cnn --data shapes --batch 32 --threads 1 --log-every 20 --epochs 100 \
    --checkpoint-dir "$work/checkpoints" --checkpoint-every 3s --metrics "$work/quiet/metrics" --max-time 30s >"$work/quiet/log" 2>&1
  grep -q '"kind":"checkpoint"' "$work/quiet/metrics" || wrong quiet "saves nothing"
  grep -q slow_down "$work/quiet/log" && wrong quiet "tells of a slow-down"
}

quick=
[[ $* == stopped ]] && quick=yes
(($#)) || set -- stopped core quota disk link
for name; do "case_$name"; done
[ $bad -ne 0 ] || [ ${#left_out[@]} -eq 0 ] || exit 77
exit $bad
