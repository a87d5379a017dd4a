"""cifar10_cnn_torch.py DIR [EPOCHS [BATCH [SEED]]]: trains the network of `train --model cifar10_cnn` by the same recipe in PyTorch, on
CIFAR-10's binary files in DIR, and prints the accuracy after each epoch. A development script: it needs torch from PyPI.

BATCH is the global one: compare with `mpirun -np 2 train --model cifar10_cnn --data cifar10:DIR --epochs EPOCHS --batch BATCH/2`."""
import glob
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

directory, epochs, batch, seed = (sys.argv[1:] + ["20", "64", "1"][len(sys.argv) - 2:])[:4]
epochs, batch = int(epochs), int(batch)
random = np.random.default_rng(int(seed))
torch.manual_seed(int(seed))


def read(pattern):
    rows = np.concatenate([np.fromfile(f, np.uint8).reshape(-1, 3073) for f in sorted(glob.glob(f"{directory}/{pattern}"))])
    return torch.from_numpy(rows[:, 1:].reshape(-1, 3, 32, 32).copy()).float(), torch.from_numpy(rows[:, 0].astype(np.int64))


def standardise(x):
    mean, deviation = x.mean((1, 2, 3), keepdim=True), x.std((1, 2, 3), correction=0, keepdim=True)
    return (x - mean) / torch.clamp(deviation, min=1728**-0.5)


def distort(images):
    out = torch.empty(len(images), 3, 24, 24)
    for i, image in enumerate(images):
        top, left = random.integers(0, 9, 2)
        image = image[:, top:top + 24, left:left + 24]
        out[i] = image.flip(2) if random.random() < 0.5 else image
    out += torch.from_numpy(random.uniform(-63, 63, (len(images), 1, 1, 1)).astype(np.float32))
    mean = out.mean((2, 3), keepdim=True)  # of each channel
    return standardise((out - mean) * torch.from_numpy(random.uniform(0.2, 1.8, (len(images), 1, 1, 1)).astype(np.float32)) + mean)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 64, 5, padding=2), nn.Conv2d(64, 64, 5, padding=2)
        self.local3, self.local4, self.softmax_linear = nn.Linear(2304, 384), nn.Linear(384, 192), nn.Linear(192, 10)
        for layer, sigma, bias in ((self.conv1, 0.05, 0.0), (self.conv2, 0.05, 0.1), (self.local3, 0.04, 0.1), (self.local4, 0.04, 0.1),
                                   (self.softmax_linear, 1 / 192, 0.0)):
            nn.init.trunc_normal_(layer.weight, std=sigma, a=-2 * sigma, b=2 * sigma)
            nn.init.constant_(layer.bias, bias)
        self.norm = nn.LocalResponseNorm(9, alpha=0.001, beta=0.75, k=1.0)
        self.pool = nn.MaxPool2d(3, 2, ceil_mode=True)

    def forward(self, x):
        x = self.norm(self.pool(F.relu(self.conv1(x))))
        x = self.pool(self.norm(F.relu(self.conv2(x))))
        return self.softmax_linear(F.relu(self.local4(F.relu(self.local3(torch.flatten(x, 1))))))


images, labels = read("data_batch_*.bin")
test_images, test_labels = read("test_batch.bin")
test_images = standardise(test_images[:, :, 4:28, 4:28])
network, average = Network(), Network()
average.load_state_dict(network.state_dict())
optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
step = 0
for epoch in range(1, epochs + 1):
    order = random.permutation(len(images))
    for first in range(0, len(order) - batch + 1, batch):
        chosen = torch.from_numpy(order[first:first + batch])
        loss = F.cross_entropy(network(distort(images[chosen])), labels[chosen])
        loss = loss + 0.004 / 2 * (network.local3.weight.square().sum() + network.local4.weight.square().sum())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        keep = min(0.9999, (1 + step) / (10 + step))
        with torch.no_grad():
            for a, w in zip(average.parameters(), network.parameters()):
                a.lerp_(w, 1 - keep)
    with torch.no_grad():
        top1 = torch.cat([average(part).argmax(1) for part in test_images.split(500)]).eq(test_labels).float().mean().item()
    print(f"epoch {epoch}, step {step}: loss {loss.item():.3f}, top-1 {100 * top1:.2f} %", flush=True)
