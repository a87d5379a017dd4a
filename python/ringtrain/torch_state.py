"""Turns checkpoints into PyTorch's state dictionaries and back.

  python3 -m ringtrain.torch_state FILE.h5 OUT.pth                           # torch.load(OUT.pth, weights_only=True)
  python3 -m ringtrain.torch_state --from-torch IN.pth --model NAME OUT.h5   # train --init-from OUT.h5

In a checkout scripts/checkpoint_to_torch.py does the same.

The names of the ResNets and of inception_v3 are torchvision's. Taken are the moving averages where there are any, because
those were evaluated. What changes on the way:
  convolutions   out x height x width x in here, out x in x height x width in torch
  layers behind a flattened image (cifar10_cnn, mlp): their inputs are in the order height, width, channels here
  BatchNorm without gamma (inception_v3): torch's has one, which is 1; another value cannot be turned back
Needs torch, h5py, numpy and xxhash: pip install 'ringtrain[torch]'."""
import argparse
import sys

import numpy as np
import torch

from ringtrain import checkpoint

# Layers behind a flattened image: its height, width and channels.
FLATTENED = {"cifar10_cnn": {"local3.weight": (6, 6, 64)}, "mlp": {"fc1.weight": (32, 32, 3)}}
WITHOUT_GAMMA = {"inception_v3"}


def to_torch_layout(model, name, array):
    if name in FLATTENED.get(model, {}):
        return array.reshape(len(array), *FLATTENED[model][name]).transpose(0, 3, 1, 2).reshape(len(array), -1)
    return array.transpose(0, 3, 1, 2) if array.ndim == 4 else array


def from_torch_layout(model, name, array):
    if name in FLATTENED.get(model, {}):
        height, width, channels = FLATTENED[model][name]
        return array.reshape(len(array), channels, height, width).transpose(0, 2, 3, 1).reshape(len(array), -1)
    return array.transpose(0, 2, 3, 1) if array.ndim == 4 else array


def to_torch(model, step, tensors):
    """A state dictionary of the weights and statistics of a checkpoint."""
    state = {}
    for path, array in tensors.items():
        folder, name = path.split("/", 1)
        if folder in ("weights", "statistics"):
            array = to_torch_layout(model, name, tensors.get("ema/" + name, array))
            state[name] = torch.from_numpy(np.ascontiguousarray(array))
    for mean in [name for name in state if name.endswith(".running_mean")]:
        norm = mean.removesuffix("running_mean")
        state.setdefault(norm + "weight", torch.ones_like(state[mean]))
        state[norm + "num_batches_tracked"] = torch.tensor(step)
    return state


def from_torch(model, state):
    """The tensors of a checkpoint, from a state dictionary."""
    tensors = {}
    for name, tensor in state.items():
        norm, _, kind = name.rpartition(".")
        if kind == "num_batches_tracked":
            continue
        array = tensor.detach().float().cpu().numpy()
        if kind == "weight" and model in WITHOUT_GAMMA and norm + ".running_mean" in state:
            if not (array == 1).all():
                raise ValueError(f"{name} is not 1 everywhere, but {model} has no gamma")
            continue
        if kind in ("running_mean", "running_var"):
            tensors["statistics/" + name] = array
        else:
            tensors["weights/" + name] = from_torch_layout(model, name, array)
    return tensors


def load_state(path):
    """The state dictionary of `path`: alone, or in a file of torchvision's training scripts."""
    state = torch.load(path, map_location="cpu", weights_only=True)
    for key in ("model", "state_dict"):
        state = state.get(key, state)
    return {name.removeprefix("module."): tensor for name, tensor in state.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input")
    parser.add_argument("output")
    parser.add_argument("--from-torch", action="store_true", help="the input is torch's, the output a checkpoint")
    parser.add_argument("--model", help="with --from-torch: the network's name in `train --model list`")
    options = parser.parse_args()
    if options.from_torch != bool(options.model):
        parser.error("--from-torch and --model NAME go together")
    try:
        if options.from_torch:
            checkpoint.write(options.output, options.model, from_torch(options.model, load_state(options.input)), "from torch")
        else:
            torch.save(to_torch(*checkpoint.read(options.input)), options.output)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as failure:
        sys.exit(f"torch_state: {options.input}: {failure}")


if __name__ == "__main__":
    main()
