#!/usr/bin/env bash
# pack.sh TRAIN SCRIPTS DATA: what --pack made of an image folder and of TFRecords trains to the bits of the original, one epoch each.
# DATA is an image folder; SCRIPTS has make_tfrecords.py.
. "$(dirname "$0")/../support/lib.sh"
train=$(realpath "$1") scripts=$(realpath "$2") data=$(realpath "$3")
need "$python"
enter_folder
export XDG_CACHE_HOME=$dir/cache

pack() { # WHAT ARGUMENTS...
  limit=200 launch_alone "$train" --pack "${@:2}"
  exits "$1" 0
}
epoch() { # NAME DATA: one epoch, with crops and colours drawn anew for each image, and the evaluation behind it
  limit=200 launch_alone "$train" --model cifar10_cnn --classes 2 --data "$2" --batch 2 --epochs 1 --threads 1 --checkpoint-dir "$1"
  exits "$1" 0
  check "$1: all images were trained on" has "trained 3 steps, 6 images"
  top1 >"$1.said"
}

cp -r "$data" folder
"$python" "$scripts/make_tfrecords.py" folder shards 2 >log 2>&1
exits "TFRecords of the folder are made" 0
pack "a folder" folder of_folder
pack "TFRecords" tfrecord:shards of_shards
pack "a folder, made smaller" folder smaller --pack-short-side 64

epoch whole images:folder
check "the evaluation is told" test -s whole.said
for from in tfrecord:shards records:of_folder records:of_shards; do
  epoch "${from/:/_}" $from
  check "$from: the same bits" is "$(bits "${from/:/_}")" "$(bits whole)"
  check "$from: the same evaluation" is "$(cat "${from/:/_}.said")" "$(cat whole.said)"
done
epoch smaller_epoch records:smaller
check "made smaller: other images, and so other bits" differ "$(bits smaller_epoch)" "$(bits whole)"

# Again, nothing is made anew; records of other data are kept.
before=$(cd of_folder && sha256sum ./*)
pack "again" folder of_folder
check "again: the same files" is "$(cd of_folder && sha256sum ./*)" "$before"
cp folder/train/living/astronaut.jpg folder/train/objects/another.jpg
launch_alone "$train" --pack folder of_folder
check "other data: refused with exit code $?" test $? -ne 0
check "other data: the same files" is "$(cd of_folder && sha256sum ./*)" "$before"
exit $bad
