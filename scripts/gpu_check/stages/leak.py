"""A thousand steps need no more memory than the first hundred."""
from stage import FAILED, SKIPPED, Command, Finding, Stage, verdict
from stages.common import probe, synthetic

ALLOWED = {"gpu": 0, "host": 16}  # MiB
WARM_SHARE = 0.2  # of the steps, in which memory may still grow
LEAST_SAMPLES = 2


def commands(place):
    metrics = place.out / "leak" / "steps.jsonl"
    model, batch = place.size("resnet50", "cifar10_cnn"), place.size(64, 8)
    options = synthetic(model, batch, place.size(1000, 100), "--lr", 0.001, "--log-every", 5, "--metrics", metrics)
    return [Command("steps", probe("watch_memory", metrics, *place.train(*options, precision="fp16")), 60, needs=("train",), metrics=metrics)]


def growth(samples, of):
    """MiB by which the most lies above the first, once warm; None without enough readings."""
    last = max((s["step"] for s in samples), default=0)  # after it comes an evaluation, with memory of its own
    warm = [s[of] for s in samples if max(1, WARM_SHARE * last) <= s["step"] < last and s[of] is not None]
    return max(warm) - warm[0] if len(warm) >= LEAST_SAMPLES else None


def judge(outcomes, known):
    if "steps" not in outcomes:
        return []
    samples = outcomes["steps"].result().get("samples", [])
    findings = []
    for of, allowed in ALLOWED.items():
        grown, what = growth(samples, of), f"{of} memory grows"
        if grown is not None:
            findings.append(Finding(what, verdict(grown <= allowed), grown, f"MiB of <= {allowed}", f"{len(samples)} readings"))
        elif all(s[of] is None for s in samples):
            findings.append(Finding(what, SKIPPED, note="it cannot be read here"))
        else:
            findings.append(Finding(what, FAILED, note="too few readings"))
    return findings


LEAK = Stage("leak", "a thousand steps need no more memory than the first", 15, commands, judge)
