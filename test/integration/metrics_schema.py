#!/usr/bin/env python3
"""metrics_schema.py MPIRUN TRAIN SCHEMA: what jobs write with --metrics is as the JSON Schema says, which knows all kinds and no other key."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import jsonschema
except ImportError:
    print("skipped: jsonschema from PyPI is not installed (scripts/setup.sh --full)")
    sys.exit(77)

mpirun, train, schema_file = sys.argv[1:]
train = os.path.realpath(train)
schema = json.loads(pathlib.Path(schema_file).read_text())
jsonschema.Draft202012Validator.check_schema(schema)
validator = jsonschema.Draft202012Validator(schema)
by_kind = {rule["title"]: jsonschema.Draft202012Validator({**rule, "$defs": schema["$defs"]}) for rule in schema["oneOf"]}


def job(*options):
    subprocess.run([mpirun, "-np", "2", "--oversubscribe", train, "--data", "shapes", "--batch", "64", "--threads", "1", "--log-every", "5",
                    "--metrics", "m.jsonl", *options], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=200)


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    os.environ["XDG_CACHE_HOME"] = folder
    job("--model", "mlp", "--epochs", "1", "--checkpoint-dir", "saved", "--checkpoint-every", "30", "--keep-best", "loss")
    job("--model", "mlp", "--steps", "200", "--checkpoint-dir", "saved", "--baseline", "--eval-every", "0")
    job("--eval-only", "--checkpoint-dir", "saved", "--report", "classes.html")
    records = [json.loads(line) for line in open("m.jsonl", encoding="utf-8")]

bad = 0
for record in records:
    rule = by_kind.get(record["kind"])
    faults = [f"{record['kind']} is no kind"] if rule is None else [fault.message for fault in rule.iter_errors(record)]
    if not faults and not validator.is_valid(record):
        faults = ["the whole schema refuses it"]
    for fault in faults:
        print(f"wrong: {fault} in {json.dumps(record)[:300]}")
        bad = 1
met = {record["kind"] for record in records}
for kind in sorted({"start", "step", "eval", "classes", "checkpoint", "baseline", "end"} - met):
    print(f"wrong: no record {kind}")
    bad = 1
if len({record["run"] for record in records}) != 3:
    print("wrong: three runs have not three names")
    bad = 1
for classes, evaluation in ((r, e) for r in records if r["kind"] == "classes" for e in records if e["kind"] == "eval" and e["run"] == r["run"]):
    if sum(c["right"] for c in classes["classes"]) != round(evaluation["top1"] * evaluation["examples"]):
        print("wrong: the classes' right ones are not the evaluation's")
        bad = 1
    if sum(examples for _, _, examples in classes["confusions"]) != evaluation["examples"]:
        print("wrong: the confusions are not of all images")
        bad = 1
for removed in ("time", "run", "kind"):
    if validator.is_valid({key: value for key, value in records[-1].items() if key != removed}):
        print(f"wrong: a record without {removed} passes")
        bad = 1
sys.exit(bad)
