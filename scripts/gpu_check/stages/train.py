"""Loss curves on the GPU beside the CPU's."""
import curves
from stage import Command, Finding, FAILED, Stage
from records import losses
from stages.common import training

# Optimizers with which the loss falls within 50 steps while rounding is not amplified much: two runs on the CPU with other numbers of
# threads lie 0.2 % and 0.4 % apart. (With the recipe of cifar10_cnn the loss does not move yet.)
MODELS = {"cifar10_cnn": ("--optimizer", "adam", "--lr", 0.001), "resnet20": ("--lr", 0.01)}
PRECISIONS = ("fp32", "fp16", "bf16")


def run(place, model, device, precision):
    name = f"{model}-{device}-{precision}"
    metrics = place.out / "train" / f"{name}.jsonl"
    options = training(model, place.size(64, 32), 50, "--data", "shapes", *MODELS[model], "--log-every", 1,
                       "--metrics", metrics)
    return Command(name, place.train(*options, device=device, precision=precision), 45, needs=("train",), metrics=metrics)


def commands(place):
    return [run(place, model, *how) for model in MODELS for how in [("cpu", "fp32"), *(("cuda", p) for p in PRECISIONS)]]


def judge(outcomes, known):
    findings = []
    for model in MODELS:
        if f"{model}-cpu-fp32" not in outcomes:
            findings.append(Finding(model, FAILED, note="no curve of the CPU to compare with"))
            continue
        oracle = losses(outcomes[f"{model}-cpu-fp32"].records)
        findings.append(curves.compare_fall(f"{model} cpu", oracle))
        if not known.get("rehearsal"):
            mine = {name: losses(outcome.records) for name, outcome in outcomes.items() if name.startswith(model)}
            findings.append(curves.compare_bits(model, mine))
        for precision in PRECISIONS:
            name = f"{model}-cuda-{precision}"
            if name in outcomes:
                findings += curves.compare(f"{model} {precision}", losses(outcomes[name].records), oracle, precision)
    return findings


TRAIN = Stage("train", "loss curves of 50 steps against the CPU's", 35, commands, judge)
