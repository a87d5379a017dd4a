"""Which checkpoints are this job's, and how a restart goes on from them."""
import contextlib
import fcntl
import os
import pathlib
import re
import threading
import time

from supervision.command import Unclear

SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
NAME = re.compile(r"step-(\d{10,})\.h5")
LOOK_S = 1


def seconds_of(duration):
    """Of train's notation, such as 2m30s; a number alone is seconds."""
    return sum(float(number) * SECONDS.get(unit, 1) for number, unit in re.findall(r"([\d.]+)([a-z]*)", duration))


def step_of(name):
    """-1: of no checkpoint."""
    found = NAME.fullmatch(name)
    return int(found[1]) if found else -1


class Checkpoints:
    def __init__(self, settings):
        self.directory = settings.get("checkpoint-dir")
        self.resume = settings.get("resume", "auto")
        self.older, self.visible, self.known = self.found(), False, -1
        self.look()
        self.began = time.time()
        self.last_save_s = seconds_of(settings.get("final-save-timeout", "2m"))
        if self.resume == "never" and "init-from" in settings:
            raise Unclear("--resume never with --init-from: a restart would have to give both up; empty --checkpoint-dir instead")

    def found(self):
        """Names, with what changes when one is written anew."""
        found = {}
        with contextlib.suppress(OSError), os.scandir(self.directory) if self.directory else contextlib.nullcontext([]) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):  # it went just now, or is a link to nowhere
                    if NAME.fullmatch(entry.name):
                        found[entry.name] = entry.stat().st_mtime_ns
        return found

    def newest(self):
        """That this job has saved; None: there is none, or the directory is not seen from here."""
        own = [name for name, time in self.found().items() if self.older.get(name) != time]
        return max(own, default=None, key=step_of)

    def look(self):
        """Remembers the newest step that was ever there, and whether the directory is seen from here at all."""
        self.visible = self.visible or bool(self.directory) and os.path.isdir(self.directory)
        self.known = max([self.known, *map(step_of, self.found())])

    def watch(self):
        """While the job runs. In a thread of its own, as a file system may hang."""
        def look_on():
            while True:
                time.sleep(LOOK_S)
                self.look()
        if self.directory:
            threading.Thread(target=look_on, daemon=True).start()

    def out_of_sight(self, said):
        """Whether a checkpoint was here, or is of the step that the run `said` it saved last, and none as new is here now: as where
        a file system is no longer mounted. What only the ranks' host has was never in sight."""
        self.known = self.known if said is None else said
        return self.visible and self.known >= 0 and not self.has(self.known)

    def has(self, step):
        """Whether a checkpoint of it or a later one is here. NFS may list what was there a minute ago, but knows the name."""
        return any(step_of(name) >= step for name in self.found()) or (pathlib.Path(self.directory) / f"step-{step:010}.h5").exists()

    def lost_steps(self, told):
        """In words, whether the last step that a run `told` of is not saved; empty also where that cannot be seen from here."""
        if told is None or not self.visible or self.has(told):
            return ""
        return f"step {told} was trained, but {self.newest() or 'nothing'} is the newest that was saved in {self.directory}"

    def resume_options(self):
        """What goes on: where training began otherwise, older checkpoints of the directory are not for it."""
        if self.resume == "auto" or not self.newest():
            return []
        return ["--resume", str(pathlib.Path(self.directory) / self.newest())]

    def await_last_save(self, enough=lambda: False):
        """The writer process of ranks that were killed still saves what they handed over. Returns what came of it, in words; empty:
        that is not known here. Waits for no longer than until `enough` says so."""
        self.await_while(self.locked, enough)
        said = self.last_save()
        if not said:
            return ""
        what = said.get("file") if said["result"] == "saved" else said.get("why")
        return f"the writer {said['result']} step {said.get('step')}: {what}"

    def await_finishing(self, enough):
        """As await_last_save(), but never for another job, which may have the directory by now."""
        self.await_while(lambda: self.finishing() and self.locked(), enough)

    def await_while(self, goes_on, enough):
        ends = time.monotonic() + self.last_save_s
        while goes_on() and time.monotonic() < ends and not enough():
            time.sleep(0.05)

    def finishing(self):
        with contextlib.suppress(OSError, TypeError):
            return (pathlib.Path(self.directory) / "lock").read_bytes().startswith(b"ringtrain lease 1 finishing")
        return False

    def last_save(self):
        """What the writer of ranks that were killed has said of it, by its keys; nothing if it has not."""
        said = {}
        with contextlib.suppress(OSError, TypeError):
            file = pathlib.Path(self.directory) / "last-save.txt"
            if file.stat().st_mtime >= self.began - 2:  # another host's clock
                said = dict(line.split(": ", 1) for line in file.read_text(errors="replace").splitlines() if ": " in line)
        return said if "result" in said else {}

    def locked(self):
        try:
            with open(pathlib.Path(self.directory) / "lock", "r+b") as lock:
                fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except (OSError, TypeError):
            pass  # no directory, not from here, or no locks
        return False

    def plan(self):
        if not self.directory:
            return "each from the beginning, as there is no --checkpoint-dir"
        return f"each from the newest checkpoint in {self.directory}"

    def way_on(self):
        if self.newest():
            return f"going on from {self.newest()}"
        if self.directory and self.resume == "auto":
            return f"going on from what {self.directory} has"
        return "starting as before, as nothing was saved"
