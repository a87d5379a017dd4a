"""rare_class.py TRAIN DIR [SEEDS]: what --balance and --class-weights balanced do for a rare class. DIR holds Fashion-MNIST's files. Of the
training images of class 6, Shirt, every tenth stays; a small network trains on them without, and with, each option. Prints the recall of
that class and top-1, of the whole test set."""
import gzip
import json
import os
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile

train, source = map(os.path.abspath, sys.argv[1:3])
seeds = int(sys.argv[3]) if len(sys.argv) > 3 else 3
rare, kept_of = 6, 10
network = """model small classes=10
recipe batch=64 lr=0.05 lr-schedule=cosine optimizer=momentum epochs=4 warmup-epochs=0.2
images pad=2
input size=28 channels=1 mean=0.286 deviation=0.353
conv1 = convolution channels=16 kernel=3 stride=2 padding=1
bn1 = batch_norm
relu
conv2 = convolution channels=32 kernel=3 stride=2 padding=1
bn2 = batch_norm
relu
fc1 = matrix_product outputs=64 bias=0
relu
fc2 = matrix_product outputs=$classes bias=0
loss
"""


def thin(folder):
    """The data set in `folder`, with fewer training images of the rare class."""
    os.mkdir(folder)
    for name in ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"):
        shutil.copy(os.path.join(source, name), folder)
    labels, images = (gzip.open(os.path.join(source, f"train-{name}-ubyte.gz")).read() for name in ("labels-idx1", "images-idx3"))
    labels, images = labels[8:], images[16:]
    kept, met = [], 0
    for i, label in enumerate(labels):
        met += label == rare
        if label != rare or met % kept_of == 0:
            kept.append(i)
    with open(os.path.join(folder, "train-labels-idx1-ubyte"), "wb") as file:
        file.write(struct.pack(">II", 0x801, len(kept)) + bytes(labels[i] for i in kept))
    with open(os.path.join(folder, "train-images-idx3-ubyte"), "wb") as file:
        file.write(struct.pack(">IIII", 0x803, len(kept), 28, 28) + b"".join(images[784 * i:784 * (i + 1)] for i in kept))


def run(*options):
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    subprocess.run([train, "--data", "mnist:fashion", "--quiet", *options], check=True, env=environment)


def trained(seed, *options):
    """Recall of the rare class and top-1, in percent."""
    shutil.rmtree("run", ignore_errors=True)
    run("--model-file", "small.model", "--seed", str(seed), "--eval-every", "0", "--checkpoint-dir", "run", *options)
    run("--eval-only", "--checkpoint-dir", "run", "--metrics", "run/metrics.jsonl")
    with open("run/metrics.jsonl") as file:
        records = {record["kind"]: record for record in map(json.loads, file)}
    return 100 * records["classes"]["classes"][rare]["recall"], 100 * records["eval"]["top1"]


with tempfile.TemporaryDirectory() as home:
    os.chdir(home)
    with open("small.model", "w") as file:
        file.write(network)
    thin("fashion")
    for options in ([], ["--balance"], ["--class-weights", "balanced"]):
        results = [trained(seed, *options) for seed in range(1, seeds + 1)]
        recall, top1 = zip(*results)
        print(f"{' '.join(options) or 'neither'}: recall {statistics.mean(recall):.1f} % ({', '.join(f'{r:.1f}' for r in recall)}), "
              f"top-1 {statistics.mean(top1):.2f} %", flush=True)
