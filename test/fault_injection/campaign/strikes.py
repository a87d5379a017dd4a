"""Faults put into a running job: STRIKES has what each kind does."""
import contextlib
import fcntl
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import subprocess
import time

from job import environment, kill, processes_of, still_there
from plan import STEPS

SAVE_CALLS = ("fallocate", "io_submit", "io_getevents", "fsync", "renameat2", "unlinkat")
FOREVER_US = 1_000_000_000
LOOKED_AT_S = 5  # so often, where the directory is


class TooLate(Exception):
    """There is nothing to strike any more."""


def may_trace():
    return shutil.which("strace") is not None and subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True).returncode == 0


class Trace:
    """strace on one process, with something injected into its system calls."""

    def __init__(self, pid, output, calls, inject):
        self.pid, self.output = pid, output
        self.process = subprocess.Popen(["strace", "-y", "-s", "0", "-o", output, "-p", str(pid), "-e", f"trace={calls}", "-e", f"inject={inject}"],
                                        stderr=subprocess.PIPE, text=True)
        if "attached" not in (said := self.process.stderr.readline()):
            self.end()
            raise TooLate(said)

    def lines(self):
        return self.output.read_text(errors="replace").splitlines()

    def end(self):
        if self.process.stderr.closed:
            return
        self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stderr.close()


class Scene:
    """The job that is struck, and what must end with it."""

    def __init__(self, job, trial):
        self.job, self.trial, self.setting, self.directory, self.disk, self.data = job, trial, trial.setting, trial.directory, trial.disk, trial.data
        self.traces, self.afterwards = [], []

    def rank(self, fault):
        return self.existing(self.job.ranks().get(fault.rank))

    def writer(self, _=None):
        return self.existing(self.job.writer())

    def replaceable(self, fault):
        """The writer, as long as another one can be started."""
        self.fork_server(fault)
        return self.writer()

    def fork_server(self, _):
        return self.existing(self.job.fork_server())

    def mpirun(self, _):
        return self.job.mpirun.pid

    def existing(self, pid):
        if pid is None:
            raise TooLate()
        return pid

    def trace(self, pid, calls, inject):
        """In the place of an earlier one: a process can have one only."""
        for earlier in self.traces:
            if earlier.pid == pid:
                earlier.end()
        self.traces.append(Trace(pid, self.job.base.with_suffix(f".trace{len(self.traces)}"), calls, inject))
        return self.traces[-1]

    def await_save(self):
        """Until a temporary is there, for 3 s at most."""
        deadline = time.monotonic() + 3
        while self.job.alive() and time.monotonic() < deadline and not any(self.directory.glob(".step-*.tmp")):
            pass

    @property
    def shown(self):
        return self.trial.shown()

    @property
    def hosts(self):
        return self.setting.hosts

    def end(self):
        for trace in self.traces:
            trace.end()
        while self.afterwards:
            self.afterwards.pop()()


def nothing(scene, fault):
    pass


def send(which, target):
    def strike(scene, fault):
        kill(target(scene, fault), which)

    return strike


def send_twice(which, target):  # as people press Ctrl-C
    def strike(scene, fault):
        pid = target(scene, fault)
        kill(pid, which)
        time.sleep(0.3)
        kill(pid, which)

    return strike


def pause(target, seconds):
    def strike(scene, fault):
        pid = target(scene, fault)
        kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        kill(pid, signal.SIGCONT)

    return strike


def stop_until_the_end(scene, fault):
    pid = scene.writer(fault)
    scene.afterwards.append(lambda: kill(pid, signal.SIGCONT))
    kill(pid, signal.SIGSTOP)


def kill_both(scene, fault):
    for pid in (scene.fork_server(fault), scene.writer()):
        kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def all_stopped(scene):
    pids = [pid for pid, (name, _) in processes_of(scene.job.folder).items() if name != "strace"]
    for pid in pids:
        kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            kill(pid, signal.SIGCONT)


