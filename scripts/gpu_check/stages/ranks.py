"""Several ranks on one GPU: the same training as one rank's, as one CUDA graph a step, and an end in time when one of them dies."""
import re
from dataclasses import dataclass

import curves
from records import losses
from stage import FAILED, Command, Finding, Stage, verdict
from stages.common import probe, training

DEADLINE_S = 15


@dataclass(frozen=True)
class Way:
    """Trainings whose losses are one rank's (of the way `beside`, or its own), and how far each may lie from it, relatively. Other orders of
    summing made 4e-4 between CPUs; cifar10_cnn's ranks that do not sum make 2.5e-2. Differences grow with the steps: on an H200 those of
    ResNet-20 with sync-BatchNorm from 1e-5 to 6e-3 within 20."""
    name: str
    counts: tuple
    bound: float
    model: str = "cifar10_cnn"
    more: tuple = ()
    precision: str = "fp32"
    beside: str = ""

    def what(self, ranks):
        return " ".join(filter(None, (self.name, f"{ranks} ranks as one: losses")))

    def run(self, ranks):
        return run_name(self.name, ranks)

    def alone(self):
        return run_name(self.beside or self.name, 1)


def run_name(name, ranks):
    return "-".join(filter(None, ("ranks", name, str(ranks))))


# Some 20 buckets, and a small step, as the ranks' first loss scales and so the steps left out may differ. Replicas are compared to the bit.
RESNET = ("--sync-batchnorm", "--bucket-mb", 4, "--lr", 0.0001, "--check-every", 5)
NEW = (Way("resnet50", (2, 4), 5e-2, "resnet50", RESNET, "fp16"),
       Way("resnet50-sharded-optimizer", (2, 4), 5e-2, "resnet50", (*RESNET, "--shard-optimizer"), "fp16", beside="resnet50"))
PROVEN = (Way("", (2, 4), 5e-3), Way("bf16-gradients", (2,), 1.5e-2, more=("--gradient-dtype", "bf16")), Way("blocking-calls", (2,), 5e-3, more=("--nccl-blocking",)))
WAYS = NEW + PROVEN


def options(model, batch, steps, ranks, *more):
    given = more if "--lr" in more else ("--lr", 0.001, *more)
    return training(model, batch // ranks, steps, "--data", "shapes", "--optimizer", "adam", "--log-every", 1, *given)


def together(place, way, ranks):
    metrics = place.out / "ranks" / f"{way.run(ranks)}.jsonl"
    words = options(place.size(way.model, "cifar10_cnn"), place.size(128, 64), 20, ranks, "--metrics", metrics, *way.more)
    return Command(way.run(ranks), place.train(*words, ranks=ranks, precision=way.precision), 60, needs=("train", "mpirun"), metrics=metrics)


def killed(place):
    metrics = place.out / "ranks" / "killed.jsonl"
    job = place.train(*options("cifar10_cnn", 64, 1000000, 2, "--metrics", metrics), ranks=2)
    return Command("killed", probe("kill_rank", metrics, 30, *job), 75, needs=("train", "mpirun"))


def all_of(place, ways):
    return [together(place, way, ranks) for way in ways for ranks in (*(() if way.beside else (1,)), *way.counts)]


def commands(place):
    """What an H200 has proven comes last."""
    return [*all_of(place, NEW), killed(place), *all_of(place, PROVEN)]


def judge_loss(way, ranks, ours, alone):
    what = way.what(ranks)
    if not alone or curves.missing_steps(ours, alone):
        return Finding(what, FAILED, note="steps without a loss")
    gap = max(abs(ours[step] - alone[step]) / abs(alone[step]) for step in alone)
    return Finding(what, verdict(gap <= way.bound), gap, f"of <= {way.bound:g}")


def judge_graph(name, output):
    """Findings, where sums could not be captured: training goes on, slower."""
    refused = re.search(r"^.*graphs: .*$", output, re.MULTILINE)
    return [Finding(f"{name}: a step is one graph", FAILED, note=refused.group(0)[-200:])] if refused else []


def judge_kill(found):
    what = "one rank killed: the job ends"
    if not found.get("started") or found["ranks"] != 2:
        seen = f"{found.get('ranks')} ranks among the processes {found.get('processes')}" if found.get("started") else "the job did not train"
        return Finding(what, FAILED, note=f"{seen}: {found.get('words', '')[-200:]}")
    if not found["ended"] or found["seconds"] > DEADLINE_S:
        return Finding(what, FAILED, found["seconds"], f"s of <= {DEADLINE_S}", "it hung")
    if found["left"]:
        return Finding(what, FAILED, found["left"], "ranks still there")
    if found["code"] == 0 or not found["words"]:
        return Finding(what, FAILED, note=f"exit code {found['code']}, without a word of it" if not found["words"] else "exit code 0")
    return Finding(what, verdict(True), found["seconds"], f"s of <= {DEADLINE_S}", found["words"][-200:])


def judge(outcomes, known):
    found = {name: losses(outcome.records) for name, outcome in outcomes.items()}
    findings = [judge_loss(way, n, found[way.run(n)], found.get(way.alone(), {})) for way in WAYS for n in way.counts if way.run(n) in found]
    findings += [finding for name, outcome in outcomes.items() for finding in judge_graph(name, outcome.output)]
    if "killed" in outcomes:
        findings.append(judge_kill(outcomes["killed"].result()))
    return findings


RANKS = Stage("ranks", "2 and 4 ranks on one GPU train as one does; one is killed, the other ends in time", 140, commands, judge)
