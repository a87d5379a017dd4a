"""write_golden.py DIR: writes what torchvision's networks make, in fp64, of weights and images that test/unit/train/golden_test.cpp makes anew.
A line `name norm product` for each result: its norm, and its product with a vector made from its name, which finds values in wrong
places. Development only: torch, torchvision, h5py, numpy and xxhash."""
import os
import sys

import torch
import torchvision

import named_values
from torch_peers import make_peer
from torchvision_parity import first_state, from_torch_layout, run_peer

# as in golden_test.cpp
CASES = [
    ("resnet18", "", 33, 4, 1000, "nesterov", 0.01),
    ("resnet50", "", 33, 4, 1000, "momentum", 0.01),
    ("inception_v3", "", 299, 3, 1001, "rmsprop", 0.045),
]


def lines_of(results):
    probes = {name: named_values.probe(name, from_torch_layout({}, name, value)) for name, value in results.items() if "/weights/" not in name}
    return [f"{name} {norm:.9g} {product:.9g}\n" for name, (norm, product) in probes.items()]


def write(folder, case):
    name, _, extent, batch, classes, optimizer, _ = case
    images, labels = named_values.images(batch, extent), named_values.labels(batch, classes)
    state = {n: v.clone() for n, v in first_state(make_peer(name, classes, optimizer)).items()}
    results = run_peer(case, state, images, labels, torch.float64, steps=1)
    with open(os.path.join(folder, name + ".txt"), "w") as file:
        file.write(f"# {name}, {extent} x {extent}, batch {batch}: torchvision {torchvision.__version__} in fp64, by test/parity/write_golden.py\n")
        file.writelines(lines_of(results))


for case in CASES:
    write(sys.argv[1], case)
