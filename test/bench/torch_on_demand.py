"""torch_on_demand.py MODEL BATCH THREADS MODE: PyTorch's side of against_torch.py. MODE is eager or compile, with -bf16
for autocast and -channels_last for that layout. For every number on standard input, trains so many steps and prints
the seconds."""
import os
import sys
import time

name, batch, threads, mode = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
os.environ["OMP_NUM_THREADS"] = str(threads)
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from torch_networks import Cifar10Cnn, ResNet

torch.set_num_threads(threads)
torch.manual_seed(1)


def make():
    """The network and the extent of its input."""
    if name == "cifar10_cnn":
        return Cifar10Cnn(), 24
    if name == "resnet20":
        return ResNet(3), 32
    import torchvision
    if name == "inception_v3":
        return torchvision.models.inception_v3(init_weights=False, num_classes=10), 299
    return getattr(torchvision.models, name)(num_classes=10), 224


def loss_function(a, b):
    with torch.autocast("cpu", torch.bfloat16, enabled="-bf16" in mode):
        logits = model(a)
    if name != "inception_v3":
        return F.cross_entropy(logits.float(), b)
    return F.cross_entropy(logits.logits.float(), b) + 0.4 * F.cross_entropy(logits.aux_logits.float(), b)


model, extent = make()
layout = torch.channels_last if mode.endswith("channels_last") else torch.contiguous_format
model = model.train().to(memory_format=layout)
x = torch.randn(batch, 3, extent, extent).to(memory_format=layout)
y = torch.randint(0, 10, (batch,))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0 if name == "cifar10_cnn" else 0.9, fused=True)
loss_of = torch.compile(loss_function) if mode.startswith("compile") else loss_function
for line in sys.stdin:
    start = time.perf_counter()
    for _ in range(int(line)):
        optimizer.zero_grad(set_to_none=True)
        loss_of(x, y).backward()
        optimizer.step()
    print(f"{time.perf_counter() - start:.6f}", flush=True)
