#!/usr/bin/env bash
# recipe_words.sh TRAIN: each word of the lines recipe, images and input changes what a training or its evaluation comes to.
. "$(dirname "$0")/../support/lib.sh"
train=$(realpath "$1")
lines=$(dirname "$(realpath "$0")")/../../src/model/model_file
enter_folder
cat >small.model <<'MODEL'
model small classes=10
recipe batch=8 lr=0.05 lr-schedule=constant momentum=0.9
input size=24
conv1 = convolution channels=8 kernel=3 stride=2 bias=0
bn1 = batch_norm
relu
global_pool
fc = matrix_product outputs=$classes
loss
MODEL
# words so far | one more
table='|batch=6
|optimizer=adam
|lr=0.02
|lr-batch=4
|lr-schedule=piecewise:0%=0.1,100%=1
|warmup-epochs=1
warmup-epochs=1|warmup-factor=0.5
|lr-factor=fc.*=0.5
|weight-decay=0.1
weight-decay=0.1|norm-decay=1
weight-decay=0.1|bias-decay=1
weight-decay=0.1|decay-factor=fc.*=0
|freeze=conv1.weight
|momentum=0.5
optimizer=adam|beta1=0.5
optimizer=adam|beta2=0.5
optimizer=adam|epsilon=0.1
|label-smoothing=0.2
|bce-loss=yes
bce-loss=yes|bce-sum=yes
bce-loss=yes label-smoothing=0.5|bce-target-thresh=0.3
|clip-grad=0.01
|ema=0.9
ema=0.9|ema-every=2
ema=0.9|ema-warmup=none
ema=0.9|lookahead=yes
|crop=resized
|pad=3
pad=3|pad-mode=reflect
crop=resized|smallest-area=0.9
|flip=no
|flip=alternating
|auto-augment=ra
|brightness=60
|contrast=0.2:1.8
|saturation=0.2:1.8
|hue=0.2
brightness=90|clip=yes
|random-erase=1
random-erase=1|erase-area=0.5:0.6
random-erase=1|erase-aspect=1:1
random-erase=1|erase-spread=even
random-erase=1|erase-value=0.5
|cutout=9
cutout=9|cutout-place=inside
|mixup=1
|cutmix=1
mixup=1|mixup-prob=0.5
mixup=1 cutmix=1|mixup-switch-prob=0.9
mixup=1|mixup-mode=batch
|aug-repeats=2
|evaluation=0.5
|resize=40
|crop-share=0.6
|evaluation-crop=16
|views=flip
crop=resized|interpolation=bicubic
resize=40|evaluation-interpolation=bicubic
|size=20
|channels=1
|standardise=yes
|mean=0.1,0.2,0.3
|deviation=0.5,0.5,0.2'
elsewhere=" epochs source top1 labels keep-aspect " # --steps counts; of --model list; of 1,000 classes; of images that are no squares

declare -A results # losses of the steps, and the evaluation, by words
learn() { # WORDS
  [[ ! ${results[x$1]:-} ]] || return 0
  launch_alone "$train" --model-file small.model --data shapes --steps 4 --log-every 1 --threads 1 --metrics metrics ${1:+--recipe "$1"} ||
    wrong "--recipe \"$1\" ended with $?" 5
  results[x$1]=$(grep -oE '"loss":[^,}]*' metrics)
  rm metrics
}
seen=" "
while IFS='|' read -r base word; do
  both="${base:+$base }$word"
  learn "$base"
  learn "$both"
  [[ ${results[x$both]} != "${results[x$base]}" ]] || wrong "$word beside \"$base\" changes nothing"
  seen+="${word%%=*} "
done <<<"$table"

options=$(sed -n '/_options =/,/;/p' "$lines/recipe_lines.hpp" "$lines/operations.hpp" | grep -oE '"[^"]*"' | tr -d '"')
for option in $options; do
  [[ "$seen$elsewhere" == *" $option "* ]] || wrong "nothing tries $option"
done
exit $bad
