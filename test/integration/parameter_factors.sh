#!/usr/bin/env bash
# parameter_factors.sh MPIRUN TRAIN: with factors of rate and decay by name ranks that share the optimizer train the same bits, and a
# resume takes the factors from the checkpoint.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2")
enter_folder

training=(--model mlp --data shapes --global-batch 12 --threads 1 --eval-every 0 --optimizer adamw --lr 0.001 --weight-decay 0.1
  --lr-schedule constant --bucket-mb 0.2 --ema 0.9)
factors=(--lr-factor "fc1.*=0.5" --decay-factor "fc2.*=3" --head-lr 0.01 --layer-decay 0.7)
job() { # NAME RANKS STEPS OPTION...: into folder NAME, or on with what is there
  launch "$2" "$train" "${training[@]}" --steps "$3" --checkpoint-dir "$1" "${@:4}"
  exits "$*" 0
}
goes_on() { # NAME RANKS OPTION...: from the checkpoint of step 4
  mkdir "$1" && cp "$(file_of straight 4)" "$1"
  job "$1" "$2" 8 "${@:3}"
}

job plain 2 8
job straight 2 8 --checkpoint-every 4 "${factors[@]}"
check "rates are told" has "^rates: .* parameters learn at 0.245 to 10 times the rate$"
check "factors change the bits" differ "$(bits straight 8)" "$(bits plain 8)"
job shards 2 8 "${factors[@]}" --shard-optimizer
check "shards: the same bits" is "$(bits shards 8)" "$(bits straight 8)"

goes_on resumed 2
check "resumed: the checkpoint's factors are told" \
  has "^--lr-factor fc1\.\*=0\.5 --decay-factor fc2\.\*=3 --head-lr 0\.01 --layer-decay 0\.7, as in the checkpoint$"
check "resumed: nothing has changed" lacks "changed since that checkpoint"
check "resumed: the same bits" is "$(bits resumed 8)" "$(bits straight 8)"
goes_on given 2 "${factors[@]}" --shard-optimizer
check "resumed with shards: the same bits" is "$(bits given 8)" "$(bits straight 8)"
goes_on other 2 --layer-decay 0.9
check "another factor is told" has "^changed since that checkpoint: layer-decay: 0\.7 -> 0\.9$"
check "the others stay" has "^--lr-factor fc1\.\*=0\.5 --decay-factor fc2\.\*=3 --head-lr 0\.01, as in the checkpoint$"
check "another factor: other bits" differ "$(bits other 8)" "$(bits straight 8)"
exit $bad
