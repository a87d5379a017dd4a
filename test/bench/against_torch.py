"""against_torch.py STEPS_ON_DEMAND [PYTHON [MODEL:BATCH[:bf16]...]]: our training step against PyTorch's on this host's
CPUs, in windows that alternate between living processes; prints the ratio of examples per second, its median and
spread. PYTHON is an interpreter with torch, and torchvision for ImageNet's networks. Its malloc keeps freed memory."""
import os
import statistics
import subprocess
import sys
from pathlib import Path

ours, python = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else sys.executable
peer = str(Path(__file__).with_name("torch_on_demand.py"))
networks = sys.argv[3:] or ["cifar10_cnn:128", "resnet20:128"]
window_s, rounds = 0.7, 9
modes = {"fp32": ["eager", "eager-channels_last", "compile", "compile-channels_last"],
         "bf16": ["eager-bf16-channels_last", "compile-bf16-channels_last"]}
os.environ.update(MALLOC_MMAP_MAX_="0", MALLOC_TRIM_THRESHOLD_="-1")


class Worker:
    def __init__(self, batch, *command):
        self.batch = batch
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def seconds(self, steps):
        print(steps, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())

    def warm(self):
        self.seconds(2)
        self.steps = max(1, round(window_s / (self.seconds(2) / 2)))

    def rate(self):
        return self.steps * self.batch / self.seconds(self.steps)

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def spread(values):
    middle = statistics.median(values)
    return middle, 1.4826 * statistics.median(abs(v - middle) for v in values)


print(f"{rounds} pairs of windows of {window_s} s; ratio = our examples/s over PyTorch's")
for name, batch, precision in ((network + ":fp32").split(":")[:3] for network in networks):
    for threads in ("1", "2"):
        us = Worker(int(batch), ours, name, batch, threads, precision)
        us.warm()
        for mode in modes[precision]:
            them = Worker(int(batch), python, peer, name, batch, threads, mode)
            them.warm()
            pairs = [(us.rate(), them.rate()) for _ in range(rounds)]
            ratio, deviation = spread([a / b for a, b in pairs])
            our_rate, their_rate = (statistics.median(side) for side in zip(*pairs))
            print(f"{name:12} batch {batch}, {threads} threads, {mode:22}: ours {our_rate:6.4g}, torch {their_rate:6.4g}, "
                  f"ratio {ratio:.2f} +- {deviation:.2f}", flush=True)
            them.end()
        us.end()
