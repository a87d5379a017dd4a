"""A training step on CPUs against PyTorch, TensorFlow and JAX at their best.

First, for each network, each framework's modes are screened: one window a mode, beside ours. One factor is changed at a time
from the framework's best so far: layout, allocator, optimizer, execution. A mode whose first steps have less than half of
the best rate so far gets no window. With --quick, a slow network's first steps are its window. A framework is not screened
on once its layouts are tried and none reaches half of the best rate. The best three of each precision then run against our
step and against `train` itself, in windows that take turns on the same cores. A ratio is our images/s over the peer's
within one round. Medians and spreads (1.4826 times the median deviation) are of these. The table names the best mode; the
JSON holds every mode and window. TensorFlow and JAX build what the model files say. Every allocator but "glibc" keeps what
is freed, and has huge pages, as `train` has, where it or its framework can ask for them: TensorFlow with tcmalloc has none."""
import argparse
import contextlib
import dataclasses
import datetime
import json
import os
import platform
import re
import select
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

here = Path(__file__).resolve().parent
models = here.parents[1] / "models"
mallocs = ["glibc", "glibc-huge", "tcmalloc", "jemalloc"]
factors = {"torch": {"layout": ["contiguous", "channels_last"], "malloc": mallocs, "optimizer": ["plain", "fused"],
                     "execution": ["eager", "compile", "max-autotune"]},
           "tensorflow": {"layout": ["channels_last"], "malloc": mallocs, "execution": ["graph", "xla"]},
           "jax": {"layout": ["contiguous", "channels_last"], "malloc": mallocs}}
libraries = {"tcmalloc": ["libtcmalloc_minimal.so.4", "libtcmalloc.so.4"], "jemalloc": ["libjemalloc.so.2"]}
networks = {"cifar10_cnn": 128, "cifar10_cnn_without_lrn": 128, "resnet20": 128, "resnet50": 16, "inception_v3": 8, "mobilenet_v3_large": 32,
            "efficientnet_b0": 16, "regnet_y_400mf": 32, "resnext50_32x4d": 8, "convnext_tiny": 8}


@dataclasses.dataclass(frozen=True)
class Mode:
    precision: str
    layout: str = "contiguous"
    malloc: str = "glibc"
    optimizer: str = "plain"
    execution: str = "eager"
    framework: str = "torch"

    def __str__(self):
        return " ".join(filter(None, dataclasses.astuple(self)))


def library(malloc):
    """The path of an allocator to load before the C library's, or None where it is not installed."""
    folders = [Path("/usr/lib") / (platform.machine() + "-linux-gnu"), Path("/usr/lib64"), Path("/usr/lib")]
    return next((str(f / name) for name in libraries[malloc] for f in folders if (f / name).exists()), None)


def environment(mode):
    env = dict(os.environ)
    if mode.malloc == "glibc-huge":
        env["GLIBC_TUNABLES"] = "glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1000000000000:glibc.malloc.arena_max=1"
    elif mode.malloc in libraries:
        if not library(mode.malloc):
            sys.exit(f"{mode.malloc} is not installed, which \"{mode}\" wants")
        env["LD_PRELOAD"] = library(mode.malloc)
        env["MALLOC_CONF"] = "thp:always,metadata_thp:always,dirty_decay_ms:-1,muzzy_decay_ms:-1,oversize_threshold:0"  # jemalloc's
        env.update(TCMALLOC_RELEASE_RATE="0", THP_MEM_ALLOC_ENABLE="1")  # the latter is PyTorch's
    return env


class Failed(Exception):
    pass


def steps_of(args, a_step):
    """Of a window."""
    return max(args.steps, round(args.window / a_step))


