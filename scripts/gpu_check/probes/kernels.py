"""kernels.py LIBRARY TIMES SECONDS TRAIN...: a training job under CUPTI (test/support/kernel_times.cpp), which says how long each kernel
of a step takes. TIMES is the file of all kernels; TIMES.step.csv becomes one step, in order. Reports the step's time, how long the GPU was
busy, and the kernels that took most of it. CUPTI makes kernels of a CUDA graph run one by one, so a step takes longer than without."""
import collections
import csv
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

library, times, limit_s, command = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]), sys.argv[4:]
LAST_KERNEL = "FinishUpdate"  # of a step
WARM_SHARE = 0.5  # of the steps; engines are chosen and graphs captured in the first
SHOWN = 40


def parse(path):
    """Of each line kind, start, duration, stream and name, in order of time."""
    found = []
    for line in path.read_text(errors="replace").splitlines():
        parts = line.split(" ", 7)
        if len(parts) == 8:
            found.append((int(parts[1]), int(parts[2]), int(parts[3]), int(parts[6]), parts[7]))
    return sorted(found)


def steps_of(kernels):
    """Lists of kernels, each up to the last one of a step."""
    steps, now = [], []
    for kernel in kernels:
        now.append(kernel)
        if LAST_KERNEL in kernel[4]:
            steps.append(now)
            now = []
    return steps


def busy(step):
    """Nanoseconds in which at least one kernel runs."""
    total, until = 0, 0
    for start, duration, *_ in step:
        total += max(0, start + duration - max(start, until))
        until = max(until, start + duration)
    return total


def length(step):
    return max(k[0] + k[1] for k in step) - step[0][0]


def demangled(names):
    if not names:
        return {}
    try:
        done = subprocess.run(["c++filt", "-p"], input="\n".join(names), capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return {name: name for name in names}
    return dict(zip(names, done.stdout.splitlines()))


job = subprocess.Popen(command, env={**os.environ, "CUDA_INJECTION64_PATH": library, "RINGTRAIN_KERNEL_TIMES": str(times)})
try:
    code = job.wait(limit_s)
except subprocess.TimeoutExpired:
    job.send_signal(signal.SIGTERM)
    try:
        code = job.wait(10)
    except subprocess.TimeoutExpired:
        job.kill()
        code = job.wait()
if not times.is_file():
    sys.exit(f"kernels: nothing was recorded; train ended with {code}")
steps = steps_of(parse(times))
steps = steps[int(len(steps) * WARM_SHARE):]
if not steps:
    sys.exit(f"kernels: no whole step was recorded; train ended with {code}")
middle = sorted(steps, key=length)[len(steps) // 2]
names = demangled(sorted({k[4] for k in middle}))
with open(f"{times}.step.csv", "w", newline="") as file:
    rows = csv.writer(file)
    rows.writerow(["start_us", "us", "stream", "blocks", "kernel"])
    for start, duration, stream, blocks, name in middle:
        rows.writerow([f"{(start - middle[0][0]) / 1e3:.1f}", f"{duration / 1e3:.2f}", stream, blocks, names[name][:160]])
sums, counts = collections.Counter(), collections.Counter()
for step in steps:
    for _, duration, _, _, name in step:
        sums[name] += duration / len(steps)
        counts[name] += 1 / len(steps)
whole = sum(sums.values())
print(f"{'ms/step':>8} {'share':>6} {'count':>6}  kernel")
for name, nanoseconds in sums.most_common(SHOWN):
    print(f"{nanoseconds / 1e6:8.3f} {nanoseconds / whole:6.1%} {counts[name]:6.1f}  {names.get(name, name)[:150]}")
print("RESULT " + json.dumps({"steps": len(steps), "step_ms": statistics.median(map(length, steps)) / 1e6,
                              "busy_ms": statistics.median(map(busy, steps)) / 1e6, "kernels": len(middle)}))
