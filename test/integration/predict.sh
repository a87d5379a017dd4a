#!/usr/bin/env bash
# predict.sh MPIRUN TRAIN: classes of images, by a checkpoint: what is told, of which files, by any ranks and threads alike.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2")
need "$python"
enter_folder
cat >tiny.model <<'MODEL'
model tiny classes=3
recipe batch=8 lr=0.05 epochs=20
input size=16
conv1 = convolution channels=8 kernel=3
relu
global_pool
fc = matrix_product outputs=$classes
loss
MODEL
PYTHONPATH=$support "$python" -B - <<'PYTHON'
import random
from small_png import write_png
random.seed(1)
def image(path, channel):
    pixel = lambda: bytes(random.randint(0, 255) if c != channel else random.randint(60, 255) for c in range(3))
    write_png(path, 20, [b"".join(pixel() for _ in range(20)) for _ in range(20)])
for split, images in ("train", 90), ("val", 21):
    for i in range(images):
        image(f"data/{split}/{['blue, deep', 'green', 'red'][i % 3]}/{i:02}.png", 2 - i % 3)
image('odd/one "quoted", and a comma.png', 0)
PYTHON

job() { # RANKS OPTION...
  launch "$1" "$train" --threads 1 --data-threads 1 "${@:2}"
}
job 1 --model-file tiny.model --data images:data --ema 0.9 --checkpoint-dir run --eval-every 0
exits "trained" 0
file=$PWD/$(newest run)
job 1 --data images:data --eval-only --resume "$file"
exits "evaluated" 0
evaluated=$(sed -n 's/.*top-1 \([0-9.]*\) %.* (21 images)/\1/p' log | head -n 1)

