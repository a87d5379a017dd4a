"""Every test that wants a GPU, each in a process of its own."""
from place import GPU_TESTS
from stage import FAILED, Command, Finding, Stage, verdict
from stages.common import probe

LIMIT_S, AT_A_TIME = 60, 6


def command(place, name):
    return Command(name, probe("each_test", place.executable(name), LIMIT_S, AT_A_TIME, place.out / "tests" / name, "--", *place.ours()), 200,
                   needs=(name,))


def commands(place):
    return [command(place, name) for name in GPU_TESTS]


def judge(outcomes, known):
    findings = []
    for name, outcome in outcomes.items():
        found = outcome.result()
        if not found.get("tests"):
            findings.append(Finding(name, FAILED, 0, "tests", "nothing was checked"))
            continue
        failed = found["failed"]
        findings.append(Finding(name, verdict(not failed), len(failed), f"of {found['tests']} fail", "; ".join(failed)[:300]))
        findings += [Finding(f"{name}: {test}"[:80], FAILED, detail=found["why"][test]) for test in failed]
    return findings


TESTS = Stage("tests", "every test that wants a GPU", 55, commands, judge, needs=("gpu",))
