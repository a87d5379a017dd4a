#!/usr/bin/env python3
"""torch_test.py TRAIN PYTHON_FOLDER: networks of one's own come to the same in TRAIN and in PyTorch, in both directions.

The loss of an evaluation is compared: made-up images of the network's own size, so that no pixel is scaled."""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib

try:
    import h5py  # noqa: F401, which ringtrain needs to write
    import numpy as np
    import torch
    import torch.nn.functional as F
    import xxhash  # noqa: F401
    from torch import nn
except ImportError as missing:
    print(f"skipped: {missing}; pip install torch numpy xxhash h5py")
    sys.exit(77)

FOLDER = str(pathlib.Path(sys.argv.pop()).resolve())
TRAIN = str(pathlib.Path(sys.argv.pop()).resolve())
sys.path.insert(0, FOLDER)
sys.dont_write_bytecode = True
import ringtrain

HEIGHT, WIDTH, CLASSES, IMAGES = 10, 12, 3, 6
FLATTENED = """
model flattened classes=3
input size=10x12 mean=0.4,0.5,0.6 deviation=0.2,0.25,0.3
conv = convolution channels=5 kernel=3x5 stride=2 bias=0
relu
hidden = matrix_product outputs=7
relu
fc = matrix_product outputs=$classes
loss
"""
CONCATENATED = """
model concatenated classes=3
block branch channels
  conv = convolution channels=$channels kernel=3 padding=1
  bn = batch_norm gamma=none
  relu
end
input size=10x12 mean=0.4,0.5,0.6 deviation=0.2,0.25,0.3
small = max_pool size=2
a = branch small channels=4
b = branch small channels=3
both = concat a b small
fc = matrix_product outputs=$classes
loss
"""


class Flattened(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.hidden, self.fc = nn.Conv2d(3, 5, (3, 5), 2), nn.Linear(5 * 5 * 6, 7), nn.Linear(7, CLASSES)

    def forward(self, x):  # `same`: an odd pixel goes behind the image
        x = F.relu(self.conv(F.pad(x, (1, 2, 0, 1))))
        return self.fc(F.relu(self.hidden(torch.flatten(x, 1))))


class Branch(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)

    def forward(self, x):
        return F.relu(self.bn(self.conv(x)))


class Concatenated(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.fc = Branch(4), Branch(3), nn.Linear(10 * 5 * 6, CLASSES)

    def forward(self, x):
        x = F.max_pool2d(x, 2)
        return self.fc(torch.flatten(torch.cat([self.a(x), self.b(x), x], 1), 1))


def write_png(path, pixels):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    size = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], 8, 2, 0, 0, 0)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


class Torch(unittest.TestCase):
    def setUp(self):
        kept = tempfile.TemporaryDirectory()
        self.addCleanup(kept.cleanup)
        self.folder = pathlib.Path(kept.name)
        draw = np.random.default_rng(1)
        self.pixels, self.labels = draw.integers(0, 256, (IMAGES, HEIGHT, WIDTH, 3), np.uint8), np.arange(IMAGES) % CLASSES
        for number, (pixels, label) in enumerate(zip(self.pixels, self.labels)):
            for part in ("train", "val"):
                write_png(self.folder / "data" / part / f"class{label}" / f"{number}.png", pixels)
        torch.manual_seed(1)

    def train(self, *options):
        command = [TRAIN, "--data", "images:data", "--threads", "1", *map(str, options)]
        subprocess.run(command, cwd=self.folder, check=True, capture_output=True, text=True)

    def loss_here(self, file):
        self.train("--eval-only", "--init-from", file, "--metrics", file + ".jsonl")
        lines = [json.loads(line) for line in (self.folder / (file + ".jsonl")).read_text().splitlines()]
        return next(line["loss"] for line in lines if line["kind"] == "eval")

    def loss_in_torch(self, network):
        x = (torch.tensor(self.pixels).float() / 255 - torch.tensor([0.4, 0.5, 0.6])) / torch.tensor([0.2, 0.25, 0.3])
        with torch.no_grad():
            return F.cross_entropy(network.eval()(x.permute(0, 3, 1, 2)), torch.tensor(self.labels)).item()

    def check_both_ways(self, text, make):
        model = self.folder / "own.model"
        model.write_text(text)
        drawn = make()
        ringtrain.from_torch(str(model), drawn.state_dict(), self.folder / "there.h5")
        self.assertAlmostEqual(self.loss_here("there.h5"), self.loss_in_torch(drawn), places=5)

        self.train("--model-file", model, "--batch", 3, "--steps", 3, "--eval-every", 0, "--checkpoint-dir", "run")
        model.unlink()
        trained = make()
        trained.load_state_dict(ringtrain.to_torch(self.folder / "run/step-0000000003.h5"))
        self.assertAlmostEqual(self.loss_here("run/step-0000000003.h5"), self.loss_in_torch(trained), places=5)

    def test_a_layer_behind_a_flattened_image(self):
        self.check_both_ways(FLATTENED, Flattened)

    def test_a_layer_behind_a_concatenation(self):
        self.check_both_ways(CONCATENATED, Concatenated)

    def test_a_gamma_that_is_not_one_has_no_place(self):
        (self.folder / "own.model").write_text(CONCATENATED)
        state = Concatenated().state_dict()
        state["a.bn.weight"][0] = 2
        with self.assertRaisesRegex(ValueError, "a.bn.weight is not 1 everywhere"):
            ringtrain.from_torch(str(self.folder / "own.model"), state, self.folder / "there.h5")

    def test_a_model_file_of_other_layers_is_refused(self):
        (self.folder / "own.model").write_text(FLATTENED.replace("stride=2", "stride=1"))
        with self.assertRaisesRegex(ValueError, "hidden.weight takes 150 inputs, but the model file gives it 10x12x5"):
            ringtrain.from_torch(str(self.folder / "own.model"), Flattened().state_dict(), self.folder / "there.h5")


if __name__ == "__main__":
    unittest.main()
