"""ceilings.py [--toy]: what this GPU does at best, through PyTorch: copy, 16-bit matrix product, host transfers. The median of 20,
timed by the GPU's own clock. --toy: on the CPU, tiny, to try the script."""
import json
import sys
import time

import torch

toy = "--toy" in sys.argv
device = "cpu" if toy else "cuda"


def seconds_on_gpu(work):
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(20)]
    for _ in range(5):
        work()
    for begin, end in events:
        begin.record()
        work()
        end.record()
    torch.cuda.synchronize()
    return sorted(begin.elapsed_time(end) for begin, end in events)[10] / 1e3


def seconds_on_cpu(work):
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


seconds = seconds_on_cpu if toy else seconds_on_gpu
found = {}
size = 1 << (20 if toy else 31)
source = torch.empty(size, dtype=torch.uint8, device=device)
target = torch.empty_like(source)
found["copy"] = 2 * size / seconds(lambda: target.copy_(source)) / 1e12
edge = 128 if toy else 8192
for name, dtype in (("fp16", torch.float16), ("bf16", torch.bfloat16)):
    a, b = (torch.randn(edge, edge, device=device).to(dtype) for _ in range(2))
    found[f"product {name}"] = 2 * edge**3 / seconds(lambda: a @ b) / 1e12
if not toy:
    host = torch.empty(1 << 28, dtype=torch.uint8).pin_memory()
    there = torch.empty_like(host, device=device)
    found["to device"] = host.numel() / seconds(lambda: there.copy_(host, non_blocking=True)) / 1e9
    found["from device"] = host.numel() / seconds(lambda: host.copy_(there, non_blocking=True)) / 1e9
print("RESULT " + json.dumps(found))
