#!/usr/bin/env bash
# torch_and_back.sh TRAIN SCRIPT: a checkpoint that went through PyTorch's format evaluates to the same digits.
. "$(dirname "$0")/../support/lib.sh"
train=$(realpath "$1") script=$(realpath "$2")
"$python" -c "import torch, h5py, numpy, xxhash" 2>/dev/null || skip "$python lacks torch, h5py, numpy or xxhash"
enter_folder

evaluation() { launch_alone "$train" --data shapes "$@" && top1; }
for model in resnet20 cifar10_cnn mlp; do # running statistics; a moving average; a layer behind a flattened image
  before=$(evaluation --model $model --batch 8 --steps 5 --eval-every 0 --checkpoint-dir $model)
  "$python" "$script" $model/step-0000000005.h5 there.pth && "$python" "$script" --from-torch there.pth --model $model back.h5 >log 2>&1 || wrong "$model: is not converted"
  after=$(evaluation --model $model --seed 2 --eval-only --init-from back.h5)
  check "$model: the same evaluation" is "$after" "$before"
done
printf '\xff\xff\xff\xff' | dd of=mlp/step-0000000005.h5 bs=1 seek=100000 conv=notrunc status=none
"$python" "$script" mlp/step-0000000005.h5 there.pth >log 2>&1
check "a damaged file is refused: exit code $?" test $? -ne 0
check "a damaged file: what is said" has "tensor 'weights/fc1.weight' fails its hash"
exit $bad
