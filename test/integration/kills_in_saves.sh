#!/usr/bin/env bash
# kills_in_saves.sh MPIRUN TRAIN TRIALS [SEED]: a run that saves at every step; kills a rank, rank 0, the checkpoint writer or
# mpirun at a random moment. Afterwards every checkpoint verifies, the one announced last is there, or as many later ones as are kept: the
# writer finishes what was handed over. The resumed run ends with the undisturbed one's bits.
set -u
mpirun=$1 train=$2 trials=$3 RANDOM=${4:-1} bad=0 in_save=0 struck=0 files=0 announced=0
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
steps=100

start() { # DIRECTORY; its mpirun is $mpi
  "$mpirun" --timeout 100 -np 2 --oversubscribe "$train" --model mlp --data shapes --global-batch 64 --steps $steps --eval-every 0 \
    --log-every 1000 --checkpoint-every 1 --checkpoint-dir "$1" --metrics "$1.jsonl" >>"$1.log" 2>&1 </dev/null &
  mpi=$!
}
final() { "$train" --inspect "$1/step-$(printf %010d $steps).h5" | tail -n 1; }
saves() { grep -s '"kind":"checkpoint"' "$1.jsonl"; }
wrong() { echo "trial $trial, $target killed $wait_ms ms after the first save: $*"; tail -n 5 "$run.log"; bad=1; }

# Of the job under way: rank 0, rank 1, the checkpoint writer.
processes() {
  local ranks
  mapfile -t ranks < <(pgrep -P "$mpi" -x train)
  echo "${ranks[0]:-}" "${ranks[1]:-}" "$([ -n "${ranks[0]:-}" ] && pgrep -P "${ranks[0]}" -x ringtrain-write)"
}

start "$dir/calm"
until saves "$dir/calm" >/dev/null || ! kill -0 $mpi 2>/dev/null; do sleep 0.01; done
before=$(date +%s%N)
wait $mpi || { echo "undisturbed run failed:"; cat "$dir/calm.log"; exit 1; }
took_ms=$((($(date +%s%N) - before) / 1000000 * 2 / 3))  # at the end, leaving MPI takes time
expected=$(final "$dir/calm")
targets=(rank0 writer rank1 writer rank0 mpirun)

for ((trial = 0; trial < trials; trial++)); do
  run=$dir/trial$trial target=${targets[trial % 6]} wait_ms=$((RANDOM * took_ms / 32768))
  start "$run"
  until saves "$run" >/dev/null || ! kill -0 $mpi 2>/dev/null; do sleep 0.01; done
  sleep "$((wait_ms / 1000)).$(printf %03d $((wait_ms % 1000)))"
  read -r rank0 rank1 writer < <(processes)
  pid=$rank0
  case $target in rank1) pid=$rank1 ;; writer) pid=$writer ;; mpirun) pid=$mpi ;; esac
  for ((i = 0; i < 1000; i++)); do compgen -G "$run/.step-*.tmp" >/dev/null && in_save=$((in_save + 1)) && break; done
  [ -n "$pid" ] && kill -9 "$pid"
  wait $mpi || struck=$((struck + 1))
  # the ranks of a killed mpirun find that out by themselves
  for ((i = 0; i < 100; i++)); do kill -0 $rank0 || kill -0 $rank1 || kill -0 $writer && sleep 0.1 || break; done

  for file in "$run"/step-*.h5; do
    "$train" --inspect "$file" >/dev/null 2>>"$run.log" || wrong "$file is damaged"
    files=$((files + 1))
  done
  last=$(saves "$run" | tail -n 1 | grep -o 'step-[0-9]*\.h5')
  newer=0
  for file in "$run"/step-*.h5; do [[ ${file##*/} > $last ]] && newer=$((newer + 1)); done
  { [ -s "$run/$last" ] || [ $newer -ge 3 ]; } && announced=$((announced + 1)) || wrong "$last was announced and is not there"
  for ((try = 0; try < 30; try++)); do
    start "$run"
    wait $mpi
    code=$?
    [ $code -eq 73 ] || break
    sleep 0.3
  done
  grep -q "not used: " "$run.log" && wrong "a partial checkpoint was found"
  got=$(final "$run")
  [ $code -eq 0 ] && [ "$got" = "$expected" ] || wrong "exit code $code, '$got', not '$expected'"
  rm -rf "$run" "$run.log" "$run.jsonl"
done 2>/dev/null
echo "$trials kills, $in_save with a save under way, $struck ended the run at once; $files checkpoints left, all of them verified;" \
  "$announced of $trials announced last, or three later ones, were there; $([ $bad -eq 0 ] && echo all || echo not all) resumed to $expected"
[ $in_save -gt 0 ] || { echo "no save was ever hit: the test tests nothing"; bad=1; }
exit $bad