class Worker:
    """A process that trains as many steps as it is told and says how long they took."""

    def __init__(self, args, batch, command, env=None):
        self.batch = batch
        self.messages = tempfile.TemporaryFile("w+")  # no pipe, which would fill up unread
        self.process = subprocess.Popen(["taskset", "-c", args.cpus, *command], env=env, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.messages)
        self.seconds(2, args.longest_start)  # compiles
        self.a_step = self.seconds(2, args.longest_start) / 2  # about
        self.steps = steps_of(args, self.a_step)

    def seconds(self, steps, longest=None):
        longest = longest or 60 + 20 * steps * self.a_step
        try:
            print(steps, file=self.process.stdin, flush=True)
            if not select.select([self.process.stdout], [], [], longest)[0]:
                raise OSError(f"no answer within {longest:.0f} s")
            return float(self.process.stdout.readline())
        except (OSError, ValueError) as failure:
            self.process.kill()
            self.end()
            self.messages.seek(0)
            raise Failed(f"{failure}; exit status {self.process.returncode}: {self.messages.read().strip()[-400:]}") from None

    def rate(self):
        return self.steps * self.batch / self.seconds(self.steps)

    def end(self):
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def run_of_train(command, images, env=None):
    """Images a second of a run with `images` a step: all of them over all seconds, behind a third of the steps, as a window
    of PyTorch's is measured. The summary's throughput is a median, which no slow step moves."""
    with tempfile.NamedTemporaryFile() as metrics:
        done = subprocess.run([*command, "--log-every", "1", "--metrics", metrics.name], capture_output=True, text=True, check=False, env=env)
        records = [json.loads(line) for line in Path(metrics.name).read_text().splitlines()]
    seconds = [r["seconds_per_batch"] for r in records if r["kind"] == "step"]
    if done.returncode or not seconds:
        raise Failed((done.stdout + done.stderr)[-400:])
    return images / statistics.mean(seconds[len(seconds) // 3:])


class Train:
    """`train` as users run it: loader, ledger and watchdog on, data in memory. A window is a whole run of it."""

    def __init__(self, args, network, batch, precision, seconds):
        model = ["--model-file" if network.endswith(".model") else "--model", network]
        self.batch, steps = batch, max(args.steps_of_train, round(seconds / args.step_of_ours))
        self.command = ["taskset", "-c", args.cpus, args.train, *model, "--data", "synthetic", "--batch",
                        str(batch), "--precision", precision, "--threads", str(args.threads), "--device", "cpu",
                        "--steps", str(steps), "--eval-every", "0"]

    def rate(self):
        return run_of_train(self.command, self.batch)


def spread(values):
    middle = statistics.median(values)
    return middle, 1.4826 * statistics.median(abs(v - middle) for v in values)


class Arena:
    def __init__(self, args, network, batch, folder):
        self.args, self.network, self.batch = args, network, batch
        self.ours_name, self.file = network, models / (network + ".model")
        without = network.removesuffix("_without_lrn")
        if without != network:
            self.file = Path(folder) / (network + ".model")
            self.file.write_text(re.sub(r"^lrn$\n", "", (models / (without + ".model")).read_text(), flags=re.M))
            self.ours_name = str(self.file)

    def ours(self, precision):
        return Worker(self.args, self.batch,
                      [self.args.ours, self.ours_name, str(self.batch), str(self.args.threads), precision])

    def peer(self, mode):
        network, options = {"torch": (self.network, [mode.layout, mode.optimizer, mode.execution]),
                            "tensorflow": (self.file, [mode.execution]), "jax": (self.file, [mode.layout])}[mode.framework]
        return Worker(self.args, self.batch, [self.args.interpreters[mode.framework], str(here / f"{mode.framework}_on_demand.py"),
                                              str(network), str(self.batch), str(self.args.threads), mode.precision, *options],
                      environment(mode))

    def screen(self, precision, ours):
        """Every mode that was tried and, as its share of our rate, how fast it was; the slowest last. The processes of the
        best, by mode, wait for the rounds."""
        tried, waiting, our_rate = {}, {}, ours.rate()

        def share(mode):
            return tried[mode]["of_ours"]

        def best_share():
            return max(map(share, tried), default=0)

        def measure(mode):
            nonlocal our_rate
            started = time.monotonic()
            try:
                them = waiting[mode] = self.peer(mode)
                rate = self.batch / them.a_step
                if them.steps > 2 and rate > our_rate * best_share() / 2:
                    rate = them.rate()
            except Failed as failed:
                waiting.pop(mode, None)
                tried[mode] = {"of_ours": 0, "failed": str(failed)}
            else:
                before, our_rate = our_rate, ours.rate()
                if time.monotonic() - started > 60:  # it compiled, and the machine's speed may have changed
                    before = our_rate
                tried[mode] = {"of_ours": rate / statistics.mean((before, our_rate)), "images_s": rate}
            for worst in sorted(waiting, key=share, reverse=True)[3:]:
                waiting.pop(worst).end()
            result = tried[mode].get("failed", f"{share(mode):.2f} of ours").strip()
            print(f"  screened {mode}: {result[-200:]}", file=sys.stderr, flush=True)

        for framework in self.args.interpreters:
            values = factors[framework]
            first = {factor: (values.get(factor) or [""])[0] for factor in ("layout", "malloc", "optimizer", "execution")}
            best = Mode(precision, framework=framework, **first)
            for factor, of_it in values.items():
                for value in of_it:
                    mode = dataclasses.replace(best, **{factor: value})
                    if mode not in tried and value not in self.args.leave_out and (value not in libraries or library(value)):
                        measure(mode)
                best = max((m for m in tried if m.framework == framework), key=share)
                if share(best) < best_share() / 2:
                    break
        return dict(sorted(tried.items(), key=lambda kv: -kv[1]["of_ours"])), waiting

    def final(self, precision, ours, peers):
        """Rates of our step, of `train` and of each mode, round by round, and why modes failed on the way."""
        workers = {"ours": ours}
        self.args.step_of_ours = self.batch / ours.rate()
        if self.args.train:
            workers["train"] = Train(self.args, self.ours_name, self.batch, precision, 4 * self.args.window)
        workers.update({str(mode): worker for mode, worker in peers.items()})
        rounds, failed = [], {}
        for _ in range(self.args.rounds):
            rounds.append({})
            for name, worker in workers.items():
                try:
                    if name not in failed:
                        rounds[-1][name] = worker.rate()
                except Failed as failure:
                    if name in ("ours", "train"):
                        raise
                    failed[name] = str(failure)
                    print(f"  failed in round {len(rounds)}, {name}: {failure}", file=sys.stderr, flush=True)
        for worker in workers.values():
            if isinstance(worker, Worker):
                worker.end()
        return rounds, failed

    def row(self, precision):
        ours = self.ours(precision)
        tried, peers = self.screen(precision, ours)
        if not peers:
            raise Failed(f"no mode works: {next(iter(tried.values()))['failed']}")
        rounds, failed = self.final(precision, ours, peers)
        ratios = {str(m): spread([r["ours"] / r[str(m)] for r in rounds]) for m in peers if str(m) not in failed}
        if not ratios:
            raise Failed(f"no mode works: {next(iter(failed.values()))}")
        return {"screened": {str(m): result for m, result in tried.items()}, "rounds": rounds, "failed_in_rounds": failed,
                "ratios": dict(sorted(ratios.items(), key=lambda kv: kv[1])), "best": min(ratios, key=ratios.get)}


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def machine(args):
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    flags = set(re.search(r"flags\s*: (.*)", Path("/proc/cpuinfo").read_text())[1].split())
    return {"cpu": cpu[1] if cpu else platform.machine(), "date": datetime.date.today().isoformat(),
            "bf16_by": sorted(flags & {"avx512_bf16", "amx_bf16"}), "load": os.getloadavg(), "threads": args.threads,
            "cpus": args.cpus, "commit": run(["git", "-C", str(here), "describe", "--always", "--dirty"]),
            **{name: run([path, "-c", f"import {name}; print({name}.__version__)"]) for name, path in args.interpreters.items()}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ours", help="build/release/test/bench/steps_on_demand")
    parser.add_argument("networks", nargs="*", default=list(networks), help=f"of {' '.join(networks)} [all]")
    parser.add_argument("--python", default=sys.executable, help="an interpreter with torch and torchvision")
    parser.add_argument("--tensorflow", help="an interpreter with tensorflow [not measured]")
    parser.add_argument("--jax", help="an interpreter with jax [not measured]")
    parser.add_argument("--train", help="build/release/train, to be timed too")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cpus", help="cores to run on [as many as threads, from the last down]")
    parser.add_argument("--precisions", default="fp32,bf16")
    parser.add_argument("--quick", action="store_true", help="windows of a second, 5 rounds, neither jemalloc nor max-autotune nor XLA")
    parser.add_argument("--json", help="where every mode and window is written")
    args = parser.parse_args()
    cpus = sorted(os.sched_getaffinity(0))[-args.threads:]
    args.cpus = args.cpus or ",".join(map(str, cpus))
    args.steps, args.window, args.rounds, args.steps_of_train = (2, 1.0, 5, 6) if args.quick else (5, 2.0, 7, 12)
    args.longest_start = 600 if args.quick else 1800
    args.leave_out = {"max-autotune", "jemalloc", "xla"} if args.quick else set()
    args.interpreters = {name: path for name, path in (("torch", args.python), ("tensorflow", args.tensorflow), ("jax", args.jax)) if path}
    results = {"machine": machine(args), "networks": {}}
    if missing := [name for name in args.interpreters if not results["machine"][name]]:
        sys.exit(f"arena.py: {missing[0]} cannot be imported by {args.interpreters[missing[0]]}")
    versions = ", ".join(f"{name} {results['machine'][name]}" for name in args.interpreters)
    print("{cpu}, {date}, {threads} thread(s), {versions}, commit {commit}, load {load[0]:.1f}".format(
        versions=versions, **results["machine"]))
    print("| network, precision | ours, images/s | train | best peer | its images/s | ours over it | next modes |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for network in args.networks:
            for precision in args.precisions.split(","):
                try:
                    row = Arena(args, network, networks[network], folder).row(precision)
                except Failed as failed:
                    sys.exit(f"arena.py: {network}, {precision}: {failed}")
                ratios, best = row["ratios"], row["best"]
                rate = {name: statistics.median(r[name] for r in row["rounds"] if name in r) for name in row["rounds"][0]}
                others = [f"{m}: {ratio:.2f}" for m, (ratio, _) in ratios.items() if m != best]
                others += [f"{m}: failed" for m in row["failed_in_rounds"]]
                print(f"| `{network}`, {precision} | {rate['ours']:.4g} | {rate.get('train', float('nan')):.4g} | {best} | "
                      f"{rate[best]:.4g} | {ratios[best][0]:.2f} ± {ratios[best][1]:.2f} | {'; '.join(others)} |", flush=True)
                results["networks"].setdefault(network, {})[precision] = row
                if args.json:
                    Path(args.json).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
