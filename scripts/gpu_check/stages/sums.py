"""BN_BWD_WEIGHTS, before all else: the fused input gradients rest on one reading of what cuDNN writes there."""
import re

from stage import FAILED, Command, Finding, Stage, verdict

TEST = "cuda engines: what BN_BWD_WEIGHTS writes is the gradient of a BatchNorm"


def commands(place):
    program = "test_cuda_on_host" if place.rehearse else "test_cuda_gpu"  # the former has a simulated GPU
    return [Command("bn_bwd_weights", place.ours(place.executable(program), TEST), 20, needs=(program,))]


def judge(outcomes, known):
    findings = []
    for name, outcome in outcomes.items():
        found = re.search(r"All tests passed \((\d+) assertions", outcome.output)
        if not found:
            findings.append(Finding(name, FAILED, 0, "comparisons", "nothing was compared", outcome.tail()))
            continue
        findings.append(Finding(name, verdict(int(found.group(1)) > 0), int(found.group(1)), "comparisons agree"))
    return findings


SUMS = Stage("sums", "cuDNN's BN_BWD_WEIGHTS against a BatchNorm's gradient", 10, commands, judge)
