"""pair.py --model M --batch N --precision P [--modes A,B] --rounds R --files NAME [--toy] -- TRAIN...: our training beside PyTorch's, in
turns on one GPU. PyTorch's processes stay alive between their windows; ours starts anew each round and is ended once it has trained long
enough. Reports each side's images a second by round; our metrics are left in NAME-<round>.jsonl."""
import argparse
import json
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import records

WINDOW_S = 3.0  # of training, on either side
READY_S = 60.0  # for PyTorch to be compiled, with what it keeps of earlier times


class Worker:
    """PyTorch in one mode, in a process of its own."""

    def __init__(self, options, mode):
        script = str(Path(__file__).with_name("torch_worker.py"))
        words = [sys.executable, script, options.model, str(options.batch), options.precision, mode] + ["--toy"] * options.toy
        self.batch, self.mode = options.batch, mode
        self.log = open(f"{options.files}-{mode}.log", "w+")
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True)

    def ready(self, until):
        """Whether it is, by then; nothing else was said before."""
        heard, _, _ = select.select([self.process.stdout], [], [], max(0.0, until - time.monotonic()))
        return bool(heard) and self.process.stdout.readline().strip() == "ready"

    def seconds(self, steps):
        print(steps, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())

    def rate(self):
        steps = max(1, round(WINDOW_S / (self.seconds(3) / 3)))
        return steps * self.batch / self.seconds(steps)

    def end(self):
        """Its last words."""
        self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return f"not ready after {READY_S:.0f} s, or no end"
        self.log.seek(0)
        return (self.log.read().strip().splitlines() or ["no reason given"])[-1][:160]


def our_rate(command, metrics):
    """A run of any length; SIGTERM ends it after its step, without an evaluation."""
    job = subprocess.Popen(command + ["--metrics", str(metrics)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while job.poll() is None and not (metrics.is_file() and '"kind":"step"' in metrics.read_text()):
        time.sleep(0.1)
    time.sleep(WINDOW_S)
    job.send_signal(signal.SIGTERM)
    words = job.communicate()[1]
    if job.returncode != 128 + signal.SIGTERM:
        raise SystemExit(f"pair: train ended with {job.returncode}: {words.strip()[-300:]}")
    return records.rate(records.parse(metrics.read_text()))[0]


def report(rates, failed):
    print("RESULT " + json.dumps({"rates": rates, "failed": failed}), flush=True)


parser = argparse.ArgumentParser()
for name in ("--model", "--precision", "--files"):
    parser.add_argument(name, required=True)
parser.add_argument("--modes", default="")
parser.add_argument("--batch", type=int, required=True)
parser.add_argument("--rounds", type=int, default=2)
parser.add_argument("--toy", action="store_true")
parser.add_argument("train", nargs="+")
options = parser.parse_args()

# The first run chooses plans, and is what is known should PyTorch take too long.
first = our_rate(options.train, Path(f"{options.files}-0.jsonl"))
report({"ours": [first]}, {})
if not options.modes:
    sys.exit(0)

workers = [Worker(options, mode) for mode in options.modes.split(",")]  # they warm up side by side
failed, until = {}, time.monotonic() + READY_S
for worker in list(workers):
    if not worker.ready(until):
        failed[worker.mode] = worker.end()
        workers.remove(worker)
found = {"ours": [], **{worker.mode: [] for worker in workers}}
for turn in range(1, options.rounds + 1):
    found["ours"].append(our_rate(options.train, Path(f"{options.files}-{turn}.jsonl")))
    for worker in workers:
        found[worker.mode].append(worker.rate())
    report(found, failed)
for worker in workers:
    worker.end()
