#!/usr/bin/env bash
# init_from.sh MPIRUN TRAIN COMPARE: runs that start from another's weights, as a user sees them.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2") compare=$(realpath "$3")
enter_folder

job() { # RANKS ARGUMENTS...
  local ranks=$1
  shift
  launch "$ranks" "$train" --data shapes --eval-every 0 "$@"
}

# resnet20 has running statistics, cifar10_cnn a moving average.
for model in resnet20 cifar10_cnn; do
  job 2 --model $model --batch 8 --steps 5 --checkpoint-dir $model
  said=$(top1)
  file=$model/step-0000000005.h5
  for ranks in 1 3; do
    job $ranks --model $model --seed 2 --eval-only --init-from $file
    exits "$model evaluated on $ranks ranks" 0
    check "$model evaluated on $ranks ranks" is "$(top1)" "$said"
  done
done
job 2 --model cifar10_cnn --seed 2 --batch 8 --steps 1 --lr 0 --init-from $file
check "the moving average starts from the file's" is "$(top1)" "$said"

# All ranks get the weights: without BatchNorm, their number does not change a step.
job 1 --model mlp --batch 8 --steps 3 --checkpoint-dir mlp
for ranks in 1 2; do
  job $ranks --model mlp --seed 2 --global-batch 16 --steps 1 --lr 0.1 --init-from mlp/step-0000000003.h5 --checkpoint-dir on$ranks
  exits "on $ranks ranks" 0
done
check "1 and 2 ranks" "$compare" on1/step-0000000001.h5 on2/step-0000000001.h5 1e-5

# The same command again goes on where it ended.
job 1 --model mlp --seed 2 --global-batch 16 --steps 2 --init-from mlp/step-0000000003.h5 --checkpoint-dir on1
exits "the second time" 0
check "the second time: resumed" has "resumed from step-0000000001.h5 at step 1"
check "the second time: said" has "--init-from .*not used"

job 2 --model mlp --classes 12 --batch 8 --steps 1 --init-from mlp/step-0000000003.h5
exits "another head" 0
check "another head: said" has "from step-0000000003.h5 \(mlp, step 3\); drawn anew, .*: fc3.weight \[12,128\], fc3.bias \[12\]"
for init in uniform_fan_in uniform_fan_out; do
  "$train" --model mlp --print-model | sed "s/^\(fc3 = .*init=\).*/\1$init/" >$init.model
  job 1 --model-file $init.model --classes 12 --batch 8 --steps 1 --lr 0 --init-from mlp/step-0000000003.h5 --checkpoint-dir $init
done
check "another head: drawn as torch's Linear, not within 1/sqrt(classes)" "$compare" uniform_fan_in/step-0000000001.h5 uniform_fan_out/step-0000000001.h5 1e-9

# Published weights: each file of one network evaluates to the same digits.
weights=$(dirname "$support")/data/weights
published() { # FILE OPTION...
  launch_alone "$train" --data synthetic --model-file "$weights/small.model" --classes 3 --init-from "$weights/$1" --batch 8 "${@:2}"
}
for file in zip.pth strided_legacy.pth half.pth bfloat16.safetensors; do
  published $file --eval-only
  exits "$file" 0
  check "$file: said" has "from $file \(.*: taken 5 tensors of weights, 2 of running statistics"
  : "${said_published:=$(top1)}"
  check "$file: the same evaluation" is "$(top1)" "$said_published"
done
published zip.pth --eval-only --checkpoint-dir nowhere
exits "no checkpoint to evaluate" 0
check "no checkpoint to evaluate: said" has "nowhere does not exist yet$|no checkpoint in nowhere$"
check "no checkpoint to evaluate: of training nothing" lacks "from scratch"
published zip.pth --classes 5 --steps 1 --eval-every 0
exits "a head for other classes" 0
check "a head for other classes: said" has "drawn anew, .*: fc.weight \[5,64\], there \[3,64\]; fc.bias \[5\]"
published arguments.pth --eval-only
exits "a Python object" 65
check "a Python object: said" has "argparse.Namespace"

# Images of other sizes in training and evaluation: the checkpoint's network says them again.
job 2 --model resnet20 --batch 8 --steps 2 --checkpoint-dir sized --recipe "crop=none:24 evaluation-crop=40 resize=44 interpolation=bicubic mean=0.4,0.4,0.4"
exits "other sizes" 0
said=$(top1)
check "other sizes: the network" grep -q "images .*evaluation-crop=40.* resize=44" <<<"$("$train" --resume "$(file_of sized 2)" --print-model)"
job 1 --eval-only --resume "$(file_of sized 2)"
exits "other sizes, evaluated" 0
check "other sizes: the same evaluation" is "$(top1)" "$said"
job 1 --model resnet20 --classes 2 --batch 2 --steps 1 --val-data "images:$(dirname "$weights")/photographs/train"
exits "another set to evaluate" 74  # shapes has ten classes
launch_alone "$train" --model resnet20 --data "images:$(dirname "$weights")/photographs" --batch 2 --steps 1 --val-data "images:$(dirname "$weights")/photographs/train"
exits "another set to evaluate" 0
check "another set to evaluate: said" has "top-1 .*\(6 images\)"
launch_alone "$train" --data synthetic --init-from "$weights/zip.pth" --steps 1
exits "no network" 64
check "no network: said" has "give --model"
exit $bad
