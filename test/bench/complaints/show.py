#!/usr/bin/env python3
"""show.py SCRIPT RESULTS: the table of what SCRIPT's runs left in the folder RESULTS, in Markdown; its plot becomes RESULTS.svg."""
import datetime
import glob
import json
import re
import statistics
import sys

sys.dont_write_bytecode = True
from plot import Plot, short  # noqa: E402

folder = sys.argv[2]


def steps(name):
    """The step records of each worker of a run: of the ring there is one list, of all ranks."""
    files = sorted(glob.glob(f"{folder}/{name}.jsonl") + glob.glob(f"{folder}/{name}.w*.jsonl"))
    records = [[json.loads(line) for line in open(file) if line.startswith('{"kind":"step"')] for file in files]
    return [r for r in records if r]


def rounds(kind):
    """The numbers of the rounds in which a run of this kind was measured."""
    return sorted(int(path.rsplit(".", 2)[1]) for path in glob.glob(f"{folder}/{kind}.*.load"))


def load(pattern):
    ones = [float(open(path).read().split()[0]) for path in glob.glob(f"{folder}/{pattern}.load")]
    return f"load {min(ones):.0f} to {max(ones):.0f}" if ones else "under way"


def spread(values):
    """Median (least to most)."""
    return f"{short(statistics.median(values))} ({short(min(values))} to {short(max(values))})"


def rate(name, skip=5):
    """Images a second of all workers, by the median step of each; the first steps left out."""
    return sum(statistics.median(r["examples_per_second"] for r in worker[skip:]) for worker in steps(name))


def table(head, rows):
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |")
    print()


def windows(name, records):
    """(last step, images a second of all workers) of windows of so many records."""
    workers = steps(name)
    count = min(len(w) for w in workers) // records
    return [(workers[0][(i + 1) * records - 1]["step"],
             sum(1 / statistics.mean(1 / r["examples_per_second"] for r in w[i * records:(i + 1) * records]) for w in workers))
            for i in range(count)]


