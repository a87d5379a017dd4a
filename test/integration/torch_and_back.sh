#!/usr/bin/env bash
# torch_and_back.sh TRAIN SCRIPT: a checkpoint that went through PyTorch's format evaluates to the same digits.
set -u
train=$(realpath "$1") script=$(realpath "$2") bad=0 python=${RINGTRAIN_PYTHON:-python3}
"$python" -c "import torch, h5py, numpy, xxhash" 2>/dev/null || { echo "skipped: $python lacks torch, h5py, numpy or xxhash"; exit 77; }
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1

evaluation() { "$train" --data shapes "$@" 2>&1 | grep -o 'top-1 .*images)' | head -n 1; }
for model in resnet20 cifar10_cnn mlp; do # running statistics; a moving average; a layer behind a flattened image
  before=$(evaluation --model $model --batch 8 --steps 5 --eval-every 0 --checkpoint-dir $model)
  "$python" "$script" $model/step-0000000005.h5 there.pth && "$python" "$script" --from-torch there.pth --model $model back.h5 || bad=1
  after=$(evaluation --model $model --seed 2 --eval-only --init-from back.h5)
  [ -n "$before" ] && [ "$before" = "$after" ] && continue
  echo "wrong: $model: $before before, $after after"
  bad=1
done
printf '\xff\xff\xff\xff' | dd of=mlp/step-0000000005.h5 bs=1 seek=100000 conv=notrunc status=none
said=$("$python" "$script" mlp/step-0000000005.h5 there.pth 2>&1) && { echo "wrong: a damaged file was taken" && bad=1; }
grep -q "tensor 'weights/fc1.weight' fails its hash" <<<"$said" || { echo "wrong: of a damaged file was said: $said" && bad=1; }
exit $bad
