"""make.py DIR: writes the files of published weights that the tests read, by torch and safetensors (2.9 and 0.6; any others do).

All hold a 3x3 convolution of 3 channels to 4, its BatchNorm and a fully connected layer of 64 inputs: the numbers 0, 1, 2, ... of each
tensor in torch's order, which fp16 and bf16 hold exactly."""
import argparse
import os
import sys

import safetensors.torch
import torch

SHAPES = {"conv.weight": (4, 3, 3, 3), "bn.weight": (4,), "bn.bias": (4,), "bn.running_mean": (4,), "bn.running_var": (4,),
          "fc.weight": (3, 64), "fc.bias": (3,)}


def tensors(dtype=torch.float32, first=0):
    made = {name: (first + torch.arange(torch.Size(shape).numel())).reshape(shape).to(dtype) for name, shape in SHAPES.items()}
    made["bn.num_batches_tracked"] = torch.tensor(7)
    return made


def behind(prefix, state):
    return {prefix + name: tensor for name, tensor in state.items()}


def strided():
    """As TensorFlow's weights come to torch: permuted, nothing copied; and two tensors in one storage."""
    state = tensors()
    state["conv.weight"] = state["conv.weight"].permute(2, 3, 1, 0).contiguous().permute(3, 2, 0, 1)
    state["fc.weight"] = state["fc.weight"].t().contiguous().t()
    both = torch.cat([state["bn.weight"], state["bn.bias"]])
    state["bn.weight"], state["bn.bias"] = both[:4], both[4:]
    return state


class Module(torch.nn.Module):
    """Its state dictionary is an OrderedDict with `_metadata`."""

    def __init__(self):
        super().__init__()
        self.conv, self.bn = torch.nn.Conv2d(3, 4, 3, bias=False), torch.nn.BatchNorm2d(4)
        self.fc = torch.nn.Linear(64, 3)
        self.load_state_dict(tensors())


def main():
    home = sys.argv[1]
    state = Module().state_dict()
    training = {"epoch": 3, "lr": 0.1, "optimizer": {"state": {}, "param_groups": [{"lr": 0.1, "params": [0, 1]}]}, "best": None}
    averaged = {**behind("module.", tensors(torch.float64)), "n_averaged": torch.tensor(5)}
    files = {
        "zip.pth": (state, {}),
        "legacy.pth": (state, {"_use_new_zipfile_serialization": False}),
        "strided.pth": (strided(), {}),
        "strided_legacy.pth": (strided(), {"_use_new_zipfile_serialization": False}),
        "half.pth": ({"state_dict": behind("module.", tensors(torch.float16)), **training}, {}),
        "bfloat16.pth": ({"model": behind("module.", tensors(torch.bfloat16)), **training}, {"_use_new_zipfile_serialization": False}),
        "average.pth": ({"model": tensors(first=9), "model_ema": averaged, **training}, {}),
        "parameters.pth": ({name: torch.nn.Parameter(t, requires_grad=False) for name, t in tensors().items()}, {"pickle_protocol": 4}),
        "arguments.pth": ({"model": state, "args": argparse.Namespace(lr=0.1)}, {}),
        "module.pth": (torch.nn.Linear(2, 2), {"_use_new_zipfile_serialization": False}),
    }
    for name, (content, how) in files.items():
        torch.save(content, os.path.join(home, name), **how)
    for name, dtype in (("fp32", torch.float32), ("half", torch.float16), ("bfloat16", torch.bfloat16)):
        safetensors.torch.save_file(tensors(dtype), os.path.join(home, name + ".safetensors"), {"format": "pt"})


main()
