#!/usr/bin/env bash
# lost_ranks.sh MPIRUN TRAIN WATCHED_TRAIN [memory|traced]: ranks that die, stop or fall asleep end the job in time, named; a job
# that was only paused goes on. Else one case, that cannot be had everywhere: `memory`, a rank that its control group kills for
# want of memory; `traced`, a rank whose main thread hangs in a system call, in which strace holds it.
set -u
mpirun=$1 train=$2 watched_train=$3 part=${4:-} bad=0
work=$(mktemp -d)
export TMPDIR=$work  # where reports go
mkdir -m 700 "$work/ompi.$(hostname).$(id -u)"  # that of Open MPI 4.1, which fails where two jobs make it at once
here=$(dirname "$(readlink -f "$0")")
groups=/sys/fs/cgroup/memory limit=memory.limit_in_bytes  # version 1, or 2:
[ -e /sys/fs/cgroup/cgroup.controllers ] && groups=/sys/fs/cgroup limit=memory.max
export GROUP=$groups/ringtrain-$$
trap 'end_jobs; rm -rf "$work"; rmdir "$GROUP" 2>/dev/null' EXIT

end_jobs() { # those that still run
  local pids=() pid
  for pid in $(jobs -pr); do mapfile -t -O "${#pids[@]}" pids < <(echo "$pid"; pgrep -P "$pid"); done
  ((${#pids[@]})) && kill "${pids[@]}" 2>/dev/null
  for pid in "${pids[@]}"; do timeout 10 tail --pid="$pid" -f /dev/null; done
}
# start NAME RANKS [OPTION]...: a job that runs until something happens; rank R's process is in NAME/R
start() {
  local name=$1 ranks=$2
  shift 2
  mkdir "$work/$name"
  {
    FOLDER=$work/$name "$mpirun" -np "$ranks" --oversubscribe "$here/rank.sh" "$train" --model mlp --data shapes \
      --batch 32 --threads 1 --log-every 100 --eval-every 0 --metrics "$work/$name/metrics" --steps 5000000 "$@" >"$work/$name/log" 2>&1
    code=$?
    date +%s.%N >"$work/$name/end"
    exit $code
  } &
  echo $! >"$work/$name/mpirun"
}
trains() { # NAME: until it does
  for _ in {1..600}; do
    grep -q '"kind":"step"' "$work/$1/metrics" 2>/dev/null && return
    sleep 0.1
  done
  wrong "$1" "does not train"
  exit 1
}
fault() { # NAME SIGNAL RANK...
  local name=$1 signal=$2
  shift 2
  date +%s.%N >"$work/$name/fault"
  for rank in "$@"; do kill "-$signal" "$(cat "$work/$name/$rank")"; done
}
wrong() { # NAME WHAT
  echo "$1: $2"
  cat "$work/$1/log"
  bad=1
}
# Whether other work makes a wall clock measure that instead.
crowded() { (($(bc <<<"$(cut -d' ' -f1 /proc/loadavg) > 4 * $(nproc)"))); }
# ends NAME SECONDS CODE TEXT: within that time of the fault, with this code and this text once. On a crowded machine it is the time
# that the verdict tells, which counts ticks of the rank that judges.
ends() {
  local name=$1 code seconds told
  wait "$(cat "$work/$name/mpirun")"
  code=$?
  seconds=$(bc <<<"$(cat "$work/$name/end") - $(cat "$work/$name/fault")")
  echo "$name: ended $seconds s after the fault with $code"
  if crowded; then
    told=$(grep -oE ' for [0-9]+ s' "$work/$name/log" | head -n 1 | tr -dc 0-9)
    ((${told:-0} <= $2)) || wrong "$name" "was told after $told s, more than $2"
  else
    (($(bc <<<"$seconds <= $2"))) || wrong "$name" "took longer than $2 s"
  fi
  [[ " $3 " == *" $code "* ]] || wrong "$name" "ended with $code, not $3"
  (($(grep -cE "$4" "$work/$name/log") == 1)) || wrong "$name" "does not say once: $4"
}

tells() { grep -qE "^fault: $2" "$work/$1/log" || wrong "$1" "has no line for programs: fault: $2"; } # NAME PATTERN

# Open MPI 5 ends the other ranks before they miss the one that died, and names that itself.
died() { # RANK
  case $("$mpirun" --version | head -n 1) in
    *' 5.'*) echo "noticed that process rank $1 " ;;
    *) echo "rank $1 on .* has ended without a word" ;;
  esac
}

killed_for_memory() {
  { mkdir "$GROUP" && echo 600M >"$GROUP/$limit" && sh -c "echo \$\$ >'$GROUP/cgroup.procs'"; } 2>"$work/why" ||
    { echo "skipped: no control group can limit memory here: $(tail -n 1 "$work/why")"; exit 77; }
  train=$watched_train LIMITED=2 HUNGRY="2 300" start hungry 3
  trains hungry
  until grep -qs '^oom_kill [1-9]' "$GROUP"/memory.oom_control "$GROUP"/memory.events || ! kill -0 "$(cat "$work/hungry/mpirun")" 2>/dev/null; do
    sleep 0.05
  done
  date +%s.%N >"$work/hungry/fault"
  ends hungry 5 "71 137" "$(died 2)"
  grep -qs '^oom_kill [1-9]' "$GROUP"/memory.oom_control "$GROUP"/memory.events || wrong hungry "was not out of memory"
}

held_in_a_call() {
  strace -o /dev/null -e inject=all:delay_enter=1 true 2>"$work/why" ||
    { echo "skipped: strace is missing or may not trace: $(tail -n 1 "$work/why")"; exit 77; }
  start hung 2
  trains hung
  # The main thread alone, at its next system call.
  fault hung CONT 1
  strace -qq -o /dev/null -e inject=all:delay_enter=1000000000 -p "$(cat "$work/hung/1")" 2>"$work/strace" &
  tracer=$!
  # Rank 0 ends by itself. Open MPI 5's mpirun waits for rank 1 too, whose end strace also holds up.
  timeout 120 tail --pid="$(cat "$work/hung/0")" -f /dev/null || wrong hung "rank 0 is still there"
  kill "$tracer"
  # What strace holds is not gone before strace is: three seconds more.
  ends hung 33 72 'rank 1 on .* has been in .* its limit is'
  grep -q 'report: ' "$work/hung/log" || wrong hung "names no report"
}

case $part in
  memory) killed_for_memory; exit $bad ;;
  traced) held_in_a_call; exit $bad ;;
