#!/usr/bin/env bash
# mobile_network.sh MPIRUN TRAIN MODEL: a network of depthwise convolutions on two ranks with what a large run has: BatchNorm over all
# ranks, accumulation, moving averages, a sharded optimizer. Killed and resumed it comes to the same bits; its evaluation runs, too.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2") model=$3
enter_folder
"$train" --model "$model" --print-model | sed 's/^input size=[0-9]*/input size=64/' >small.model

limit=300
options=(--model-file small.model --classes 10 --data synthetic --batch 3 --accumulate 2 --sync-batchnorm --ema 0.99 --threads 1
  --eval-every 0 --lr 0.01 --lr-schedule constant --warmup-epochs 0)

begin 2 "$train" "${options[@]}" --shard-optimizer --steps 1000 --checkpoint-dir shard --checkpoint-every 1
await 100 test -f shard/step-0000000003.h5
last_writer=$(writer)
kill -9 "$(rank 1)"
ends
check "killed: exit code $code" test $code -ne 0
await 60 ended "$last_writer"
killed=$(basename "$(newest shard)" .h5) last=$((10#${killed#step-} + 3))
launch 2 "$train" "${options[@]}" --shard-optimizer --steps $last --checkpoint-dir shard
exits "resumed" 0
check "resumed: from the newest" has "resumed from $killed.h5 at step"
launch 2 "$train" "${options[@]}" --steps $last --checkpoint-dir plain
exits "undisturbed, without shards" 0
check "the same bits" is "$(bits shard $last)" "$(bits plain $last)"

launch 2 "$train" --eval-only --init-from "$(file_of plain $last)" --data synthetic --batch 3 --threads 1
exits "evaluated" 0
check "evaluated: it tells of top-1" has "top-1"
exit $bad
