"""Runs stages: each command in a session of its own, never longer than its time, and judges them."""
import contextlib
import os
import signal
import subprocess
import threading
import time
import traceback
from pathlib import Path

import records
import stacks
from stage import FAILED, SKIPPED, Finding, Outcome

# Open MPI refuses to run as root otherwise; containers have no other user.
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
ENDED_S = 15.0  # within which end_session() has returned
LEAST_S = 2.0  # a command is not started with less time than this


def environment(out):
    """Caches of ours and of torch.compile stay with the check, but for a TORCHINDUCTOR_CACHE_DIR that is set: max-autotune takes many minutes."""
    return {"TORCHINDUCTOR_CACHE_DIR": str(out / "inductor"), **os.environ, "XDG_CACHE_HOME": str(out / "cache"), **AS_ROOT}


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


class Preparations:
    """What stages prepare, one after the other in the background, since they share the GPU's memory with other stages."""

    def __init__(self, stages, place):
        self.place, self.ended = place, threading.Event()
        self.given_up = {stage.name: threading.Event() for stage in stages}
        self.done = {stage.name: threading.Event() for stage in stages}
        commands = [(stage, [c for c in stage.prepare(place) if not any(map(place.missing, c.needs))]) for stage in stages]
        self.thread = threading.Thread(target=self.run_all, args=(commands,), daemon=True)
        self.thread.start()

    def run_all(self, commands):
        for stage, each in commands:
            for command in each:
                if not self.ended.is_set() and not self.given_up[stage.name].is_set():
                    self.run(command, self.given_up[stage.name])
            self.done[stage.name].set()

    def run(self, command, given_up):
        folder = self.place.out / "prepare"
        folder.mkdir(exist_ok=True)
        limit = time.monotonic() + command.seconds
        with open(folder / f"{command.name}.log", "w") as log:
            try:
                process = subprocess.Popen(command.argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                           start_new_session=True, env=environment(self.place.out))
            except OSError as failure:
                print(f"prepare: {command.name} cannot be started: {failure}", flush=True)
                return
        while process.poll() is None and time.monotonic() < limit and not given_up.is_set() and not self.ended.is_set():
            time.sleep(0.1)
        end_session(process)
        if process.poll() != 0:
            print(f"prepare: {command.name} did not end well; its log is in {folder}", flush=True)

    def wait(self, stage, until):
        """For what `stage` prepared, no longer than `until`; what has not ended then is ended."""
        if not self.done[stage.name].wait(max(0.0, until - time.monotonic())):
            self.given_up[stage.name].set()
            self.done[stage.name].wait(ENDED_S)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()


def run_all(stages, place, seconds, report):
    """Runs `stages`; calls report(stage, findings, seconds) after each. A stage may use the time
    that earlier ones left, never that of later ones. Each that prepared something waits for it, in at most half of its time."""
    with Preparations(stages, place) as preparations:
        run_each(stages, place, seconds, report, preparations)


def run_each(stages, place, seconds, report, preparations):
    begun, whole, granted = time.monotonic(), sum(s.budget_s for s in stages), 0
    known = {"rehearsal": place.rehearse}
    for stage in stages:
        granted += stage.budget_s * seconds / whole
        stage_begun = time.monotonic()
        preparations.wait(stage, stage_begun + (begun + granted - stage_begun) / 2)
        findings = run_stage(stage, place, known, begun + granted)
        known.update({f"{stage.name}/{f.what}": f.value for f in findings if f.value is not None})
        report(stage, findings, time.monotonic() - stage_begun)
