"""accuracy.py WHAT DATA [SEEDS] [--train TRAIN] [--epochs E]: trains a network of the zoo by its own recipe, by `train` (with --train) and by
torch without, on the same files. Prints a line of JSON a seed: what, who, seed, epochs, last and best top-1, seconds.
WHAT: airbench94, fashion_resnet20, fashion_resnet20+erasing; resnet20 and cifar10_cnn: train_cifar10.py. DATA: the folder of CIFAR-10's
JPEG files, or of Fashion-MNIST's IDX files. A development script: torch and pillow from PyPI."""
import argparse
import gzip
import json
import math
import os
import subprocess
import tempfile
import time

import numpy as np

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("what")
parser.add_argument("data")
parser.add_argument("seeds", nargs="?", type=int, default=1)
parser.add_argument("--first-seed", type=int, default=1)
parser.add_argument("--train")
parser.add_argument("--ranks", type=int, default=1)
parser.add_argument("--epochs", type=float)
parser.add_argument("--precision", default="fp32")
options = parser.parse_args()
name, erases = options.what.split("+")[0], options.what.endswith("+erasing")
fashion = name.startswith("fashion")
recipes = {"airbench94": (9.74848, 1024), "fashion_resnet20": (300, 128)}  # epochs, batch
epochs, batch = recipes[name]
epochs = options.epochs or epochs
erasing = "random-erase=0.5 erase-area=0.02:0.4 erase-aspect=0.3:3.3333333333 erase-spread=even erase-value=0.4914"


def ours(seed):
    words = ["--recipe", f"epochs={epochs} {erasing if erases else ''}".strip()]
    with tempfile.TemporaryDirectory() as folder:
        records = f"{folder}/records.jsonl"
        subprocess.run([options.train, "--model", name, "--data", f"{'mnist' if fashion else 'images'}:{options.data}", "--seed", str(seed),
                        "--precision", options.precision, "--global-batch", str(batch), "--ranks", str(options.ranks), "--metrics", records, *words],
                       check=True, stdout=subprocess.DEVNULL)
        with open(records) as file:
            return [100 * record["top1"] for record in map(json.loads, file) if record["kind"] == "eval"]


def images_of(part):
    if fashion:
        def read(kind, skip):
            path = f"{options.data}/{'train' if part == 'train' else 't10k'}-{kind}"
            data = gzip.open(path + ".gz").read() if os.path.exists(path + ".gz") else open(path, "rb").read()
            return np.frombuffer(data, np.uint8, offset=skip)
        return read("images-idx3-ubyte", 16).reshape(-1, 1, 28, 28), read("labels-idx1-ubyte", 8)
    from PIL import Image
    pixels, labels = [], []
    for label, of_class in enumerate(sorted(os.listdir(f"{options.data}/train"))):
        for file in sorted(os.listdir(f"{options.data}/{part}/{of_class}")):
            pixels.append(np.asarray(Image.open(f"{options.data}/{part}/{of_class}/{file}").convert("RGB")).transpose(2, 0, 1))
            labels.append(label)
    return np.stack(pixels), np.array(labels)


def networks():
    import torch
    from torch import nn

    def residual(width, stride=1, before=None):
        before = before or width  # else a convolution is the shortcut: option B

        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = nn.Sequential(nn.Conv2d(before, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                                          nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width))
                self.side = None
                if before != width:
                    self.side = nn.Sequential(nn.Conv2d(before, width, 1, stride, bias=False), nn.BatchNorm2d(width))

            def forward(self, x):
                return torch.relu(self.body(x) + (x if self.side is None else self.side(x)))
        return Block()

    def resnet20():
        layers = [nn.Conv2d(1, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), *(residual(16) for _ in range(3)),
                  residual(32, 2, 16), residual(32), residual(32), residual(64, 2, 32), residual(64), residual(64)]
        net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
        for module in net.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")
        return net

    def airbench():
        def conv(a, b):
            layer = nn.Conv2d(a, b, 3, padding="same", bias=False)
            nn.init.dirac_(layer.weight.data[:a])
            return layer

        def norm(width):
            layer = nn.BatchNorm2d(width, eps=1e-12, momentum=0.4)
            layer.weight.requires_grad = False
            return layer

        def group(a, b):
            return nn.Sequential(conv(a, b), nn.MaxPool2d(2), norm(b), nn.GELU(), conv(b, b), norm(b), nn.GELU())

        class Ninth(nn.Module):
            def forward(self, x):
                return x / 9
        return nn.Sequential(nn.Conv2d(3, 24, 2), nn.GELU(), group(24, 64), group(64, 256), group(256, 256), nn.MaxPool2d(3), nn.Flatten(),
                             nn.Linear(256, 10, bias=False), Ninth())
    return {"fashion_resnet20": resnet20, "airbench94": airbench}


