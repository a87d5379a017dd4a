#!/usr/bin/env bash
# export.sh TRAIN: what --export writes evaluates to the same digits, and what it cannot write is told.
. "$(dirname "$0")/../support/lib.sh"
train=$(realpath "$1")
enter_folder

export_to() { launch_alone "$train" --init-from "$file" --export "$@"; } # FORMAT FILE OPTION...
# Running statistics; a moving average and a layer behind a flattened image.
for model in resnet20 cifar10_cnn; do
  launch_alone "$train" --model $model --data shapes --batch 8 --steps 5 --eval-every 0 --checkpoint-dir $model
  said=$(top1) file=$(file_of $model 5)
  for format in torch safetensors; do
    export_to $format $model.$format
    exits "$model to $format" 0
    check "$model to $format: said" has "exported $model for 10 classes to $model.$format \($format, [0-9.]+ MB\)"
    launch_alone "$train" --model $model --data shapes --seed 2 --eval-only --init-from $model.$format
    exits "$model from $format" 0
    check "$model from $format: the same evaluation" is "$(top1)" "$said"
  done
done
launch_alone "$train" --model resnet20 --classes 10 --init-from resnet20.safetensors --export torch again.torch
exits "published weights" 0
check "published weights: said" has "taken .* tensors of weights"
export_to onnx a.onnx --fold-batchnorm --uint8-input
exits "onnx" 0
for key in class_names input logits '"crescent"'; do check "onnx: $key" grep -aq "$key" a.onnx; done

refused() { # WHAT CODE PATTERN
  exits "$1" "$2"
  check "$1: said" has "$3"
}
export_to torch7 a.onnx
refused "another format" 64 "--export torch7: must be one of onnx, safetensors, torch"
export_to torch
refused "no file" 64 "--export.* 2 "
export_to torch a.pth --fold-batchnorm
refused "an option of onnx" 64 "--fold-batchnorm: says how --export onnx FILE writes; add it"
export_to torch nowhere/a.pth
refused "no folder" 75 "--export to nowhere/a.pth: No such file or directory"
launch_alone "$train" --export torch a.pth
refused "no weights" 64 "--export: writes what --init-from FILE holds; add it"
launch_alone "$train" --init-from resnet20.torch --export torch a.pth
refused "no network" 64 "give --model"
launch_alone "$train" --model resnet32 --init-from resnet20.torch --export torch a.pth
refused "another network" 65 "of another network"
check "nothing is left of what was refused" test -z "$(compgen -G 'a.pth*')"
exit $bad
