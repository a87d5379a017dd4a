#!/usr/bin/env bash
# inception.sh MPIRUN TRAIN PHOTOGRAPHS: Inception v3 on two ranks with what a large run has: BatchNorm over all ranks, accumulation, moving averages,
# a sharded optimizer, a checkpoint at every step. It resumes to the same bits, which are those without shards.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2") photographs=$(realpath "$3")
enter_folder

run() { # OPTION...
  limit=300 launch 2 "$train" --model inception_v3 --data "images:$photographs" --batch 1 --accumulate 2 --sync-batchnorm \
    --ema 0.999 --threads 1 --eval-every 0 --lr-schedule constant --warmup-epochs 0 "$@"
}

run --shard-optimizer --verify-resume 2
exits "--verify-resume" 0
check "--verify-resume: passed" has "^verify-resume: passed: .* on 2 ranks"

run --shard-optimizer --steps 2 --checkpoint-dir shard --checkpoint-every 1
exits "shards" 0
check "shards: two checkpoints" test -f shard/step-0000000001.h5 -a -f shard/step-0000000002.h5
run --steps 2 --checkpoint-dir plain
exits "without shards" 0
check "the same bits" is "$(bits shard 2)" "$(bits plain 2)"

rm shard/step-0000000002.h5
run --shard-optimizer --steps 2 --checkpoint-dir shard
exits "resumed" 0
check "resumed: at step 1" has "resum.* step 1"
check "resumed: the same bits" is "$(bits shard 2)" "$(bits plain 2)"
exit $bad
