"""torch_worker.py MODEL BATCH PRECISION MODE [--toy]: PyTorch's side of pair.py. Trains on data that is already on the GPU, channels
last, with PyTorch's own fused SGD. MODE is eager, compile, or a mode of torch.compile. Prints "ready" once warm; then, for every number
on standard input, trains so many steps and prints the seconds."""
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "test/support"))
from torch_networks import Cifar10Cnn, ResNet

name, batch, precision, mode = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
toy = "--toy" in sys.argv
device = "cpu" if toy else "cuda"
dtype = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}[precision]


def network():
    """The network, its images' edge and its classes."""
    if name == "cifar10_cnn":
        return Cifar10Cnn(), 24, 10
    if name.startswith("resnet") and (int(name[6:]) - 2) % 6 == 0 and name != "resnet50":
        return ResNet((int(name[6:]) - 2) // 6), 32, 10
    import torchvision
    if name == "inception_v3":
        return torchvision.models.inception_v3(init_weights=False), 299, 1000
    return getattr(torchvision.models, name)(), 224, 1000


def wait():
    if not toy:
        torch.cuda.synchronize()


torch.manual_seed(1)
torch.backends.cudnn.benchmark = True
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
model, edge, classes = network()
model = model.train().to(device, memory_format=torch.channels_last)
x = torch.randn(batch, 3, edge, edge, device=device).to(memory_format=torch.channels_last)
y = torch.randint(classes, (batch,), device=device)
optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, weight_decay=5e-5, fused=not toy)
scaler = torch.amp.GradScaler(device, enabled=precision == "fp16" and not toy)


def loss_of(images, labels):
    logits = model(images)
    if name == "inception_v3":  # with its auxiliary head
        return F.cross_entropy(logits[0], labels) + 0.4 * F.cross_entropy(logits[1], labels)
    return F.cross_entropy(logits, labels)


if mode != "eager":
    loss_of = torch.compile(loss_of, mode=None if mode == "compile" else mode)


def step():
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast(device, dtype=dtype, enabled=precision != "fp32"):
        loss = loss_of(x, y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()


for _ in range(1 if toy else 8):
    step()
wait()
print("ready", flush=True)
for line in sys.stdin:
    begin = time.perf_counter()
    for _ in range(int(line)):
        step()
    wait()
    print(f"{time.perf_counter() - begin:.6f}", flush=True)
