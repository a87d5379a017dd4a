"""The networks of the zoo in PyTorch, for development scripts that compare with it."""
import torch
import torch.nn.functional as F
from torch import nn


class Cifar10Cnn(nn.Module):
    """The network of TensorFlow's CIFAR-10 tutorial; SAME 3x3/2 pooling of an even size is ceil_mode."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 64, 5, padding=2), nn.Conv2d(64, 64, 5, padding=2)
        self.fc1, self.fc2, self.fc3 = nn.Linear(2304, 384), nn.Linear(384, 192), nn.Linear(192, 10)
        self.norm = nn.LocalResponseNorm(9, alpha=0.001, beta=0.75, k=1.0)
        self.pool = nn.MaxPool2d(3, 2, ceil_mode=True)

    def layers(self):
        return self.conv1, self.conv2, self.fc1, self.fc2, self.fc3

    def forward(self, x):
        x = self.norm(self.pool(F.relu(self.conv1(x))))
        x = self.pool(self.norm(F.relu(self.conv2(x))))
        x = F.relu(self.fc2(F.relu(self.fc1(torch.flatten(x, 1)))))
        return self.fc3(x)


class Block(nn.Module):
    def __init__(self, inputs, channels, stride):
        super().__init__()
        self.stride, self.added = stride, channels - inputs
        self.conv1 = nn.Conv2d(inputs, channels, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        if self.added:
            x = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.added))
        return F.relu(y + x)


class ResNet(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        blocks, inputs = [], 16
        for channels, stride in ((16, 1), (32, 2), (64, 2)):
            for i in range(n):
                blocks.append(Block(inputs, channels, stride if i == 0 else 1))
                inputs = channels
        self.blocks, self.fc = nn.Sequential(*blocks), nn.Linear(64, 10)

    def forward(self, x):
        x = self.blocks(F.relu(self.bn1(self.conv1(x))))
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))
