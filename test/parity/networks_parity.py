"""networks_parity.py BUILD [MODEL ...] [--golden FILE]: whether the networks of models/ are those of network_peers.py, in double precision.

Weights made from names go through ringtrain.torch_state into our layout and back. Then the same images go through both: logits and loss
of an evaluation, logits, loss, every gradient and the batch's statistics of a training step. Errors are norms of differences over
norms; none may be above 1e-6. Parameters, statistics and multiply-adds must be the published ones, and each parameter's first values
have the mean and deviation of the peer's within four standard errors. --golden writes the norms of what the peers
give, for test/unit/model/network_golden_test.cpp.

BUILD: a build folder with the target network_dump. Development only: it needs torch, torchvision, timm, h5py, numpy and xxhash from
PyPI."""
import argparse
import os
import re
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "python"))
import named_values
from network_peers import PEERS
from ringtrain.model_file import Network, built_in
from ringtrain.torch_state import from_torch, from_torch_layout, to_torch_layout

BATCH, LIMIT = 2, 1e-6


def text_at(name, extent):
    """The model file at another extent, in which dropout keeps all."""
    text = re.sub(r"(?m)^input size=\S+", f"input size={extent}", built_in(name))
    return re.sub(r"(dropout|stochastic_depth) keep=\S+", r"\1 keep=1", text)


def first_state(peer, network):
    """A state dictionary with values made from names."""
    state = peer.state_dict()
    for name, value in state.items():
        if not name.endswith("num_batches_tracked"):
            shape = value.shape[:1] if name in network.layer_scales else from_torch_layout(network.flattened, name, np.empty(value.shape, np.uint8)).shape
            values = to_torch_layout(network.flattened, name, named_values.parameter(name, shape))
            state[name] = torch.from_numpy(np.ascontiguousarray(values)).reshape(value.shape)
    return state


def listed(dump, model):
    """Our parameters and statistics in their order, with their extents, and the multiply-adds."""
    lines = [line.split() for line in subprocess.run([dump, model], capture_output=True, text=True, check=True).stdout.splitlines()]
    return [(name, tuple(map(int, extents))) for name, *extents in lines[:-1]], float(lines[-1][1])


def in_order(tensors, order):
    """One flat vector; every tensor must be asked for, in the extents that it has."""
    parts, used = [], set()
    for name, extents in order:
        names = [name] if name.startswith("weights/") else [name + ".running_mean", name + ".running_var"]
        for each in names:
            assert tensors[each].shape == extents, (each, tensors[each].shape, extents)
            parts.append(np.asarray(tensors[each]).ravel())
        used.update(names)
    assert used == set(tensors), set(tensors) - used
    return np.concatenate(parts)


def run_ours(dump, folder, model, flat, images, labels, classes, order):
    paths = [os.path.join(folder, name) for name in ("values", "images", "labels", "out")]
    for path, values in zip(paths, (flat.astype("<f4"), images, labels.astype("<i4"))):
        values.tofile(path)
    subprocess.run([dump, model, *paths], check=True)
    values = iter(np.split(out := np.fromfile(paths[3], "<f8"), np.cumsum([len(labels) * classes, 1] * 2 + [
        int(np.prod(extents)) * (1 if name.startswith("weights/") else 2) for name, extents in order])))
    results = {name: next(values) for name in ("evaluation/logits", "evaluation/loss", "step/logits", "step/loss")}
    for name, extents in order:
        part = next(values)
        if name.startswith("weights/"):
            results["step/gradients/" + name[8:]] = part
        else:
            results["step/statistics/" + name[11:]] = part
    assert len(out) == sum(map(len, results.values()))
    return results


def run_peer(network, state, images, labels, mean, deviation, layers):
    network.load_state_dict(state)
    network.double()
    def vector(values):
        return torch.tensor(values, dtype=torch.float32).double().view(1, -1, 1, 1)
    x = (torch.from_numpy(images).permute(0, 3, 1, 2).double() / 255 - vector(mean)) / vector(deviation)
    y = torch.from_numpy(labels).long()
    network.eval()
    with torch.no_grad():
        logits = network(x)
    results = {"evaluation/logits": logits, "evaluation/loss": F.cross_entropy(logits, y)}
    network.train()
    moments = {}
    for name, module in network.named_modules():
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
            module.momentum = 1.0  # the running values become the batch's
    logits = network(x)
    loss = F.cross_entropy(logits, y, label_smoothing=0.1)
    loss.backward()
    results |= {"step/logits": logits, "step/loss": loss}
    results = {name: value.detach().numpy().ravel() for name, value in results.items()}
    for name, parameter in network.named_parameters():
        gradient = from_torch_layout(layers, name, parameter.grad.numpy())
        results["step/gradients/" + name] = gradient.ravel()
    buffers = dict(network.named_buffers())
    for name in buffers:
        if name.endswith(".running_mean"):
            norm = name[:-len(".running_mean")]
            results["step/statistics/" + norm] = np.concatenate([buffers[name], buffers[norm + ".running_var"]])
    return results


