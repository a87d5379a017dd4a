"""torchvision_parity.py BUILD [MODEL ...] [--images DIR]: whether our networks are torchvision's, number by number.

The same weights (a .pth that ours reads itself) and images go through torchvision in fp64 and fp32, and through ours: `reference`
(which computes in fp64) shows that the definitions are the same, `onednn` (fp32) that what trains is. Compared are the logits and
loss of an evaluation; logits, loss, every gradient and running statistic of a training step; what three steps of the recipe's
optimizer change (each from our weights before it). Errors are norms of differences over norms, against torchvision in fp64. Ends with 1 if a limit is exceeded.

BUILD: a build folder with the target parity_dump. --images: photographs instead of made-up pixels. Development only: it needs torch,
torchvision, h5py, numpy, xxhash (and pillow) from PyPI."""
import argparse
import glob
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "python"))
import named_values
from ringtrain.torch_state import from_torch_layout, to_torch_layout
from torch_peers import PeerTraining, make_peer

STEPS = 3
# model, backend, extent, images a step, classes, optimizer, learning rate
CASES = [
    ("resnet18", "reference", 96, 4, 1000, "nesterov", 0.01),
    ("resnet18", "onednn", 96, 4, 1000, "nesterov", 0.01),
    ("resnet18", "onednn", 224, 8, 1000, "nesterov", 0.01),
    ("resnet50", "reference", 96, 4, 1000, "momentum", 0.01),
    ("resnet50", "onednn", 96, 4, 1000, "momentum", 0.01),
    ("resnet50", "onednn", 224, 8, 1000, "momentum", 0.01),
    ("inception_v3", "reference", 299, 2, 1001, "rmsprop", 0.045),
    ("inception_v3", "onednn", 299, 4, 1001, "rmsprop", 0.045),
]
# What is compared: how the names begin, the largest error of `reference` and that of `onednn`. In fp32 a ReLU may change sides by
# rounding alone, and all gradients before it with it, in torchvision as in ours: `onednn` may also be so many times as far off as
# torchvision's fp32 is. Weights and statistics are kept in fp32 by both backends, which shows where they change little.
TIMES_TORCHVISION = 4
QUANTITIES = {
    "evaluation: logits": ("evaluation/logits", 1e-6, 1e-4),
    "evaluation: loss": ("evaluation/loss", 1e-6, 1e-4),
    "step 1: logits": ("step1/logits", 1e-6, 1e-4),
    "step 1: auxiliary logits": ("step1/auxiliary_logits", 1e-6, 1e-4),
    "step 1: loss": ("step1/loss", 1e-6, 1e-4),
    "step 1: gradients": ("step1/gradients/", 1e-6, 1e-3),
    "step 1: change of statistics": ("step1/statistics/", 1e-3, 1e-3),
    "step 1: change of weights": ("step1/weights/", 1e-3, 1e-3),
    "step 3: loss": ("step3/loss", 1e-6, 1e-4),
    "step 3: change of weights": ("step3/weights/", 1e-3, 1e-3),
    "steps 1 to 3: change of statistics": ("step3/statistics/", 1e-3, 1e-3),
}


def first_state(peer):
    """A state dictionary with values made from names."""
    state = peer.network.state_dict()
    fixed = {name for name, parameter in peer.network.named_parameters() if not parameter.requires_grad}
    for name, value in state.items():
        if name in fixed or name.endswith("num_batches_tracked"):
            continue
        shape = from_torch_layout({}, name, np.empty(value.shape, np.uint8)).shape
        state[name] = torch.from_numpy(np.ascontiguousarray(to_torch_layout({}, name, named_values.parameter(name, shape))))
    return state


def photographs(folder, count, extent):
    from PIL import Image
    files = sorted(glob.glob(os.path.join(folder, "**", "*.JPEG"), recursive=True))
    opened = [Image.open(files[i % len(files)]).convert("RGB") for i in range(count)]
    return np.stack([np.asarray(image.resize((extent, extent), Image.BILINEAR)) for image in opened])


def run_ours(build, folder, case, state, images, labels):
    name, backend, extent, batch, classes, optimizer, lr = case
    path = os.path.join(folder, name)
    torch.save(state, path + ".pth")
    images.tofile(path + ".u8")
    labels.tofile(path + ".i32")
    spec = {"model": name, "backend": backend, "classes": classes, "extent": extent, "batch": batch, "optimizer": optimizer,
            "learning_rate": lr, "steps": STEPS, "checkpoint": path + ".pth", "images": path + ".u8", "labels": path + ".i32", "out": path}
    with open(path + ".json", "w") as file:
        json.dump(spec, file)
    subprocess.run([os.path.join(build, "test/parity/parity_dump"), path + ".json"], check=True)
    return read_dump(path)


