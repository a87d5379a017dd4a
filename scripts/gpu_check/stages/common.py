"""How stages call `train` and their probes."""
import sys
from pathlib import Path

PROBES = Path(__file__).resolve().parents[1] / "probes"
QUERY_GPU = ("nvidia-smi", "--query-gpu=name,driver_version,memory.total,compute_cap", "--format=csv,noheader")


def probe(name, *arguments):
    return (sys.executable, str(PROBES / f"{name}.py")) + tuple(str(a) for a in arguments)


def toy(place):
    return ("--toy",) if place.rehearse else ()


def training(model, batch, steps, *more):
    """Options that leave nothing to the length of the run: a shorter one is the longer one's beginning."""
    return ("--model", model, "--batch", batch, "--steps", steps, "--lr-schedule", "constant", "--warmup-epochs", 0,
            "--eval-every", 0, "--progress", "off") + more


def synthetic(model, batch, steps, *more):
    return training(model, batch, steps, "--data", "synthetic", *more)
