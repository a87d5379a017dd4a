"""ringtrain track FILE --to csv|trackio|wandb|mlflow: what `train --metrics` wrote, for a tracker of experiments."""
import argparse
import csv
import datetime
import sys

from . import read_metrics

KINDS = ("step", "eval", "checkpoint", "classes", "end")


def flat(record, prefix=""):
    """Numbers by their path: {"phases": {"forward": 1}} is {"phases/forward": 1}. Lists are left out."""
    numbers = {}
    for key, value in record.items():
        if isinstance(value, dict):
            numbers.update(flat(value, prefix + key + "/"))
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            numbers[prefix + key] = value
    return numbers


def runs(path):
    """The runs in a file, in their order: (name, configuration, records), records by time as (kind, step, time, numbers)."""
    found = {}
    kinds = read_metrics(path)
    for start in kinds.get("start", []):
        found.setdefault(start.get("run", "run"), (start.get("configuration", {}), []))
    for kind in KINDS:
        for record in kinds.get(kind, []):
            numbers = flat(record)
            step = numbers.pop("step", 0)
            _, records = found.setdefault(record.get("run", "run"), ({}, []))
            records.append((kind, step, record.get("time"), {f"{kind}/{name}": value for name, value in numbers.items()}))
    return [(run, configuration, sorted(records, key=lambda r: (r[1], KINDS.index(r[0])))) for run, (configuration, records) in found.items()]


def to_csv(path, output, _project):
    columns = ["run", "step", "time"]
    rows = []
    for run, _, records in runs(path):
        for _, step, time, numbers in records:
            rows.append({"run": run, "step": step, "time": time, **numbers})
            columns += [name for name in numbers if name not in columns]
    with open(output, "w", newline="", encoding="utf-8") if output != "-" else sys.stdout as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)


def to_wandb(path, _output, project, module="wandb"):
    import importlib
    tracker = importlib.import_module(module)
    for run, configuration, records in runs(path):
        tracker.init(project=project, name=run, config=configuration)
        by_step = {}
        for _, step, _, numbers in records:
            by_step.setdefault(step, {}).update(numbers)
        for step, numbers in by_step.items():
            tracker.log(numbers, step=step)
        tracker.finish()


def to_trackio(path, output, project):
    to_wandb(path, output, project, "trackio")


def to_mlflow(path, _output, project):
    import mlflow
    mlflow.set_experiment(project)
    client = mlflow.MlflowClient()
    for run, configuration, records in runs(path):
        with mlflow.start_run(run_name=run) as active:
            mlflow.log_params({key: str(value)[:500] for key, value in configuration.items()})
            for _, step, time, numbers in records:
                when = datetime.datetime.fromisoformat((time or "1970-01-01T00:00:00Z").replace("Z", "+00:00"))
                metrics = [mlflow.entities.Metric(name, value, int(1000 * when.timestamp()), step) for name, value in numbers.items()]
                client.log_batch(active.info.run_id, metrics=metrics)


TRACKERS = {"csv": to_csv, "trackio": to_trackio, "wandb": to_wandb, "mlflow": to_mlflow}


def main(words):
    parser = argparse.ArgumentParser(prog="ringtrain track", description=__doc__)
    parser.add_argument("file", metavar="FILE.jsonl")
    parser.add_argument("--to", choices=TRACKERS, required=True)
    parser.add_argument("--output", default="-", metavar="FILE.csv", help="with --to csv; -: standard output")
    parser.add_argument("--project", default="ringtrain", help="of the tracker; mlflow calls it an experiment")
    arguments = parser.parse_args(words)
    try:
        TRACKERS[arguments.to](arguments.file, arguments.output, arguments.project)
    except ModuleNotFoundError as missing:
        sys.exit(f"ringtrain track: {missing}: pip install {missing.name}")
    except (OSError, ValueError) as failure:
        sys.exit(f"ringtrain track: {failure}")
