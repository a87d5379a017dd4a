"""Gradients of one step on the GPU beside the CPU's, tensor by tensor: momentum after the first step holds them."""
import re
from dataclasses import dataclass

from stage import Command, Finding, Stage, verdict
from stages.common import synthetic

PREFIX = "optimizer/momentum/"
ANY = 1e30  # the judge here has the bounds; NaN exceeds it
EXACT = ("env", "NVIDIA_TF32_OVERRIDE=0")  # convolutions of fp32 in fp32


@dataclass(frozen=True)
class Way:
    """A step on the GPU, and how far all its gradients as one vector may lie from the CPU's. What 16 bits make of random weights is
    rounding of activations; a step that is wrong gives 1 and more."""
    model: str
    name: str
    precision: str
    bound: float
    before: tuple = ()
    more: tuple = ()

    def full_name(self):
        return f"{self.model}-{self.name}"


# Inception's first gradients are chaotic: on an H100, TF32 alone moved them by 0.7 of their norm, and fp32 by 0.04.
WAYS = (Way("resnet50", "fp32", "fp32", 0.02), Way("resnet50", "fp16", "fp16", 0.05),
        Way("resnet50", "fp16-unfused", "fp16", 0.05, more=("--fusion", "off")), Way("resnet50", "bf16", "bf16", 0.15),
        Way("inception_v3", "exact", "fp32", 0.1, before=EXACT))


def folder(place, name):
    return place.out / "gradients" / name


def one_step(place, model, name, device, way=None):
    options = synthetic(place.size(model, "cifar10_cnn"), place.size(16, 2), 1, "--lr", 0.01, "--optimizer", "momentum", "--checkpoint-every", 1,
                        "--checkpoint-dir", folder(place, name), *(way.more if way else ()))
    train = place.train(*options, device=device, precision=way.precision if way else "fp32")
    return Command(name, (*(way.before if way else ()), *train), 60, needs=("train",))


def comparison(place, way):
    files = [folder(place, name) / "step-0000000001.h5" for name in (f"{way.model}-cpu", way.full_name())]
    return Command(f"{way.full_name()}-compared", place.ours(place.executable("compare_checkpoints"), *files, ANY, PREFIX), 20,
                   needs=("compare_checkpoints",), may_wait=True)


def commands(place):
    found = []
    for model in dict.fromkeys(way.model for way in WAYS):
        found.append(one_step(place, model, f"{model}-cpu", "cpu"))
        for way in (way for way in WAYS if way.model == model):
            found += [one_step(place, model, way.full_name(), "cuda", way), comparison(place, way)]
    return found


def judge_way(way, outcome):
    lines = outcome.output.strip().splitlines()
    found = re.search(r"relative difference (\S+),", outcome.output)
    gap = float(found.group(1)) if found else None
    return Finding(way.full_name().replace("-", " ", 1), verdict(gap is not None and gap <= way.bound), gap, f"of <= {way.bound:g}",
                   lines[0] if lines else "", outcome.tail())


def judge(outcomes, known):
    return [judge_way(way, outcomes[f"{way.full_name()}-compared"]) for way in WAYS if f"{way.full_name()}-compared" in outcomes]


GRADIENTS = Stage("gradients", "gradients of one step against the CPU's", 45, commands, judge)