mkdir bare gone && for class in data/train/*; do cp -r "$class" bare; done
job 1 --model-file tiny.model --data images:bare --val-split 0.2 --checkpoint-dir divided --epochs 2 --seed 5
exits "trained on a part" 0
check "trained on a part: says so" has '^images: 72 files of 3 classes in 3 folders of bare, by --val-split 0.2, to train on$'
divided=$PWD/$(newest divided)
job 1 --data images:bare --eval-only --resume "$divided"
check "trained on a part: evaluated on the other" has '^images: 18 files .*, by --val-split 0.2, to evaluate on$'
job 2 --predict images:bare --resume "$divided" --output divided.csv
exits "the part that was not trained on" 0
check "the part that was not trained on: all of it" has "^predicted 18 images in .* of 18 with a label;"
job 1 --checkpoint-dir divided --data images:bare --epochs 3 --seed 6
exits "trained on a part, resumed" 0
check "trained on a part, resumed: on the same" lacks "changed since that checkpoint: (val-split|training-data)"
mv data/train tiny.model gone

job 1 --predict data/val --resume "$file" --output one.csv
exits "predicted" 0
check "predicted: how many" has "^predicted 21 images in .*; top-1 $evaluated % of 21 with a label; written to one.csv$"
for ranks in 2 4; do
  job $ranks --predict data/val --resume "$file" --output "$ranks.csv"
  exits "$ranks ranks" 0
  check "$ranks ranks: the same bytes" cmp one.csv "$ranks.csv"
done
(cd data && launch_alone "$train" --predict val --resume "$file" --output named.csv)
check "a folder by its bare name" test "$(wc -l <data/named.csv)" = "$(wc -l <one.csv)"
launch_alone "$train" --predict data/val --resume "$file" --output alone.csv --threads 2 --data-threads 3
exits "without mpirun, two threads" 0
check "without mpirun, two threads: the same bytes" cmp one.csv alone.csv
"$python" - "$evaluated" <<'PYTHON' || wrong "the lines do not say what the evaluation says"
import csv, sys
rows = list(csv.DictReader(open("one.csv", newline="")))
assert list(rows[0]) == ["path", "label", "class1", "probability1", "class2", "probability2", "class3", "probability3", "error"], list(rows[0])
assert [r["path"] for r in rows] == sorted(r["path"] for r in rows) and len(rows) == 21
assert f'{100 * sum(r["label"] == r["class1"] for r in rows) / 21:.2f}' == sys.argv[1]
for r in rows:
    probabilities = [float(r[f"probability{k}"]) for k in (1, 2, 3)]
    assert abs(sum(probabilities) - 1) < 1e-5 and probabilities == sorted(probabilities, reverse=True) and not r["error"]
PYTHON
check "lines end as in RFC 4180" test "$(grep -c $'\r$' one.csv)" -eq 22

job 1 --predict images:data --resume "$file" --output set.csv
exits "a data set" 0
check "a data set: the same" cmp one.csv set.csv

job 1 --model mlp --data shapes --classes 14 --steps 20 --batch 50 --checkpoint-dir more --eval-every 0
more=$PWD/$(newest more)
job 1 --data shapes --eval-only --resume "$more"
said=$(sed -n 's/.*top-1 \([0-9.]*\) %.* (2000 images)/\1/p' log | head -n 1)
job 2 --predict shapes --resume "$more" --output more.csv --top-k 14
exits "data of fewer classes" 0
check "data of fewer classes: each image has its own" "$python" -c "
import csv
rows = list(csv.DictReader(open('more.csv', newline='')))
right = sum(r['label'] == r['class1'] for r in rows)
assert len(rows) == 2000 and f'{right / 20:.2f}' == '$said', (right, '$said')"
ln -s nowhere data/val/red/gone.png
job 1 --predict data/val/red --resume "$file" --output linked.csv
exits "a link that leads nowhere" 0
check "a link that leads nowhere: one line" has "; 1 could not be read; top-1 .* of 7 with a label"
rm data/val/red/gone.png
cp one.csv kept.csv && printf 'old' >one.csv
job 2 --predict data/val --resume "$file" --output one.csv --max-time 0.001
exits "no time" 75
check "no time: the file is as it was" is "$(cat one.csv)" old
mv kept.csv one.csv
if [ -w /dev/full ]; then
  timeout 100 "$train" --predict data/val --resume "$file" >/dev/full 2>log </dev/null
  exits "nothing can be written" 75
fi

head -c 60 data/val/green/01.png >broken.png
timeout 100 "$train" --predict odd/* broken.png data/val/red none.jpg --resume "$file" --top-k 1 >out.csv 2>log </dev/null
exits "some cannot be read" 0
check "some cannot be read: counted" has "^predicted 8 of 10 images in .*; 2 could not be read; top-1 .* % of 7 with a label$"
check "standard output: nothing but lines" is "$(head -n 1 out.csv)" $'path,label,class1,probability1,error\r'
check "a path with a comma is quoted" grep -q '^"odd/one ""quoted"", and a comma.png",,' out.csv
check "why it cannot be decoded" grep -qE $'^broken.png,,,,.*broken.png.*\r$' out.csv
check "why it cannot be read" grep -qE $'^none.jpg,,,,.*none.jpg: No such file.*\r$' out.csv
job 1 --predict broken.png none.jpg --resume "$file" --output none.csv
exits "none can be read" 74
check "none can be read: said" has "^train: --predict: none of the images could be read"
check "none can be read: reasons" test "$(wc -l <none.csv)" -eq 3

printf 'sky\nleaf\nrose\n' >names
job 2 --predict data/val --init-from "$file" --output named.jsonl --class-names names
exits "other names, JSON" 0
"$python" - <<'PYTHON' || wrong "JSON lines do not say what CSV does"
import csv, json
rows, lines = list(csv.DictReader(open("one.csv", newline=""))), [json.loads(line) for line in open("named.jsonl")]
names = {"blue, deep": "sky", "green": "leaf", "red": "rose"}
for r, o in zip(rows, lines, strict=True):
    assert o["path"] == r["path"] and "label" not in o and "error" not in o, o
    assert [(c["class"], c["probability"]) for c in o["classes"]] == [(names[r[f"class{k}"]], float(r[f"probability{k}"])) for k in (1, 2, 3)], (o, r)
    assert [list(names.values())[c["index"]] for c in o["classes"]] == [c["class"] for c in o["classes"]]
PYTHON

job 1 --predict data/val --resume "$file" --output average.csv --weights ema
check "--weights ema: the usual ones" cmp one.csv average.csv
for how in --resume --init-from; do
  job 1 --predict data/val $how "$file" --output "raw$how.csv" --weights raw
  exits "--weights raw $how" 0
done
check "--weights raw: others" differ "$(cat one.csv)" "$(cat raw--resume.csv)"
check "--weights raw: of both options" cmp raw--resume.csv raw--init-from.csv
job 1 --model mlp --data synthetic --steps 1 --batch 2 --checkpoint-dir plain --eval-every 0
job 1 --predict data/val --resume "$(newest plain)" --weights ema --output no.csv
exits "--weights ema of a training without" 64
check "--weights ema of a training without: said" has "--weights ema: step-0000000001.h5 has no moving average"
check "nothing is written" test ! -e no.csv

job 1 --predict data/val --resume "$file" --output none/of.csv
exits "no such folder" 75
check "no such folder: said" has "^train: --output none/of.csv: "
job 1 --predict data/val --resume "$file" --output some.txt
exits "no such format" 64
job 1 --predict data/val
exits "without weights" 64
exit $bad
