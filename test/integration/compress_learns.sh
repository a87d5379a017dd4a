#!/usr/bin/env bash
# compress_learns.sh TRAIN: resnet20 on two hosts with two ranks each learns with compressed gradients what it learns with exact ones.
# It would without error feedback, too, on these images: what that does is seen by test/unit/allreduce/compression/compressor_test.cpp.
. "$(dirname "$0")/../support/lib.sh"
train=$(realpath "$1")
enter_folder
make_hosts 2

at_least() { [ -n "$1" ] && awk -v a="$1" -v b="$2" 'BEGIN { exit !(a >= b) }'; }
for how in none powersgd:4 topk:0.05; do
  limit=300 launch_on_hosts 2 "$train" --model resnet20 --data shapes --batch 16 --threads 1 --log-every 50 --steps 400 --tuning off \
    --compress $how || give_up "$how failed"
  top1=$(sed -n 's/.*step 400, evaluation: top-1 \([0-9.]*\) %.*/\1/p' log)
  echo "$how: top-1 $top1 %"
  check "$how: it has learnt" at_least "$top1" 95
done
exit $bad
