#!/usr/bin/env bash
# pack.sh TRAIN SCRIPTS DATA: what --pack made of an image folder and of TFRecords trains to the bits of the original, one epoch each.
# DATA is an image folder; SCRIPTS has make_tfrecords.py.
set -u
train=$(realpath "$1") scripts=$(realpath "$2") data=$(realpath "$3") python=${RINGTRAIN_PYTHON:-python3}
. "$(dirname "$0")/checks.sh"
command -v "$python" >/dev/null || { echo "skipped: there is no $python"; exit 77; }
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
export XDG_CACHE_HOME=$dir/cache

pack() { # WHAT ARGUMENTS...
  timeout 200 "$train" --pack "${@:2}" >log 2>&1 </dev/null
  check "$1: exit code $?" test $? -eq 0
}
epoch() { # NAME DATA: one epoch, with crops and colours drawn anew for each image, and the evaluation behind it
  timeout 200 "$train" --model cifar10_cnn --classes 2 --data "$2" --batch 2 --epochs 1 --threads 1 --checkpoint-dir "$1" >log 2>&1 </dev/null
  check "$1: exit code $?" test $? -eq 0
  check "$1: all images were trained on" has "trained 3 steps, 6 images"
  grep -o 'top-1 .*images)' log | head -n 1 >"$1.said"
}
state() { "$train" --inspect "$1"/step-0000000003.h5 | tail -n 1; }

cp -r "$data" folder
"$python" "$scripts/make_tfrecords.py" folder shards 2 >log 2>&1
check "TFRecords of the folder are made: exit code $?" test $? -eq 0
pack "a folder" folder of_folder
pack "TFRecords" tfrecord:shards of_shards
pack "a folder, made smaller" folder smaller --pack-short-side 64

epoch whole images:folder
check "the evaluation is told" test -s whole.said
for from in tfrecord:shards records:of_folder records:of_shards; do
  epoch "${from/:/_}" $from
  check "$from: the same bits" is "$(state "${from/:/_}")" "$(state whole)"
  check "$from: the same evaluation" is "$(cat "${from/:/_}.said")" "$(cat whole.said)"
done
epoch smaller_epoch records:smaller
check "made smaller: other images, and so other bits" test "$(state smaller_epoch)" != "$(state whole)"

# Again, nothing is made anew; records of other data are kept.
before=$(cd of_folder && sha256sum ./*)
pack "again" folder of_folder
check "again: the same files" is "$(cd of_folder && sha256sum ./*)" "$before"
cp folder/train/living/astronaut.jpg folder/train/objects/another.jpg
timeout 60 "$train" --pack folder of_folder >log 2>&1 </dev/null
check "other data: refused with exit code $?" test $? -ne 0
check "other data: the same files" is "$(cd of_folder && sha256sum ./*)" "$before"
exit $bad
