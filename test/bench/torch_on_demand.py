"""torch_on_demand.py MODEL BATCH THREADS PRECISION LAYOUT OPTIMIZER EXECUTION [BUCKET_MB WIRE]: PyTorch's side of arena.py
and ranks_arena.py. PRECISION is fp32 or bf16 (by autocast), LAYOUT contiguous or channels_last, OPTIMIZER plain or fused,
EXECUTION eager, compile or max-autotune. With the last two it is one of $WORLD_SIZE ranks (as torch.distributed wants them
named) under DistributedDataParallel with gloo: gradients go in buckets of so many MB, as fp32 or bf16. For every number on
standard input, trains so many steps and prints the seconds."""
import os
import sys
import time

name, batch, threads, precision, layout, kind, execution, *sums = sys.argv[1:]
os.environ["OMP_NUM_THREADS"] = threads
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from torch_networks import Cifar10Cnn, ResNet

torch.set_num_threads(int(threads))
torch.set_flush_denormal(True)  # as train does
torch.manual_seed(1)


def make():
    """The network and the extent of its input."""
    if name.startswith("cifar10_cnn"):
        network = Cifar10Cnn()
        if name == "cifar10_cnn_without_lrn":
            network.norm = torch.nn.Identity()
        return network, 24
    if name == "resnet20":
        return ResNet(3), 32
    import torchvision
    if name == "inception_v3":
        return torchvision.models.inception_v3(init_weights=False, num_classes=10), 299
    return getattr(torchvision.models, name)(num_classes=10), 224


def loss_function(a, b):
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        logits = model(a)
    if name != "inception_v3":
        return F.cross_entropy(logits.float(), b)
    return F.cross_entropy(logits.logits.float(), b) + 0.4 * F.cross_entropy(logits.aux_logits.float(), b)


model, extent = make()
memory_format = torch.channels_last if layout == "channels_last" else torch.contiguous_format
model = model.train().to(memory_format=memory_format)
x = torch.randn(int(batch), 3, extent, extent).to(memory_format=memory_format)
y = torch.randint(0, 10, (int(batch),))
momentum = 0 if name.startswith("cifar10_cnn") else 0.9
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=momentum, fused=kind == "fused")
if sums:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    torch.distributed.init_process_group("gloo")
    # Of these networks each step uses the same parameters.
    model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=float(sums[0]), gradient_as_bucket_view=True,
                                                      static_graph=True)
    if sums[1] == "bf16":
        model.register_comm_hook(None, default_hooks.bf16_compress_hook)
loss_of = loss_function
if execution == "compile":
    loss_of = torch.compile(loss_function)
elif execution == "max-autotune":
    loss_of = torch.compile(loss_function, mode="max-autotune")
for line in sys.stdin:
    start = time.perf_counter()
    for _ in range(int(line)):
        optimizer.zero_grad(set_to_none=True)
        loss_of(x, y).backward()
        optimizer.step()
    print(f"{time.perf_counter() - start:.6f}", flush=True)
