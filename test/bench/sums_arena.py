"""Sums of gradients by our ring against Open MPI's best algorithm and segment, and gloo's ring, at each size.

Every algorithm of Open MPI's MPI_Allreduce that suits large buffers is tried with every size of segment, each beside our ring in a job
of its own, in turns (allreduce_bench sizes). The best of a size is the one that our ring is least ahead of. gloo (torch.distributed)
takes turns with such jobs. Medians, with 1.4826 times the median deviation. Each rank has one core, or shares it with others where there are more ranks. "Hosts" are network namespaces with
a limit of the rate on both ends of each link; for them root is needed, and a TCP stream stands beside the sums: from one host to
the other, and both ways at once on each host's one thread, as a sum of two hosts travels."""
import argparse
import json
import os
import re
import select
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from arena import Failed, machine, spread
from ranks_arena import AS_ROOT, LONGEST_S, Hosts, OneHost

ALGORITHMS = {"recursive doubling": 3, "ring": 4, "segmented ring": 5, "Rabenseifner": 6}
SEGMENTS_KIB = (64, 256, 1024, 4096)
ROW = re.compile(r"^\s*(\d+)\s+([\d.]+) ±\s*\d+%\s+([\d.]+) ±\s*\d+%\s+([\d.]+)\s+([\d.]+)(?:\s+[\d.]+ ±\s*\d+%\s+([\d.]+)\s+[\d.]+ ±\s*\d+%\s+([\d.]+))?\s*$", re.M)
GLOO = """
import sys, time, torch
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
ranks = torch.distributed.get_world_size()
for line in sys.stdin:
    kib, rounds = map(int, line.split())
    numbers = torch.ones(kib * 256)
    def once(calls):
        torch.distributed.barrier()
        start = time.perf_counter()
        for _ in range(calls):
            torch.distributed.all_reduce(numbers)
        took = torch.tensor([(time.perf_counter() - start) / calls])
        torch.distributed.all_reduce(took, op=torch.distributed.ReduceOp.MAX)
        numbers.fill_(1)
        return took.item()
    once(2)
    calls = max(1, min(500, int(0.005 / once(2))))
    print(*[once(calls) for _ in range(rounds)], flush=True)
"""


class Gloo:
    """A process of PyTorch for each rank."""

    def __init__(self, args, place):
        env = {**os.environ, "MASTER_ADDR": place.address, "MASTER_PORT": "29512", "WORLD_SIZE": str(place.ranks),
               "GLOO_SOCKET_IFNAME": place.interface, "OMP_NUM_THREADS": "1"}
        self.messages = tempfile.TemporaryFile("w+")
        self.ranks = [subprocess.Popen([*place.on(rank), args.python, "-c", GLOO], env={**env, "RANK": str(rank)}, text=True,
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.messages) for rank in range(place.ranks)]

    def rates(self, kib, rounds):
        """GB/s of the buffer, of each round."""
        try:
            for process in self.ranks:
                print(kib, rounds, file=process.stdin, flush=True)
            for process in self.ranks:
                if not select.select([process.stdout], [], [], LONGEST_S)[0]:
                    raise OSError(f"no answer within {LONGEST_S} s")
            seconds = [process.stdout.readline().split() for process in self.ranks][0]
            return [1024e-9 * kib / float(s) for s in seconds]
        except (OSError, ValueError):
            self.messages.seek(0)
            raise Failed(self.messages.read()[-400:]) from None

    def end(self):
        for process in self.ranks:
            process.kill()
            process.wait()


def job(args, place, sizes, **tuned):
    """Rows of allreduce_bench by KiB: ours and MPI_Allreduce in GB/s of the buffer, ours over it, and over a TCP stream in bus bandwidth."""
    env = {**os.environ, **AS_ROOT, "OMPI_MCA_rmaps_base_oversubscribe": "1",
           **{f"OMPI_MCA_coll_tuned_{key}": str(value) for key, value in tuned.items()}}
    command = [*place.job(), args.bench, "sizes", f"rounds={args.rounds}", f"from_kib={sizes[0]}", f"to_kib={sizes[-1]}"]
    done = subprocess.run([str(w) for w in command], env=env, capture_output=True, text=True, timeout=900, check=False)
    rows = {int(m[1]): {"ours": float(m[2]), "mpi": float(m[3]), "ratio": float(m[4]), "tcp": float(m[6]) if m[6] else None,
                         "both": float(m[7]) if m[7] else None}
            for m in ROW.finditer(done.stdout)}
    if done.returncode or sorted(rows) != sizes:
        raise Failed(f"{' '.join(map(str, command))}: {done.stdout[-300:]}{done.stderr[-300:]}")
    return rows