def pause_all(scene, fault):
    with all_stopped(scene):
        time.sleep((2, 5, 12)[fault.number % 3])


def is_stopped(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "Tt"


def rename_directory(scene, fault):
    """For longer than from one look at its path to the next; no rank trains meanwhile."""
    if scene.disk or is_stopped(scene.writer()):
        raise TooLate()
    elsewhere, ranks = scene.directory.with_name("renamed"), scene.job.ranks().values()
    for pid in ranks:
        kill(pid, signal.SIGSTOP)
    try:
        if scene.job.done_step() > STEPS - 10:
            raise TooLate()
        scene.directory.rename(elsewhere)
        time.sleep(LOOKED_AT_S + 2)
        elsewhere.rename(scene.directory)
    finally:
        for pid in ranks:
            kill(pid, signal.SIGCONT)


def start_second_job(scene, fault):
    """While the first, stopped, cannot end: the answer must not need it."""
    if scene.disk:
        raise TooLate()  # a holder that is stopped loses the directory there
    with all_stopped(scene):
        if scene.job.done_step() >= STEPS or scene.job.writer() is None:
            raise TooLate()
        started = time.monotonic()
        options = scene.trial.options()
        second = subprocess.run([scene.setting.train, *options], capture_output=True, text=True, timeout=60, cwd=scene.job.folder)
        if second.returncode != 73 or not re.search("in use by .*on host", second.stderr + second.stdout):
            return f"ended with {second.returncode} after {time.monotonic() - started:.1f} s and said:\n{second.stderr}{second.stdout}"
    return ""


def start_beside(scene, fault):
    """The same job again, while the first one trains. If that comes to its end meanwhile, the second one finds nothing to do."""
    if not scene.job.alive():
        raise TooLate()
    log, folder = scene.job.base.with_suffix(".beside.log"), scene.job.folder / "beside"
    folder.mkdir(exist_ok=True)
    command = [part.replace("METRICS", os.devnull) for part in scene.setting.command(*scene.trial.options())]
    try:
        with open(log, "w") as out:
            second = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, timeout=100, cwd=folder,
                                    env=environment(folder, log.with_suffix(".samples")), check=False)
    finally:
        left = still_there(folder, 10)
        for pid in processes_of(folder):
            kill(pid, signal.SIGKILL)
    if left:
        return f"left {', '.join(left)}"
    said = log.read_text(errors="replace")
    refused = second.returncode == 73 and re.search("in use by .*on host", said)
    if not refused and (second.returncode != 0 or scene.job.done_step() < STEPS):
        return f"ended with {second.returncode} and said:\n{said}"
    return ""


def listening_ports(pid):
    """Those of a process on this machine's loopback."""
    sockets = set()
    for entry in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            sockets.add(os.readlink(f"/proc/{pid}/fd/{entry}"))
    lines = [line.split() for line in pathlib.Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return [int(words[1].split(":")[1], 16) for words in lines if words[3] == "0A" and f"socket:[{words[9]}]" in sockets and words[1].startswith("0100007F")]


def knock(scene, fault):
    """For two seconds, strangers connect to rank 0's ports, idle or with garbage."""
    try:
        ports = listening_ports(scene.existing(scene.job.ranks().get(0)))
    except OSError:
        raise TooLate() from None
    if scene.job.done_step() >= STEPS:
        raise TooLate()
    if not ports:
        return "" if not scene.job.alive() else "rank 0 does not listen on the loopback"
    knocked = 0
    with contextlib.ExitStack() as strangers:
        deadline = time.monotonic() + 2
        while scene.job.alive() and time.monotonic() < deadline:
            for port in ports:
                with contextlib.suppress(OSError):
                    stranger = strangers.enter_context(socket.create_connection(("127.0.0.1", port), 1))
                    knocked += 1
                    stranger.sendall(os.urandom(fault.number % 100))
            time.sleep(0.01)
    return "" if knocked or not scene.job.alive() else "no stranger could connect"


def starve(scene, fault):
    """For some seconds, far more processes want a CPU than there are."""
    others = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(8 * (os.cpu_count() or 1))]
    try:
        time.sleep((2, 5, 8)[fault.number % 3])
    finally:
        for other in others:
            other.kill()
            other.wait()


