#!/usr/bin/env bash
# shard_between_hosts.sh HOSTSxRANKS TRAIN: with --shard-optimizer hosts train, save and resume the same bits as without it.
. "$(dirname "$0")/../support/lib.sh"
layout=$1 train=$(realpath "$2")
enter_folder
make_hosts "${layout%x*}"

run() { # NAME STEPS OPTION...
  local name=$1 steps=$2
  shift 2
  limit=60 launch_on_hosts "${layout#*x}" "$train" --model resnet20 --data shapes --global-batch 15 --threads 1 --bucket-mb 0.2 --eval-every 0 \
    --lr-schedule constant --steps "$steps" --checkpoint-dir "$dir/$name" "$@" || give_up "$name failed"
}

run plain 7 --checkpoint-every 3
run shard 7 --checkpoint-every 3 --shard-optimizer
for step in 3 6 7; do
  check "step $step: the state of plain training" is "$(bits shard $step)" "$(bits plain $step)"
done
rm shard/step-000000000[67].h5
run shard 7 --shard-optimizer
check "resumed: the same bits" is "$(bits shard 7)" "$(bits plain 7)"
exit $bad
