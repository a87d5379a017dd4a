"""fine_tune_cifar10.py TRAIN WEIGHTS.pth DATA [SEED...]: tf_efficientnet_lite0 from published weights on 5,000 images of CIFAR-10 at 112 pixels, by
`train` and by torch with timm's network, the same files and the same recipe: whole, and the head alone. Prints the accuracies after the
last of three epochs. DATA has data_batch_1.bin and test_batch.bin. A development script: torch, torchvision, timm and pillow from PyPI."""
import os
import re
import subprocess
import sys
import tempfile

import numpy as np
import timm
import torch
from PIL import Image
from torchvision import datasets, transforms

train, weights, data = sys.argv[1:4]
seeds = [int(seed) for seed in sys.argv[4:]] or [1]
epochs, batch = 3, 32
rates = {"whole": 0.02, "head": 0.1}
mean = deviation = (0.5, 0.5, 0.5)


def write_images(folder):
    for part, file in (("train", "data_batch_1.bin"), ("val", "test_batch.bin")):
        rows = np.fromfile(f"{data}/{file}", np.uint8).reshape(-1, 3073)
        for i, row in enumerate(rows):
            path = f"{folder}/{part}/{row[0]}"
            os.makedirs(path, exist_ok=True)
            pixels = row[1:].reshape(3, 32, 32).transpose(1, 2, 0)
            Image.fromarray(pixels).resize((128, 128), Image.BICUBIC).save(f"{path}/{i:05}.png")


def ours(folder, what, seed):
    frozen = ["--freeze", "*,!classifier"] if what == "head" else []
    said = subprocess.run([train, "--model", "tf_efficientnet_lite0", "--init-from", weights, "--data", f"images:{folder}", "--recipe",
                           "crop=112 evaluation-crop=112", "--optimizer", "momentum", "--lr", str(rates[what]), "--lr-schedule", "cosine", "--warmup-epochs", "0",
                           "--weight-decay", "0", "--ema", "0", "--batch", str(batch), "--epochs", str(epochs), "--seed", str(seed), *frozen],
                          capture_output=True, text=True, check=True).stdout
    return float(re.findall(r"evaluation: top-1 ([0-9.]+) %", said)[-1])


def theirs(folder, what, seed):
    torch.manual_seed(seed)
    normal = [transforms.ToTensor(), transforms.Normalize(mean, deviation)]
    bicubic = transforms.InterpolationMode.BICUBIC
    seen = transforms.Compose([transforms.RandomResizedCrop(112, interpolation=bicubic), transforms.RandomHorizontalFlip(), *normal])
    evaluated = transforms.Compose([transforms.Resize(128, interpolation=bicubic), transforms.CenterCrop(112), *normal])
    training = torch.utils.data.DataLoader(datasets.ImageFolder(f"{folder}/train", seen), batch, shuffle=True, drop_last=True)
    network = timm.create_model("tf_efficientnet_lite0", pretrained=False, drop_rate=0.2)
    named = f"{folder}/named.pth"  # by timm's names
    subprocess.run([train, "--model", "tf_efficientnet_lite0", "--init-from", weights, "--export", "torch", named], check=True, capture_output=True)
    network.load_state_dict(torch.load(named, weights_only=True))
    network.reset_classifier(10)
    network.to(memory_format=torch.channels_last)
    if what == "head":
        for name, parameter in network.named_parameters():
            parameter.requires_grad = name.startswith("classifier")
    optimizer = torch.optim.SGD([p for p in network.parameters() if p.requires_grad], lr=rates[what], momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(training))
    for _ in range(epochs):
        network.train(what == "whole")
        network.training = True  # its dropout goes on
        for x, y in training:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(network(x.to(memory_format=torch.channels_last)), y, label_smoothing=0.1).backward()
            optimizer.step()
            schedule.step()
    network.eval()
    right = 0
    with torch.no_grad():
        for x, y in torch.utils.data.DataLoader(datasets.ImageFolder(f"{folder}/val", evaluated), 100):
            right += int((network(x.to(memory_format=torch.channels_last)).argmax(1) == y).sum())
    return right / 10


with tempfile.TemporaryDirectory() as temporary:
    write_images(temporary)
    for what in rates:
        for seed in seeds:
            print(f"{what}, seed {seed}: train {ours(temporary, what, seed):.1f} %, torch {theirs(temporary, what, seed):.1f} %", flush=True)
