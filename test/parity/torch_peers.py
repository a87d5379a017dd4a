"""torchvision's networks and PyTorch's optimizers, changed only where ringtrain's definition is another. Each change is a function here."""
import torch
import torch.nn.functional as F
import torchvision
from torch import nn


class SlimBatchNorm(nn.BatchNorm2d):
    """TensorFlow's: gamma is 1 for ever, the running variance follows the biased estimate."""

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                self.running_mean.lerp_(x.mean((0, 2, 3)), self.momentum)
                self.running_var.lerp_(x.var((0, 2, 3), correction=0), self.momentum)
            return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)
        return super().forward(x)


class SlimAveragePool:
    """In place of torch.nn.functional in torchvision's file: a 3x3 average pool does not count its padding."""

    def __getattr__(self, name):
        return getattr(F, name)

    def avg_pool2d(self, x, kernel_size, stride, padding=0):
        return F.avg_pool2d(x, kernel_size, stride, padding, count_include_pad=False)


def make_slim_inception(classes):
    torchvision.models.inception.F = SlimAveragePool()
    # No dropout: its random numbers are nobody else's. transform_input only undoes torchvision's own normalisation.
    network = torchvision.models.inception_v3(weights=None, num_classes=classes, init_weights=False, dropout=0.0)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.__class__ = SlimBatchNorm
            module.momentum = 3e-4  # slim's moving decay is 0.9997
            module.weight.requires_grad_(False)
    return network


class TensorFlowRmsProp(torch.optim.Optimizer):
    """Mean squares start at one, epsilon is inside of the root, and the rate enters the momentum."""

    def __init__(self, groups, lr):
        super().__init__(groups, {"lr": lr, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for w in group["params"]:
                state = self.state[w] or self.state[w].update(square=torch.ones_like(w), momentum=torch.zeros_like(w)) or self.state[w]
                g = w.grad + group["weight_decay"] * w
                state["square"].mul_(0.9).add_(g * g, alpha=0.1)
                state["momentum"].mul_(0.9).add_(group["lr"] * g / (state["square"] + 1.0).sqrt())
                w -= state["momentum"]


class ResNetPeer:
    """torchvision's network as it is, and its recipe."""

    mean, deviation = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    smoothing, decay = 0.1, 5e-5

    def __init__(self, name, classes, optimizer):
        self.network = getattr(torchvision.models, name)(weights=None, num_classes=classes)
        self.nesterov = optimizer == "nesterov"

    def heads(self, output):
        return [("logits", output, 1.0)]

    def make_optimizer(self, groups, lr):
        return torch.optim.SGD(groups, lr, momentum=0.9, nesterov=self.nesterov)


class InceptionPeer:
    mean, deviation = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
    smoothing, decay = 0.1, 4e-5

    def __init__(self, name, classes, optimizer):
        self.network = make_slim_inception(classes)

    def heads(self, output):
        if isinstance(output, torch.Tensor):  # evaluation: the auxiliary head is not there
            return [("logits", output, 1.0)]
        return [("logits", output.logits, 1.0), ("auxiliary_logits", output.aux_logits, 0.4)]

    def make_optimizer(self, groups, lr):
        return TensorFlowRmsProp(groups, lr)


def make_peer(name, classes, optimizer):
    return (InceptionPeer if name == "inception_v3" else ResNetPeer)(name, classes, optimizer)


class PeerTraining:
    """Some steps in one floating-point type, and all that comes of them by the names of parity_dump, in torch's layouts."""

    def __init__(self, peer, state, dtype, lr):
        self.peer, self.dtype, self.network = peer, dtype, peer.network
        self.network.load_state_dict(state)
        self.first = {n: b.double() for n, b in state.items()}
        self.network.to(dtype)
        self.named = {n: p for n, p in self.network.named_parameters() if p.requires_grad}
        self.decaying = [p for p in self.named.values() if p.dim() > 1]
        others = [p for p in self.named.values() if p.dim() == 1]
        self.optimizer = peer.make_optimizer([{"params": self.decaying, "weight_decay": peer.decay}, {"params": others, "weight_decay": 0.0}], lr)
        self.results = {}

    def loss(self, folder, images, labels, smoothing):
        def vector(values):
            return torch.tensor(values, dtype=torch.float32).to(self.dtype).view(1, 3, 1, 1)
        x = (torch.from_numpy(images).permute(0, 3, 1, 2).to(self.dtype) / 255 - vector(self.peer.mean)) / vector(self.peer.deviation)
        total = 0
        for name, logits, weight in self.peer.heads(self.network(x)):
            self.keep(folder + name, logits)
            total = total + weight * F.cross_entropy(logits, torch.from_numpy(labels).long(), label_smoothing=smoothing)
        return total

    def keep(self, name, value):
        self.results[name] = value.detach().double().numpy().copy()

    def evaluate(self, images, labels):
        self.network.eval()
        with torch.no_grad():
            self.keep("evaluation/loss", self.loss("evaluation/", images, labels, 0.0))
        self.network.train()

    def go_on_from(self, weights):
        with torch.no_grad():
            for name, parameter in self.named.items():
                parameter.copy_(torch.from_numpy(weights[name]))

    def step(self, folder, images, labels):
        """The loss that is kept has the weights' penalty in it, as the log has."""
        self.optimizer.zero_grad()
        loss = self.loss(folder, images, labels, self.peer.smoothing)
        loss.backward()
        penalty = self.peer.decay / 2 * sum(w.detach().square().sum() for w in self.decaying)
        self.optimizer.step()
        self.keep(folder + "loss", loss + penalty)

    def keep_gradients(self, folder):
        for name, parameter in self.named.items():
            self.keep(folder + name, parameter.grad)

    def keep_state(self, folder):
        for name, parameter in self.named.items():
            self.keep(f"{folder}weights/{name}", parameter)
        for name, buffer in self.network.named_buffers():
            if "running" in name:
                self.keep(f"{folder}statistics/{name}", buffer.double() - self.first[name])
