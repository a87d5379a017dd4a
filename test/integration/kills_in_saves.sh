#!/usr/bin/env bash
# kills_in_saves.sh MPIRUN TRAIN TRIALS [SEED]: a run that saves at every step; kills a rank, rank 0, the checkpoint writer or
# mpirun at a random moment. Afterwards every checkpoint verifies, the one announced last is there, or as many later ones as are kept: the
# writer finishes what was handed over. The resumed run ends with the undisturbed one's bits.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2") trials=$3 RANDOM=${4:-1} in_save=0 struck=0 files=0 announced=0
enter_folder
steps=100

start() { # FOLDER, whose log is FOLDER.log
  log=$1.log
  resume_begin 2 "$train" --model mlp --data shapes --global-batch 64 --steps $steps --eval-every 0 --log-every 1000 --checkpoint-every 1 \
    --checkpoint-dir "$1" --metrics "$1.jsonl"
}
saves() { grep -s '"kind":"checkpoint"' "$1.jsonl"; }
no_good() { wrong "trial $trial, $target killed $wait_ms ms after the first save: $*" 5; }

start calm
until saves calm >/dev/null || ! alive $mpi; do sleep 0.01; done
before=$(now_ms)
wait $mpi || give_up "the undisturbed run failed"
took_ms=$((($(now_ms) - before) * 2 / 3))  # at the end, leaving MPI takes time
expected=$(bits calm $steps)
targets=(rank0 writer rank1 writer rank0 mpirun)

for ((trial = 0; trial < trials; trial++)); do
  run=trial$trial target=${targets[trial % 6]} wait_ms=$((RANDOM * took_ms / 32768))
  start "$run"
  until saves "$run" >/dev/null || ! alive $mpi; do sleep 0.01; done
  sleep "$((wait_ms / 1000)).$(printf %03d $((wait_ms % 1000)))"
  rank0=$(rank 0) rank1=$(rank 1) writer=$(writer)
  pid=$rank0
  case $target in rank1) pid=$rank1 ;; writer) pid=$writer ;; mpirun) pid=$mpi ;; esac
  for ((i = 0; i < 1000; i++)); do compgen -G "$run/.step-*.tmp" >/dev/null && in_save=$((in_save + 1)) && break; done
  [ -n "$pid" ] && kill -9 "$pid"
  wait $mpi || struck=$((struck + 1))
  # the ranks of a killed mpirun find that out by themselves
  for pid in $rank0 $rank1 $writer; do wait_for 10 ended "$pid"; done

  for file in "$run"/step-*.h5; do
    "$train" --inspect "$file" >/dev/null 2>>"$run.log" || no_good "$file is damaged"
    files=$((files + 1))
  done
  last=$(saves "$run" | tail -n 1 | grep -o 'step-[0-9]*\.h5')
  newer=0
  for file in "$run"/step-*.h5; do [[ ${file##*/} > $last ]] && newer=$((newer + 1)); done
  { [ -s "$run/$last" ] || [ $newer -ge 3 ]; } && announced=$((announced + 1)) || no_good "$last was announced and is not there"
  for ((try = 0; try < 30; try++)); do
    start "$run"
    wait $mpi
    code=$?
    [ $code -eq 73 ] || break
    sleep 0.3
  done
  grep -q "not used: " "$run.log" && no_good "a partial checkpoint was found"
  got=$(bits "$run" $steps)
  [ $code -eq 0 ] && [ "$got" = "$expected" ] || no_good "exit code $code, '$got', not '$expected'"
  rm -rf "$run" "$run.log" "$run.jsonl"
done 2>/dev/null
echo "$trials kills, $in_save with a save under way, $struck ended the run at once; $files checkpoints left, all of them verified;" \
  "$announced of $trials announced last, or three later ones, were there; $([ $bad -eq 0 ] && echo all || echo not all) resumed to $expected"
log=calm.log
check "a save was hit, or the test tests nothing" test $in_save -gt 0
exit $bad
