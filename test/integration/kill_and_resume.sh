#!/usr/bin/env bash
# kill_and_resume.sh MPIRUN TRAIN TRIALS [SEED]: kills a rank, the checkpoint writer or mpirun at a random moment, resumes
# until training is done, and compares the final checkpoint with an undisturbed run's.
set -u
mpirun=$1 train=$2 trials=$3 RANDOM=${4:-1} bad=0 struck=0 resumed=0
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT

# Starts a job in the background; its mpirun is $mpi.
start() {
  "$mpirun" --timeout 100 -np 2 --oversubscribe "$train" --model resnet20 --data shapes --global-batch 8 --steps 100 --ema 0.99 --eval-every 0 \
    --checkpoint-every 5 --checkpoint-dir "$1" >>"$1.log" 2>&1 &
  mpi=$!
}
final() { "$train" --inspect "$1/step-0000000100.h5" | tail -n 1; }

# The process of our own job that is to be killed; nothing once it has ended.
victim() {
  local ranks
  mapfile -t ranks < <(pgrep -P "$mpi" -x train)
  case $1 in
    rank0) echo "${ranks[0]:-}" ;;
    rank1) echo "${ranks[1]:-}" ;;
    writer) [ -n "${ranks[0]:-}" ] && pgrep -P "${ranks[0]}" -x ringtrain-write ;;
    mpirun) echo "$mpi" ;;
  esac
}

before=$(date +%s%N)
start "$dir/calm"
wait $mpi || { echo "undisturbed run failed:"; cat "$dir/calm.log"; exit 1; }
took_ms=$((($(date +%s%N) - before) / 1000000))
expected=$(final "$dir/calm")
targets=(rank0 rank1 writer mpirun)

for ((trial = 0; trial < trials; trial++)); do
  run=$dir/trial$trial target=${targets[trial % 4]}
  for ((early = 0; early < 10; early++)); do
    wait_ms=$((RANDOM * took_ms / 32768))
    start "$run"
    sleep "$((wait_ms / 1000)).$(printf %03d $((wait_ms % 1000)))"
    pid=$(victim "$target")
    [ -n "$pid" ] && kill -9 "$pid"
    wait $mpi || { struck=$((struck + 1)); break; }
    [ "$target" = writer ] && grep -q writer_replaced "$run.log" && break  # which ends no run
    took_ms=$((took_ms * 9 / 10))  # it was over before: machines change their speed
    rm -rf "$run" "$run.log"
  done
  for ((try = 0; try < 30; try++)); do
    start "$run"
    wait $mpi
    code=$?
    [ $code -eq 73 ] || [ $code -eq 75 ] || break
    sleep 0.5  # orphans of a killed mpirun still hold the directory
  done
  got=$(final "$run")
  resumed=$((resumed + $(grep -c "^resumed from" "$run.log")))
  if [ $code -ne 0 ] || [ "$got" != "$expected" ]; then
    echo "trial $trial, $target killed after $wait_ms ms: exit code $code, '$got', not '$expected'"
    tail -n 20 "$run.log"
    bad=1
  fi
  rm -rf "$run" "$run.log"
done 2>/dev/null
echo "$trials trials, killing rank 0, rank 1, writer and mpirun in turn within $took_ms ms; $struck runs ended by it, $resumed resumed;" \
  "$([ $bad -eq 0 ] && echo all || echo not all) came to $expected"
[ $resumed -gt 0 ] || { echo "nothing ever resumed: the test tests nothing"; bad=1; }
[ $struck -gt 0 ] || { echo "nothing was ever killed: the test tests nothing"; bad=1; }
exit $bad
