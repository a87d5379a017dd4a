"""What must hold whatever happens. Each check returns sentences, one for each thing that is wrong."""
import re

from kinds import HUP, INT, KINDS, LOCKED, RANK_LOST, STORAGE, STUCK, TERM
from plan import SAVE_EVERY, STEPS
from setting import KEEP, samples_of

BLAMED = r"rank (\d+) on \S+ has (?:ended|not been heard|been in)|noticed that process rank (\d+) |^.*rank (0) has (?:ended|not been heard)"
HELD_S = 10  # a helper whose calls a tracer holds back keeps mpirun waiting beyond its own death
NOTICED_WITHIN = 80  # steps of 2 ms; up to 42 were seen
LEAVING_S = 100  # once training is over, a rank waits so long for one that does not leave


RESTARTED_AFTER = {  # what supervise says
    "kill of a rank": "was ended by SIGKILL|has ended without a word",
    "kill of rank 0": "rank 0.*(was ended by SIGKILL|has ended without a word|has not been heard)",
    "stop of a rank": "has not been heard",
    "kill of writer and fork server": "checkpoint writer",
}
REPLACES_WRITER = ("kill of the writer", "segv of the writer", "kill of the fork server", "kill of writer and fork server", "power loss", "file too large")


def identity(file):
    status = file.lstat()
    return status.st_ino, status.st_mtime_ns, status.st_size


def after_run(trial, job, struck, code):
    # what is left first; Trial.await_end() has waited for it
    wrong = (*nothing_left(job, 0), *ending(job, struck, code), *alarms(job, struck), *resumed_well(trial, job), *samples(trial, job), *files(trial, job), *announced(trial, job, code), *last_step(trial, job, struck))
    return [f"run {job.number}: {text}" for text in wrong]


def after_chain(trial, job, code, struck):
    """Of a run that was started again after each of these faults: each step is trained again from the last checkpoint on."""
    wrong = [*nothing_left(job, 10), *resumed_well(trial, job), *files(trial, job), *announced(trial, job, code)]
    if code != 0:
        wrong.append(f"ended with {code}, not with 0")
    restarts = re.findall(r"^supervise: restart \d+ of \d+: (.*)", job.log(), re.M)
    if len(restarts) != len(struck) or not all(re.search(RESTARTED_AFTER[name], text) for name, text in zip(struck, restarts)):
        wrong.append(f"has restarts {restarts} after {struck}")
    mine, wanted = samples_of(job.base), trial.setting.samples
    if mine is not None and wanted is not None:
        mine = {step: sorted(set(of)) for step, of in mine.items()}
        trial.trained.append(mine)
        wrong += [f"other samples than the undisturbed run in step {step}" for step in sorted(mine) if mine[step] != wanted[step]][:1]
    return [f"run {job.number}: {text}" for text in wrong]


def is_over(job):
    """Whether training came to its end; a fault in the last moments changes nothing."""
    return bool(job.records("end")) and job.done_step() >= STEPS


def ending(job, struck, code):
    """Message, seconds and exit code of what was done to this run."""
    log, wrong = job.log(), []
    over = is_over(job)
    kinds = [KINDS[fault.kind] for fault, _, _ in struck]
    for fault, strike, _ in struck:
        kind = KINDS[fault.kind]
        says = kind.says.replace("{rank}", str(fault.rank))
        said = not says or re.search(says, log) is not None
        spared = over and code in (0, STUCK) and (kind.ends or strike.step > STEPS - SAVE_EVERY)
        if not said and not spared and must_say(kind, kinds, code):
            wrong.append(f"{fault.kind}: does not say: {says}")
        held = HELD_S if any(fault.kind == "frozen disk" for fault, _, _ in struck) else 0
        seconds = LEAVING_S if over else kind.seconds + held
        if kind.seconds and strike.end_s and strike.end_s > seconds:
            wrong.append(f"{fault.kind}: ended after {strike.end_s:.1f} s, not {seconds:.0f} s")
        if over and kind.at_once and strike.step + NOTICED_WITHIN <= STEPS:
            wrong.append(f"{fault.kind}: after step {strike.step} the job did all others")
        if kind.blames and not spared:
            strike.named = said and blamed(log) == {fault.rank}
            if not strike.named:
                wrong.append(f"{fault.kind}: rank {fault.rank} is to be named, not {sorted(blamed(log))}")
    # behind a cut link, the rank that says it may not be heard
    if code in (RANK_LOST, STUCK, LOCKED, STORAGE) and not any(kind.network for kind in kinds) and not re.search(rf"fault: kind=\S+ code={code} ", log):
        wrong.append(f"ended with {code}, and no line for programs says so")
    if code not in (wanted := possible_codes(kinds, over)):
        wrong.append(f"ended with {code}, not with one of {sorted(wanted)}")
    return wrong


def must_say(kind, kinds, code):
    """What comes to pass by chance, if it alone explains the exit code; the rest, unless something else ended the job before."""
    if kind.by_chance:
        return code == STORAGE and all(STORAGE not in other.codes for other in kinds if other is not kind)
    return kind.ends or not any(other.ends for other in kinds)


def possible_codes(kinds, over):
    """What ends the job decides, but a save that fails before it, too."""
    codes = {code for kind in kinds for code in kind.codes}
    if over and any(RANK_LOST in kind.codes for kind in kinds):
        codes.add(STUCK)
    return codes | {0} if over or not any(kind.ends for kind in kinds) else codes - {0}


