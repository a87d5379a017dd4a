"""input_against_torch.py DIR [SIDE [ROUNDS]]: images a second and core (CPU seconds of all processes) that torchvision makes of images:DIR:
RandomResizedCrop and a flip from PIL and from torchvision.io.decode_jpeg, through a DataLoader of one worker; next to what
input_bench prints for the same. A development script: it needs torch and torchvision from PyPI."""
import os
import resource
import statistics
import sys

import torch
from torchvision import datasets, io, transforms
from torchvision.transforms import v2

torch.set_num_threads(1)
directory, side, rounds = (sys.argv[1:] + ["224", "7"][len(sys.argv) - 2:])[:3]
side, rounds = int(side), int(rounds)
REPEATS = 12  # of the few images, so that starting the worker does not count


def from_tensors(path):
    return io.decode_jpeg(io.read_file(path), mode=io.ImageReadMode.RGB)


class Repeated(torch.utils.data.Dataset):
    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data) * REPEATS

    def __getitem__(self, i):
        return self.data[i % len(self.data)]


def images(loader, transform):
    data = datasets.ImageFolder(os.path.join(directory, "train"), transform=transform, loader=loader)
    return Repeated(data)


CONTENDERS = {
    "PIL": images(datasets.folder.pil_loader, transforms.Compose([transforms.RandomResizedCrop(side), transforms.RandomHorizontalFlip(), transforms.PILToTensor()])),
    "decode_jpeg": images(from_tensors, transforms.Compose([v2.RandomResizedCrop(side, antialias=True), v2.RandomHorizontalFlip()])),
}


def cpu_seconds():
    return sum(u.ru_utime + u.ru_stime for u in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


def rate(data):
    start, count = cpu_seconds(), 0
    for pixels, _ in torch.utils.data.DataLoader(data, batch_size=16, num_workers=1, shuffle=True):
        count += len(pixels)
    return count / (cpu_seconds() - start)


rates = {name: [] for name in CONTENDERS}
for _ in range(rounds):
    for name, data in CONTENDERS.items():
        rates[name].append(rate(data))
for name, values in rates.items():
    print(f"torchvision {torch.__version__}, {name}, random resized to {side}: {statistics.median(values):.0f} images a second and core")
