#!/usr/bin/env bash
# shard_between_hosts.sh HOSTSxRANKS TRAIN: with --shard-optimizer hosts train, save and resume the same bits as without it.
set -u
layout=$1 train=$(realpath "$2")
. "$(dirname "$0")/checks.sh"
. "$(dirname "$(readlink -f "$0")")/../support/hosts/borrow.sh"
"$hosts" up "${layout%x*}" || exit 1
cd "$HOSTS_RUN" || exit 1

run() { # NAME STEPS OPTION...
  local name=$1 steps=$2
  shift 2
  timeout 60 "$hosts" mpirun "${layout#*x}" "$train" --model resnet20 --data shapes --global-batch 15 --threads 1 --bucket-mb 0.2 --eval-every 0 \
    --lr-schedule constant --steps "$steps" --checkpoint-dir "$HOSTS_RUN/$name" "$@" >log 2>&1 || { echo "$name failed:"; cat log; exit 1; }
}
state() { "$train" --inspect "$HOSTS_RUN/$1/step-$(printf %010d "$2").h5" | tail -n 1; }

run plain 7 --checkpoint-every 3
run shard 7 --checkpoint-every 3 --shard-optimizer
for step in 3 6 7; do
  check "step $step: the state of plain training" is "$(state shard $step)" "$(state plain $step)"
done
rm shard/step-000000000[67].h5
run shard 7 --shard-optimizer
check "resumed: the same bits" is "$(state shard 7)" "$(state plain 7)"
exit $bad
