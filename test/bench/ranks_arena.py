"""Training by several ranks against PyTorch's DistributedDataParallel, on one host and between hosts.

Each rank has one core and one thread; data is in memory. The sides take turns: `train` by default, and with bf16 sums; DDP
with gloo, in buckets of 25 MB (its default) and of 4 MB, with and without its bf16 hook; one rank alone of either; and on one
host one rank with all threads and images. A window is some steps of DDP, and a whole run of `train`, of which its own
throughput counts. A ratio is of rates in one round; medians and spreads (1.4826 times the median deviation) are of these.
"Hosts" are network namespaces with a limit of the rate on both ends of each link, so root is needed for them. More ranks than
cores share these, on either side alike."""
import argparse
import contextlib
import json
import os
import select
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from arena import Failed, Mode, Worker, environment, machine, run_of_train, spread, steps_of

here = Path(__file__).resolve().parent
HOSTS, CORE = here.parent / "support/hosts/hosts.sh", here / "complaints/core.sh"
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
batches = {"cifar10_cnn": 16, "resnet20": 64, "resnet50": 8, "mobilenet_v3_large": 32}
modes = {"resnet20": "fp32 channels_last tcmalloc plain compile"}
OTHER_MODE = "fp32 channels_last tcmalloc fused eager"
LONGEST_S = 300  # of a window, or of the start of DDP
BUCKETS_MB, WIRES = ("25", "4"), ("fp32", "bf16")


class OneHost:
    """All ranks here, each on a core of its own."""

    def __init__(self, ranks):
        self.ranks, self.address, self.interface = ranks, "127.0.0.1", "lo"

    def on(self, rank):
        return ["taskset", "-c", str(rank % os.cpu_count())]

    def job(self):
        """train would take all cores between its ranks, as it may; here each has one, as PyTorch's."""
        here_too = 'exec taskset -c "$((OMPI_COMM_WORLD_LOCAL_RANK % $(nproc)))" "$@"'
        return ["env", "OMPI_MCA_rmaps_base_mapping_policy=slot:PE=1", "mpirun", "-np", str(self.ranks), "--bind-to", "none",
                "bash", "-c", here_too, "rank"]

    def end(self):
        pass


class Hosts:
    """A rank on each of so many hosts; `rate` is of their links, as tc names it."""

    def __init__(self, ranks, rate):
        self.ranks, self.address, self.interface = ranks, "10.77.0.1", "eth0"
        self.folder = tempfile.TemporaryDirectory()
        os.environ["HOSTS_RUN"] = self.folder.name
        why_not = subprocess.run([HOSTS, "check"], capture_output=True, text=True, check=False)
        if why_not.returncode:
            sys.exit(f"ranks_arena.py: {why_not.stdout.strip()}; --places 2 wants no hosts")
        try:
            subprocess.run([HOSTS, "up", str(ranks), rate], check=True)
        except BaseException:
            self.end()
            raise

    def on(self, rank):
        return [str(HOSTS), "exec", str(rank), str(CORE)]

    def job(self):
        return [str(HOSTS), "mpirun", "1", str(CORE)]

    def end(self):
        subprocess.run([HOSTS, "down"], check=True)
        self.folder.cleanup()


class Ours:
    """A window is a run of `train`, behind its first third."""

    def __init__(self, args, command, network, batch, ranks, *more, threads=1):
        self.options = ["--model", network, "--data", "synthetic", "--batch", str(batch), "--threads", str(threads),
                        "--device", "cpu", "--eval-every", "0", *more]
        self.command, self.images = [*command, args.train], ranks * batch
        self.steps = max(12, round(1.5 * args.window * self.run(12) / self.images))

    def run(self, steps):
        return run_of_train([*self.command, *self.options, "--steps", str(steps)], self.images, {**os.environ, **AS_ROOT})

    def rate(self):
        return self.run(self.steps)

    def end(self):
        pass


class Ddp:
    """A process of PyTorch for each rank; a step is over when its slowest is."""

    def __init__(self, args, place, network, batch, mode, bucket_mb, wire):
        self.batch, env = batch, environment(mode)
        env.update(MASTER_ADDR=place.address, MASTER_PORT="29511", WORLD_SIZE=str(place.ranks), GLOO_SOCKET_IFNAME=place.interface)
        self.ranks = []
        for rank in range(place.ranks):
            command = [*place.on(rank), args.python, here / "torch_on_demand.py", network, batch, 1, mode.precision, mode.layout,
                       mode.optimizer, mode.execution, bucket_mb, wire]
            messages = tempfile.TemporaryFile("w+")
            self.ranks.append((subprocess.Popen([str(w) for w in command], env={**env, "RANK": str(rank)}, text=True, stdin=subprocess.PIPE,
                                                stdout=subprocess.PIPE, stderr=messages), messages))
        self.seconds(3)
        self.steps = steps_of(args, self.seconds(3) / 3)

    def seconds(self, steps):
        try:
            for process, _ in self.ranks:
                print(steps, file=process.stdin, flush=True)
            return max(self.answer(process) for process, _ in self.ranks)
        except (OSError, ValueError):
            for process, _ in self.ranks:
                process.kill()
            self.end()
            for _, messages in self.ranks:
                messages.seek(0)
            raise Failed("\n".join(messages.read()[-400:] for _, messages in self.ranks)) from None

    @staticmethod
    def answer(process):
        if not select.select([process.stdout], [], [], LONGEST_S)[0]:
            raise OSError(f"no answer within {LONGEST_S} s")
        return float(process.stdout.readline())

    def rate(self):
        return self.steps * self.batch * len(self.ranks) / self.seconds(self.steps)

    def end(self):
        for process, _ in self.ranks:
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    pipe.close()
        for process, _ in self.ranks:
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def alone(args, network, batch, mode):
    """PyTorch without DDP on one core."""
    args.cpus = "0"
    return Worker(args, batch, [args.python, str(here / "torch_on_demand.py"), network, str(batch), "1", mode.precision, mode.layout,
                                mode.optimizer, mode.execution], environment(mode))


