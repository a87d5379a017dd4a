"""What this GPU does at best."""
from stage import FAILED, MEASURED, Command, Finding, Stage
from stages.common import probe, toy

UNITS = {"copy": "TB/s", "product fp16": "TFLOP/s", "product bf16": "TFLOP/s", "to device": "GB/s", "from device": "GB/s"}


def commands(place):
    return [Command("ceilings", probe("ceilings", *toy(place)), 40)]


def judge(outcomes, known):
    found = outcomes["ceilings"].result() if "ceilings" in outcomes else None
    if found == {}:
        return [Finding("ceilings", FAILED, note="no result")]
    return [Finding(what, MEASURED, value, UNITS[what]) for what, value in (found or {}).items()]


CEILINGS = Stage("ceilings", "copy (read + written), 16-bit matrix products, host transfers", 20, commands, judge, needs=("torch",))
