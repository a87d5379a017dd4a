"""The networks of models/ as torchvision, timm and their authors' repositories have them, without dropout: what networks_parity.py
compares with. Needs torch, torchvision and timm."""
import timm
import torch
import torchvision
from torch import nn


def without_dropout(network):
    for module in network.modules():
        if isinstance(module, nn.Dropout) or type(module).__name__ == "StochasticDepth":
            module.p = 0.0
    return network


def of_torchvision(name):
    return lambda classes: without_dropout(getattr(torchvision.models, name)(weights=None, num_classes=classes))


def of_timm(name):
    return lambda classes: without_dropout(timm.create_model(name, pretrained=False, num_classes=classes))


def resnet18_cifar(classes):
    network = torchvision.models.resnet18(weights=None, num_classes=classes)
    network.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
    network.maxpool = nn.Identity()
    nn.init.kaiming_normal_(network.conv1.weight, mode="fan_out", nonlinearity="relu")
    return network


class WideBlock(nn.Module):
    """Of xternalz/WideResNet-pytorch."""

    def __init__(self, channels, width, stride):
        super().__init__()
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv1 = nn.Conv2d(channels, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.convShortcut = None if channels == width else nn.Conv2d(channels, width, 1, stride, 0, bias=False)

    def forward(self, x):
        activated = self.bn1(x).relu()
        y = self.conv2(self.bn2(self.conv1(activated)).relu())
        return y + (x if self.convShortcut is None else self.convShortcut(activated))


class WideStage(nn.Module):
    def __init__(self, channels, width, stride):
        super().__init__()
        self.layer = nn.Sequential(WideBlock(channels, width, stride), WideBlock(width, width, 1))

    def forward(self, x):
        return self.layer(x)


class WideResNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.block1, self.block2, self.block3 = WideStage(16, 64, 1), WideStage(64, 128, 2), WideStage(128, 256, 2)
        self.bn1 = nn.BatchNorm2d(256)
        self.fc = nn.Linear(256, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        nn.init.zeros_(self.fc.bias)

    def forward(self, x):
        x = self.block3(self.block2(self.block1(self.conv1(x))))
        return self.fc(self.bn1(x).relu().mean((2, 3)))


class Unit(nn.Module):
    def __init__(self, channels, width):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(channels, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)

    def forward(self, x):
        return self.bn(self.conv(x)).relu()


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.res1, self.res2 = Unit(width, width), Unit(width, width)

    def forward(self, x):
        return x + self.res2(self.res1(x))


class ResNet9(nn.Module):
    """Of davidcpage/cifar10-fast."""

    def __init__(self, classes):
        super().__init__()
        self.prep, self.layer1, self.layer2, self.layer3 = Unit(3, 64), Unit(64, 128), Unit(128, 256), Unit(256, 512)
        self.layer1.residual, self.layer3.residual = Residual(128), Residual(512)
        self.linear = nn.Linear(512, classes, bias=False)

    def forward(self, x):
        pool = nn.functional.max_pool2d
        x = self.layer1.residual(pool(self.layer1(self.prep(x)), 2))
        x = pool(self.layer2(x), 2)
        x = self.layer3.residual(pool(self.layer3(x), 2))
        return self.linear(pool(x, 4).flatten(1)) * 0.125


class BasicBlock(nn.Module):
    def __init__(self, channels, width, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        if channels != width:
            self.downsample = nn.Sequential(nn.Conv2d(channels, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x):
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        return (y + (self.downsample(x) if hasattr(self, "downsample") else x)).relu()


class FashionResNet20(nn.Module):
    """Of zhunzhong07/Random-Erasing."""

    def __init__(self, classes):
        super().__init__()
        def stage(channels, width, stride):
            return nn.Sequential(BasicBlock(channels, width, stride), BasicBlock(width, width, 1), BasicBlock(width, width, 1))
        self.conv1, self.bn1 = nn.Conv2d(1, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        self.layer1, self.layer2, self.layer3 = stage(16, 16, 1), stage(16, 32, 2), stage(32, 64, 2)
        self.fc = nn.Linear(64, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.normal_(module.weight, 0, (2 / (module.out_channels * module.kernel_size[0] ** 2)) ** 0.5)

    def forward(self, x):
        x = self.layer3(self.layer2(self.layer1(self.bn1(self.conv1(x)).relu())))
        return self.fc(x.mean((2, 3)))


# By name: who makes it, the extent at which it is compared, parameters, values of statistics, and multiply-adds at its own extent.
PEERS = {
    "tf_efficientnet_lite0": (of_timm("tf_efficientnet_lite0"), 64, 4_652_008, 42_016, 385.188),
    "tf_efficientnet_lite1": (of_timm("tf_efficientnet_lite1"), 64, None, None, None),
    "tf_efficientnet_lite2": (of_timm("tf_efficientnet_lite2"), 64, None, None, None),
    "efficientnet_lite0": (of_timm("efficientnet_lite0"), 64, 4_652_008, 42_016, 385.188),
    "efficientnet_b0": (of_torchvision("efficientnet_b0"), 64, 5_288_548, 42_016, 385.815),
    "mobilenet_v3_large": (of_torchvision("mobilenet_v3_large"), 64, 5_483_032, 24_400, 216.590),
    "regnet_y_400mf": (of_torchvision("regnet_y_400mf"), 64, 4_344_144, None, 401.843),
    "resnext50_32x4d": (of_torchvision("resnext50_32x4d"), 64, 25_028_904, 68_224, 4_230.480),
    "wide_resnet50_2": (of_torchvision("wide_resnet50_2"), 64, 68_883_240, 68_224, 11_398.021),
    "resnet50d": (of_timm("resnet50d"), 64, 25_576_264, 53_248, 4_328.825),
    "densenet121": (of_torchvision("densenet121"), 64, 7_978_856, 83_648, 2_834.162),
    "vgg16_bn": (of_torchvision("vgg16_bn"), 224, 138_365_992, 8_448, 15_470.264),
    "convnext_tiny": (of_torchvision("convnext_tiny"), 64, 28_589_128, 0, 4_455.531),
    "resnet9": (ResNet9, 32, 6_573_120, 4_480, 379.262),
    "wrn_16_4": (WideResNet, 32, 2_748_890, 3_616, 392.612),
    "resnet18_cifar": (resnet18_cifar, 32, 11_173_962, 9_600, 555.423),
    "fashion_resnet20": (FashionResNet20, 28, None, None, None),
}
