"""Checks a file of --timeline against the trace event format, itself and --metrics; says what is wrong and exits with 1."""

import argparse
import collections
import json
import sys

FIELDS = {"X": {"name", "ph", "pid", "tid", "ts", "dur", "args"}, "M": {"name", "ph", "pid", "tid", "args"}}
PHASES = {"wait for data": "data_wait", "forward": "forward", "backward": "backward",
          "communication": "comm_exposed", "update": "update"}
ROUNDING_US = 0.002
wrong = []


def expect(holds, what):
    if not holds:
        wrong.append(what)


def check_format(trace):
    expect(set(trace) == {"displayTimeUnit", "traceEvents"}, f"keys {sorted(trace)}")
    for event in trace["traceEvents"]:
        expect(set(event) == FIELDS[event["ph"]], f"fields of {event}")
        expect(event["ph"] == "M" or event["dur"] >= 0, f"length of {event}")


def check_names(trace, ranks):
    names = collections.defaultdict(dict)
    for event in trace["traceEvents"]:
        if event["ph"] == "M" and event["name"].endswith("_name"):
            names[event["pid"]][event["name"], event["tid"]] = event["args"]["name"]
    expect(sorted(names) == list(range(ranks)), f"processes {sorted(names)}")
    for rank, of_rank in names.items():
        expect(of_rank["process_name", 0].startswith(f"rank {rank} ("), f"name of rank {rank}: {of_rank}")
        expect(of_rank.get(("thread_name", 0)) == "main thread", f"threads of rank {rank}: {of_rank}")
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            expect(("thread_name", event["tid"]) in names[event["pid"]], f"no name for the thread of {event}")


def check_nesting(spans):
    """On a line each span lies in another or beside it."""
    lines = collections.defaultdict(list)
    for span in spans:
        lines[span["pid"], span["tid"]].append(span)
    for line, there in lines.items():
        open_ends = []
        for span in there:  # in the order of the file
            while open_ends and open_ends[-1] <= span["ts"] + ROUNDING_US:
                open_ends.pop()
            end = span["ts"] + span["dur"]
            expect(not open_ends or end <= open_ends[-1] + ROUNDING_US, f"{span} of {line} leaves what it is in")
            open_ends.append(end)


def check_steps(spans, steps):
    by_rank = collections.defaultdict(dict)
    for span in spans:
        if span["name"] == "step":
            by_rank[span["pid"]][span["args"]["step"]] = span
    for rank, there in by_rank.items():
        if steps:
            expect(sorted(there) == list(range(1, steps + 1)), f"steps of rank {rank}: {sorted(there)}")
    for span in spans:
        there = by_rank[span["pid"]]
        if span["name"] != "sum" or span["ts"] < min(s["ts"] for s in there.values()):
            continue
        inside = any(s["ts"] <= span["ts"] and span["ts"] + span["dur"] <= s["ts"] + s["dur"] + ROUNDING_US
                     for s in there.values())
        expect(inside, f"{span} lies in no step")
    # Ranks wait for each other in every step, so equal steps overlap: their clocks agree.
    for number in set.intersection(*(set(there) for there in by_rank.values())):
        same = [there[number] for there in by_rank.values()]
        expect(max(s["ts"] for s in same) < min(s["ts"] + s["dur"] for s in same), f"ranks are not in step {number} together")


def check_phases(spans, metrics, ranks):
    """Seconds of each phase on rank 0 over all steps."""
    records = [r for r in map(json.loads, open(metrics)) if r["kind"] == "step"]
    gaps = [after["step"] - before for before, after in zip([0] + [r["step"] for r in records], records)]
    wall = sum(r["seconds_per_batch"] * n for r, n in zip(records, gaps))
    for name, phase in PHASES.items():
        told = sum(r["phases"][phase] * n for r, n in zip(records, gaps))
        shown = sum(s["dur"] for s in spans if s["pid"] == 0 and s["tid"] == 0 and s["name"] == name) / 1e6
        expect(abs(told - shown) <= 0.05 * told + 0.001 * wall, f"{name}: {shown} s, but --metrics says {told} s")
    shown = sum(s["dur"] for s in spans if s["pid"] == 0 and s["name"] == "step") / 1e6
    expect(abs(wall - shown) <= 0.05 * wall, f"steps: {shown} s, but --metrics says {wall} s")


parser = argparse.ArgumentParser()
parser.add_argument("trace")
parser.add_argument("--ranks", type=int)
parser.add_argument("--steps", type=int)
parser.add_argument("--metrics")
parser.add_argument("--also", nargs="*", default=[])
a = parser.parse_args()
with open(a.trace) as file:
    trace = json.load(file)
spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
check_format(trace)
check_names(trace, a.ranks)
check_nesting(spans)
check_steps(spans, a.steps)
for name in ["step", "forward", "backward", "communication", "update", "sum", "make batch", *a.also]:
    expect(any(s["name"] == name for s in spans), f"no span is called {name}")
if a.metrics:
    check_phases(spans, a.metrics, a.ranks)
print("\n".join(wrong[:20]) or f"{len(spans)} spans are as they should be")
sys.exit(bool(wrong))
