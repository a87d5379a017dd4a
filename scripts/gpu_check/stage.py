"""What a stage is made of: commands to run, what became of them, and what that says."""
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Optional


@dataclass(frozen=True)
class Command:
    """One program. `argv` is complete: it can be copied into a shell."""
    name: str
    argv: tuple
    seconds: float  # it is killed after these
    needs: tuple = ()  # see Place.missing
    optional: bool = False  # without it something is not known, but nothing is wrong
    may_wait: bool = False  # may be left out or cut short when the stage's time is up
    metrics: Optional[Path] = None  # what it writes as --metrics


@dataclass
class Outcome:
    """What became of a command; `code` is None when it was not started or did not end."""
    code: Optional[int] = None
    output: str = ""
    seconds: float = 0.0
    records: list = field(default_factory=list)
    why: str = ""  # why code is None
    late: bool = False  # because the stage's time was up

    @property
    def ok(self):
        return self.code == 0

    def result(self):
        """What a probe reports: the object of its last RESULT line, or nothing."""
        for line in reversed(self.output.splitlines()):
            if line.startswith("RESULT "):
                return json.loads(line[len("RESULT "):])
        return {}

    def tail(self, lines=15):
        return "\n".join(self.output.splitlines()[-lines:])

    def complaint(self):
        """Why it is not ok, in one line."""
        if self.code is None:
            return self.why
        lines = [line for line in self.output.splitlines() if line.strip()]
        return f"exit code {self.code}: {lines[-1].strip()[:160] if lines else 'no output'}"


PASSED, FAILED, SKIPPED, MEASURED = "passed", "FAILED", "skipped", "measured"


@dataclass(frozen=True)
class Finding:
    """One row of the table."""
    what: str
    verdict: str
    value: Optional[float] = None
    unit: str = ""
    note: str = ""
    detail: str = ""  # lines too long for the table; shown when the stage ends, and in the JSON


@dataclass(frozen=True)
class Stage:
    """`commands(place)` are run in order; `judge(outcomes, known)` gets those that ended well (or
    were cut short, may be, and reported a result), by name, and the numbers of earlier stages as
    {"stage/what": value}, with "rehearsal": whether this is one."""
    name: str
    purpose: str
    budget_s: float
    commands: Callable
    judge: Callable
    needs: tuple = ()  # without these the stage is skipped
    prepare: Callable = lambda place: []  # commands that run beside earlier stages, one by one; the stage waits for them


def verdict(kept):
    return PASSED if kept else FAILED
