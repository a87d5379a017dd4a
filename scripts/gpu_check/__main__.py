"""python3 scripts/gpu_check: see scripts/gpu_check.sh --help."""
import argparse
import datetime
import os
import shlex
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import engine
import report
from place import ROOT, Place
from stages import ALL

NO_GPU, USAGE = 69, 64


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(USAGE, f"gpu_check: {message}; --help shows the options\n")


def chosen_stages(text):
    by_name = {stage.name: stage for stage in ALL}
    names = text.split(",") if text else list(by_name)
    for name in names:
        if name not in by_name:
            raise argparse.ArgumentTypeError(f"no stage {name!r}; there are {', '.join(by_name)}")
    return [by_name[name] for name in by_name if name in names]


def parse(arguments):
    parser = Parser(prog="scripts/gpu_check.sh", description="Checks and measures what only a machine with a GPU can tell.",
                    epilog="Exit codes: 0 all is well, 1 a check failed, 64 wrong option, 69 no GPU here.")
    parser.add_argument("--stages", type=chosen_stages, default=ALL, metavar="A,B,C", help="only these, in the order of --list")
    parser.add_argument("--list", action="store_true", help="show the stages and end")
    parser.add_argument("--dry-run", action="store_true", help="say what each stage would run, where and how long; needs no GPU")
    parser.add_argument("--seconds", type=float, default=560, help="for all stages together [560]; divided as their budgets are")
    parser.add_argument("--out", type=Path, help="folder for logs, new or empty [a temporary one]")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table as JSON")
    parser.add_argument("--rehearse", action="store_true", help="run the same commands on the CPU at toy sizes: proves this script, says nothing about a GPU")
    options = parser.parse_args(arguments)
    if options.out and options.out.exists() and any(options.out.iterdir()):
        parser.error(f"--out {options.out} is not empty")
    return options


def list_stages():
    for stage in ALL:
        print(f"{stage.name:13} {stage.budget_s:4.0f} s  {stage.purpose}")


def explain(stages, place, seconds):
    whole = sum(stage.budget_s for stage in stages)
    print(f"in {ROOT}; programs of {place.build}; libraries: {place.runtime or 'those of this machine'}")
    print(f"gpu_check would take at most {seconds:.0f} s. Nothing is run now.")
    for stage in stages:
        print(f"\n{stage.name}, at most {stage.budget_s * seconds / whole:.0f} s: {stage.purpose}")
        for need in stage.needs:
            print(f"  needs {need}" + (f" ({place.missing(need)})" if place.missing(need) else ""))
        for command in stage.commands(place):
            lacks = "; ".join(filter(None, map(place.missing, command.needs)))
            print(f"  {command.name}, at most {command.seconds:.0f} s" + (", may fail" if command.optional else "") +
                  (f" ({lacks})" if lacks else "") + f":\n    {shlex.join(map(str, command.argv))}")


def build(place):
    """Builds what is not there yet. Takes its own time, not the stages'."""
    if place.executable("train").is_file() and place.executable("test_cuda_gpu").is_file():
        return
    for words in (("cmake", "--preset", "release", "-DRINGTRAIN_TESTS=ON"), ("cmake", "--build", "--preset", "release", "--target", "gpu_check_programs")):
        print("gpu_check:", shlex.join(words), flush=True)
        subprocess.run(words, cwd=ROOT, check=True)


def show_progress(stage, findings, seconds):
    print(f"\n{stage.name}, {seconds:.0f} s: {stage.purpose}")
    for finding in findings:
        print(report.line(stage.name, finding))
        print(textwrap.indent(finding.detail, "    | "), end="\n" if finding.detail else "", flush=True)


def commit():
    """Of the checkout; a copy has none, and git may be missing."""
    try:
        done = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True)
    except OSError:
        return "unknown"
    return done.stdout.strip() or "unknown"


def about(place, options):
    machine = "a rehearsal on the CPU" if place.rehearse else "; ".join(place.gpus())
    return {"machine": machine, "date": datetime.date.today().isoformat(), "commit": commit(),
            "seconds": options.seconds, "stages_run": [stage.name for stage in options.stages]}


def main(arguments):
    options = parse(arguments)
    if options.list:
        return list_stages()
    place = Place(options.out or "OUT", options.rehearse)
    if options.dry_run:
        return explain(options.stages, place, options.seconds)
    if not options.rehearse and not place.gpus():
        print("gpu_check: no GPU here (nvidia-smi finds none); --dry-run says what would run", file=sys.stderr)
        return NO_GPU
    build(place)
    place.out = (options.out or Path(tempfile.mkdtemp(prefix="gpu_check-"))).resolve()
    place.out.mkdir(parents=True, exist_ok=True)
    if options.json:
        options.json = options.json.resolve()
    os.chdir(ROOT)
    facts, findings = about(place, options), {}

    def keep(stage, found, seconds):
        show_progress(stage, found, seconds)
        findings[stage.name] = found
        if options.json:  # after each stage: the machine may be taken away
            report.write_json(options.json, findings, facts)

    engine.run_all(options.stages, place, options.seconds, keep)
    print(f"\n{facts['machine']}; logs in {place.out}\n{report.table(findings)}")
    if place.rehearse:
        print("A rehearsal: nothing above ran on a GPU, and precisions are names only.")
    return report.exit_code(findings)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except subprocess.CalledProcessError as failure:
        sys.exit(f"gpu_check: {failure}")
