"""How a run ended: its exit code, and who is to blame, from what the watchdog and mpirun said."""
import dataclasses
import re
import signal

CURABLE_CODES = {71, 72}
CURABLE_SIGNALS = {signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT}
# mpirun's codes for a host that it has lost, or cannot reach: others have them, too.
LOST = 1
LAUNCHER_CODES = {LOST, 205, 255}
# The words of src/train/verdict.cpp.
BLAMED = re.compile(r"rank (\d+) on (\S+) has (ended without a word|not been heard|been in)")
VERDICT = re.compile(r"train: (?:rank \d+/\d+ on \S+: )?the job cannot go on: (.*)")
LOST_RANK_0 = re.compile(r"rank 0 has (ended without a word|not been heard)")
LOST_HOST = re.compile(r"Remote daemon: .* on node (\S+)|ssh: connect to host (\S+) port|error: Node failure on (\S+)")
LOST_DAEMON = re.compile(r"unable to reliably start one or more daemons|daemon has unexpectedly failed|lost communication with a remote daemon")
DEAD_RANK = re.compile(r"process rank (\d+) with PID \d+ on node (\S+) exited on\s+signal (\d+)")  # Open MPI 5 breaks the line
KINDS = {"ended without a word": "dead", "not been heard": "silent", "been in": "stuck"}


@dataclasses.dataclass
class Ending:
    code: int
    kind: str  # dead, silent, stuck; empty: nobody is to blame
    hosts: list  # to blame, as far as they are known
    who: str
    seconds: float
    trained: bool  # whether there was a step or a checkpoint
    finished: bool = False  # whether it has trained all
    corrected: bool = False  # whether the exit code is not the launcher's

    @staticmethod
    def of(code, text, seconds, trained, finished):
        """`text`: the end of what the run wrote to standard error; `finished`: whether it said that it has trained all."""
        kind, hosts, who = culprit(text)
        corrected = code == 0 and kind == "silent" and not finished  # mpirun of Open MPI 5 returns 0 when it has lost a host
        return Ending(LOST if corrected else code, kind, hosts, who, seconds, trained, finished, corrected)

    @property
    def curable(self):
        """Whether a rank or host was lost or stuck: not so for what would come again, or what is no accident."""
        if self.code in LAUNCHER_CODES:
            return self.kind == "silent"
        return self.code in CURABLE_CODES or self.code - 128 in CURABLE_SIGNALS

    @property
    def text(self):
        return f"{self.who or 'the job was lost'} (exit code {self.code} after {self.seconds:.0f} s)"

    def is_as(self, other):
        return (self.code, self.kind, self.hosts) == (other.code, other.kind, other.hosts)


def culprit(text):
    """Kind, hosts, and who it was in words. The first word counts: what ends then is blamed, too."""
    lost = LOST_HOST.search(text)
    if lost:
        host = next(filter(None, lost.groups()))
        return "silent", [host], f"host {host} does not answer"
    verdict, dead = VERDICT.search(text), DEAD_RANK.search(text)
    if verdict and not (dead and f"rank {dead[1]} on {dead[2]} has ended" in verdict[1]):
        return of_verdict(verdict[1])
    if dead:  # mpirun knows more of it
        return "dead", [dead[2]], f"rank {dead[1]} on {dead[2]} was ended by {signal_name(int(dead[3]))}"
    if LOST_DAEMON.search(text):
        return "silent", [], "a host does not answer"
    return "", [], ""


def of_verdict(sentences):
    blamed = BLAMED.findall(sentences)
    if not blamed:
        rank_0 = LOST_RANK_0.search(sentences)
        return (KINDS[rank_0[1]] if rank_0 else "", [], sentences.rstrip())
    who = ", ".join(f"rank {rank} on {host}" for rank, host, _ in blamed)
    return KINDS[blamed[0][2]], sorted({host for _, host, _ in blamed}), f"{who} has {blamed[0][2]}"


def signal_name(number):
    return signal.Signals(number).name if number in iter(signal.Signals) else f"signal {number}"