def lock_temporaries(scene, fault):
    """As another writer has them that writes the same steps: they stay, as it does not know that it has lost the directory."""
    with all_stopped(scene):
        if scene.job.done_step() >= STEPS or scene.job.writer() is None:
            raise TooLate()
        files = [open(scene.directory / f".step-{step:010}.h5.tmp", "w") for step in range(0, STEPS + 1, 10)]
        for file in files:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                for other in files:
                    other.close()
                return f"{file.name} is the job's own temporary, too"
        before = set(scene.directory.glob("step-*.h5"))
    deadline = time.monotonic() + 20
    while scene.job.alive() and time.monotonic() < deadline and before == set(scene.directory.glob("step-*.h5")):
        time.sleep(0.05)
    lost = [file.name for file in files if not os.path.exists(file.name)]
    for file in files:
        pathlib.Path(file.name).unlink(missing_ok=True)
        file.close()
    return f"{len(lost)} of them are gone" if lost else ""


def take_over(scene, fault):
    """As a run on another host does it that saw no heartbeat, and has ended since."""
    if scene.disk and scene.disk.kind == "late names":
        raise TooLate()  # for a while, nobody sees it
    with all_stopped(scene):
        if scene.job.done_step() >= STEPS or scene.job.writer() is None:
            raise TooLate()
        new = scene.directory / "lock.new"
        new.write_text("ringtrain lease 1 released \nbeat: 00000000000000000000\nrun: another\nhost: far\nprocess: 7\njob: \nboot: \n"
                       "token: 0123456789abcdef\n")
        new.rename(scene.directory / "lock")
        before = set(scene.directory.glob("step-*.h5"))
    deadline = time.monotonic() + 30
    while scene.job.alive() and time.monotonic() < deadline and set(scene.directory.glob("step-*.h5")) <= before:
        time.sleep(0.02)
    published = set(scene.directory.glob("step-*.h5")) - before
    return f"it published {', '.join(sorted(file.name for file in published))} there" if published else ""


def hold(scene, fault):
    """The main thread alone, at its next system call; the others, so the watchdog, go on."""
    scene.trace(scene.rank(fault), "all", f"all:delay_enter={FOREVER_US}")


def in_calls(calls, what, last=4):
    """At one of the next calls of the writer, up to the `last`-th."""

    def strike(scene, fault):
        call = calls[fault.number % len(calls)]
        scene.trace(scene.writer(), call, f"{call}:{what}:when={1 + fault.number // 16 % last}")

    return strike


def in_all_calls(what):
    def strike(scene, fault):
        scene.trace(scene.writer(), "fsync", f"fsync:{what}")

    return strike


def limit_files(scene, fault):
    resource.prlimit(scene.writer(), resource.RLIMIT_FSIZE, (fault.number % 60_000, resource.RLIM_INFINITY))


def lose_power(scene, fault):
    """The writer dies at a system call, all others at once with it; what was not synced is lost."""
    writer = scene.writer()
    calls = ",".join((*SAVE_CALLS, "pwrite64", "rename", "renameat", "linkat"))
    call = SAVE_CALLS[fault.number % len(SAVE_CALLS)]
    trace = scene.trace(writer, calls, f"{call}:signal=KILL:when={1 + fault.number // 16 % 4}")
    while scene.job.alive() and os.path.exists(f"/proc/{writer}/fd/0"):
        time.sleep(0.0005)
    for pid in processes_of(scene.job.folder):
        kill(pid, signal.SIGKILL)
    code = scene.job.mpirun.wait()
    with contextlib.suppress(subprocess.TimeoutExpired):
        trace.process.wait(5)  # it ends with the writer, after its last lines
    trace.end()
    if code != -signal.SIGKILL:
        raise TooLate()  # the job had ended by itself
    lose_unsynced(trace.lines(), scene.directory, scene.shown, fault.number)


