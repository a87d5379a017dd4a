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
IMAGES = {"resnet50": 32768, "cifar10_cnn": 1 << 19, "resnet20": 1 << 19}  # of a run: some seconds


def train(place, model, batch, precision, *more):
    steps = place.size(max(60, IMAGES[model] // batch), 6)
    options = synthetic(model, place.size(batch, 4), steps, "--lr", 0.001, "--log-every", max(1, steps // 30), *more)
    return place.train(*options, precision=precision)


def pair(place, model, batch, precision, modes, _):
    words = ("--model", model, "--batch", place.size(batch, 4), "--precision", place.size(precision, "fp32"), "--modes",
             place.size(modes, "eager"), "--rounds", place.size(3, 1), "--folder", place.out / "speed", *toy(place), "--")
    return Command(f"{model}-{batch}-{precision}", probe("pair", *words, *train(place, model, batch, precision, "--autotune")), 110,
                   needs=("train",))


def alone(place, model, batch, precision, how):
    name = f"{model}-{batch}-{precision}-{how}"
    metrics = place.out / "speed" / f"{name}.jsonl"
    more = ("--metrics", metrics, "--autotune") + (("--no-graph",) if how == "no-graph" else ())
    return Command(name, train(place, model, batch, precision, *more), 30, needs=("train",), metrics=metrics)


def commands(place):
    return [pair(place, *p) for p in PAIRS] + [alone(place, *a) for a in ALONE]


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
    return Finding(name.replace("-", " ", 2), MEASURED, middle, "images/s", f"+- {spread:,.0f}; {shares}")


def judge(outcomes, known):
    findings = []
    for case in PAIRS:
        name = "-".join(map(str, case[:3]))
        if name in outcomes:
            findings += judge_pair(*case, outcomes[name].result())
    names = ["-".join(map(str, case)) for case in ALONE]
    return findings + [judge_alone(name, outcomes[name]) for name in names if name in outcomes]


SPEED = Stage("speed", "our images a second, by batch, precision and graph, and PyTorch's in turns", 160, commands, judge)
