"""Several ranks on one GPU: the same training as one rank's, and an end in time when one of them dies."""
import curves
from records import losses
from stage import FAILED, Command, Finding, Stage, verdict
from stages.common import probe, training

COUNTS = (2, 4)
# Relative, of every loss. Other orders of summing made 4e-4 between CPUs; ranks that do not sum make 2.5e-2.
BOUND = 5e-3
DEADLINE_S = 15


def options(batch, steps, ranks, *more):
    return training("cifar10_cnn", batch // ranks, steps, "--data", "shapes", "--optimizer", "adam", "--lr", 0.001, "--log-every", 1, *more)


def together(place, ranks):
    metrics = place.out / "ranks" / f"ranks-{ranks}.jsonl"
    words = options(place.size(128, 64), 20, ranks, "--metrics", metrics)
    return Command(f"ranks-{ranks}", place.train(*words, ranks=ranks), 40, needs=("train", "mpirun"), metrics=metrics)


def killed(place):
    metrics = place.out / "ranks" / "killed.jsonl"
    job = place.train(*options(64, 1000000, 2, "--metrics", metrics), ranks=2)
    return Command("killed", probe("kill_rank", metrics, 30, *job), 75, needs=("train", "mpirun"))


def commands(place):
    return [together(place, 1)] + [together(place, ranks) for ranks in COUNTS] + [killed(place)]


def judge_loss(ranks, ours, alone):
    what = f"{ranks} ranks as one: losses"
    if not alone or curves.missing_steps(ours, alone):
        return Finding(what, FAILED, note="steps without a loss")
    gap = max(abs(ours[step] - alone[step]) / abs(alone[step]) for step in alone)
    return Finding(what, verdict(gap <= BOUND), gap, f"of <= {BOUND:g}")


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
    alone = losses(outcomes["ranks-1"].records) if "ranks-1" in outcomes else {}
    findings = [judge_loss(n, losses(outcomes[f"ranks-{n}"].records), alone) for n in COUNTS if f"ranks-{n}" in outcomes]
    if "killed" in outcomes:
        findings.append(judge_kill(outcomes["killed"].result()))
    return findings


RANKS = Stage("ranks", "2 and 4 ranks on one GPU train as one does; one is killed, the other ends in time", 50, commands, judge)