def theirs(seed):
    import torch
    from torch import nn
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    mean, deviation = ([0.1307], [0.3081]) if fashion else ([0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616])

    def normalised(pixels):
        shape = (1, -1, 1, 1)
        return torch.from_numpy((pixels.astype(np.float32) / 255 - np.array(mean, np.float32).reshape(shape)) / np.array(deviation, np.float32).reshape(shape))
    (x, y), (test_x, test_y) = images_of("train"), images_of("test")
    x, y, test_x, test_y = normalised(x), torch.from_numpy(y.astype(np.int64)), normalised(test_x), torch.from_numpy(test_y.astype(np.int64))
    net, air = networks()[name](), name == "airbench94"
    net.to(memory_format=torch.channels_last)
    steps = math.ceil(epochs * len(x) / batch)
    smoothing, size = (0.2 if air else 0), x.shape[-1]
    pad, border = (2, "reflect") if air else (4, "constant")
    if air:
        patches = x[random.permutation(len(x))[:5000]].unfold(2, 2, 1).unfold(3, 2, 1).permute(0, 2, 3, 1, 4, 5).reshape(-1, 12)
        values, vectors = torch.linalg.eigh(patches.T @ patches / len(patches))
        filters = (vectors.T / torch.sqrt(values + 5e-4)[:, None]).flip(0).reshape(12, 3, 2, 2)
        net[0].weight.data = torch.cat((filters, -filters))
        net[0].weight.requires_grad = False
        beta = [p for n, p in net.named_parameters() if p.requires_grad and p.dim() == 1 and not n.startswith("0.")]
        rest = [p for p in net.parameters() if p.requires_grad and not any(p is b for b in beta)]
        optimizer = torch.optim.SGD([{"params": rest, "lr": 1.5, "weight_decay": 1.33043e-3}, {"params": beta, "lr": 96, "weight_decay": 1.33043e-3 / 64}],
                                    momentum=0.85, nesterov=True)
        rate = lambda s: 0.2 + 0.8 * s / (0.23 * steps) if s < 0.23 * steps else 1 - 0.93 * (s - 0.23 * steps) / (0.77 * steps)
    else:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
        rate = lambda s: 0.1 ** ((s >= 0.5 * steps) + (s >= 0.75 * steps))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    padded = nn.functional.pad(x, (pad,) * 4, mode=border) if border == "reflect" else nn.functional.pad(x, (pad,) * 4, value=0)
    if border == "constant":  # black, not the mean
        black = torch.tensor([-m / d for m, d in zip(mean, deviation)]).reshape(1, -1, 1, 1)
        inside = nn.functional.pad(torch.ones(1, 1, size, size), (pad,) * 4)
        padded = padded * inside + black * (1 - inside)
    side = torch.from_numpy(random.integers(0, 2, len(x)))
    slow = {k: v.clone() for k, v in net.state_dict().items() if v.is_floating_point()} if air else {}
    averaged = []

    def batches():
        epoch = 0
        while True:
            order = random.permutation(len(x))
            for i in range(0, len(order) - batch + 1, batch):
                chosen = torch.from_numpy(order[i:i + batch])
                at = random.integers(0, 2 * pad + 1, (batch, 2))
                seen = torch.stack([padded[c, :, a:a + size, b:b + size] for c, (a, b) in zip(chosen, at)])
                flips = (side[chosen] + epoch) % 2 == 1 if air else torch.from_numpy(random.random(batch) < 0.5)
                seen[flips] = seen[flips].flip(-1)
                if erases:
                    for image in seen:
                        erase(image)
                yield seen.to(memory_format=torch.channels_last), y[chosen]
            epoch += 1

    def erase(image):  # of the Random-Erasing repository
        if random.random() > 0.5:
            return
        for _ in range(100):
            area, aspect = random.uniform(0.02, 0.4) * size * size, random.uniform(0.3, 1 / 0.3)
            h, w = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if h < size and w < size:
                a, b = random.integers(0, size - h + 1), random.integers(0, size - w + 1)
                image[:, a:a + h, b:b + w] = 0.4914
                return

    def logits(seen):
        if not air:
            return net(seen)
        both = lambda v: (net(v) + net(v.flip(-1))) / 2
        around = nn.functional.pad(seen, (1,) * 4, mode="reflect")
        return both(seen) / 2 + (both(around[:, :, :-2, :-2]) + both(around[:, :, 2:, 2:])) / 4

    def evaluate():
        net.eval()
        kept = {k: v.clone() for k, v in net.state_dict().items()}
        if air:
            net.load_state_dict({**kept, **slow})
        with torch.no_grad():
            right = sum(int((logits(test_x[i:i + 500].to(memory_format=torch.channels_last)).argmax(1) == test_y[i:i + 500]).sum()) for i in range(0, len(test_x), 500))
        net.load_state_dict(kept)
        net.train()
        return 100 * right / len(test_x)
    per_epoch = len(x) // batch
    for step, (seen, labels) in zip(range(steps), batches()):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(seen), labels, label_smoothing=smoothing).backward()
        optimizer.step()
        schedule.step()
        if air and (step + 1) % 5 == 0:
            keep = 0.95 ** 5 * ((step + 1) / steps) ** 3
            for key, value in net.state_dict().items():
                if key in slow:
                    slow[key].mul_(keep).add_(value, alpha=1 - keep)
                    value.copy_(slow[key])
        if (step + 1) % per_epoch == 0 or step + 1 == steps:
            averaged.append(evaluate())
    return averaged


for seed in range(options.first_seed, options.first_seed + options.seeds):
    begin = time.time()
    found = ours(seed) if options.train else theirs(seed)
    print(json.dumps({"what": options.what, "who": "train" if options.train else "torch", "seed": seed, "epochs": epochs, "precision": options.precision,
                      "last": round(found[-1], 2), "best": round(max(found), 2), "seconds": round(time.time() - begin)}), flush=True)
