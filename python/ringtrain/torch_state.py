"""Turns checkpoints into PyTorch's state dictionaries and back.

  python3 -m ringtrain.torch_state FILE.h5 OUT.pth                           # torch.load(OUT.pth, weights_only=True)
  python3 -m ringtrain.torch_state --from-torch IN.pth --model NAME OUT.h5   # train --init-from OUT.h5

In a checkout scripts/checkpoint_to_torch.py does the same. --model-file FILE takes the place of --model, and of the network that a
checkpoint of an earlier build lacks.

The names of the ResNets and of inception_v3 are torchvision's. Taken are the moving averages where there are any, because
those were evaluated. What changes on the way follows from the network, a model file that the checkpoint holds:
  convolutions   out x height x width x in here, out x in x height x width in torch
  layers behind a flattened image: their inputs are in the order height, width, channels here
  layer scale    channels here, channels x 1 x 1 in torch
  BatchNorm without gamma: torch's has one, which is 1; another value cannot be turned back
Needs torch, h5py, numpy and xxhash: pip install 'ringtrain[torch]'."""
import argparse
import sys

import numpy as np
import torch

from ringtrain import checkpoint
from ringtrain.model_file import Network, built_in


def check_width(name, array, shape):
    if array.shape[1] != shape[0] * shape[1] * shape[2]:
        raise ValueError(f"{name} takes {array.shape[1]} inputs, but the model file gives it {shape[0]}x{shape[1]}x{shape[2]}")


def to_torch_layout(flattened, name, array):
    """`flattened`: Network.flattened."""
    if name in flattened:
        check_width(name, array, flattened[name])
        return array.reshape(len(array), *flattened[name]).transpose(0, 3, 1, 2).reshape(len(array), -1)
    return array.transpose(0, 3, 1, 2) if array.ndim == 4 else array


def from_torch_layout(flattened, name, array):
    if name in flattened:
        check_width(name, array, flattened[name])
        height, width, channels = flattened[name]
        return array.reshape(len(array), channels, height, width).transpose(0, 2, 3, 1).reshape(len(array), -1)
    return array.transpose(0, 2, 3, 1) if array.ndim == 4 else array


def to_torch(saved, network=None):
    """A state dictionary of the weights and statistics of a Checkpoint, whose network is `network` where it holds none."""
    network = network or Network(saved.network or built_in(saved.model))
    state = {}
    for path, array in saved.tensors.items():
        folder, name = path.split("/", 1)
        if folder in ("weights", "statistics"):
            array = to_torch_layout(network.flattened, name, saved.tensors.get("ema/" + name, array))
            array = array.reshape(-1, 1, 1) if name in network.layer_scales else array
            state[name] = torch.from_numpy(np.ascontiguousarray(array))
    for mean in [name for name in state if name.endswith(".running_mean")]:
        norm = mean[:-len("running_mean")]
        state.setdefault(norm + "weight", torch.ones_like(state[mean]))
        state[norm + "num_batches_tracked"] = torch.tensor(saved.step)
    return state


def from_torch(network, state):
    """The tensors of a checkpoint, from a state dictionary."""
    tensors = {}
    for name, tensor in state.items():
        norm, _, kind = name.rpartition(".")
        if kind == "num_batches_tracked":
            continue
        array = tensor.detach().float().cpu().numpy()
        if kind == "weight" and norm in network.without_gamma:
            if not (array == 1).all():
                raise ValueError(f"{name} is not 1 everywhere, but in {network.name} it has no gamma")
            continue
        if kind in ("running_mean", "running_var"):
            tensors["statistics/" + name] = array
        else:
            array = array.ravel() if name in network.layer_scales else array
            tensors["weights/" + name] = from_torch_layout(network.flattened, name, array)
    return tensors


def write(path, network, state):
    """A checkpoint of a state dictionary, with its network for the state's number of classes."""
    head = state.get(network.head + ".weight")
    network = network if head is None else network.with_classes(len(head))
    checkpoint.write(path, network.name, from_torch(network, state), "from torch", network.text)


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
    names = parser.add_mutually_exclusive_group()
    names.add_argument("--model", help="with --from-torch: the network's name in `train --model list`")
    names.add_argument("--model-file", help="a network of your own")
    options = parser.parse_args()
    if options.from_torch != bool(options.model or options.from_torch and options.model_file):
        parser.error("--from-torch goes together with --model NAME or --model-file FILE")
    try:
        network = network_of(options.model, options.model_file)
        if options.from_torch:
            write(options.output, network, load_state(options.input))
        else:
            torch.save(to_torch(checkpoint.read(options.input), network), options.output)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as failure:
        sys.exit(f"torch_state: {options.input}: {failure}")


def network_of(name, file):
    """Nothing where neither is given."""
    if file:
        with open(file, encoding="utf-8", errors="replace", newline="") as opened:
            return Network(opened.read())
    return Network(built_in(name)) if name else None


if __name__ == "__main__":
    main()
