"""same_accuracy.py BUILD MODEL DATA CHECKPOINT.h5: whether torchvision's network, with the weights of a checkpoint and the pixels that
`train` evaluates, is right as often. BUILD has the targets train and evaluation_pixels. Development only: torch, torchvision, h5py, numpy."""
import os
import re
import subprocess
import sys
import tempfile

import numpy as np
import torch

from torch_peers import make_peer

build, name, data, checkpoint = sys.argv[1:]
here = os.path.dirname(os.path.abspath(__file__))


def torch_state(folder):
    path = os.path.join(folder, "weights.pth")
    subprocess.run([sys.executable, os.path.join(here, "../../scripts/checkpoint_to_torch.py"), checkpoint, path], check=True)
    return torch.load(path, weights_only=True)


def theirs(folder):
    """Images that are right, of how many, and the mean loss."""
    state = torch_state(folder)
    peer = make_peer(name, len(state["fc.bias"]), "momentum")
    peer.network.load_state_dict(state)
    peer.network.eval()
    out = os.path.join(folder, "pixels")
    subprocess.run([os.path.join(build, "test/parity/evaluation_pixels"), name, data, out], check=True)
    labels = torch.from_numpy(np.fromfile(out + ".i32", "<i4")).long()
    images = np.memmap(out + ".u8", np.uint8).reshape(len(labels), -1)
    extent = round((images.shape[1] / 3) ** 0.5)
    mean, deviation = (torch.tensor(v).view(1, 3, 1, 1) for v in (peer.mean, peer.deviation))
    right, loss = 0, 0.0
    for first in range(0, len(labels), 50):
        chosen, answers = images[first:first + 50], labels[first:first + 50]
        x = torch.from_numpy(chosen.reshape(-1, extent, extent, 3).copy()).permute(0, 3, 1, 2).float()
        with torch.no_grad():
            logits = peer.network((x / 255 - mean) / deviation)
        right += int((logits.argmax(1) == answers).sum())
        loss += float(torch.nn.functional.cross_entropy(logits, answers, reduction="sum"))
    return right, len(labels), loss / len(labels)


def ours():
    """The fraction of images that are right, and the loss, as `train` tells them."""
    said = subprocess.run([os.path.join(build, "train"), "--model", name, "--data", data, "--eval-only", "--init-from", checkpoint], capture_output=True, text=True, check=True).stdout
    top1, loss = re.search(r"top-1 ([0-9.]+) %.*loss ([0-9.]+)", said).groups()
    return float(top1) / 100, float(loss)


with tempfile.TemporaryDirectory() as temporary:
    right, count, loss = theirs(temporary)
our_top1, our_loss = ours()
print(f"{name} on {data}: torchvision {right} of {count} = {100 * right / count:.2f} %, loss {loss:.4g}; train {100 * our_top1:.2f} %, loss {our_loss:.4g}")
sys.exit(0 if abs(right / count - our_top1) < 1e-4 and abs(loss - our_loss) < 1e-3 * loss else 1)