def throughput():
    curves = {name: windows(name, 10) for name in ("ring", "asynchronous", "synchronous") if steps(name)}
    plot = Plot("cifar10_cnn, 16 images a worker, two workers, 1 Gbit/s", "across: steps of a worker", "images/s",
                max(c[-1][0] for c in curves.values()), 1.1 * max(v for c in curves.values() for _, v in c))
    rows = []
    for i, (name, curve) in enumerate(curves.items()):
        values = [v for _, v in curve[1:]]
        middle, quarter = statistics.median(values), max(len(values) // 4, 1)
        off = 1.4826 * statistics.median(abs(v - middle) for v in values)
        kept = statistics.median(values[-quarter:]) / statistics.median(values[:quarter])
        rows.append((name if name == "ring" else f"server, {name}", curve[-1][0], f"{middle:.0f} ± {off:.0f}", f"{min(values):.0f} to {max(values):.0f}",
                     f"{kept:.2f}", f"{statistics.median(v for _, v in curves['ring'][1:]) / middle:.2f}", load(name)))
        plot.line(i, rows[-1][0], curve)
    plot.save(f"{folder}.svg")
    table(("", "steps a worker", "images/s, windows of 100 steps", "least to most", "last quarter / first", "ring / this", "machine"), rows)


def moment(line):
    """Seconds of a log line's date."""
    return datetime.datetime.strptime(line[:26], "%Y-%m-%d %H:%M:%S.%f").timestamp()


def dated(name, pattern):
    """(seconds since the run began, match) of the dated lines of a run's logs that match."""
    found, began = [], times(name)[0][1]
    for path in glob.glob(f"{folder}/{name}.log") + glob.glob(f"{folder}/{name}.w*.log"):
        for line in open(path, errors="replace"):
            if re.match(r"\d{4}-\d\d-\d\d ", line) and (match := re.search(pattern, line)):
                found.append((moment(line) - began, match))
    return sorted(found, key=lambda f: f[0])


def times(name):
    return [(what, moment(when)) for what, when in (line.split(" ", 1) for line in open(f"{folder}/{name}.times"))]


def disturbances(name):
    """(what, begin, end), in seconds since the run began."""
    (_, began), *marks = times(name)
    return [(what, begin - began, end - began) for (what, begin), (_, end) in zip(marks[::2], marks[1::2])]


SPEED = r"step (\d+), loss.*\(([\d.]+) examples/sec"


def rates(name):
    """(seconds, images a second of all workers), by each worker's last line."""
    last, curve = {}, []
    for t, m in dated(name, rf"(?:worker (\d+), )?{SPEED}"):
        last[m[1]] = float(m[3])
        curve.append((t, sum(last.values())))
    return curve


def disturbed():
    runs = {"ring": "ring", "asynchronous": "server, asynchronous"}
    harms = {"link": "link at 50 Mbit/s", "core": "busy core"}
    curves = {name: rates(name) for name in runs}
    plot = Plot("two workers, of which the second is disturbed twice", "across: seconds", "images/s", max(c[-1][0] for c in curves.values()),
                1.1 * max(v for c in curves.values() for _, v in c))
    rows = []
    for i, (name, words) in enumerate(runs.items()):
        plot.line(i, words, curves[name])
        for what, begin, end in disturbances(name):
            if name == "ring":
                plot.band(begin, end, harms[what])
            mean = lambda since, until: statistics.median(v for t, v in curves[name] if since < t < until)
            said = [m[1] for t, m in dated(name, r"rank 0: ((?:slow_down|link_speeds): .*)") if begin < t < end + 5]
            rows.append((words, harms[what], f"{mean(begin - 20, begin):.0f} -> {mean(begin + 5, end):.0f}",
                         "; ".join(said) or "nothing"))
    plot.save(f"{folder}.svg")
    table(("", "disturbance", "images/s", "what it said"), rows)


def slow_fall():
    curve, (_, began) = rates("ring"), times("ring")[0]
    at = {what: moment - began for what, moment in times("ring")}
    mean = lambda since, until: statistics.median(v for t, v in curve if since < t < until)
    usual = mean(at["fall"] - 120, at["fall"])
    quarter = next(t for t, _ in curve if t > at["fall"] and mean(t - 10, t + 1e-3) < usual / 1.25)
    plot = Plot("two workers; the second one's link falls from 1 Gbit/s to 250 Mbit/s", "across: seconds", "images/s", curve[-1][0],
                1.1 * max(v for _, v in curve))
    plot.line(0, "ring", curve)
    plot.band(at["fall"], at["healed"], "the link falls")
    said = [(t, m[1], m[2]) for t, m in dated("ring", r"rank 0: (slow_down\w*|link_speeds): (.*)")]
    for i, (t, what, _) in enumerate(said):
        plot.mark(1 + i % 3, t, what)
    plot.save(f"{folder}.svg")
    table(("images/s before", "when it had fallen", "once the link was healed", "a step took a quarter longer"),
          [(f"{usual:.0f}", f"{mean(at['healed'] - 100, at['healed']):.0f}", f"{mean(at['healed'] + 20, curve[-1][0]):.0f}",
            f"{quarter - at['fall']:.0f} s after the fall began")])
    table(("seconds after the fall began", "what it said"), [(f"{t - at['fall']:.0f}", f"{what}: {words}") for t, what, words in said])


def slow_ethernet():
    _, batch, _, accumulate = open(f"{folder}/tried.log").read().split()
    kinds = {"alone": "one machine, batch 16", "server": "server and worker, batch 16", "ring": "ring of 2, batch 16",
             "tuned": "ring of 2, --tuning all", "compress": "ring of 2, --compress powersgd:4", "accumulate": f"ring of 2, --accumulate {accumulate}", "accumulate_bf16": f"ring of 2, --accumulate {accumulate} and bf16",
             "batch": f"ring of 2, --batch {batch}", "batch_bf16": f"ring of 2, --batch {batch} and bf16", "alone_batch": f"one machine, batch {batch}", "apart": "two machines apart"}
    measured = {kind: {r: rate(f"{kind}.{r}") + (rate(f"apart_other.{r}") if kind == "apart" else 0) for r in rounds(kind)} for kind in kinds}
    measured = {kind: values for kind, values in measured.items() if values}
    rows, bars = [], []
    for kind, values in measured.items():
        against = lambda base: spread([v / measured[base][r] for r, v in values.items() if r in measured[base]])
        rows.append((kinds[kind], spread(list(values.values())), against("alone"), against("apart"), against("server")))
        bars.append((kinds[kind].replace(", ", "\n").replace(" and ", "\nand "), statistics.median(values.values()), (min(values.values()), max(values.values()))))
    names, values, spreads = zip(*bars)
    plot = Plot("cifar10_cnn, 1 Gbit/s", "", "images/s", 1, 1.15 * max(most for _, most in spreads))
    plot.bars(names, values, spreads)
    plot.save(f"{folder}.svg")
    table(("", "images/s", "/ one machine", "/ two apart", "/ server"), rows)
    print(load("*") + "; the verdict of the first round: " + "; ".join(re.findall(r"^links: .*", open(f"{folder}/ring.1.log").read(), re.M)) + "\n")


def seconds(name):
    """Of a worker's mean step, while all of them train: from when each has made one until the first has made its last."""
    workers = {}
    for t, m in dated(name, rf"(?:worker (\d+), )?{SPEED}"):
        workers.setdefault(m[1], []).append(t)
    begin, end = max(w[0] for w in workers.values()), min(w[-1] for w in workers.values())
    count = sum(begin < t <= end for w in workers.values() for t in w)
    return len(workers) * (end - begin) / count


def inception_sized():
    kinds = {"ring": "ring", "bf16": "ring, bf16", "sync.step": "server, synchronous", "async.step": "server, asynchronous",
             "sync.variable": "server, synchronous, by variable", "async.variable": "server, asynchronous, by variable"}
    rows, bars = [], []
    for workers in (2, 4):
        for kind, words in kinds.items():
            name = f"{kind}.{workers}"
            values = {r: seconds(f"{name}.{r}") for r in rounds(name)}
            if not values:
                continue
            ratios = [v / seconds(f"ring.{workers}.{r}") for r, v in values.items()]
            rows.append((workers, words, spread(list(values.values())), spread(ratios), load(f"{name}.*")))
            bars.append((f"{workers}: " + words.replace("synchronous", "sync").replace(", ", "\n"), statistics.median(values.values()), (min(values.values()), max(values.values()))))
    names, values, spreads = zip(*bars)
    plot = Plot("a step with 95 MB of gradients", "", "seconds", 1, 1.15 * max(most for _, most in spreads))
    plot.bars(names, values, spreads)
    plot.save(f"{folder}.svg")
    table(("workers", "", "seconds a step", "this / ring", "machine"), rows)


def saving():
    runs = {"ring": "ring of 16", "server": "server and 15 workers, synchronous"}
    ends = {name: {what: at - times(name)[0][1] for what, at in times(name)} for name in runs}
    found = {name: dated(name, SPEED) for name in runs}
    end = {name: ends[name].get("ended", found[name][-1][0]) for name in runs}
    plot = Plot("Inception v3 on 16 hosts, 100 Mbit/s; a frozen disk", "across: seconds", "steps of all workers", 1.02 * max(end.values()),
                1.1 * max(int(m[1]) for _, m in found["ring"]))
    rows = []
    for i, (name, words) in enumerate(runs.items()):
        workers, frozen = len(steps(name)), ends[name]["frozen"]
        plot.line(i, words, [(0, 0)] + [(t, (k + 1) / workers) for k, (t, _) in enumerate(found[name])] + [(end[name], len(found[name]) / workers)], True)
        plot.mark(i, frozen, f"{name}: frozen")
        after = [t for t, _ in found[name] if t > frozen]
        log = open(f"{folder}/ring.log" if name == "ring" else f"{folder}/server.w0.log").read()
        said = re.findall(r"save_slow: [^\n]*|final checkpoint: [^\n]*", log) if name == "ring" else re.findall(r"Saving[^\n]*", log)[-1:]
        step_s = statistics.median(r["seconds_per_batch"] for worker in steps(name) for r in worker)
        rows.append((words, f"{step_s:.3g}", f"{len(after) / workers:.2g}", f"{end[name] - after[-1]:.0f} s" if "ended" in ends[name] else "none", "; ".join(said)))
    plot.save(f"{folder}.svg")
    table(("", "seconds a step", "steps after the freeze", "silence until the script ended it", "what it said last"), rows)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
