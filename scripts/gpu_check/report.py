"""The table that is printed last, and the same as JSON."""
import json

from stage import FAILED, MEASURED, PASSED, SKIPPED


def number(finding):
    if finding.value is None:
        return ""
    value = finding.value
    text = f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"
    return f"{text} {finding.unit}".strip()


def line(stage, finding):
    return f"{stage:13} {finding.verdict:8} {finding.what:50} {number(finding):26} {finding.note}".rstrip()


def count(findings_by_stage, verdict):
    return sum(f.verdict == verdict for findings in findings_by_stage.values() for f in findings)


def summary(findings_by_stage):
    return ", ".join(f"{count(findings_by_stage, v)} {v}" for v in (PASSED, FAILED, SKIPPED, MEASURED))


def table(findings_by_stage):
    """One line a finding, failures last so that they are read."""
    rows = [(stage, f) for stage, findings in findings_by_stage.items() for f in findings]
    rows.sort(key=lambda row: row[1].verdict == FAILED)
    head = f"{'stage':13} {'result':8} {'what':50} {'number':26} note"
    return "\n".join([head] + [line(stage, f) for stage, f in rows] + [summary(findings_by_stage)])


def write_json(path, findings_by_stage, about):
    """`about`: machine, date, commit and options."""
    stages = {stage: [vars(f) for f in findings] for stage, findings in findings_by_stage.items()}
    with open(path, "w") as file:
        json.dump({**about, "stages": stages}, file, indent=1)
        file.write("\n")


def exit_code(findings_by_stage):
    """0: all is well; 1: a check failed, or none was made."""
    checked = count(findings_by_stage, PASSED) + count(findings_by_stage, MEASURED)
    return 1 if count(findings_by_stage, FAILED) or not checked else 0
