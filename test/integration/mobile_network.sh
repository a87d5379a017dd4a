#!/usr/bin/env bash
# mobile_network.sh MPIRUN TRAIN MODEL: a network of depthwise convolutions on two ranks with what a large run has: BatchNorm over all
# ranks, accumulation, moving averages, a sharded optimizer. Killed and resumed it comes to the same bits; its evaluation runs, too.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2") model=$3
enter_folder
"$train" --model "$model" --print-model | sed 's/^input size=[0-9]*/input size=64/' >small.model

run() { # OPTION...
  limit=300 launch 2 "$train" --model-file small.model --classes 10 --data synthetic --batch 3 --accumulate 2 --sync-batchnorm \
    --ema 0.99 --threads 1 --eval-every 0 --lr 0.01 --lr-schedule constant --warmup-epochs 0 "$@"
}

run --steps 4 --checkpoint-dir plain
exits "without shards" 0
run --shard-optimizer --steps 2 --checkpoint-dir shard --checkpoint-every 1
exits "shards" 0
check "shards: two checkpoints" test -f shard/step-0000000001.h5 -a -f shard/step-0000000002.h5
rm shard/step-0000000002.h5
run --shard-optimizer --steps 4 --checkpoint-dir shard
exits "resumed" 0
check "resumed: at step 2" has "resum.* step 1"
check "the same bits" is "$(bits shard 4)" "$(bits plain 4)"

limit=300 launch 2 "$train" --eval-only --init-from plain/step-0000000004.h5 --data synthetic --batch 3 --threads 1
exits "evaluated" 0
check "evaluated: it tells of top-1" has "top-1"
exit $bad