def mode_of(args, network):
    return Mode(*(args.mode or modes.get(network, OTHER_MODE)).split())


def place_of(text):
    """2 is two ranks on this host, 2x1gbit two hosts."""
    ranks, _, rate = text.partition("x")
    return Hosts(int(ranks), rate) if rate else OneHost(int(ranks))


def rounds_of(args, place, between_hosts, network, batch):
    """Rates of all sides, round by round, the sides in turns."""
    mode = mode_of(args, network)
    sides = {"one rank": Ours(args, OneHost(1).on(0), network, batch, 1), "PyTorch, one rank": alone(args, network, batch, mode),
             "train": Ours(args, place.job(), network, batch, place.ranks)}
    if between_hosts:
        sides["train, bf16 sums"] = Ours(args, place.job(), network, batch, place.ranks, "--gradient-dtype", "bf16")
    else:
        cores = ["taskset", "-c", ",".join(str(rank % os.cpu_count()) for rank in range(place.ranks))]
        sides["one rank, all threads"] = Ours(args, cores, network, place.ranks * batch, 1, threads=place.ranks)
    rounds = [{} for _ in range(args.rounds)]
    for found in rounds:
        for name, side in sides.items():
            found[name] = side.rate()
        for bucket in BUCKETS_MB:
            for wire in WIRES if between_hosts else WIRES[:1]:  # a process group at a time: they share a port, and memory
                ddp = Ddp(args, place, network, batch, mode, bucket, wire)
                found[f"DDP, {bucket} MB, {wire}"] = ddp.rate()
                ddp.end()
    sides["PyTorch, one rank"].end()
    return rounds


def ratio(rounds, ours, theirs, times=1):
    return "{:.2f} ± {:.2f}".format(*spread([r[ours] / (times * r[theirs]) for r in rounds]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", help="build/release/train")
    parser.add_argument("networks", nargs="*", default=["cifar10_cnn", "resnet20"], help="NAME or NAME:BATCH, of a rank")
    parser.add_argument("--python", default=sys.executable, help="an interpreter with torch and torchvision")
    parser.add_argument("--places", default="2,2x1gbit,2x10gbit", help="ranks on this host, or hosts x rate")
    parser.add_argument("--mode", help=f"PyTorch's best mode by arena.py [{OTHER_MODE}; compiled for {', '.join(modes)}]")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", help="where every window is written")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # hosts are taken down
    args.train, args.steps, args.window, args.threads, args.cpus = str(Path(args.train).resolve()), 5, 3.0, 1, "all"
    args.longest_start, args.interpreters = LONGEST_S, {"torch": args.python}
    results = {"machine": machine(args), "modes": {}, "rounds": {}}
    print("{cpu}, {date}, torch {torch}, commit {commit}, load {load[0]:.1f}".format(**results["machine"]))
    print("| network, batch a rank | place | train, images/s | over ranks x one | over one with all threads | PyTorch's best DDP | "
          "its images/s | over ranks x one | train over it |")
    print("|---|---|---|---|---|---|---|---|---|")
    for where in args.places.split(","):
        place, between_hosts = place_of(where), "x" in where
        try:
            for word in args.networks:
                network, _, batch = word.partition(":")
                batch = int(batch or batches[network])
                rounds = rounds_of(args, place, between_hosts, network, batch)
                rate = {name: statistics.median(r[name] for r in rounds) for name in rounds[0]}
                for wire in WIRES if between_hosts else WIRES[:1]:
                    ours = "train" if wire == "fp32" else "train, bf16 sums"
                    best = max((name for name in rate if name.startswith("DDP") and name.endswith(wire)), key=rate.get)
                    threads = "" if between_hosts else ratio(rounds, ours, "one rank, all threads")
                    print(f"| `{network}`, {batch} | {where} | {rate[ours]:.4g} ({wire}) | {ratio(rounds, ours, 'one rank', place.ranks)} | "
                          f"{threads} | {best}, {mode_of(args, network)} | "
                          f"{rate[best]:.4g} | {ratio(rounds, best, 'PyTorch, one rank', place.ranks)} | {ratio(rounds, ours, best)} |", flush=True)
                results["rounds"][f"{network} {batch} {where}"] = rounds
                results["modes"][network] = str(mode_of(args, network))
                if args.json:
                    Path(args.json).write_text(json.dumps(results, indent=1))
        finally:
            place.end()


if __name__ == "__main__":
    main()
