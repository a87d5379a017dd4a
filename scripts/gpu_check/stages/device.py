"""cuDNN's own description of this GPU, and where the built-in ones differ from it."""
import json

from stage import FAILED, MEASURED, Command, Finding, Stage

BUILT_IN = ("h100", "h200")


def commands(place):
    dump = place.executable("device_dump")
    return [Command(name, place.ours(dump, *words), 15, needs=("device_dump",), optional=place.rehearse and not words)
            for name, words in [("this", ()), *((model, (model,)) for model in BUILT_IN)]]


def description(outcome):
    """The JSON among what the program printed."""
    line = next(line for line in outcome.output.splitlines() if line.startswith("{"))
    return json.loads(line)


def built_in_for(name):
    return next((model for model in BUILT_IN if model in name.lower()), None)


def differences(here, built_in):
    """Fields that plans may depend on and that differ."""
    ignored = {"cudaDeviceId", "pciDeviceId", "deviceName", "driverVer"}
    return [f"{key} {built_in.get(key)} is {here.get(key)}" for key in sorted(set(here) | set(built_in))
            if key not in ignored and here.get(key) != built_in.get(key)]


def judge(outcomes, known):
    if "this" not in outcomes:
        return []
    here = description(outcomes["this"])
    findings = [Finding("cuDNN's description", MEASURED, len(here), "fields", detail=json.dumps(here, separators=(",", ":")))]
    model = built_in_for(here.get("deviceName", ""))
    if model is None:
        return findings + [Finding("built-in description", MEASURED, note=f"none for {here.get('deviceName')}")]
    if model not in outcomes:
        return findings + [Finding(f"built-in {model}", FAILED, note="could not be read")]
    wrong = differences(here, description(outcomes[model]))
    return findings + [Finding(f"built-in {model}: fields that differ", MEASURED, len(wrong), "", "; ".join(wrong))]


DEVICE = Stage("device", "cuDNN's description of this GPU, against the one that is built in", 10, commands, judge)
