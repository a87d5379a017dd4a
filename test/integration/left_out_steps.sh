#!/usr/bin/env bash
# left_out_steps.sh MPIRUN TRAIN WATCHED_TRAIN: adam's bias corrections and the moving average's warm-up do not count a step that
# --on-nan skip left out, and a resume goes on with the right count: by the same ranks, by others, with and without shards.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2") watched=$(realpath "$3")
enter_folder

# job NAME RANKS STEPS OPTION...: into folder NAME, or on with what is there
job() {
  local name=$1 ranks=$2 steps=$3
  shift 3
  launch "$ranks" "$watched" --model cifar10_cnn --data shapes --global-batch 12 --threads 1 --eval-every 0 \
    --optimizer adam --lr 0.001 --lr-schedule constant --bucket-mb 0.2 --ema 0.99 --steps "$steps" --checkpoint-dir "$name" "$@"
  exits "$name" 0
}
counts() { "$train" --inspect "$(file_of "$1" "$2")" >log 2>&1; has "optimizer/skipped"; }
goes_on() { # FROM NAME RANKS OPTION...: from FROM's checkpoint of step 4
  mkdir "$2" && cp "$(file_of "$1" 4)" "$2"
  job "$2" "$3" 8 "${@:4}"
}

export FAULT="nan 2 weights/softmax_linear.bias"
job straight 2 8 --on-nan skip --checkpoint-every 4
check "the step is left out, which one rank tells" is "$(grep -c "not finite in step 2 .*left out" log)" 1
check "checkpoints count it" counts straight 4
job shards 2 8 --on-nan skip --checkpoint-every 4 --shard-optimizer
check "shards: the same state" is "$(bits shards 8)" "$(bits straight 8)"
unset FAULT

goes_on straight resumed 2 --on-nan skip
check "a resume comes to the same bits" is "$(bits resumed 8)" "$(bits straight 8)"
goes_on straight stopping 2
check "--on-nan stop keeps the count" counts stopping 8
check "--on-nan stop: the same bits" is "$(bits stopping 8)" "$(bits straight 8)"
goes_on straight resumed_shards 2 --on-nan skip --shard-optimizer
check "shards go on to the same bits" is "$(bits resumed_shards 8)" "$(bits straight 8)"
goes_on straight fewer 1 --on-nan skip
goes_on shards fewer_shards 1
check "other ranks go on with the same count" is "$(bits fewer 8)" "$(bits fewer_shards 8)"
FAULT="forget optimizer/skipped" goes_on straight forgotten 2 --on-nan skip
check "the count matters" differ "$(bits forgotten 8)" "$(bits straight 8)"

# A state that is not finite is never saved: the first save that is refused ends the job, on all ranks.
for how in stop skip; do
  FAULT="inf 3 optimizer/adam_v/softmax_linear.bias" launch 2 "$watched" --model cifar10_cnn --data shapes --global-batch 12 --threads 1 \
    --eval-every 0 --optimizer adam --steps 100000 --checkpoint-every 2 --checkpoint-dir "refused_$how" --on-nan $how
  exits "a save is refused, $how" 76
  check "$how: the tensor is named, and the step, once" is "$(grep -cE "step [0-9]+ may not be saved.*step 4 .*adam_v/softmax_linear.bias" log)" 1
  check "$how: so is the fault" is "$(grep -c "fault: kind=nan code=76" log)" 1
  check "$how: the last good one stays" is "$(basename "$(newest "refused_$how")")" step-0000000002.h5
done

# Who leaves nothing out has the file of a training that cannot.
job skipless 2 4
job careful 2 4 --on-nan skip
check "no count where no step can be left out" test "$(counts skipless 4 && echo there)" = ""
goes_on skipless on 2
check "nor after a resume" test "$(counts on 8 && echo there)" = ""
exit $bad
