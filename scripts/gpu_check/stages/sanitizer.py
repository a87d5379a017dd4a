"""NVIDIA's compute-sanitizer on the tests of our kernels."""
import re

from place import GPU_TESTS
from stage import Command, Finding, Stage, verdict

KERNEL_TESTS, STEPS = GPU_TESTS[0], "cuda step*"
TOOLS = ("memcheck", "racecheck")


def commands(place):
    tests = place.executable(KERNEL_TESTS)
    return [Command(tool, place.ours("compute-sanitizer", "--tool", tool, "--error-exitcode", 9, tests, STEPS), 60,
                    needs=("compute-sanitizer", KERNEL_TESTS), may_wait=True) for tool in TOOLS]


def faults(text):
    """What the sanitizer counted; None when it did not come to its end."""
    found = re.findall(r"(?:ERROR SUMMARY|RACECHECK SUMMARY): (\d+) (?:error|hazard)", text)
    return int(found[-1]) if found else None


def judge(outcomes, known):
    findings = []
    for tool, outcome in outcomes.items():
        count = faults(outcome.output)
        note = "" if count == 0 else f"see sanitizer/{tool}.log"
        findings.append(Finding(tool, verdict(count == 0), count, "faults", note))
    return findings


SANITIZER = Stage("sanitizer", "compute-sanitizer on the tests of our kernels", 20, commands, judge, needs=("compute-sanitizer",))
