"""exported_weights.py TRAIN [NETWORK ...]: whether torchvision's, timm's and their authors' networks take what `train --export` writes.

Each network's state, with values that no training begins with, goes through --init-from and --export; a new network loads it with
strict=True, and all tensors must be the same to the bit. Ends with 1 where one is not.
Development only: it needs torch, torchvision, timm and safetensors from PyPI."""
import os
import subprocess
import sys
import tempfile

import safetensors.torch
import torch
import torchvision

from network_peers import PEERS

TORCHVISION = ["resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "inception_v3"]
READERS = {"torch": lambda path: torch.load(path, weights_only=True), "safetensors": safetensors.torch.load_file}


def classes_of(name):
    return 10 if name in PEERS and PEERS[name][1] < 64 else 1000


def network_of(name):
    if name in TORCHVISION:
        return getattr(torchvision.models, name)(weights=None, **({"init_weights": False} if name == "inception_v3" else {}))
    return PEERS[name][0](classes_of(name))


def drawn(name):
    state = network_of(name).state_dict()
    without_gamma = name == "inception_v3"
    for key, tensor in state.items():
        norm = key.rpartition(".")[0] + ".running_mean" in state
        if tensor.is_floating_point() and not (without_gamma and norm and key.endswith(".weight")):
            tensor.uniform_(0.5, 1)
    return state


def differing(train, name, folder):
    state, path = drawn(name), os.path.join(folder, "in.pth")
    torch.save(state, path)
    for kind, read in READERS.items():
        out = os.path.join(folder, "out." + kind)
        made = ["--model", name, "--classes", str(classes_of(name))]
        subprocess.run([train, *made, "--init-from", path, "--export", kind, out], check=True, stdout=subprocess.DEVNULL)
        network = network_of(name)
        network.load_state_dict(read(out), strict=True)
        yield from (f"{kind}: {key}" for key, tensor in network.state_dict().items() if not torch.equal(tensor, state[key]))


def main():
    train, bad = os.path.abspath(sys.argv[1]), 0
    for name in sys.argv[2:] or TORCHVISION + list(PEERS):
        with tempfile.TemporaryDirectory() as folder:
            wrong = list(differing(train, name, folder))
            bad += bool(wrong)
            print(f"{name}: {'loaded, to the bit' if not wrong else wrong[:3]}", flush=True)
    sys.exit(bad > 0)


main()
