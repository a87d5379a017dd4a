"""One trial: runs that are struck as planned and resumed until training is done, and what was wrong with them."""
import contextlib
import os
import pathlib
import random
import re
import shutil
import time
from dataclasses import dataclass, field, replace

import checks
from damage import DAMAGE, ODD_RUNS
from disk import DISK_STRIKES, Disk, silent
from hosts import NETWORK_STRIKES
from job import Job
from kinds import KINDS, RESUME_IMPOSSIBLE
from out_of_touch import OUT_OF_TOUCH_STRIKES
from plan import STEPS
from setting import samples_of
from strikes import STRIKES, Scene, TooLate

RUN_S = 120  # of a run that nobody disturbs, on a busy machine
MOST_RUNS = 12
SUPERVISE = str(pathlib.Path(__file__).resolve().parents[3] / "scripts/supervise")
CHAINED = ("kill of a rank", "kill of rank 0", "kill of writer and fork server", "stop of a rank")


@dataclass
class Strike:
    """What came of a planned fault."""
    kind: str
    happened: bool = False
    step: int = 0  # that was done right after it
    code: int | None = None
    verdict_s: float | None = None
    end_s: float | None = None
    named: bool | None = None  # the right rank and no other; None where none is to be


@dataclass
class Outcome:
    plan: object
    strikes: list = field(default_factory=list)
    failures: list = field(default_factory=list)
    codes: list = field(default_factory=list)
    same_bits: bool = False
    seconds: float = 0

    def as_record(self):
        return {**self.__dict__, "plan": self.plan.as_record(), "strikes": [strike.__dict__ for strike in self.strikes]}