def compare(args, name, place, sizes):
    variants = {"its own choice": job(args, place, sizes)}
    for algorithm, number in ALGORITHMS.items():
        for kib in SEGMENTS_KIB if algorithm == "segmented ring" else (0,):
            label = algorithm + (f", {kib} KiB" if kib else "")
            variants[label] = job(args, place, sizes, use_dynamic_rules=1, allreduce_algorithm=number,
                                  allreduce_algorithm_segmentsize=1024 * kib)
            print(f"{name}: {label}: ours is", *[f"{variants[label][k]['ratio']:.2f}" for k in sizes], "times as fast", file=sys.stderr, flush=True)
    best = {k: min(variants, key=lambda v, k=k: variants[v][k]["ratio"]) for k in sizes}
    table = {}
    for kib in sizes:
        label = best[kib]
        algorithm, *segment = label.split(", ")
        tuned = {} if label == "its own choice" else {"use_dynamic_rules": 1, "allreduce_algorithm": ALGORITHMS[algorithm],
                                                      "allreduce_algorithm_segmentsize": 1024 * int(segment[0].split()[0]) if segment else 0}
        again = [job(args, place, [kib], **tuned)[kib] for _ in range(args.again)]
        table[kib] = {"mpi": label, "ours": statistics.median(r["ours"] for r in again), "over_mpi": spread([r["ratio"] for r in again]),
                      "over_own_choice": variants["its own choice"][kib]["ratio"],
                      "over_tcp": spread([r["tcp"] for r in again]) if again[0]["tcp"] else None,
                      "over_both_ways": spread([r["both"] for r in again]) if again[0]["both"] else None}
    gloo = Gloo(args, place)
    try:
        for kib in sizes:
            ratios = []
            for _ in range(args.again):
                theirs = statistics.median(gloo.rates(kib, args.rounds))
                ratios.append(job(args, place, [kib])[kib]["ours"] / theirs)
            table[kib]["over_gloo"] = spread(ratios)
    finally:
        gloo.end()
    return {"place": name, "variants": variants, "table": table}


def show(result):
    def of(values):
        return f"{values[0]:.2f} ± {values[1]:.2f}" if values else ""
    hosts = any(row["over_tcp"] for row in result["table"].values())
    print(f"\n{result['place']}\n\n| KiB | ours, GB/s | Open MPI's best | ours over it | over its own choice | over gloo |" + (" bus over TCP | over TCP both ways |" if hosts else ""))
    print("|---|---|---|---|---|---|" + ("---|---|" if hosts else ""))
    for kib, row in result["table"].items():
        print(f"| {kib} | {row['ours']:.2f} | {row['mpi']} | {of(row['over_mpi'])} | {row['over_own_choice']:.2f} | {of(row.get('over_gloo'))} |" +
              (f" {of(row['over_tcp'])} | {of(row['over_both_ways'])} |" if hosts else ""))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench", help="allreduce_bench")
    parser.add_argument("--python", default=sys.executable, help="one that has torch")
    parser.add_argument("--places", default="2", help="ranks on this host, or HOSTSxRATE, as in 2,4,2x1gbit")
    parser.add_argument("--sizes", default="64,65536", help="KiB, from and to, in steps of 4")
    parser.add_argument("--rounds", type=int, default=7, help="of a size in one job")
    parser.add_argument("--again", type=int, default=3, help="jobs of the best")
    parser.add_argument("--json")
    args = parser.parse_args()
    args.threads, args.cpus = 1, os.cpu_count()
    smallest, largest = map(int, args.sizes.split(","))
    sizes = [smallest]
    while 4 * sizes[-1] <= largest:
        sizes.append(4 * sizes[-1])
    results = []
    for name in args.places.split(","):
        place = Hosts(*[kind(part) for kind, part in zip((int, str), name.split("x"))]) if "x" in name else OneHost(int(name))
        try:
            results.append(compare(args, name, place, sizes))
        finally:
            place.end()
        show(results[-1])
    if args.json:
        Path(args.json).write_text(json.dumps({"machine": machine(args), "results": results}, indent=1))


if __name__ == "__main__":
    main()
