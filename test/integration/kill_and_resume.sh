#!/usr/bin/env bash
# kill_and_resume.sh MPIRUN TRAIN TRIALS [SEED]: kills a rank, the checkpoint writer or mpirun at a random moment, resumes
# until training is done, and compares the final checkpoint with an undisturbed run's.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2") trials=$3 RANDOM=${4:-1} struck=0 resumed=0
enter_folder

start() { # FOLDER, whose log is FOLDER.log
  log=$1.log
  resume_begin 2 "$train" --model resnet20 --data shapes --global-batch 8 --steps 100 --ema 0.99 --eval-every 0 --checkpoint-every 5 --checkpoint-dir "$1"
}
# The process of our own job that is to be killed; nothing once it has ended.
victim() {
  case $1 in
    rank0) rank 0 ;;
    rank1) rank 1 ;;
    writer) writer ;;
    mpirun) echo "$mpi" ;;
  esac
}

before=$(now_ms)
start calm
wait $mpi || give_up "the undisturbed run failed"
took_ms=$(($(now_ms) - before))
expected=$(bits calm 100)
targets=(rank0 rank1 writer mpirun)

for ((trial = 0; trial < trials; trial++)); do
  run=trial$trial target=${targets[trial % 4]}
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
  got=$(bits "$run" 100)
  resumed=$((resumed + $(grep -c "^resumed from" "$run.log")))
  if [ $code -ne 0 ] || [ "$got" != "$expected" ]; then
    wrong "trial $trial, $target killed after $wait_ms ms: exit code $code, '$got', not '$expected'"
  fi
  rm -rf "$run" "$run.log"
done 2>/dev/null
echo "$trials trials, killing rank 0, rank 1, writer and mpirun in turn within $took_ms ms; $struck runs ended by it, $resumed resumed;" \
  "$([ $bad -eq 0 ] && echo all || echo not all) came to $expected"
log=calm.log
check "something resumed, or the test tests nothing" test $resumed -gt 0
check "something was killed, or the test tests nothing" test $struck -gt 0
exit $bad
