"""train_cifar10.py MODEL DIR [EPOCHS [BATCH [SEED]]]: trains cifar10_cnn or resnet20 by the recipe of `train` in PyTorch, and prints the
accuracy after each epoch. DIR: as for cifar10:DIR, or, with train/ and test/ in it, for images:DIR (needs pillow). A development script:
it needs torch from PyPI.

BATCH is the global one: compare with `mpirun -np 2 train --model MODEL --data cifar10:DIR --epochs EPOCHS --batch BATCH/2`."""
import glob
import math
import os
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from torch_networks import Cifar10Cnn, ResNet

name, directory = sys.argv[1:3]
epochs, batch, seed = (int(v) for v in sys.argv[3:] + ["20", "64", "1"][len(sys.argv) - 3:])
random = np.random.default_rng(seed)
torch.manual_seed(seed)


def read(binary, folder):
    """Images as float 0..255, N x 3 x 32 x 32, and labels."""
    if os.path.isdir(f"{directory}/{folder}"):
        from PIL import Image
        classes = sorted(os.listdir(f"{directory}/{folder}"))
        files = [(f, i) for i, c in enumerate(classes) for f in sorted(glob.glob(f"{directory}/{folder}/{c}/*"))]
        pixels = np.stack([np.asarray(Image.open(f).convert("RGB")).transpose(2, 0, 1) for f, _ in files])
        return torch.from_numpy(pixels).float(), torch.tensor([i for _, i in files])
    rows = np.concatenate([np.fromfile(f, np.uint8).reshape(-1, 3073) for f in sorted(glob.glob(f"{directory}/{binary}"))])
    return torch.from_numpy(rows[:, 1:].reshape(-1, 3, 32, 32).copy()).float(), torch.from_numpy(rows[:, 0].astype(np.int64))


def crop(images, extent):
    out = torch.empty(len(images), 3, extent, extent)
    room = images.shape[2] - extent + 1
    for i, image in enumerate(images):
        top, left = random.integers(0, room, 2)
        image = image[:, top:top + extent, left:left + extent]
        out[i] = image.flip(2) if random.random() < 0.5 else image
    return out


class TutorialRecipe:
    def __init__(self):
        self.network = Cifar10Cnn()
        for layer, sigma, bias in zip(self.network.layers(), (0.05, 0.05, 0.04, 0.04, 1 / 192), (0.0, 0.1, 0.1, 0.1, 0.0)):
            nn.init.trunc_normal_(layer.weight, std=sigma, a=-2 * sigma, b=2 * sigma)
            nn.init.constant_(layer.bias, bias)
        self.average = Cifar10Cnn()
        self.average.load_state_dict(self.network.state_dict())
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=0.1)
        self.steps = 0

    @staticmethod
    def standardise(x):
        mean, deviation = x.mean((1, 2, 3), keepdim=True), x.std((1, 2, 3), correction=0, keepdim=True)
        return (x - mean) / torch.clamp(deviation, min=1728**-0.5)

    def training_input(self, images):
        def draw(low, high):
            return torch.from_numpy(random.uniform(low, high, (len(images), 1, 1, 1)).astype(np.float32))
        x = crop(images, 24) + draw(-63, 63)
        mean = x.mean((2, 3), keepdim=True)  # of each channel
        return self.standardise((x - mean) * draw(0.2, 1.8) + mean)

    def test_input(self, images):
        return self.standardise(images[:, :, 4:28, 4:28])

    def penalty(self):
        return 0.004 / 2 * sum(layer.weight.square().sum() for layer in (self.network.fc1, self.network.fc2))

    def before_step(self, progress):
        pass

    def after_step(self):
        self.steps += 1
        keep = min(0.9999, (1 + self.steps) / (10 + self.steps))
        for a, w in zip(self.average.parameters(), self.network.parameters()):
            a.lerp_(w, 1 - keep)


class ResnetRecipe:
    def __init__(self):
        self.network = self.average = ResNet(3)
        for layer in self.network.modules():
            if isinstance(layer, (nn.Conv2d, nn.Linear)):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out" if isinstance(layer, nn.Conv2d) else "fan_in")
        nn.init.zeros_(self.network.fc.bias)
        decays = [p for p in self.network.parameters() if p.dim() > 1]
        others = [p for p in self.network.parameters() if p.dim() == 1]
        self.optimizer = torch.optim.SGD([{"params": decays, "weight_decay": 1e-4}, {"params": others}], lr=0.1, momentum=0.9)
        self.peak = 0.1 * batch / 128

    @staticmethod
    def normalise(x):
        mean, deviation = torch.tensor([0.4914, 0.4822, 0.4465]), torch.tensor([0.2470, 0.2435, 0.2616])
        return (x / 255 - mean.view(1, 3, 1, 1)) / deviation.view(1, 3, 1, 1)

    def training_input(self, images):
        return self.normalise(crop(F.pad(images, (4, 4, 4, 4)), 32))

    def test_input(self, images):
        return self.normalise(images)

    def penalty(self):
        return 0

    def before_step(self, progress):  # in epochs
        rate = progress if progress < 1 else (1 + math.cos(math.pi * (progress - 1) / (epochs - 1))) / 2
        for group in self.optimizer.param_groups:
            group["lr"] = self.peak * rate

    def after_step(self):
        pass


images, labels = read("data_batch_*.bin", "train")
test_images, test_labels = read("test_batch.bin", "test")
recipe = {"cifar10_cnn": TutorialRecipe, "resnet20": ResnetRecipe}[name]()
for epoch in range(epochs):
    order = random.permutation(len(images))
    recipe.network.train()
    for first in range(0, len(order) - batch + 1, batch):
        chosen = torch.from_numpy(order[first:first + batch])
        recipe.before_step(epoch + first / len(order))
        loss = F.cross_entropy(recipe.network(recipe.training_input(images[chosen])), labels[chosen]) + recipe.penalty()
        recipe.optimizer.zero_grad()
        loss.backward()
        recipe.optimizer.step()
        with torch.no_grad():
            recipe.after_step()
    recipe.average.eval()
    with torch.no_grad():
        right = [recipe.average(recipe.test_input(x)).argmax(1) == y for x, y in zip(test_images.split(500), test_labels.split(500))]
    print(f"epoch {epoch + 1}: loss {loss.item():.3f}, top-1 {100 * torch.cat(right).float().mean().item():.2f} %", flush=True)