def blamed(log):
    """By the first line that blames anyone: what a rank says that is woken to be ended, counts no more."""
    for line in log.split("\n"):
        if found := re.findall(BLAMED, line):
            return {int(next(filter(None, groups))) for groups in found}
    return set()


def alarms(job, struck):
    kinds = [KINDS[fault.kind] for fault, _, _ in struck]
    alarms = [] if any(kind.ends for kind in kinds) else ["the job cannot go on"]
    if not any(fault.kind in REPLACES_WRITER for fault, _, _ in struck):
        alarms += ["writer_replaced", "fork_server_lost"]
    if all(kind.codes == (0,) for kind in kinds):
        alarms += ["save_failed", "writer_lost"]
    return [f"a false alarm: {line}" for line in job.log().split("\n") if any(alarm in line for alarm in alarms)]


def resumed_well(trial, job):
    """Nothing partial is found, but for what was harmed on purpose."""
    refused = re.findall(r"^not used: .*?([^/ ]+\.h5)", job.log(), re.M)
    return [f"not used, but it was not harmed: {name}" for name in refused if name not in trial.bad_files]


def samples(trial, job):
    """None twice, none missing: each step has those of the undisturbed run, the last one perhaps not all of them."""
    mine, wanted = samples_of(job.base), trial.setting.samples
    if mine is None or wanted is None:
        return []
    trial.trained.append(mine)
    last = max(mine, default=0)
    wrong = [step for step, of in mine.items() if (of != wanted[step] if step < last else bool(set(of) - set(wanted[step])))]
    return [f"other samples than the undisturbed run in step {step}" for step in sorted(wrong)[:1]]


def nothing_left(job, within_s):
    """Where mpirun was killed, nobody removes Open MPI's segments of shared memory."""
    left = job.leaves_nothing(within_s)
    if job.mpirun.poll() != -9:
        left += [file.name for file in job.folder.glob("*vader_segment*")]
    return [f"still there after 10 s: {', '.join(left)}"] if left else []


def files(trial, job):
    """All that is there can be loaded and has the undisturbed run's bits."""
    wrong = []
    for name, was in list(trial.bad_files.items()):
        file = trial.directory / name
        if not file.is_symlink() and not file.exists() or identity(file) != was:
            del trial.bad_files[name]
    for file in sorted(trial.directory.glob("step-*.h5")):
        if file.name in trial.bad_files:
            continue
        step, state, damage = trial.setting.inspect(file)
        if damage:
            wrong.append(damage)
        elif trial.setting.hash_at(step) not in (state, None):
            wrong.append(f"{file.name} has other bits than step {step} of the undisturbed run")
    return wrong


def announced(trial, job, code):
    """What the job said is saved is there, unless newer files have pushed it out."""
    wrong = []
    if code == 0 and not (trial.directory / f"step-{STEPS:010}.h5").exists():
        wrong.append(f"ended with 0, and step {STEPS} is not saved")
    for step in re.findall("the run ends after step ([0-9]+)", job.log()):
        if job.mpirun.poll() in (TERM, INT, HUP) and not (trial.directory / f"step-{int(step):010}.h5").exists():
            wrong.append(f"ended after step {step}, which is not saved")
    for record in job.records("checkpoint")[-KEEP:]:  # the last saves of ranks that were killed are not announced
        newer = [file for file in trial.directory.glob("step-*.h5") if file.name > record["file"]]
        if not (trial.directory / record["file"]).exists() and len(newer) < KEEP:
            wrong.append(f"{record['file']} was announced and is not there")
    return wrong


def last_step(trial, job, struck):
    """A signal to mpirun, which then kills the ranks, loses no finished step, unless something else was done to the job."""
    kinds = [KINDS[fault.kind] for fault, _, _ in struck]
    if not any(kind.loses_no_step for kind in kinds) or not all(kind.loses_no_step or kind.codes == (0,) for kind in kinds):
        return []
    finished = max((record["step"] for record in job.records("step")), default=0)
    saved = max((int(file.stem[5:]) for file in trial.directory.glob("step-*.h5") if file.name not in trial.bad_files), default=0)
    return [f"step {finished} was finished, the newest checkpoint is of step {saved}"] if saved < finished else []


def other_bits(trial):
    file = trial.directory / f"step-{STEPS:010}.h5"
    state = trial.setting.inspect(file)[1] if file.exists() else None
    wanted = trial.setting.hash_at(STEPS)
    return [] if state == wanted and state else [f"the last checkpoint has other bits: {state}, not {wanted}"]


def at_the_end(trial):
    wrong = other_bits(trial)
    if trial.outcome.codes[-1:] != [0]:
        wrong.append(f"training did not come to its end: {trial.outcome.codes}")
    if not trial.disk:  # else a temporary is known to be dead when it has not changed for 30 s, longer than these runs
        wrong += [f"left behind: {file.name}" for file in trial.directory.glob(".step-*")]
    if trial.trained and not wrong:
        kept = {step: of for run in trial.trained for step, of in run.items()}
        wrong += [f"the samples of step {step} were not all trained on" for step in range(1, STEPS + 1) if kept.get(step) != trial.setting.samples[step]][:1]
    return wrong