def read_dump(path):
    values, results, first = np.fromfile(path + ".f32", "<f4"), {}, 0
    for line in open(path + ".txt"):
        name, *shape = line.split()
        shape = [int(extent) for extent in shape]
        count = int(np.prod(shape))
        results[name] = to_torch_layout({}, name, values[first:first + count].reshape(shape)).astype(np.float64)
        first += count
    return results


def run_peer(case, state, images, labels, dtype, steps=STEPS, ours=None):
    """Each step goes on from our weights before it, so that no step's rounding grows in the next."""
    name, _, _, batch, classes, optimizer, lr = case
    training = PeerTraining(make_peer(name, classes, optimizer), state, dtype, lr)
    training.evaluate(images[:batch], labels[:batch])
    for step in range(1, steps + 1):
        if step > 1:
            training.go_on_from(weights_of(ours, step - 1))
        chosen = slice((step - 1) * batch, step * batch)
        training.step(f"step{step}/", images[chosen], labels[chosen])
        if step == 1:
            training.keep_gradients("step1/gradients/")
        training.keep_state(f"step{step}/")
    return training.results


def weights_of(results, step):
    start = f"step{step}/weights/"
    return {name.removeprefix(start): value for name, value in results.items() if name.startswith(start)}


def with_changes(results, ours, state):
    """Each step's weights less ours before it: what the step did."""
    changed = dict(results)
    for step in range(1, STEPS + 1):
        before = weights_of(ours, step - 1) or {name: value.double().numpy() for name, value in state.items()}
        for name, value in weights_of(results, step).items():
            changed[f"step{step}/weights/{name}"] = value - before[name]
    return changed


def error(value, exact):
    return np.linalg.norm(value - exact) / max(np.linalg.norm(exact), 1e-30)


def compare(backend, ours, single, exact):
    """Prints a row a quantity; whether all are within their limits."""
    print("| quantity | tensors | ours: largest | median | torchvision fp32: largest | median | limit |\n|---|---|---|---|---|---|---|")
    good = True
    for quantity, (start, *limits) in QUANTITIES.items():
        names = [n for n in exact if n.startswith(start)]
        if not names or not set(names) & set(ours):  # the reference keeps its logits to itself
            continue
        assert set(names) == {n for n in ours if n.startswith(start)}, f"{quantity}: the tensors' names differ"
        mine, theirs = ({n: error(r[n], exact[n]) for n in names} for r in (ours, single))
        limit = limits[backend == "onednn"]
        if backend == "onednn":
            limit = max(limit, TIMES_TORCHVISION * max(theirs.values()))
        worst = max(mine, key=mine.get)
        exceeded = not mine[worst] <= limit
        good = good and not exceeded
        where = f" ({worst[len(start):]})" if len(names) > 1 else ""
        print(f"| {quantity} | {len(names)} | {mine[worst]:.1e}{where} | {np.median(list(mine.values())):.1e} | "
              f"{max(theirs.values()):.1e} | {np.median(list(theirs.values())):.1e} | {limit:.0e}{' EXCEEDED' if exceeded else ''} |")
    return good


def run(build, folder, case, photos):
    name, backend, extent, batch, classes, optimizer, _ = case
    print(f"\n{name}, {backend}, {extent} x {extent}, batch {batch}, {optimizer}\n", flush=True)
    images = photographs(photos, STEPS * batch, extent) if photos else named_values.images(STEPS * batch, extent)
    labels = named_values.labels(STEPS * batch, classes)
    state = {n: v.clone() for n, v in first_state(make_peer(name, classes, optimizer)).items()}
    ours = run_ours(build, folder, case, state, images, labels)
    exact, single = (run_peer(case, state, images, labels, dtype, ours=ours) for dtype in (torch.float64, torch.float32))
    return compare(backend, *(with_changes(r, ours, state) for r in (ours, single, exact)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("models", nargs="*", metavar="MODEL", help="all unless named")
    parser.add_argument("--images")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        good = [run(options.build, folder, case, options.images) for case in CASES if not options.models or case[0] in options.models]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