def lose_unsynced(calls, directory, shown, number):
    """As a disk may be found: files written since their last fsync are empty, and names newer than the directory's are undone."""
    unsynced, renamed = set(), []
    for line in calls:
        done = "= -1 " not in line and "= ?" not in line
        paths = re.findall(r"<([^<>]*)>", line)
        names = re.findall(r'"([^"]*)"', line)
        if re.match("fallocate|io_submit|pwrite64", line) and paths:
            unsynced.add(os.path.basename(paths[-1 if line.startswith("io_submit") else 0]))
        elif line.startswith(("rename", "linkat")) and done and len(names) == 2:
            renamed.append(names)
            if names[0] in unsynced:
                unsynced.add(names[1])
        elif line.startswith("fsync") and done:
            if os.path.realpath(paths[0]) == os.path.realpath(shown):
                renamed.clear()
            unsynced.discard(os.path.basename(paths[0]))
            unsynced -= {new for old, new in renamed if old == os.path.basename(paths[0])}
    for name in unsynced:
        if (directory / name).exists():
            os.truncate(directory / name, 0)
    if number // 64 % 2:  # a disk need not have kept names that were not synced, but may
        for old, new in renamed:
            with contextlib.suppress(OSError):
                os.rename(directory / new, directory / old)


rank, writer, fork_server, mpirun = Scene.rank, Scene.writer, Scene.fork_server, Scene.mpirun
STRIKES = {
    "nothing": nothing,
    "pause of a rank": pause(rank, 2),
    "pause of the job": pause_all,
    "pause of the writer": pause(writer, 1),
    "USR1 to a rank": send(signal.SIGUSR1, rank),
    "slow disk": in_all_calls("delay_enter=100000"),
    "EINTR in a save": in_calls(("fsync", "renameat2", "io_getevents", "fallocate"), "error=EINTR"),
    "second job": start_second_job,
    "two jobs at once": start_beside,
    "another writer's temporaries": lock_temporaries,
    "strangers at the ports": knock,
    "starved ranks": starve,
    "renamed directory": rename_directory,
    "directory taken over": take_over,
    "kill of a rank": send(signal.SIGKILL, rank),
    "kill of rank 0": send(signal.SIGKILL, rank),
    "segv of a rank": send(signal.SIGSEGV, rank),
    "abort of a rank": send(signal.SIGABRT, rank),
    "kill of mpirun": send(signal.SIGKILL, mpirun),
    "INT twice to mpirun": send_twice(signal.SIGINT, mpirun),
    "kill of the writer": send(signal.SIGKILL, Scene.replaceable),
    "segv of the writer": send(signal.SIGSEGV, Scene.replaceable),
    "kill of the fork server": send(signal.SIGKILL, fork_server),
    "kill of writer and fork server": kill_both,
    "stop of a rank": send(signal.SIGSTOP, rank),
    "stop of rank 0": send(signal.SIGSTOP, rank),
    "stop of the writer": stop_until_the_end,
    "stuck rank": hold,
    "TERM to a rank": send(signal.SIGTERM, rank),
    "INT to a rank": send(signal.SIGINT, rank),
    "HUP to a rank": send(signal.SIGHUP, rank),
    "TERM to mpirun": send(signal.SIGTERM, mpirun),
    "ENOSPC in a save": in_calls(("fallocate", "fsync"), "error=ENOSPC"),
    "EIO in a save": in_calls(("fsync",), "error=EIO"),
    "EDQUOT in a save": in_calls(("fallocate", "fsync"), "error=EDQUOT"),
    "EROFS in a save": in_calls(("renameat2",), "error=EROFS", 2),
    "failing rename": in_calls(("renameat2",), "error=EIO", 2),
    "file too large": limit_files,
    "frozen disk": in_all_calls(f"delay_enter={FOREVER_US}"),
    "power loss": lose_power,
}
