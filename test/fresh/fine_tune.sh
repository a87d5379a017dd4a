#!/usr/bin/env bash
# fine_tune.sh: what a user with a folder of photographs does on a machine that nobody prepared: builds, trains on from published
# weights, predicts, exports, and lets onnxruntime say the same. As `test/fresh/run.sh -- test/fresh/fine_tune.sh`.
set -euo pipefail
cd "$(dirname "$0")/../.."
scripts/setup.sh --build >build.log 2>&1
apt-get install -y -q python3-pip python3-venv >>build.log 2>&1
cmake --preset release -DRINGTRAIN_TESTS=OFF -DRINGTRAIN_CUDA=OFF -DRINGTRAIN_RELEASE=OFF >>build.log 2>&1
cmake --build --preset release --target train >>build.log 2>&1
PATH=$PWD/build/release:$PATH
mkdir photos
cp -r test/data/photographs/train/* photos
python3 -m venv env
set -x
scripts/get_weights.sh tf_efficientnet_lite0 weights
train --ranks 2 --model tf_efficientnet_lite0 --init-from weights/tf_efficientnet_lite0.pth --data images:photos --val-split 0.34 --freeze '*,!classifier' \
  --optimizer momentum --lr 0.05 --warmup-epochs 0 --weight-decay 0 --ema 0 --batch 2 --epochs 10 --checkpoint-dir runs --keep-best top1
train --init-from runs/best.h5 --predict photos --output photos.csv
cat photos.csv
train --init-from runs/best.h5 --export onnx photos.onnx --uint8-input
env/bin/pip install -q onnxruntime pillow
env/bin/python - <<'END'
import csv
import json
import numpy as np
import onnxruntime
from PIL import Image

session = onnxruntime.InferenceSession("photos.onnx")
facts = session.get_modelmeta().custom_metadata_map
names = json.loads(facts["class_names"])
print(facts["input"])
same = 0
rows = [row for row in csv.DictReader(open("photos.csv"))]
for row in rows:
    picture = Image.open(row["path"]).convert("RGB")
    short = min(picture.size)
    side = round(short * 0.875)
    left, top = (picture.width - side) // 2, (picture.height - side) // 2
    pixels = np.asarray(picture.crop((left, top, left + side, top + side)).resize((224, 224), Image.BICUBIC))
    logits = session.run(None, {session.get_inputs()[0].name: pixels[None]})[0][0]
    same += names[int(np.argmax(logits))] == row["class1"]
print(f"onnxruntime says the same of {same} of {len(rows)} photographs")
assert same == len(rows)
END
