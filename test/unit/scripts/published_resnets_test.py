#!/usr/bin/env python3
"""published_resnets_test.py TRAIN: `train --init-from` reads ResNet-18 to 152 by torchvision's names from every form of file.

The networks are those of TRAIN with a sixteenth of the channels, and modules of torch that are named as torchvision's. The loss of an
evaluation is compared: made-up images of the network's own size, so that no pixel is scaled."""
import collections
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

try:
    import numpy as np
    import torch
    import torch.nn.functional as F
    from torch import nn
    from PIL import Image
except ImportError as missing:
    print(f"skipped: {missing}; pip install torch numpy pillow")
    sys.exit(77)

TRAIN = str(pathlib.Path(sys.argv.pop()).resolve())
SIZE, CLASSES, IMAGES, NARROWER = 32, 3, 6, 16
BLOCKS = {"resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3), "resnet50": (3, 4, 6, 3), "resnet101": (3, 4, 23, 3), "resnet152": (3, 8, 36, 3)}


class Block(nn.Module):
    def __init__(self, kernels, channels, stride):
        super().__init__()
        strided = len(kernels) // 2 if len(kernels) == 3 else 0
        for i, kernel in enumerate(kernels):
            step = stride if i == strided else 1
            self.add_module(f"conv{i + 1}", nn.Conv2d(channels[i], channels[i + 1], kernel, step, kernel // 2, bias=False))
            self.add_module(f"bn{i + 1}", nn.BatchNorm2d(channels[i + 1]))
        self.layers, self.downsample = len(kernels), None
        if stride > 1 or channels[0] != channels[-1]:
            self.downsample = nn.Sequential(nn.Conv2d(channels[0], channels[-1], 1, stride, bias=False), nn.BatchNorm2d(channels[-1]))

    def forward(self, x):
        y = x
        for i in range(1, self.layers + 1):
            y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(y))
            y = F.relu(y) if i < self.layers else y
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    def __init__(self, name):
        super().__init__()
        deep, inside = name not in ("resnet18", "resnet34"), 64 // NARROWER
        self.conv1, self.bn1 = nn.Conv2d(3, inside, 7, 2, 3, bias=False), nn.BatchNorm2d(inside)
        for stage, blocks in enumerate(BLOCKS[name]):
            layer, width = nn.Sequential(), (64 << stage) // NARROWER
            for block in range(blocks):
                channels = (inside, width, width, 4 * width) if deep else (inside, width, width)
                layer.append(Block((1, 3, 1) if deep else (3, 3), channels, 2 if stage > 0 and block == 0 else 1))
                inside = channels[-1]
            self.add_module(f"layer{stage + 1}", layer)
        self.fc = nn.Linear(inside, CLASSES)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


def trained(name):
    """As a training might leave it: no statistic and no factor is what it began as."""
    network = ResNet(name)
    for part in network.modules():
        if isinstance(part, nn.BatchNorm2d):
            for tensor in (part.weight, part.running_var):
                nn.init.uniform_(tensor, 0.5, 1)
            for tensor in (part.bias, part.running_mean):
                nn.init.uniform_(tensor, -0.2, 0.2)
    return network.eval()


def save_safetensors(state, path):
    names = {torch.float32: "F32", torch.int64: "I64"}
    header, data = {}, b""
    for name, tensor in state.items():
        content = tensor.numpy().tobytes()
        header[name] = {"dtype": names[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


FORMS = {"safetensors": save_safetensors, "zip.pth": torch.save,
         "legacy.pth": lambda state, path: torch.save(state, path, _use_new_zipfile_serialization=False)}


class PublishedResNets(unittest.TestCase):
    def setUp(self):
        kept = tempfile.TemporaryDirectory()
        self.addCleanup(kept.cleanup)
        self.folder = pathlib.Path(kept.name)
        self.pixels = np.random.default_rng(1).integers(0, 256, (IMAGES, SIZE, SIZE, 3), np.uint8)
        self.labels = np.arange(IMAGES) // (IMAGES // CLASSES)
        for number, (pixels, label) in enumerate(zip(self.pixels, self.labels)):
            home = self.folder / "data/val" / f"class{label}"
            home.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(home / f"{number}.png")
        torch.manual_seed(1)

    def make_model_file(self, name):
        text = subprocess.run([TRAIN, "--model", name, "--print-model"], check=True, capture_output=True, text=True).stdout
        text = re.sub(r"\b(width|channels)=(\d+)", lambda found: f"{found[1]}={int(found[2]) // NARROWER}", text)
        text = re.sub(r"(?m)^images .*\n", "", text).replace("input size=224", f"input size={SIZE}")
        (self.folder / "narrow.model").write_text(text)

    def evaluate(self, weights):
        """The loss, and what was taken."""
        command = [TRAIN, "--model-file", "narrow.model", "--classes", str(CLASSES), "--data", "images:data", "--batch", str(IMAGES),
                   "--threads", "1", "--eval-only", "--init-from", weights.name, "--metrics", weights.name + ".jsonl"]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        lines = [json.loads(line) for line in (self.folder / (weights.name + ".jsonl")).read_text().splitlines()]
        return next(line["loss"] for line in lines if line["kind"] == "eval"), done.stdout

    def loss_in_torch(self, network):
        x = (torch.tensor(self.pixels).float() / 255 - torch.tensor([0.485, 0.456, 0.406])) / torch.tensor([0.229, 0.224, 0.225])
        with torch.no_grad():
            return F.cross_entropy(network(x.permute(0, 3, 1, 2)), torch.tensor(self.labels)).item()

    def check(self, name):
        self.make_model_file(name)
        network = trained(name)
        state = collections.OrderedDict(network.state_dict())
        statistics = sum(".running_" in key for key in state)
        counters = sum(key.endswith("num_batches_tracked") for key in state)
        wanted = self.loss_in_torch(network)
        for form, save in FORMS.items():
            with self.subTest(form=form):
                path = self.folder / f"{name}.{form}"
                save(state, path)
                loss, said = self.evaluate(path)
                self.assertAlmostEqual(loss / wanted, 1, places=4)
                self.assertIn(f"taken {len(state) - statistics - counters} tensors of weights, {statistics} of running statistics", said)
                self.assertIn("drawn anew: nothing", said)
                self.assertIn(f"not used: {counters} counters of batches", said)


for each in BLOCKS:
    setattr(PublishedResNets, f"test_{each}", lambda self, name=each: self.check(name))

if __name__ == "__main__":
    unittest.main()
