"""The same command twice, and once in two parts, ends with the same bits."""
import re

from stage import FAILED, Command, Finding, Stage, verdict
from stages.common import training

CASES = (("resnet20", "fp16"), ("cifar10_cnn", "fp32"))
RUNS = ("once", "again", "parts")


def folder(place, model, run):
    return place.out / "deterministic" / f"{model}-{run}-checkpoints"


def part(place, model, precision, run, steps, suffix=""):
    options = training(model, place.size(64, 8), steps, "--data", "shapes", "--deterministic", "--checkpoint-every", 1000,
                        "--checkpoint-dir", folder(place, model, run))
    return Command(f"{model}-{run}{suffix}", place.train(*options, precision=precision), 25, needs=("train",))


def inspection(place, model, run, steps):
    file = folder(place, model, run) / f"step-{steps:010d}.h5"
    return Command(f"{model}-{run}-inspect", place.ours(place.executable("train"), "--inspect", file), 10, needs=("train",))


def commands(place):
    steps, found = place.size(60, 6), []
    for model, precision in CASES:
        found += [part(place, model, precision, run, steps) for run in ("once", "again")]
        found += [part(place, model, precision, "parts", steps // 2, "-first"), part(place, model, precision, "parts", steps, "-second")]
        found += [inspection(place, model, run, steps) for run in RUNS]
    return found


def state_hash(outcome):
    """What --inspect ends with; None without it."""
    found = re.search(r"^state-hash (\w+)\s*\Z", outcome.output, re.MULTILINE) if outcome else None
    return found.group(1) if found else None


def resumed(outcome):
    return outcome is not None and re.search(r"^resumed from", outcome.output, re.MULTILINE) is not None


def compare(what, one, other):
    if one is None or other is None:
        return Finding(what, FAILED, note="no state-hash to compare")
    return Finding(what, verdict(one == other), note=one if one == other else f"{one} and {other}")


def judge(outcomes, known):
    findings = []
    for model, precision in CASES:
        once, again, parts = (state_hash(outcomes.get(f"{model}-{run}-inspect")) for run in RUNS)
        findings.append(compare(f"{model} {precision}: twice", once, again))
        if not resumed(outcomes.get(f"{model}-parts-second")):
            findings.append(Finding(f"{model} {precision}: resumed", FAILED, note="the second part did not resume"))
        else:
            findings.append(compare(f"{model} {precision}: resumed", once, parts))
    return findings


DETERMINISTIC = Stage("deterministic", "the same bits twice, and after a resume", 30, commands, judge)
