#!/usr/bin/env python3
"""model.py [RUNS.jsonl [PLOT.svg]]: the model of docs/evidence/scaling.md. Fits it to the runs of measure.sh on 2, 4 and 8 hosts, holds
it against those on 3 and 16, and prints the tables of that page; with matplotlib, draws its plot. Needs numpy."""
import json
import os
import sys
from dataclasses import dataclass, replace

import numpy as np

from gpus import GPUS, RATES, best_bucket, efficiency, failures, predict
from steps import KIB, Computing, Link, carried_s, exposed_s, ring_sum_s

PIECES = 16  # of the backward pass of emulated_steps
FITTED_ON = (2, 4, 8)


def buckets_of(run):
    """Sizes in bytes, and the share of backward that is left when each is final."""
    sizes, leads, pending = [], [], 0.0
    for piece in range(1, PIECES + 1):
        pending += run["kib"] * KIB / PIECES
        if pending >= run["bucket_kib"] * KIB or piece == PIECES:
            sizes.append(pending)
            leads.append(1 - piece / PIECES)
            pending = 0.0
    return sizes, leads


def computing_of(run):
    p = run["computing_s"]  # percentiles 0, 5, ..., 100
    return Computing(float(np.mean(p[1:-1])), (p[17] - p[3]) / 2.073)


@dataclass(frozen=True)
class Machine:
    """What is fitted: the share of a link's rate that gradients get, a hop without delay, how often the delay counts in a hop
    (TCP opens its window anew after each pause), and what a step costs besides."""
    share: float = 0.95
    hop_s: float = 1e-4
    delays: float = 1.0
    step_s: float = 1e-3

    def link(self, run):
        return Link(self.hop_s + self.delays * 1e-3 * run["delay_ms"], self.share * run["mbit"] * 1e6 / 8)

    def step(self, run, computing):
        hosts, link = run["hosts"], self.link(run)
        sizes, shares = buckets_of(run)
        compute = computing.slowest_s(hosts)
        leads = [share * compute * 2 / 3 for share in shares]
        alone = [ring_sum_s(hosts, size, link) for size in sizes]
        carried = [carried_s(hosts, size, link) for size in sizes]
        return compute + exposed_s(leads, alone, carried, run["at_once"]) + self.step_s


def measured_s(run):
    steps = np.sort(run["step_s"])
    cut = len(steps) // 10  # what else the machine did
    return float(np.mean(steps[cut:len(steps) - cut]))


def with_sums_at_once(run):
    return run | {"at_once": run["at_once"] or run["chosen_at_once"]}


def case_of(run):
    return tuple(run[k] for k in ("mbit", "delay_ms", "kib", "compute_ms", "jitter_pct", "at_once"))


def pooled(runs):
    """One run for each case and number of hosts: rounds are put together."""
    found = {}
    for run in runs:
        found.setdefault((case_of(run), run["hosts"]), []).append(run)
    together = []
    for rounds in found.values():
        one = dict(rounds[0])
        one["measured_s"] = float(np.median([measured_s(r) for r in rounds]))
        together.append(one)
    return together


def computing_by_case(runs):
    """A rank's computing, as the smallest number of hosts has it: how it grows with them is for the model to say."""
    found = {}
    for run in sorted(runs, key=lambda r: r["hosts"]):
        found.setdefault(case_of(run)[2:5], computing_of(run))
    return found


def error_of(machine, run, computing):
    return machine.step(run, computing[case_of(run)[2:5]]) / run["measured_s"] - 1


def fit(runs, computing):
    """Least squares of relative errors, parameter by parameter in ever smaller steps."""
    def cost(machine):
        return sum(error_of(machine, run, computing) ** 2 for run in runs)

    best, width = Machine(), {"share": 0.05, "hop_s": 5e-4, "delays": 0.5, "step_s": 2e-3}
    for _ in range(60):
        before = cost(best)
        for name, step in width.items():
            tries = [replace(best, **{name: max(1e-6, getattr(best, name) + sign * step)}) for sign in (-1, 1)]
            best = min(tries + [best], key=cost)
        if cost(best) == before:
            width = {name: step / 2 for name, step in width.items()}
    return best


