"""Gradients of one step on the GPU beside the CPU's, tensor by tensor: momentum after the first step holds them."""
import re

from stage import FAILED, Command, Finding, Stage, verdict
from stages.common import synthetic

MODELS = ("resnet50", "inception_v3")
PREFIX = "optimizer/momentum/"
ANY = 1e30  # the judge here has the bounds; NaN exceeds it
# Name, precision, more options, and how far all gradients as one vector may lie apart. What 16 bits make of random weights is mostly
# rounding of activations; a step that is wrong gives 1 and more.
WAYS = (("fp32", "fp32", (), 0.02), ("fp16", "fp16", (), 0.15), ("fp16-unfused", "fp16", ("--fusion", "off"), 0.15),
        ("bf16", "bf16", (), 0.5))


def folder(place, model, way):
    return place.out / "gradients" / f"{model}-{way}"


def one_step(place, model, way, precision, device, more=()):
    options = synthetic(model, place.size(16, 2), 1, "--lr", 0.01, "--optimizer", "momentum", "--checkpoint-every", 1, "--checkpoint-dir",
                        folder(place, model, way), *more)
    return Command(f"{model}-{way}", place.train(*options, device=device, precision=precision), 60, needs=("train",))


def comparison(place, model, way):
    files = [folder(place, model, which) / "step-0000000001.h5" for which in ("cpu", way)]
    return Command(f"{model}-{way}-compared", place.ours(place.executable("compare_checkpoints"), *files, ANY, PREFIX), 20,
                   needs=("compare_checkpoints",), may_wait=True)


def commands(place):
    found = []
    for model in place.size(MODELS, ("cifar10_cnn",)):
        found.append(one_step(place, model, "cpu", "fp32", "cpu"))
        for way, precision, more, _ in WAYS:
            found += [one_step(place, model, way, precision, "cuda", more), comparison(place, model, way)]
    return found


def judge(outcomes, known):
    findings = []
    bounds = {way: bound for way, _, _, bound in WAYS}
    for name, outcome in outcomes.items():
        if not name.endswith("-compared"):
            continue
        way = name[len(name.split("-")[0]) + 1:-len("-compared")]
        found = re.search(r"relative difference (\S+),", outcome.output)
        gap = float(found.group(1)) if found else None
        fine = gap is not None and gap <= bounds[way]
        findings.append(Finding(name.replace("-compared", "").replace("-", " ", 1), verdict(fine) if found else FAILED, gap,
                                f"of <= {bounds[way]:g}", outcome.output.strip().splitlines()[0] if outcome.output.strip() else "", outcome.tail()))
    return findings


GRADIENTS = Stage("gradients", "gradients of one step against the CPU's", 50, commands, judge)
