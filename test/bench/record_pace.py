#!/usr/bin/env python3
"""record_pace.py MPIRUN TRAIN MINUTES OUT [NOTE]: trains for so long on two ranks of a thread each, with evaluations and checkpoints,
and writes the milliseconds of every step to OUT, for test/unit/monitor/slowdown/speed_truth_test.cpp. NOTE says what else the machine did."""
import collections
import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

os.environ |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
mpirun, train, minutes, out, *note = sys.argv[1:]
arguments = ("--model cifar10_cnn --data shapes --batch 64 --lr 0.01 --threads 1 --epochs 60000 --eval-every 4 --checkpoint-every 5m --keep 2 "
             f"--log-every 1 --quiet --max-time {minutes}m").split()


def cpu_times():  # of the machine, in hundredths of a second: user nice system idle iowait irq softirq steal
    return [int(word) for word in pathlib.Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]


def steps(metrics):
    """Milliseconds and marks of each step: e, the first after an evaluation; s, a save was in flight."""
    lines, saving = [], collections.deque()
    evaluated, now = False, 0.0
    for line in metrics.read_text().splitlines():
        record = json.loads(line)
        if record["kind"] == "step":
            now += record["seconds_per_batch"]
            lines.append([now, record["seconds_per_batch"], "e" if evaluated else ""])
            evaluated = False
        elif record["kind"] == "eval":
            evaluated = True
        elif record["kind"] == "checkpoint":  # durable: since when it was in flight
            saving.append((now - record["seconds"], now))
    for entry in lines:
        if any(begin <= entry[0] <= end for begin, end in saving):
            entry[2] += "s"
    return [f"{1e3 * seconds:.1f}{marks}" for _, seconds, marks in lines]


with tempfile.TemporaryDirectory() as folder:
    loads, done, before = [], threading.Event(), cpu_times()

    def watch():
        while not done.wait(15):
            loads.append(os.getloadavg()[0])

    thread = threading.Thread(target=watch)
    thread.start()
    metrics = pathlib.Path(folder, "metrics.jsonl")
    run = subprocess.run([mpirun, "-np", "2", "--oversubscribe", train, *arguments, "--checkpoint-dir", folder + "/checkpoints",
                          "--metrics", str(metrics)], check=False)
    done.set()
    thread.join()
    spent = [b - a for a, b in zip(before, cpu_times())]
    cpu = next(line.split(":")[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    recorded = steps(metrics)
    pathlib.Path(out).write_text("\n".join([
        f"# Milliseconds of each step; e: the first after an evaluation, s: a save in flight. {datetime.date.today()}, {cpu},",
        f"# {os.cpu_count()} cores, load {min(loads, default=0):.1f} to {max(loads, default=0):.1f}, stolen {100 * spent[7] / sum(spent):.1f} %"
        + (f"; {note[0]}" if note else ""),
        "# mpirun -np 2 train " + " ".join(arguments),
        *recorded]) + "\n")
sys.exit(run.returncode)