def validate(runs):
    computing = computing_by_case(runs)
    fitted = [r for r in runs if r["hosts"] in FITTED_ON]
    held_out = [r for r in runs if r["hosts"] not in FITTED_ON]
    machine = fit(fitted, computing)
    print(f"fitted on {len(fitted)} cases of {FITTED_ON} hosts: share of the rate {machine.share:.3f}, "
          f"a hop {1e6 * machine.hop_s:.0f} us and {machine.delays:.2f} delays, a step besides {1e3 * machine.step_s:.2f} ms")
    print("\n| hosts | links | gradients, MiB | computing, ms | sums at once | measured, ms | model, ms | error |\n|---|---|---|---|---|---|---|---|")
    for run in sorted(runs, key=lambda r: (r["hosts"] in FITTED_ON, r["hosts"], case_of(r))):
        error = error_of(machine, run, computing)
        mark = "" if run["hosts"] in FITTED_ON else "**"
        links = f'{run["mbit"]} Mbit/s' + (f', {run["delay_ms"]} ms' if run["delay_ms"] else "")
        jitter = f' +- {run["jitter_pct"]} %' if run["jitter_pct"] else ""
        print(f'| {mark}{run["hosts"]}{mark} | {links} | {run["kib"] / 1024:g} | {run["compute_ms"]}{jitter} '
              f'| {run["at_once"]} | {1e3 * run["measured_s"]:.0f} '
              f'| {1e3 * (1 + error) * run["measured_s"]:.0f} | {mark}{100 * error:+.1f} %{mark} |')
    for name, some in (("fitted", fitted), ("held out", held_out)):
        errors = np.abs([error_of(machine, r, computing) for r in some])
        print(f"\n{name}: mean error {100 * errors.mean():.1f} %, largest {100 * errors.max():.1f} %, "
              f"{np.mean(errors <= 0.1):.0%} within 10 %")
    return machine, computing


def plot(path, runs, machine, computing):
    import matplotlib
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "scaling"
    import matplotlib.pyplot as plt
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4))
    for hosts, mark in ((True, "o"), (False, "s")):
        some = [r for r in runs if (r["hosts"] in FITTED_ON) == hosts]
        left.plot([1e3 * r["measured_s"] for r in some], [1e3 * (1 + error_of(machine, r, computing)) * r["measured_s"] for r in some],
                  mark, fillstyle="none", label="fitted" if hosts else "held out: 3 and 16 hosts")
    span = np.array([100, 2000])
    left.fill_between(span, 0.9 * span, 1.1 * span, alpha=0.2, label="10 %")
    left.set(xscale="log", yscale="log", xlabel="measured step, ms", ylabel="model, ms", title="Emulated steps, 2 to 16 hosts")
    left.legend()
    for number, (name, rate) in enumerate(RATES.items()):
        right.plot(GPUS, [100 * efficiency(g, rate, 2) for g in GPUS], f"C{number}-", label=f"{name}, ring, 16 MiB")
        right.plot(GPUS, [100 * efficiency(g, rate, 2, bucket_mib=best_bucket(g, rate, 2, "tree"), how="tree") for g in GPUS],
                   f"C{number}:", label=f"{name}, tree")
    right.set(xscale="log", xlabel="H100 GPUs, 8 a host", ylabel="weak efficiency, %", ylim=(0, 100), xticks=GPUS,
              title="ResNet-50, fp16 gradients, predicted")
    right.set_xticks(GPUS, [str(g) for g in GPUS])
    right.minorticks_off()
    right.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main(arguments):
    here = os.path.dirname(os.path.abspath(__file__))
    with open(arguments[0] if arguments else os.path.join(here, "runs.jsonl")) as file:
        runs = pooled([with_sums_at_once(json.loads(line)) for line in file])
    machine, computing = validate(runs)
    predict()
    failures()
    if len(arguments) > 1:
        plot(arguments[1], runs, machine, computing)


if __name__ == "__main__":
    main(sys.argv[1:])
