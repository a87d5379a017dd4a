"""Which driver, libraries and PyTorch are here."""
import json

from place import IF_KNOWN
from stage import FAILED, MEASURED, Command, Finding, Stage
from stages.common import QUERY_GPU, probe


def commands(place):
    train = place.executable("train")
    return [
        Command("gpu", QUERY_GPU, 10, needs=("nvidia-smi",), optional=place.rehearse),
        Command("train", place.ours(train, "--version"), 10, needs=("train",)),
        Command("options", place.ours(train, "--help"), 10, needs=("train",)),
        Command("libraries", place.ours(train, "--version", "--json"), 10, needs=("train",)),
        Command("torch", probe("versions"), 30, needs=("torch",), optional=True),
    ]


def libraries(text):
    """Findings about the libraries that `train` loads here."""
    for name, version in json.loads(text)["libraries"].items():
        lost = version["runs_with"] == "not found"
        yield Finding(f"library {name}", FAILED if lost else MEASURED,
                      note=f"{version['runs_with']}, built with {version['built_with']}")


def judge(outcomes, known):
    findings = []
    if "gpu" in outcomes:
        findings.append(Finding("GPU, driver, memory, capability", MEASURED, note=outcomes["gpu"].output.strip().replace("\n", "; ")))
    if "train" in outcomes:
        findings.append(Finding("train", MEASURED, note=outcomes["train"].output.strip().replace("\n", "; ")))
    if "options" in outcomes:
        lacking = [option for option in IF_KNOWN if f"  {option} " not in outcomes["options"].output]
        findings += [Finding(f"train without {option}", MEASURED, note="speed is measured without it") for option in lacking]
    if "libraries" in outcomes and outcomes["libraries"].ok:
        findings += libraries(outcomes["libraries"].output)
    if "torch" in outcomes:
        words = (f"{name} {value}" for name, value in outcomes["torch"].result().items())
        findings.append(Finding("PyTorch", MEASURED, note=", ".join(words)))
    return findings


VERSIONS = Stage("versions", "which driver, libraries and PyTorch are here", 15, commands, judge)
