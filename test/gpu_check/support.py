"""Makes the script's modules importable, and metrics and outcomes as runs leave them."""
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/gpu_check"))

from stage import FAILED, MEASURED, PASSED, SKIPPED, Outcome  # noqa: E402, F401


def step(number, loss=2.0, rate=1000.0, seconds=0.1, **phases):
    return {"kind": "step", "step": number, "loss": loss, "examples_per_second": rate, "seconds_per_batch": seconds, "phases": phases}


def curve(*losses):
    return [step(i + 1, loss) for i, loss in enumerate(losses)]


def ended(output="", records=()):
    return Outcome(code=0, output=output, seconds=1.0, records=list(records))


def verdicts(findings):
    return {finding.what: finding.verdict for finding in findings}
