"""Reads what `train` writes as --metrics: one JSON object a line (docs/reference/metrics.md names them)."""
import json
import math
import statistics


def parse(text):
    """The records of a file. A last line that is torn, by a kill, is left out."""
    records = []
    for line in text.splitlines():
        try:
            records.append(json.loads(line))
        except ValueError:
            continue
    return [r for r in records if isinstance(r, dict)]


def of_kind(records, kind):
    return [r for r in records if r.get("kind") == kind]


def losses(records):
    """Loss by step."""
    return {r["step"]: r["loss"] for r in of_kind(records, "step")}


def rates(records):
    """Examples a second of the records after the first third, which warm up."""
    every = [r["examples_per_second"] for r in of_kind(records, "step")]
    return every[len(every) // 3:]


def rate(records):
    """Their median and its spread (1.4826 * median absolute deviation); None without records."""
    values = rates(records)
    if not values:
        return None, None
    middle = statistics.median(values)
    return middle, 1.4826 * statistics.median(abs(v - middle) for v in values)


def phase_shares(records):
    """Each phase's share of the time of a step, largest first."""
    total = {}
    steps = of_kind(records, "step")
    for record in steps[len(steps) // 3:]:
        for phase, seconds in record.get("phases", {}).items():
            total[phase] = total.get(phase, 0.0) + seconds
    whole = sum(total.values())
    if whole <= 0:
        return []
    return sorted(((phase, s / whole) for phase, s in total.items()), key=lambda p: -p[1])


def save_steps(records):
    """Seconds of steps that a save may have slowed, and of all others. A snapshot is taken in the
    step that is saved and copied out beside the next one. The first third warms up."""
    saved = {r["step"] for r in of_kind(records, "checkpoint")}
    slowed, plain = [], []
    steps = of_kind(records, "step")
    for record in steps[len(steps) // 3:]:
        near = record["step"] in saved or record["step"] - 1 in saved
        (slowed if near else plain).append(record["seconds_per_batch"])
    return slowed, plain


def percentile(values, share):
    """The least value that at least `share` of the values do not exceed."""
    return sorted(values)[max(0, math.ceil(len(values) * share) - 1)]
