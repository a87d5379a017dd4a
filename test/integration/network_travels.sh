#!/usr/bin/env bash
# network_travels.sh MPIRUN TRAIN: a checkpoint of one's own network needs nothing beside it.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2")
enter_folder

job() { # OPTION...
  launch 2 "$train" --data shapes --batch 8 --eval-every 0 "$@"
}

cat >own.model <<'MODEL'
# Of mine: "quotes", \ and é.
model own classes=10
recipe lr=0.01 optimizer=adam lr-schedule=constant
input size=16 mean=0.4,0.5,0.6
conv = convolution channels=4 kernel=3 stride=2
bn = batch_norm
relu
fc = matrix_product outputs=$classes
loss
MODEL
job --model-file own.model --steps 4 --checkpoint-dir calm
exits "undisturbed" 0
said=$(top1) file=$PWD/calm/step-0000000004.h5
job --model-file own.model --steps 2 --checkpoint-dir run
mkdir elsewhere && mv run elsewhere && cp own.model kept && rm own.model && cd elsewhere || exit 1
log=$dir/log

"$train" --inspect "$file" >shown || wrong "inspect fails"
check "inspect: the network" grep -q '^  fc = matrix_product outputs=$classes$' shown
check "inspect: the classes" grep -q '^classes  *10: ' shown
check "inspect: the input" grep -q '^input .*"size":\[16,16\].*"mean":\[0.4,0.5,0.6\]' shown
"$train" --print-model --resume "$file" >printed || wrong "the network cannot be printed"
check "print-model: the file as it was" cmp printed "$dir/kept"

job --eval-only --resume "$file"
exits "evaluated" 0
check "evaluated: as before" is "$(top1)" "$said"
job --steps 4 --checkpoint-dir run
exits "resumed" 0
check "resumed: from the newest" has "resumed from step-0000000002.h5 at step 2"
check "resumed: nothing has changed" lacks "changed since that checkpoint: model"
check "resumed: the same bits" is "$(bits run)" "$(bits "$dir/calm")"
job --steps 5 --resume "$file" --checkpoint-dir more
exits "resumed from a file" 0
check "resumed from a file: nothing has changed" lacks "changed since that checkpoint: model"
job --steps 1 --seed 2 --classes 12 --init-from "$file"
exits "started from its weights" 0
check "started from its weights: the head is new" has "drawn anew, .*: fc.weight \[12,256\], fc.bias \[12\]"

# Without training data the checkpoint says which label a class has.
cp -r "$support/../data/photographs" photographs
launch 2 "$train" --data images:photographs --model-file "$dir/kept" --batch 1 --steps 2 --eval-every 0 --checkpoint-dir photos
exits "trained on images" 0
rm -r photographs/val/living
photos() { launch 2 "$train" --data images:photographs --eval-only --checkpoint-dir photos "$@"; }
photos
exits "evaluated beside training data" 0
said=$(top1)
rm -r photographs/train
photos
exits "evaluated without training data" 0
check "evaluated without training data: as with it" is "$(top1)" "$said"
photos --model-file "$dir/kept"
exits "evaluated by a model file" 0
check "evaluated by a model file: the checkpoint says what the classes are" is "$(top1)" "$said"
launch 2 "$train" --data images:photographs --eval-only --init-from photos/step-0000000002.h5 --model-file "$dir/kept"
exits "its weights evaluated by a model file" 0
check "its weights evaluated by a model file: as before" is "$(top1)" "$said"
photos --model mlp
exits "evaluated by another network" 65
check "evaluated by another network: both are told" has "holds own for [0-9]* classes, whose layers differ from those of mlp for [0-9]* classes"

# Images of four channels.
four="channels=4 mean=0.5,0.5,0.5,0.5 deviation=0.25,0.25,0.25,0.25"
"$train" --plan --model resnet20 --recipe "$four" >"$log" || wrong "four channels cannot be planned"
check "four channels: planned" has "269866 parameters|269,866 parameters"
for data in synthetic "images:$support/../data/photographs"; do
  launch 2 "$train" --model resnet20 --recipe "$four" --data "$data" --batch 1 --steps 2 --eval-every 0 --checkpoint-dir four-${data%%:*}
  exits "four channels, ${data%%:*}" 0
  launch 2 "$train" --eval-only --resume "$(file_of four-${data%%:*} 2)" --data "$data"
  exits "four channels, ${data%%:*}, evaluated" 0
done

# Some of ImageNet's classes have their labels: of 1,000, also where the network is named again.
cp -r "$support/../data/photographs" wnids
for split in train val; do mv wnids/$split/objects wnids/$split/n03063599; mv wnids/$split/living wnids/$split/n02123159; done
sed 's/^recipe/images labels=imagenet\nrecipe/' "$dir/kept" >imagenet.model
some() { launch 2 "$train" --data images:wnids --model-file imagenet.model --batch 1 --eval-every 0 --checkpoint-dir some "$@"; }
some --steps 1 --classes 1000
exits "some of ImageNet's classes" 0
some --steps 2
exits "some of ImageNet's classes, resumed" 0
check "some of ImageNet's classes, resumed: the labels are its own" has "labels are those of the network's wnids, of which 998 have no images"
check "some of ImageNet's classes, resumed: it goes on" has "resumed from step-0000000001.h5 at step 1"


# Weights that a training did not start from decide no label of it.
own() { launch 2 "$train" --data images:wnids --model-file imagenet.model --batch 1 --checkpoint-dir own_labels "$@"; }
own --steps 1
exits "two classes of its own" 0
own --steps 2 --init-from "$support/../data/weights/zip.pth"
exits "weights that are not used" 0
check "weights that are not used: said" has "--init-from .*not used"
check "weights that are not used: the labels stay" lacks "labels are those of the network's wnids"
own --eval-only --init-from "$support/../data/weights/zip.pth"
exits "weights that are not used, evaluated" 0

job --model mlp --steps 5 --resume "$file"
exits "another network" 64
check "another network: both are told" has "--model mlp: makes mlp for 10 classes; .*step-0000000004.h5 holds own for 10 classes"
job --classes 12 --steps 5 --resume "$file"
exits "other classes" 64
check "other classes: both are told" has "--classes 12: makes own for 12 classes; .* holds own for 10 classes"
sed 's/stride=2/stride=1/' "$dir/kept" >other.model
job --model-file other.model --steps 5 --resume "$file"
exits "another file" 64
check "another file: it is named" has "--model-file other.model: makes own for 10 classes; "
exit $bad