def unlike(dump, model, state, order, layers):
    """Parameters whose first values are drawn otherwise than the peer's: mean or deviation more than four standard errors apart."""
    path = model + ".initial"
    subprocess.run([dump, model, path], check=True)
    weights = [(name[8:], extents) for name, extents in order if name.startswith("weights/")]
    drawn = np.split(np.fromfile(path, "<f4").astype(np.float64), np.cumsum([int(np.prod(e)) for _, e in weights])[:-1])
    found = []
    for (name, _), mine in zip(weights, drawn):
        theirs = state[name].numpy().astype(np.float64).ravel()
        deviation = np.sqrt((mine.var() + theirs.var()) / 2)
        if deviation < 1e-12:
            same = abs(mine[0] - theirs[0]) < 1e-6 * max(1, abs(theirs[0]))
        else:
            standard = 4 * deviation * np.sqrt(2 / len(mine))  # of a difference of means; half its square of deviations
            same = abs(mine.mean() - theirs.mean()) <= standard and abs(mine.std() - theirs.std()) <= standard / np.sqrt(2)
        if not same:
            found.append((name, mine.mean(), mine.std(), theirs.mean(), theirs.std()))
    return found


def images_of(extent, channels):
    return np.ascontiguousarray(named_values.images(BATCH, extent)[..., :channels])


def input_of(text):
    """Classes, channels, mean and deviation, as the model file has them."""
    line = re.search(r"(?m)^input .*", text)[0]
    def numbers(option, usual):
        found = re.search(rf" {option}=(\S+)", line)
        return [float(v) for v in found[1].split(",")] if found else usual
    mean = numbers("mean", [0.5] * 3)
    return int(re.search(r"classes=(\d+)", text)[1]), len(mean), mean, numbers("deviation", [0.25] * 3)


def errors_of(ours, theirs):
    """Norms of differences over norms. A shift that the next BatchNorm takes away has no gradient but rounding: of those the norm is taken as
    a millionth of the largest gradient's."""
    norms = {n: np.linalg.norm(v) for n, v in theirs.items()}
    least = 1e-6 * max(v for n, v in norms.items() if "gradients" in n)
    return {n: np.linalg.norm(ours[n] - v) / max(norms[n], least if "gradients" in n else 1e-30) for n, v in theirs.items()}


def compare(name, dump, folder, golden):
    """Prints a row of the table; whether all is well."""
    make, extent, parameters, statistics, multiply_adds = PEERS[name]
    text, model = text_at(name, extent), os.path.join(folder, name + ".model")
    with open(model, "w") as file:
        file.write(text)
    classes, channels, mean, deviation = input_of(text)
    torch.manual_seed(3)
    peer, network = make(classes), Network(text)
    order, _ = listed(dump, model)
    drawn_otherwise = unlike(dump, model, peer.state_dict(), order, network.flattened)
    state = first_state(peer, network)
    with open(model + ".whole", "w") as file:
        file.write(built_in(name))
    macs = listed(dump, model + ".whole")[1] / 1e6
    count = [sum(int(np.prod(e)) for n, e in order if n.startswith(kind)) for kind in ("weights/", "statistics/")]
    tensors = from_torch(network, state)
    back = {n.split("/", 1)[1]: to_torch_layout(network.flattened, n.split("/", 1)[1], t) for n, t in tensors.items()}
    both_ways = all(np.array_equal(back[n].reshape(v.shape), v.numpy()) for n, v in state.items() if not n.endswith("tracked"))
    images, labels = images_of(extent, channels), named_values.labels(BATCH, classes)
    ours = run_ours(dump, folder, model, in_order(tensors, order), images, labels, classes, order)
    theirs = run_peer(peer, state, images, labels, mean, deviation, network.flattened)
    assert set(ours) == set(theirs), set(ours) ^ set(theirs)
    errors = errors_of(ours, theirs)
    if golden:
        write_golden(golden, name, extent, theirs)
    def worst(start):
        return max((e for n, e in errors.items() if n.startswith(start)), default=0)
    published = [(count[0], parameters), (2 * count[1], statistics), (round(macs, 3), multiply_adds)]
    same = [f"{mine:,}" + ("" if want is None else " =" if mine == want else f" NOT {want:,}") for mine, want in published]
    good = both_ways and max(errors.values()) <= LIMIT and not any("NOT" in s for s in same) and not drawn_otherwise
    print(f"| {name} | {extent} | {' | '.join(same)} | {'equal' if both_ways else 'DIFFERENT'} | " + " | ".join(f"{worst(start):.1e}" for start in (
        "evaluation/logits", "evaluation/loss", "step/logits", "step/loss", "step/gradients/", "step/statistics/")) + f" | {'' if good else 'EXCEEDED'} |", flush=True)
    if not good:
        print(drawn_otherwise[:8])
        print(sorted(errors.items(), key=lambda item: -item[1])[:5])
    return good


def write_golden(path, name, extent, results):
    """All logits and losses, and every sixth gradient but those that are 0."""
    probes = {each: named_values.probe(each, values) for each, values in results.items() if "statistics" not in each}
    gradients = [n for n in probes if n.startswith("step/gradients/")]
    largest = max(probes[n][0] for n in gradients)
    with open(path, "a") as file:
        print(f"network {name} {extent}", file=file)
        for each, (norm, product) in probes.items():
            if each not in gradients or gradients.index(each) % 6 == 0 and norm > 1e-6 * largest:
                print(f"{each} {norm:.9g} {product:.9g}", file=file)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("models", nargs="*", default=list(PEERS))
    parser.add_argument("--golden")
    options = parser.parse_args()
    dump = os.path.join(options.build, "test/parity/network_dump")
    torch.set_num_threads(2)
    print("| network | pixels | parameters | statistics | million multiply-adds | converted both ways | evaluation: logits | loss | step: logits | loss | gradients | statistics | |\n" + "|---" * 13 + "|")
    with tempfile.TemporaryDirectory() as folder:
        results = [compare(name, dump, folder, options.golden) for name in options.models or list(PEERS)]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
