#!/usr/bin/env python3
"""export_torch_test.py TRAIN PYTHON_FOLDER: modules of torch load what `train --export` writes, with strict=True, and it is what was trained."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import h5py  # noqa: F401, which ringtrain needs
    import numpy as np
    import torch
    import xxhash  # noqa: F401
    from torch import nn
except ImportError as missing:
    print(f"skipped: {missing}; pip install torch numpy xxhash h5py")
    sys.exit(77)

FOLDER = str(pathlib.Path(sys.argv.pop()).resolve())
TRAIN = str(pathlib.Path(sys.argv.pop()).resolve())
sys.path.insert(0, FOLDER)
sys.dont_write_bytecode = True
from ringtrain import checkpoint
from ringtrain.torch_state import to_torch

FILE = "step-0000000003.h5"
MODEL = """
model small classes=10
recipe ema=0.9
block unit channels
  conv = convolution channels=$channels kernel=3 padding=1 bias=0
  bn = batch_norm gamma=none
  relu
end
input size=32
stem = convolution channels=4 kernel=5 stride=4
layer.{0..1} = unit channels=6
scale = layer_scale
fc = matrix_product outputs=$classes
loss
"""
TYPES = {"F32": "<f4", "I64": "<i8"}


def read_safetensors(path):
    """The tensors and the metadata, by the format's own words."""
    content = path.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    metadata = header.pop("__metadata__")
    tensors = {}
    for name, about in header.items():
        first, last = (end + offset for offset in about["data_offsets"])
        tensors[name] = torch.from_numpy(np.frombuffer(content[first:last], TYPES[about["dtype"]]).copy()).reshape(about["shape"])
    return tensors, metadata


class Unit(nn.Module):
    def __init__(self, channels, width):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width)


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 5, 4, bias=False)
        self.layer = nn.Sequential(Unit(4, 6), Unit(6, 6))
        self.scale = nn.Parameter(torch.empty(6, 1, 1))
        self.fc = nn.Linear(6 * 8 * 8, 10)


class Export(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (self.folder / "small.model").write_text(MODEL)
        self.train("--model-file", "small.model", "--data", "shapes", "--batch", "4", "--steps", "3", "--eval-every", "0", "--checkpoint-dir", ".")
        self.wanted = to_torch(checkpoint.read(str(self.folder / FILE)))

    def train(self, *options):
        subprocess.run([TRAIN, *options], cwd=self.folder, check=True, capture_output=True)

    def expect_trained(self, state):
        Small().load_state_dict(state, strict=True)
        for name, tensor in self.wanted.items():
            self.assertTrue(torch.equal(state[name], tensor) and state[name].dtype == tensor.dtype and state[name].shape == tensor.shape, name)
        self.assertEqual(state["layer.0.bn.num_batches_tracked"], 3)

    def test_torch(self):
        self.train("--init-from", FILE, "--export", "torch", "small.pth")
        self.expect_trained(torch.load(self.folder / "small.pth", weights_only=True))

    def test_safetensors(self):
        self.train("--init-from", FILE, "--export", "safetensors", "small.safetensors")
        tensors, metadata = read_safetensors(self.folder / "small.safetensors")
        self.expect_trained(tensors)
        self.assertEqual((metadata["format"], metadata["model"]), ("pt", "small"))
        self.assertEqual(json.loads(metadata["class_names"])[:2], ["circle", "ring"])
        self.assertEqual(json.loads(metadata["input"])["size"], [32, 32])


if __name__ == "__main__":
    unittest.main()
