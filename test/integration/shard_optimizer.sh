#!/usr/bin/env bash
# shard_optimizer.sh MPIRUN TRAIN: with --shard-optimizer the same bits are trained, saved, resumed and left out as without it,
# by any ranks.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2")
enter_folder

training=(--model cifar10_cnn --data shapes --global-batch 12 --threads 1 --eval-every 0
  --optimizer adam --lr 0.001 --lr-schedule constant --bucket-mb 0.2)
# job NAME RANKS STEPS OPTION...: into folder NAME, or on with what is there
run() {
  local name=$1 ranks=$2 steps=$3
  shift 3
  launch "$ranks" "$train" "${training[@]}" --steps "$steps" --checkpoint-dir "$name" "$@"
}
job() {
  run "$@"
  exits "$*" 0
}
shard=--shard-optimizer

job plain 3 10 --ema 0.9 --checkpoint-every 4 --check-every 3
job shard 3 10 --ema 0.9 --checkpoint-every 4 --check-every 3 $shard
for step in 4 8 10; do
  check "step $step: the state of plain training" is "$(bits shard $step)" "$(bits plain $step)"
done

check "files are the same, too" same_bytes {shard,plain}/step-0000000010.h5

# goes_on FROM NAME RANKS OPTION...: from FROM's checkpoint of step 4
goes_on() {
  mkdir "$2" && cp "$1/step-0000000004.h5" "$2"
  job "$2" "$3" 10 --ema 0.9 "${@:4}"
}
goes_on shard shard_plain 3
check "plain training goes on with it" is "$(bits shard_plain 10)" "$(bits plain 10)"
goes_on plain plain_shard 3 $shard
check "it goes on with plain training's" is "$(bits plain_shard 10)" "$(bits plain 10)"
goes_on shard fewer 2
goes_on shard fewer_shard 2 $shard
check "other ranks go on with it" is "$(bits fewer_shard 10)" "$(bits fewer 10)"

# The first update is too large for the next loss.
job plain_nan 2 4 --optimizer momentum --lr 1e6 --on-nan skip
check "steps are left out" has "not_finite|left out"
job shard_nan 2 4 --optimizer momentum --lr 1e6 --on-nan skip $shard
check "the same steps are left out" is "$(bits shard_nan 4)" "$(bits plain_nan 4)"
run stop 2 4 --optimizer momentum --lr 1e6 $shard
exits "a loss that is not finite ends it" 76

job proof 2 1000 --verify-resume 6 $shard
check "a resume comes to the same bits" has "verify-resume: passed"
begin 2 "$train" "${training[@]}" --steps 60 --checkpoint-dir killed --checkpoint-every 10 $shard
await 90 has_checkpoint killed
kill -9 "$(rank 1)"
ends
check "a killed rank ends the job: exit code $code" test $code -ne 0
job killed 2 60 --checkpoint-every 1000 $shard
check "which is resumed" has "resumed from step-"
job calm 2 60 --checkpoint-every 1000
check "a killed job comes to the same bits" is "$(bits killed 60)" "$(bits calm 60)"
exit $bad