class Trial:
    def __init__(self, plan, setting, folder):
        self.plan, self.setting, self.folder = plan, setting, folder
        self.directory = folder / "checkpoints"
        self.disk = self.data = None
        if plan.disk:
            self.disk = Disk(plan.disk, setting.slowfs, self.directory, [folder / host / self.directory.name for host in "ab"], folder / "disk-faults")
        if any(KINDS[fault.kind].data for fault in plan.faults):
            self.data = Disk("sound", setting.slowfs, folder / "images", [folder / "data" / "images"], folder / "data-faults")
        self.outcome = Outcome(plan)
        self.bad_files = {}  # those that were harmed on purpose: name -> what they then were
        self.waiting = list(plan.faults)
        self.to_be_said = {}  # by the next run, of files
        self.runs, self.trained = 0, []

    def wrong(self, *what):
        self.outcome.failures.extend(what)

    def run(self):
        started = time.monotonic()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        if self.data:  # a copy, as the folder may be removed while it is still mounted
            shutil.copytree(self.setting.data, self.data.backing)
        with self.disk or contextlib.nullcontext(), self.data or contextlib.nullcontext():
            while self.runs < MOST_RUNS:
                self.change_files()
                code = self.run_once()
                if code == 0 and not self.waiting:
                    break
        self.wrong(*checks.at_the_end(self))
        self.outcome.same_bits = not checks.other_bits(self)
        self.outcome.seconds = time.monotonic() - started
        return self.outcome

    def shown(self):
        """The directory as the job sees it."""
        return self.disk.shown() if self.disk else self.directory

    def options(self):
        return self.setting.options(self.shown(), self.data and self.data.shown())

    # Between runs.

    def change_files(self):
        while self.waiting and KINDS[self.waiting[0].kind].between:
            fault = self.waiting.pop(0)
            strike = Strike(fault.kind)
            self.outcome.strikes.append(strike)
            try:
                if KINDS[fault.kind].chain:
                    self.run_chain(fault, strike)
                elif fault.kind == "vanished checkpoints":
                    self.run_while_they_vanish(fault, strike)
                elif fault.kind in ODD_RUNS:
                    self.run_oddly(fault, strike)
                else:
                    self.harm(fault, strike)
                strike.happened = True
            except TooLate:
                pass

    def harm(self, fault, strike):
        if not self.directory.exists():
            raise TooLate()
        names = DAMAGE[fault.kind](self.directory, fault)
        if self.disk:
            self.disk.settle()
        self.bad_files |= {name: checks.identity(self.directory / name) for name in names}
        if not (self.disk and KINDS[fault.kind].removes):
            self.to_be_said |= {name: KINDS[fault.kind].says.replace("{file}", re.escape(name)) for name in names}
        self.to_be_said = {name: text for name, text in self.to_be_said.items() if os.path.lexists(self.directory / name)}
        files = list(self.directory.glob("step-*.h5"))
        if files and all(file.name in self.bad_files for file in files):
            strike.code = self.run_in_vain({f"{re.escape(file.name)}: " for file in files}, RESUME_IMPOSSIBLE)
            for file in files:
                file.unlink(missing_ok=True)
            self.to_be_said.clear()

    def run_oddly(self, fault, strike):
        kind = KINDS[fault.kind]
        command = ODD_RUNS[fault.kind](self.setting, self.options(), fault)
        meanwhile = silent(self.disk, fault) if kind.disk else contextlib.nullcontext()
        strike.code = self.run_in_vain({kind.says.replace("{rank}", str(fault.rank))}, kind.codes[0], command, meanwhile)
        strike.named = not self.outcome.failures if kind.blames else None

    def run_in_vain(self, says, wanted, command=None, meanwhile=contextlib.nullcontext()):
        with contextlib.ExitStack() as harm:
            harm.enter_context(meanwhile)
            with self.start(command) as job:
                code, _ = job.ends(RUN_S)
                harm.close()
                if code != wanted:
                    self.wrong(f"run {job.number}: ended with {code} instead of {wanted}")
                self.wrong(*(f"run {job.number} does not say: {text}" for text in says if not re.search(text, job.log())))
                self.wrong(*(f"run {job.number}: {text}" for text in checks.nothing_left(job, 10)))
        return code

    def run_chain(self, fault, strike):
        """Each of the faults once there is a checkpoint of the start before it; the next start goes on from there."""
        dice = random.Random(fault.number)
        names = dice.sample(CHAINED, 3)
        with self.start([SUPERVISE, *self.setting.command(*self.options(), "--restarts", "9")]) as job:
            scene, struck = Scene(job, self), []
            try:
                for name in names:
                    if not job.saves(len(struck) + 1) or job.done_step() > STEPS * 3 // 4:
                        break
                    STRIKES[name](scene, replace(fault, rank=0 if name.endswith("rank 0") else dice.randrange(1, self.setting.ranks)))
                    struck.append(name)
            except TooLate:
                pass
            strike.code, _ = job.ends(RUN_S)
            if strike.code is None:
                self.wrong(f"run {job.number}: did not end within {RUN_S} s")
                job.end_all()
            self.wrong(*checks.after_chain(self, job, strike.code, struck))
        if not struck:
            raise TooLate()

    def run_while_they_vanish(self, fault, strike):
        """As where a file system is unmounted; then a rank dies, and who starts the job again finds an empty directory."""
        if self.disk:
            raise TooLate()
        kept = self.directory.with_name("vanished")
        with self.start([SUPERVISE, *self.setting.command(*self.options(), "--restarts", "3")]) as job:
            in_time = job.saves(1) and job.done_step() <= STEPS * 3 // 4
            if in_time:
                self.directory.rename(kept)
                self.directory.mkdir()
                STRIKES["kill of a rank"](Scene(job, self), fault)
            strike.code, _ = job.ends(RUN_S)
            self.wrong(*(f"run {job.number}: {text}" for text in checks.nothing_left(job, 10)))
            if samples := samples_of(job.base):
                self.trained.append(samples)
        if not in_time:
            raise TooLate()
        kind = KINDS[fault.kind]
        if strike.code not in kind.codes or not re.search(kind.says, job.log()):
            self.wrong(f"run {job.number}: ended with {strike.code}, not {kind.codes[0]}, or does not say: {kind.says}")
        shutil.rmtree(self.directory)
        kept.rename(self.directory)

    # Runs.

    def start(self, command=None):
        self.runs += 1
        return Job(command or self.setting.command(*self.options()), self.folder, self.runs)

    def run_once(self):
        for disk in filter(None, (self.disk, self.data)):
            disk.other_host()
        with self.start() as job:
            scene = Scene(job, self)
            struck = []
            try:
                self.strike_all(scene, struck)
                code = self.await_end(scene, struck)
            finally:
                scene.end()
            self.outcome.codes.append(code)
            self.wrong(*(f"run {job.number} does not say: {text}" for text in self.to_be_said.values() if not re.search(text, job.log())))
            self.to_be_said.clear()
            self.wrong(*checks.after_run(self, job, struck, code))
            return code

    def strike_all(self, scene, struck):
        """Until one ends the job, or what is next is for between runs."""
        while self.waiting and not KINDS[self.waiting[0].kind].between:
            fault = self.waiting.pop(0)
            strike = Strike(fault.kind)
            self.outcome.strikes.append(strike)
            if not scene.job.reaches(fault.step):
                continue
            try:
                if fault.in_save:
                    scene.await_save()
                if wrong := (STRIKES | NETWORK_STRIKES | DISK_STRIKES | OUT_OF_TOUCH_STRIKES)[fault.kind](scene, fault):
                    self.wrong(f"{fault.kind}: {wrong}")
                strike.step = scene.job.done_step()
                strike.happened = scene.job.alive() or KINDS[fault.kind].ends or KINDS[fault.kind].lasts
            except TooLate:
                continue
            struck.append((fault, strike, time.monotonic()))
            if KINDS[fault.kind].ends:
                return

    def await_end(self, scene, struck):
        """Until mpirun has ended and so have the ranks, whom nobody ends where it was killed."""
        job = scene.job
        ending = struck[-1] if struck and KINDS[struck[-1][0].kind].ends else None
        text = KINDS[ending[0].kind].says.replace("{rank}", str(ending[0].rank)) if ending else ""
        code, seen = job.ends(RUN_S, text)
        if code is None:
            self.wrong(f"run {job.number}: did not end within {RUN_S} s")
            job.end_all()
        scene.end()  # a process that strace holds cannot end
        job.leaves_nothing()
        if ending:
            _, strike, since = ending
            strike.code, strike.end_s, strike.verdict_s = code, time.monotonic() - since, seen and seen - since
        else:
            for _, strike, _ in struck:
                strike.code = code
        return code
