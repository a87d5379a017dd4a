#!/usr/bin/env bash
# terminated.sh MPIRUN TRAIN ROUNDS [SEED]: SIGTERM, SIGINT, two of them within a second, and SIGKILL to mpirun at random moments, with
# Open MPI's defaults: its ranks are gone half a second or a second later. Whatever a step takes, the last finished one is durable, with the bits of an undisturbed run.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2") rounds=$3 RANDOM=${4:-1}
enter_folder
limit=300

# start FOLDER LOG OPTION...: the kind's job
start() {
  local folder=$1 log=$2
  shift 2
  # shellcheck disable=SC2086
  begin 2 "$train" --model resnet20 --data shapes --threads 1 --eval-every 0 --log-every 1 \
    --lr-schedule constant --warmup-epochs 0 --keep 1000 $options --checkpoint-dir "$folder" "$@"
}
one_of() { local code=$1 wanted; shift; for wanted in "$@"; do [ "$code" = "$wanted" ] && return; done; return 1; }
# By the metrics: mpirun 5.0 may drop what ranks print once it ends them.
last_told() { sed -n 's/^{"kind":"step","step":\([0-9]*\),.*/\1/p' metrics | tail -n 1; }
ended_by_itself() { grep -q '^{"kind":"end"' metrics; }

measure() { # the run that nobody ends, and its median step
  start undisturbed whole.log --steps "$steps" --checkpoint-every 1
  wait $mpi
  step_s=$(sed -n 's/.*; \([0-9.]*\) sec\/batch.*/\1/p' whole.log | sort -n | sed -n "$(((steps + 1) / 2))p")
  [ -n "$step_s" ] || log=whole.log give_up "a run that nobody ends has no steps"
}

undisturbed_bits() { # STEP, also where its save was skipped, because the one before was not done
  if [ ! -f "$(file_of undisturbed "$1")" ]; then
    start exact exact.log --steps "$1" --checkpoint-every 1h
    wait $mpi
    mv "$(file_of exact "$1")" undisturbed/ && rm -rf exact
  fi
  bits undisturbed "$1"
}

killed=0 number=0
for kind in "80 --batch 12" "12 --batch 16 --accumulate 8" "5 --batch 16 --accumulate 40 --ema 0.9 --optimizer adamw" "3 --batch 16 --accumulate 120"; do
  steps=${kind%% *} options=${kind#* }
  measure
  if ((steps == 3)); then  # steps that last longer than the 2 s that a signal takes, on any CPU
    for ((try = 1; try <= 4 && ${step_s%.*} < 3; try++)); do
      options="--batch 16 --accumulate $((2 * ${options##* }))"
      rm -rf undisturbed
      measure
    done
  fi
  for ((round = 1; round <= rounds; round++)); do
    rm -f log metrics
    start ended log --steps 1000 --checkpoint-every 1h --metrics metrics
    wait_for 60 has 'step 1, loss'
    at=$RANDOM  # not in $(...), where it would have other numbers each time
    sleep "$(python3 -c "print(max(1.2 * $step_s, $step_s * ($steps - 1) - 3) * $at / 32768)")"  # the signal takes up to 2 s
    kinds=("INT INT" TERM KILL INT)
    read -r signal again <<<"${kinds[number++ % 4]}"
    kill -$signal $mpi 2>/dev/null
    [ -z "$again" ] || { sleep 0.3 && kill -$again $mpi 2>/dev/null; }
    ends
    python3 -c 'import fcntl; fcntl.lockf(open("ended/lock", "r+"), fcntl.LOCK_EX)'  # the writer is done
    told=$(last_told) file=$(newest ended) saved=
    [ -f "$file" ] && saved=$((10#$(basename "${file#*step-}" .h5)))
    what="$options, SIG$signal $again after step $told"
    if ended_by_itself; then how="ended by itself"; else how="was killed" killed=$((killed + 1)); fi
    echo "steps of $step_s s: $signal $again to mpirun, which returned $code; the job $how; step $told was told, $saved is durable"
    check "$what: the exit code" one_of $code 1 137 143 130 139
    check "$what: a checkpoint is durable" test -n "$saved"
    check "$what: it is of the last step" test "${saved:-0}" -ge "$told"
    check "$what: the same bits" is "$(bits ended)" "$(undisturbed_bits "$saved")"
    # a rank that is killed after its own last save leaves nothing for its writer to tell
    ended_by_itself || grep -q "\"kind\":\"checkpoint\".*$(basename "$file")" metrics ||
      check "$what: last-save.txt" grep -q "^file: $(basename "$file")\$" ended/last-save.txt
    start ended more.log --steps "$steps" --checkpoint-every 1h
    wait $mpi
    check "$what: resumed, it ends with the same bits" is "$(bits ended)" "$(bits undisturbed)"
    rm -rf ended
  done
  rm -rf undisturbed
done
check "steps are long enough for a kill amid one" test "$killed" -ge "$rounds"
exit $bad
