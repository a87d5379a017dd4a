"""One run of `train` under mpirun, and its processes."""
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import time

TAG = "FAULTRUN_FOLDER"
STARTED_S = 60


def variables_of(pid):
    return dict(entry.partition("=")[::2] for entry in pathlib.Path(f"/proc/{pid}/environ").read_text(errors="replace").split("\0"))


def environment(folder, samples):
    """Of a run whose temporary files are there, and by which its processes are found."""
    return os.environ | {TAG: str(folder), "TMPDIR": str(folder), "SAMPLES": str(samples), "OMPI_MCA_btl_vader_backing_directory": str(folder)}


def processes_of(folder):
    """Those that were started for this folder and still live: pid -> (name, variables)."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        with contextlib.suppress(OSError):
            variables = variables_of(entry)
            state = pathlib.Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()[0]
            if variables.get(TAG) == str(folder) and state != "Z":
                found[int(entry)] = (pathlib.Path(f"/proc/{entry}/comm").read_text().strip(), variables)
    return found


def still_there(folder, within_s):
    """Names of processes that are there after that time."""
    deadline = time.monotonic() + within_s
    while (left := processes_of(folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return [name for name, _ in left.values()]


def kill(pid, which):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, which)


class Job:
    """A run whose files are FOLDER/runN.*; it ends with the `with` statement at the latest."""

    def __init__(self, command, folder, number):
        self.folder, self.number, self.base = folder, number, folder / f"run{number}"
        for segment in folder.glob("*vader_segment*"):  # of a killed mpirun before
            segment.unlink()
        self.log_file, self.metrics = self.base.with_suffix(".log"), self.base.with_suffix(".jsonl")
        self.unread, self.step = 0, 0
        with open(self.log_file, "w") as log:
            self.mpirun = subprocess.Popen([part.replace("METRICS", str(self.metrics)) for part in command], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                           env=environment(folder, self.base.with_suffix(".samples")), cwd=folder, start_new_session=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end_all()
        self.mpirun.wait()

    def end_all(self):
        for pid in processes_of(self.folder):
            kill(pid, signal.SIGKILL)

    def ranks(self):
        """rank -> pid"""
        return {int(v["OMPI_COMM_WORLD_RANK"]): pid for pid, (name, v) in processes_of(self.folder).items()
                if "OMPI_COMM_WORLD_RANK" in v and not name.startswith("ringtrain-")}

    def writer(self):
        return self.process("ringtrain-write")

    def fork_server(self):
        return self.process("ringtrain-fork")

    def process(self, wanted):
        return next((pid for pid, (name, _) in processes_of(self.folder).items() if name == wanted), None)

    def log(self):
        return self.log_file.read_text(errors="replace")

    def records(self, kind):
        """Those of the metrics, whole lines only."""
        with contextlib.suppress(OSError):
            lines = self.metrics.read_text().split("\n")[:-1]
            return [record for record in map(json.loads, filter(None, lines)) if record["kind"] == kind]
        return []

    def done_step(self):
        """The last step in the metrics; cheap, for waiting."""
        with contextlib.suppress(OSError), open(self.metrics) as lines:
            lines.seek(self.unread)
            text = lines.read()
            whole = text.rfind("\n") + 1
            self.unread += whole
            for step in re.findall(r'"kind":"step","step":(\d+)', text[:whole]):
                self.step = int(step)
        return self.step

    def alive(self):
        return self.mpirun.poll() is None

    def reaches(self, step):
        """Whether that step was done before the job ended."""
        deadline = time.monotonic() + STARTED_S
        while self.alive() and self.done_step() < step and time.monotonic() < deadline:
            time.sleep(0.001)
        return self.alive() and self.step >= step

    def saves(self, start):
        """Whether the training's start of this number, from 1, has announced a checkpoint and still trains."""
        deadline = time.monotonic() + STARTED_S
        while self.alive() and time.monotonic() < deadline:
            kinds = re.findall(r'"kind":"(start|checkpoint|end)"', self.metrics.read_text() if self.metrics.exists() else "")
            if kinds.count("start") == start and kinds[-1] == "checkpoint":
                return True
            time.sleep(0.001)
        return False

    def ends(self, within_s, watched_text=""):
        """The exit code, None if it did not end; and when the text was first in the log."""
        deadline, seen = time.monotonic() + within_s, None
        while self.alive() and time.monotonic() < deadline:
            if seen is None and watched_text and re.search(watched_text, self.log()):
                seen = time.monotonic()
            time.sleep(0.02)
        if seen is None and watched_text and re.search(watched_text, self.log()):
            seen = time.monotonic()
        return self.mpirun.poll(), seen

    def leaves_nothing(self, within_s=10):
        return still_there(self.folder, within_s)
