"""Every test that wants a GPU."""
import re

from place import GPU_TESTS
from stage import FAILED, PASSED, Command, Finding, Stage


def commands(place):
    if place.ctest():
        return [Command("ctest", ("ctest", "--test-dir", str(place.build), "-L", "^gpu$", "-j4", "--output-on-failure", "--no-tests=error"), 120)]
    return [Command(name, place.ours(place.executable(name)), 90, needs=(name,)) for name in GPU_TESTS]


def skipped(text):
    """Tests that say that they could not run: on a machine with a GPU, each is a fault."""
    return sorted(set(re.findall(r"^\s*(skipped: .*)$", text, re.MULTILINE)) |
                  set(re.findall(r"^\s*\d+/\d+ Test +#\d+: (.*?) \.*\*\*\*Skipped", text, re.MULTILINE)))


def tests_passed(text):
    """How many, by Catch2's or ctest's closing words; 0 when nothing was checked."""
    catch = re.findall(r"All tests passed \(\d+ assertions? in (\d+) test cases?\)", text)
    ctest = re.findall(r"tests passed, 0 tests failed out of (\d+)", text)
    return sum(int(n) for n in catch + ctest)


def judge(outcomes, known):
    findings = []
    for name, outcome in outcomes.items():
        left_out, passed = skipped(outcome.output), tests_passed(outcome.output)
        if left_out:
            findings.append(Finding(name, FAILED, len(left_out), "skipped", "; ".join(left_out)[:300]))
        elif passed == 0:
            findings.append(Finding(name, FAILED, 0, "tests", "nothing was checked"))
        else:
            findings.append(Finding(name, PASSED, passed, "tests"))
    return findings


TESTS = Stage("tests", "every test that wants a GPU", 70, commands, judge)
