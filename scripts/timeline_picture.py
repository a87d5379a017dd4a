#!/usr/bin/env python3
"""timeline_picture.py RUN.json OUT.svg [STEP]: draws a step and the one behind it, as `train --timeline RUN.json` recorded them, by rank and thread.

STEP is the first of the two, counted from 1 in the file; without it, the pair with a save that took the least time. The picture of the README:
two hosts (test/support/hosts/hosts.sh up 2 1gbit), one rank with one thread on each:
  train --model cifar10_cnn --data shapes --steps 60 --batch 48 --threads 1 --tuning off --checkpoint-dir DIR --checkpoint-every 20 --timeline RUN.json"""
import html
import json
import sys

COLOURS = {"wait for data": "#bbbbbb", "forward": "#8ecae6", "backward": "#219ebc", "communication": "#e63946", "update": "#2a9d8f",
           "checkpoint": "#f4a261", "sum": "#ffb703", "write checkpoint": "#f4a261", "make batch": "#cdb4db"}
WORDS = {"communication": "waits for sums", "sum": "sum over hosts", "checkpoint": "copies state", "write checkpoint": "writer process saves",
         "make batch": "loader makes a batch"}
LEFT, WIDTH, ROW, GAP = 150, 780, 22, 6


def spans(events, start, end):
    return [e for e in events if e["ph"] == "X" and e["name"] in COLOURS and e["ts"] < end and e["ts"] + e["dur"] > start]


def chosen(events, number):
    """Begin and end of two steps of rank 0."""
    steps = sorted((e for e in events if e["ph"] == "X" and e["name"] == "step" and e["pid"] == 0), key=lambda e: e["ts"])
    if number:
        first = number - 1
    else:
        saves = [e["ts"] for e in events if e["ph"] == "X" and e["name"] == "checkpoint"]
        pairs = [i for i in range(len(steps) - 1) if any(steps[i]["ts"] <= at <= steps[i]["ts"] + steps[i]["dur"] for at in saves)]
        first = min(pairs, key=lambda i: steps[i + 1]["ts"] + steps[i + 1]["dur"] - steps[i]["ts"])
    return steps[first]["ts"], steps[first + 1]["ts"] + steps[first + 1]["dur"]


def rows_of(events):
    """(rank, thread, title), as the file orders them."""
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    return [(rank, thread, names[rank, thread]) for rank, thread in sorted(names)]


def draw(events, start, end):
    scale = WIDTH / (end - start)
    parts, y, rank_before = [], 30, None
    for rank, thread, title in rows_of(events):
        drawn = [e for e in spans(events, start, end) if (e["pid"], e["tid"]) == (rank, thread)]
        if not drawn:
            continue
        if rank != rank_before:
            y += 16
            parts.append(f'<text x="8" y="{y}" font-weight="bold">rank {rank}</text>')
            y += 6
            rank_before = rank
        parts.append(f'<text x="20" y="{y + 15}">{html.escape(title)}</text>')
        for e in drawn:
            left, right = max(e["ts"], start), min(e["ts"] + e["dur"], end)
            parts.append(f'<rect x="{LEFT + (left - start) * scale:.1f}" y="{y}" width="{max((right - left) * scale, 1):.1f}" height="{ROW - 4}" '
                         f'fill="{COLOURS[e["name"]]}"><title>{e["name"]} {e["dur"] / 1e3:.1f} ms</title></rect>')
        y += ROW
    bottom, lines = y + GAP, []
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if (end - start) / 1e3 / s <= 12)
    for at in range(0, int((end - start) / 1e3) + 1, step):
        x = LEFT + at * 1e3 * scale
        lines.append(f'<line x1="{x:.1f}" y1="30" x2="{x:.1f}" y2="{bottom}" stroke="#dddddd"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 14}" text-anchor="middle" fill="#555555">{at} ms</text>')
    x, legend = 20, []
    for name, colour in COLOURS.items():
        if not any(e["name"] == name for e in spans(events, start, end)) or name == "wait for data":
            continue
        words = WORDS.get(name, name)
        legend.append(f'<rect x="{x}" y="8" width="12" height="12" fill="{colour}"/><text x="{x + 16}" y="18">{words}</text>')
        x += 30 + 6.4 * len(words)
    height, width = bottom + 24, max(LEFT + WIDTH + 20, int(x))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">\n'
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>\n' + "\n".join(legend + lines + parts) + "\n</svg>\n")


def main():
    with open(sys.argv[1]) as file:
        events = json.load(file)["traceEvents"]
    start, end = chosen(events, int(sys.argv[3]) if len(sys.argv) > 3 else 0)
    with open(sys.argv[2], "w") as file:
        file.write(draw(events, start, end))


if __name__ == "__main__":
    main()
