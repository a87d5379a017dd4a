#!/usr/bin/env bash
# wire_between_hosts.sh TRAIN PRECISION: gradients that travel between hosts in 16 bits: they are rounded, the run repeats and
# goes on to the bit, and learns as in fp32. PRECISION is that of the activations.
. "$(dirname "$0")/../support/lib.sh"
train=$(realpath "$1") precision=$2
[ "$precision" != bf16 ] || need_bf16
enter_folder
make_hosts 2

run() { # NAME STEPS OPTION...
  local name=$1 steps=$2
  shift 2
  launch_on_hosts 1 "$train" --model resnet20 --precision "$precision" --data shapes --global-batch 15 --threads 1 --bucket-mb 0.2 --eval-every 0 \
    --log-every 1 --steps "$steps" --checkpoint-dir "$dir/$name" "$@" || give_up "$name failed"
}

run fp32 12
exact=$(loss 12)
for dtype in bf16 fp16; do
  run $dtype 12 --gradient-dtype $dtype
  check "$dtype: the loss is fp32's" near "$exact" "$(loss 12)" 0.1
  check "$dtype: gradients are rounded" differ "$(bits $dtype)" "$(bits fp32)"
done
run parts 7 --gradient-dtype bf16
run parts 12 --gradient-dtype bf16
check "in two parts: the same bits" is "$(bits parts 12)" "$(bits bf16 12)"
launch_alone "$train" --model mlp --data shapes --steps 1 --eval-every 0 --gradient-dtype bf16
check "on one host: what it is for is told" has "gradient-dtype bf16 changes nothing"
exit $bad
