"""Our images a second, and PyTorch's on the same GPU, in turns."""
import statistics

from records import phase_shares, rate
from stage import FAILED, MEASURED, SKIPPED, Command, Finding, Stage
from stages.common import probe, synthetic, toy

# model, images a step, precision, PyTorch's modes, the factor we aim for over the best of them (eager for small networks)
PAIRS = (
    ("resnet50", 256, "fp16", "eager,compile", 1.5),
    ("cifar10_cnn", 128, "fp16", "eager,reduce-overhead", 5.0),
    ("resnet50", 256, "bf16", "eager,compile", 1.5),
    ("resnet20", 128, "fp16", "eager,reduce-overhead", None),
    ("cifar10_cnn", 128, "fp32", "eager,reduce-overhead", 5.0),
)
# What we alone do in other ways.
ALONE = (
    ("resnet50", 256, "fp16", "no-graph"), ("resnet50", 128, "fp16", "graph"), ("resnet50", 512, "fp16", "graph"),
    ("resnet50", 256, "fp32", "graph"), ("cifar10_cnn", 128, "fp16", "no-graph"), ("cifar10_cnn", 1024, "fp16", "graph"),
    ("resnet20", 128, "fp16", "no-graph"), ("resnet20", 1024, "fp16", "graph"), ("resnet20", 128, "fp32", "graph"),
)
LOG_EVERY = {"resnet50": 5, "cifar10_cnn": 100, "resnet20": 100}  # steps: some records a second
FOREVER = 1_000_000_000  # steps; the probe ends a run


def command(place, name, model, batch, precision, seconds, asked, *more):
    """`asked`: what the probe measures beside our training."""
    words = ("--model", model, "--batch", place.size(batch, 8), "--precision", place.size(precision, "fp32"), *asked, "--files",
             place.out / "speed" / name, *toy(place), "--")
    options = synthetic(model, place.size(batch, 8), FOREVER, "--lr", 0.001, "--log-every", place.size(LOG_EVERY[model], 2), "--autotune", *more)
    return Command(name, probe("pair", *words, *place.train(*options, precision=precision)), seconds, needs=("train",),
                   metrics=place.out / "speed" / f"{name}-0.jsonl")


def pair(place, model, batch, precision, modes, _):
    asked = ("--modes", place.size(modes, "eager"), "--rounds", place.size(3, 2))
    return command(place, f"{model}-{batch}-{precision}", model, batch, precision, 110, asked)


def alone(place, model, batch, precision, how):
    more = ("--no-graph",) if how == "no-graph" else ()
    return command(place, f"{model}-{batch}-{precision}-{how}", model, batch, precision, 30, (), *more)


def commands(place):
    """ResNet-50 takes a CPU too long for a rehearsal."""
    return [make(place, *case) for make, cases in ((pair, PAIRS), (alone, ALONE)) for case in cases
            if not place.rehearse or case[0] == "cifar10_cnn"]


def judge_pair(model, batch, precision, modes, goal, found):
    """Rates of both sides and their ratio: round by round, since the GPU's clock moves."""
    what = f"{model} {batch} {precision}"
    rates = {side: values for side, values in found.get("rates", {}).items() if values}
    if not rates.get("ours"):
        return [Finding(what, FAILED, note="no rate of ours")]
    medians = {side: statistics.median(values) for side, values in rates.items()}
    findings = [Finding(what, MEASURED, medians.pop("ours"), "images/s")]
    findings += [Finding(f"{what}: PyTorch {mode}", MEASURED, value, "images/s") for mode, value in medians.items()]
    findings += [Finding(f"{what}: PyTorch {mode}", SKIPPED, note=why) for mode, why in found.get("failed", {}).items()]
    peers = {"eager"} & set(medians) if goal == 5.0 else set(medians)
    if peers:
        best = max(peers, key=medians.get)
        ratio = statistics.median(a / b for a, b in zip(rates["ours"], rates[best]))
        aim = f"the goal of {goal:g} is {'reached' if ratio >= goal else 'missed'}" if goal else ""
        findings.append(Finding(f"{what}: ours over PyTorch {best}", MEASURED, ratio, "", aim))
    return findings


def judge_alone(name, outcome):
    middle, spread = rate(outcome.records)
    if middle is None:
        return Finding(name, FAILED, note="no step was recorded")
    shares = ", ".join(f"{phase} {share:.0%}" for phase, share in phase_shares(outcome.records)[:4])
    return Finding(name.replace("-", " ", 3), MEASURED, middle, "images/s", f"+- {spread:,.0f}; {shares}")


def judge(outcomes, known):
    findings = []
    for case in PAIRS:
        name = "-".join(map(str, case[:3]))
        if name in outcomes:
            findings += judge_pair(*case, outcomes[name].result())
    names = ["-".join(map(str, case)) for case in ALONE]
    return findings + [judge_alone(name, outcomes[name]) for name in names if name in outcomes]


SPEED = Stage("speed", "our images a second, by batch, precision and graph, and PyTorch's in turns", 160, commands, judge)
