"""Runs stages: each command in a session of its own, never longer than its time, and judges them."""
import contextlib
import os
import signal
import subprocess
import time
import traceback
from pathlib import Path

import records
import stacks
from stage import FAILED, SKIPPED, Finding, Outcome

# Open MPI refuses to run as root otherwise; containers have no other user.
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
LEAST_S = 2.0  # a command is not started with less time than this


def environment(out):
    """Caches of ours and of torch.compile stay with the check."""
    return {**os.environ, "XDG_CACHE_HOME": str(out / "cache"), "TORCHINDUCTOR_CACHE_DIR": str(out / "inductor"), **AS_ROOT}


def end_session(process):
    """Asks nicely first: mpirun then ends its ranks, which are in sessions of their own."""
    for number, patience_s in ((signal.SIGTERM, 5), (signal.SIGKILL, 5)):
        try:
            os.killpg(process.pid, number)
            process.wait(patience_s)
        except ProcessLookupError:
            pass
        except subprocess.TimeoutExpired:
            continue


def run(command, log, seconds):
    """Runs one command for at most `seconds`; what it prints goes to the file `log`."""
    begun = time.monotonic()
    with open(log, "w+", errors="replace") as output:
        process = subprocess.Popen(command.argv, stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=subprocess.STDOUT, start_new_session=True,
                                   env=environment(Path(log).parent.parent))
        outcome = Outcome()
        try:
            outcome.code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            outcome.why = f"killed after {seconds:.0f} s"
            print("\nstacks when its time was up:\n" + stacks.of(process.pid), file=output, flush=True)
        finally:
            end_session(process)  # also what it may have left running
        output.seek(0)
        outcome.output = output.read()
    outcome.seconds = time.monotonic() - begun
    if command.metrics and command.metrics.is_file():
        outcome.records = records.parse(command.metrics.read_text(errors="replace"))
    return outcome


def attempt(place, command, folder, deadline):
    """Runs a command if it can be run, in the time that is left until `deadline`."""
    for need in command.needs:
        reason = place.missing(need)
        if reason:
            return Outcome(why=reason)
    left = deadline - time.monotonic()
    if left < LEAST_S:
        return Outcome(why="not run: the stage's time was up", late=True)
    try:
        outcome = run(command, folder / f"{command.name}.log", min(command.seconds, left))
    except OSError as failure:
        return Outcome(why=f"cannot be started: {failure}")
    outcome.late = outcome.code is None and left < command.seconds
    return outcome


def complaint(command, outcome):
    forgiven = command.optional or (command.may_wait and outcome.late)
    return Finding(command.name, SKIPPED if forgiven else FAILED, note=outcome.complaint(), detail=outcome.tail())


def findings_of(stage, place, known, deadline):
    for need in stage.needs:
        reason = place.missing(need)
        if reason:
            return [Finding(stage.name, SKIPPED, note=reason)]
    folder = place.out / stage.name
    folder.mkdir()
    findings, ended_well = [], {}
    for command in stage.commands(place):
        outcome = attempt(place, command, folder, deadline)
        if outcome.ok or (command.may_wait and outcome.late and outcome.result()):
            ended_well[command.name] = outcome
        if not outcome.ok:
            findings.append(complaint(command, outcome))
    try:
        return stage.judge(ended_well, known) + findings
    except Exception as failure:
        return findings + [broken(stage, failure)]


def broken(stage, failure):
    """An unforeseen output is a failed check, not the end of all others."""
    return Finding(stage.name, FAILED, note=f"the check itself broke: {failure!r}", detail=traceback.format_exc())


def run_stage(stage, place, known, deadline):
    """Findings of one stage, also when something in it goes wrong."""
    try:
        return findings_of(stage, place, known, deadline)
    except Exception as failure:
        return [broken(stage, failure)]


@contextlib.contextmanager
def prepared(stages, place):
    """While this lasts, what stages prepare runs in the background, side by side."""
    commands = [command for stage in stages for command in stage.prepare(place) if not any(map(place.missing, command.needs))]
    if not commands:
        yield
        return
    folder = place.out / "prepare"
    folder.mkdir()
    running = []
    for command in commands:
        with open(folder / f"{command.name}.log", "w") as log:
            running.append(subprocess.Popen(command.argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
                                            env=environment(place.out)))
    try:
        yield
    finally:
        for process in running:
            end_session(process)


def run_all(stages, place, seconds, report):
    """Runs `stages`; calls report(stage, findings, seconds) after each. A stage may use the time
    that earlier ones left, never that of later ones."""
    begun, whole, granted = time.monotonic(), sum(s.budget_s for s in stages), 0
    known = {"rehearsal": place.rehearse}
    for stage in stages:
        granted += stage.budget_s * seconds / whole
        stage_begun = time.monotonic()
        findings = run_stage(stage, place, known, begun + granted)
        known.update({f"{stage.name}/{f.what}": f.value for f in findings if f.value is not None})
        report(stage, findings, time.monotonic() - stage_begun)
