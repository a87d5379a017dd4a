#!/usr/bin/env bash
# unreadable_samples.sh MPIRUN TRAIN: samples that cannot be decoded. Each counts once, on all ranks together and from run to run. Too many end the
# job (74) behind a save; so does an evaluation of which nothing can be read.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2")
need "$python"
enter_folder
cat >tiny.model <<'MODEL'
model tiny classes=2
recipe lr=0.01 epochs=2
input size=8
conv1 = convolution channels=4 kernel=3
relu
global_pool
fc = matrix_product outputs=$classes
loss
MODEL
PYTHONPATH=$support "$python" -B - <<'PYTHON'
import random
from small_png import write_png
random.seed(1)
for split, images in ("train", 24), ("val", 6):
    for i in range(images):
        write_png(f"data/{split}/{'ab'[i % 2]}/{i:02}.png", 8, [random.randbytes(3 * 8) for _ in range(8)])
PYTHON
cp -r data sound

damage() { # FILE...: cut amid their pixels
  local file
  for file; do head -c 100 "sound/$file" >"data/$file"; done
}
job() { # OPTION...: on two ranks
  launch 2 "$train" --model-file tiny.model --data images:data --batch 4 --threads 1 --data-threads 1 --log-every 1000 "$@"
}
told_twice() { grep -o 'rank [01]: unreadable_sample: unreadable sample [0-9]*' log | sort | uniq -d; }
told() { grep -c 'rank [01]: unreadable_sample: unreadable sample' log; }
end_step() { sed -n 's/^fault: kind=data code=74 .* step=\([0-9]*\) resume=.*/\1/p' log; }

damage train/a/{02,04,06,08,10}.png train/b/{03,05,07,09}.png
job --epochs 30 --eval-every 0 --checkpoint-dir nine
exits "nine of 24, thirty epochs" 0
check "nine: none is told twice by a rank" is "no: $(told_twice)" "no: "
check "nine: all are told ($(told))" test "$(told)" -ge 9

damage train/a/{12,14}.png train/b/11.png
job --steps 300 --checkpoint-dir twelve --checkpoint-every 1000
exits "twelve of 24" 74
check "twelve: how many, of what, and which" has "^train: read images: 24 files.*: 1[12] of 24 samples are unreadable, more than 0.1 %; repair or remove them. unreadable sample [0-9]+, .*\.png"
check "twelve: the last step is saved" test -s "$(file_of twelve "$(end_step)")"
check "twelve: and named" has "^fault: .* resume=.*/$(basename "$(newest twelve)")$"
step=$(end_step)
job --steps 300 --checkpoint-dir twelve
exits "twelve, resumed" 74
check "twelve, resumed: before its first step" is "$(end_step)" "$step"
cp -r sound/train data
job --steps $((step + 20)) --checkpoint-dir twelve
exits "twelve, repaired and resumed" 0

cp -r sound/train data
damage val/a/0{0,2,4}.png val/b/0{1,3,5}.png
job --steps 3 --checkpoint-dir blind --metrics metrics
exits "an evaluation without images" 74
check "an evaluation without images: said" has "^train: read images: 6 files.*: none of the 6 samples can be read"
check "an evaluation without images: has no figures" is "no: $(grep '"eval"' metrics)" "no: "
check "an evaluation without images: the step is saved" test -s "$(file_of blind 3)"
job --eval-only --resume "$(file_of blind 3)"
exits "--eval-only without images" 74
check "--eval-only without images: said" has "none of the 6 samples can be read"
exit $bad
