#!/usr/bin/env bash
# whole_runs.sh MPIRUN TRAIN COMPARE_CHECKPOINTS: how whole runs begin, are interrupted, judged and end, as a user sees it.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2") compare=$(realpath "$3")
enter_folder

job() { # RANKS ARGUMENTS...
  local ranks=$1
  shift
  launch "$ranks" "$train" --model mlp --data shapes --eval-every 0 "$@"
}

refused() { "$@"; [ $? -eq 1 ]; }

# A signal ends training after the current step, with a checkpoint to go on from.
for signal in TERM INT; do
  begin 2 "$train" --model mlp --data shapes --eval-every 0 --batch 8 --steps 1000000 --log-every 100 --checkpoint-dir "$signal"
  await 60 has "step 100,"
  kill "-$signal" $(ranks)
  number=$(kill -l $signal)
  wait $mpi
  exits "SIG$signal" $((128 + number))
  check "SIG$signal is named" has "signal $number .*the run ends after step"
  check "SIG$signal: the state is saved" test -n "$(ls "$signal"/step-*.h5)"
done

before=$(now_ms)
job 2 --batch 8 --steps 1000000 --max-time 4s --checkpoint-dir limited
exits "--max-time" 0
# T counts from the start of the processes; mpirun needs a while before and after, more on a busy machine.
check "--max-time: is over by then" test $(($(now_ms) - before)) -le 40000
check "--max-time is named" has "max-time is up: the run ends after step"
check "--max-time: the state is saved" test -n "$(ls limited/step-*.h5)"

# Retention leaves the checkpoint that training was resumed from, one that was named, too.
job 1 --global-batch 16 --steps 10 --checkpoint-every 5 --checkpoint-dir kept
job 1 --global-batch 16 --steps 40 --checkpoint-every 10 --keep 1 --checkpoint-dir kept --resume kept/step-0000000005.h5
exits "--keep 1" 0
check "--keep 1: what is left" is "$(ls kept | tr '\n' ' ')" "lock step-0000000005.h5 step-0000000040.h5 "

# A run in two parts, the second on more ranks with the same global batch, goes on where the first ended.
job 1 --global-batch 16 --steps 10 --checkpoint-dir parts
job 4 --global-batch 16 --steps 20 --checkpoint-dir parts
exits "other ranks" 0
check "other ranks are told" has "saved by 1 rank, going on with 4"
check "other ranks: position" is "$("$train" --inspect parts/step-0000000020.h5 | grep '^position' | tr -s ' ')" "position 320"

# The same evaluation, in training and of its checkpoint, on any number of ranks.
job 2 --batch 32 --steps 40 --checkpoint-dir judged
said=$(top1)
for ranks in 1 3; do
  job $ranks --eval-only --checkpoint-dir judged
  exits "--eval-only on $ranks ranks" 0
  check "--eval-only on $ranks ranks" is "$(top1)" "$said"
done

# A step that is not finite ends the job (wrong_commands.sh) or is left out on all ranks.
job 2 --batch 8 --steps 40 --lr 1e6 --optimizer sgd --warmup-epochs 0 --lr-schedule constant --on-nan skip
exits "--on-nan skip" 0
check "--on-nan skip tells each step" has "not finite in step [0-9]+ .*left out"

# Accumulated batches are one batch: of other batches come other weights. In another order, sums are rounded otherwise.
job 1 --global-batch 32 --steps 5 --checkpoint-dir whole
job 1 --global-batch 8 --steps 5 --checkpoint-dir part
job 1 --global-batch 32 --accumulate 4 --steps 5 --checkpoint-dir split
exits "--accumulate" 0
last=step-0000000005.h5
check "--accumulate: the weights of one batch" "$compare" whole/$last split/$last 1e-5
check "--accumulate: which those of a part of it are not" refused "$compare" whole/$last part/$last 1e-5
check "--accumulate: summed in parts" differ "$(bits whole)" "$(bits split)"
check "--accumulate: position" is "$("$train" --inspect split/step-0000000005.h5 | grep '^position' | tr -s ' ')" "position 160"
exit $bad
