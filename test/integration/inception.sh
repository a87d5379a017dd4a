#!/usr/bin/env bash
# inception.sh MPIRUN TRAIN PHOTOGRAPHS: Inception v3 on two ranks with what a large run has: BatchNorm over all ranks, accumulation, moving averages,
# a sharded optimizer, a checkpoint at every step. It resumes to the same bits, which are those without shards.
set -u
mpirun=$1 train=$(realpath "$2") photographs=$(realpath "$3")
. "$(dirname "$0")/checks.sh"
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1

run() { # OPTION...
  timeout 300 "$mpirun" -np 2 --oversubscribe "$train" --model inception_v3 --data "images:$photographs" --batch 1 --accumulate 2 --sync-batchnorm \
    --ema 0.999 --threads 1 --eval-every 0 --lr-schedule constant --warmup-epochs 0 "$@" >log 2>&1 </dev/null
}
state() { "$train" --inspect "$1" | sed -n 's/^state-hash //p'; }

run --shard-optimizer --verify-resume 2
check "--verify-resume: exit code" is $? 0
check "--verify-resume: passed" has "^verify-resume: passed: .* on 2 ranks"

run --shard-optimizer --steps 2 --checkpoint-dir shard --checkpoint-every 1
check "shards: exit code" is $? 0
check "shards: two checkpoints" test -f shard/step-0000000001.h5 -a -f shard/step-0000000002.h5
run --steps 2 --checkpoint-dir plain
check "without shards: exit code" is $? 0
check "the same bits" is "$(state shard/step-0000000002.h5)" "$(state plain/step-0000000002.h5)"

rm shard/step-0000000002.h5
run --shard-optimizer --steps 2 --checkpoint-dir shard
check "resumed: exit code" is $? 0
check "resumed: at step 1" has "resum.* step 1"
check "resumed: the same bits" is "$(state shard/step-0000000002.h5)" "$(state plain/step-0000000002.h5)"
exit $bad
