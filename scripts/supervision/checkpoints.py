"""Which checkpoints are this job's, and how a restart goes on from them."""
import contextlib
import os
import pathlib
import re

from supervision.command import Unclear

NAME = re.compile(r"step-\d{10}\.h5")


class Checkpoints:
    def __init__(self, settings):
        self.directory = settings.get("checkpoint-dir")
        self.resume = settings.get("resume", "auto")
        self.older = self.found()
        if self.resume == "never" and "init-from" in settings:
            raise Unclear("--resume never with --init-from: a restart would have to give both up; empty --checkpoint-dir instead")

    def found(self):
        """Names, with what changes when one is written anew."""
        try:
            with os.scandir(self.directory) if self.directory else contextlib.nullcontext([]) as entries:
                return {entry.name: entry.stat().st_mtime_ns for entry in entries if NAME.fullmatch(entry.name)}
        except OSError:  # of a file that went just now, too
            return {}

    def newest(self):
        """That this job has saved; None: there is none, or the directory is not seen from here."""
        own = [name for name, time in self.found().items() if self.older.get(name) != time]
        return max(own, default=None)

    def resume_options(self):
        """What goes on: where training began otherwise, older checkpoints of the directory are not for it."""
        if self.resume == "auto" or not self.newest():
            return []
        return ["--resume", str(pathlib.Path(self.directory) / self.newest())]

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