esac

start killed 3
trains killed
fault killed KILL 2
# mpirun may notice first, too
ends killed 5 "71 137" "$(died 2)"

start first_killed 3
trains first_killed
fault first_killed KILL 0
ends first_killed 5 "71 137" 'rank 0 .*has ended without a word|noticed that process rank 0 '

start stopped 3
start first_stopped 3
start paused 2
sleepy() { # NAME WHEN [OPTION]...: rank 1, or as WHEN says
  local train=$watched_train
  export ASLEEP=$2
  start "$1" 2 "${@:3}"
  unset ASLEEP
}
sleepy in_data "1 data 300" --seed 2
sleepy in_sums "1 all-reduce 300" --seed 3
sleepy in_save "0 save 1" --steps 300 --checkpoint-dir "$work/in_save_checkpoints" --checkpoint-every 100 --final-save-timeout 1s
for name in stopped first_stopped paused in_data in_sums in_save; do trains $name; done
fault stopped STOP 1
fault first_stopped STOP 0
fault paused STOP 0 1
sleep 14
fault paused CONT 0 1
ends stopped 15 71 'rank 1 on .* has not been heard for [1-9][0-9] s: its process is stopped'
ends first_stopped 15 71 'rank 0 has not been heard for [1-9][0-9] s'
tells stopped 'kind=rank_lost code=71 rank=0 host=[^ ]+ step=[1-9][0-9]* resume=none how=silent ranks=1 hosts=[^ ]+$'
tells first_stopped 'kind=rank_lost code=71 rank=[12] host=[^ ]+ step=[1-9][0-9]* resume=none how=silent ranks=0$'
steps() { grep -c '"kind":"step"' "$work/paused/metrics"; }
before=$(steps)
sleep 12
(($(steps) > before)) || wrong paused "does not go on"
kill -TERM "$(cat "$work/paused/0")"
wait "$(cat "$work/paused/mpirun")"
grep -q 'the job cannot go on' "$work/paused/log" && wrong paused "was ended by the watchdog"
ends in_data 30 72 'rank 1 on .* has been in data of step 300 for .* its limit is 26 s'
ends in_sums 30 72 'rank 1 on .* has been in all-reduce of step 300 for .* its limit is 26 s'
for name in in_data in_sums; do tells $name 'kind=stuck code=72 rank=0 .* how=stuck ranks=1 hosts=[^ ]+$'; done
grep -q 'pause' "$work/in_sums/log" || wrong in_sums "does not show where rank 1 sleeps"
ends in_save 34 72 'rank 0 on .* has been in save of step 300 for .* its limit is 31 s'
grep -q 'the last durable checkpoint in .*in_save_checkpoints is of step [23]00; to go on from it, start all ranks again' "$work/in_save/log" ||
  wrong in_save "does not say how to go on"
grep -q 'watched_train --model mlp --data shapes .*--checkpoint-every 100' "$work/in_save/log" || wrong in_save "does not name the command"
exit $bad
