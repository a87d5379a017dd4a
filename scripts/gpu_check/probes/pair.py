"""pair.py --model M --batch N --precision P --modes A,B --rounds R --folder DIR [--toy] -- TRAIN...: our training beside PyTorch's, in turns on
one GPU. PyTorch's processes stay alive between their windows; ours starts anew each round. Reports each side's images a second by round."""
import argparse
import json
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import records

WINDOW_S = 2.0


class Worker:
    """PyTorch in one mode, in a process of its own."""

    def __init__(self, options, mode):
        script = str(Path(__file__).with_name("torch_worker.py"))
        words = [sys.executable, script, options.model, str(options.batch), options.precision, mode] + ["--toy"] * options.toy
        self.batch, self.mode = options.batch, mode
        self.log = open(f"{options.folder}/{options.model}-{options.batch}-{options.precision}-{mode}.log", "w+")
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True)

    def ready(self):
        return self.process.stdout.readline().strip() == "ready"

    def seconds(self, steps):
        print(steps, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())

    def rate(self):
        steps = max(1, round(WINDOW_S / (self.seconds(3) / 3)))
        return steps * self.batch / self.seconds(steps)

    def end(self):
        self.process.stdin.close()
        self.process.wait()
        self.log.seek(0)
        return (self.log.read().strip().splitlines() or ["no reason given"])[-1][:160]


def our_rate(command, metrics):
    done = subprocess.run(command + ["--metrics", str(metrics)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise SystemExit(f"pair: train ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    return records.rate(records.parse(metrics.read_text()))[0]


parser = argparse.ArgumentParser()
for name in ("--model", "--precision", "--modes"):
    parser.add_argument(name, required=True)
parser.add_argument("--batch", type=int, required=True)
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--folder", type=Path, required=True)
parser.add_argument("--toy", action="store_true")
parser.add_argument("train", nargs="+")
options = parser.parse_args()

workers = [Worker(options, mode) for mode in options.modes.split(",")]  # they warm up side by side
failed = {}
for worker in list(workers):
    if not worker.ready():
        failed[worker.mode] = worker.end()
        workers.remove(worker)
found = {"ours": [], **{worker.mode: [] for worker in workers}}
for round in range(options.rounds):
    metrics = options.folder / f"{options.model}-{options.batch}-{options.precision}-{round}.jsonl"
    found["ours"].append(our_rate(options.train, metrics))
    for worker in workers:
        found[worker.mode].append(worker.rate())
    print("RESULT " + json.dumps({"rates": found, "failed": failed}), flush=True)  # what there is, if time runs out
for worker in workers:
    worker.end()
