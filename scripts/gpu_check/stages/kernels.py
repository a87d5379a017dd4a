"""How long each kernel of a step takes."""
from stage import MEASURED, FAILED, Command, Finding, Stage
from stages.common import probe, synthetic

CASES = (("resnet50", 256, "fp16"), ("inception_v3", 128, "fp16"))


def command(place, model, batch, precision):
    times = place.out / "kernels" / f"{model}-{batch}-{precision}.txt"
    options = synthetic(model, place.size(batch, 4), 24, "--lr", 0.001)
    train = place.train(*options, precision=precision)
    return Command(f"{model}-{batch}-{precision}", probe("kernels", place.executable("libkernel_times.so"), times, 60, *train), 75,
                   needs=("train", "libkernel_times.so", "gpu"), optional=True)


def commands(place):
    return [command(place, *case) for case in CASES]


def judge(outcomes, known):
    findings = []
    for name, outcome in outcomes.items():
        found = outcome.result()
        if not found:
            findings.append(Finding(name, FAILED, note="no result"))
            continue
        findings.append(Finding(f"{name}: busy in a step", MEASURED, found["busy_ms"], f"ms of {found['step_ms']:.2f}",
                                f"{found['kernels']} kernels; {found['steps']} steps", outcome.tail(42)))
    return findings


KERNELS = Stage("kernels", "how long each kernel of a step takes, by CUPTI", 35, commands, judge, needs=("libkernel_times.so",))
