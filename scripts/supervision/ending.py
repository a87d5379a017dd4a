"""How a run ended: the kind of fault and who is to blame, from the line that `train` writes for programs, from mpirun's words
where a rank or host has no say any more, and from the exit code where nothing is said."""
import dataclasses
import re
import shlex
import signal

LOST_KINDS = {"rank_lost", "stuck"}  # also of ranks whose job was told to end
CURABLE_KINDS = {"writer", *LOST_KINDS}
# What would come again on other hosts, too, even where one was lost.
LASTING_KINDS = {"storage"}
# What a rank says first whose call fails because another rank has gone: then the launcher knows more.
ANY = "internal"
# Where the line did not come through, or says that.
CURABLE_CODES = {71, 72}
CURABLE_SIGNALS = {signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT}
# mpirun's codes for a host that it has lost, or cannot reach: others have them, too.
LOST = 1
LAUNCHER_CODES = {LOST, 205, 255}
# Of src/base/error.cpp; mpirun may put a rank before it.
FAULT = re.compile(r"\bfault: (kind=\S+ code=\d+ .*)")
LOST_HOST = re.compile(r"Remote daemon: .* on node (\S+)|ssh: connect to host (\S+) port|error: Node failure on (\S+)")
LOST_DAEMON = re.compile(r"unable to reliably start one or more daemons|daemon has unexpectedly failed|lost communication with a remote daemon")
DEAD_RANK = re.compile(r"process rank (\d+) with PID \d+ on node (\S+) exited on\s+signal (\d+)")  # Open MPI 5 breaks the line
DEEDS = {"dead": "has ended without a word", "silent": "has not been heard", "stuck": "is stuck", "disconnected": "has lost its connection"}


@dataclasses.dataclass
class Ending:
    code: int
    kind: str  # dead, silent, stuck, disconnected; empty: nobody is to blame
    hosts: list  # to blame, as far as they are known
    who: str
    seconds: float
    trained: bool  # whether there was a step or a checkpoint
    finished: bool = False  # whether it has trained all
    corrected: bool = False  # whether the exit code is not the launcher's
    fault: str = ""  # its kind, by the line; empty: there is none
    fault_code: int = 0  # train's own, by the line

    @staticmethod
    def of(code, text, seconds, trained, finished):
        """`text`: the end of what the run wrote to standard error; `finished`: whether it said that it has trained all."""
        fault = fault_in(text)
        kind, hosts, who = culprit(text, fault)
        # mpirun of Open MPI 5 returns 0 when it has lost a host
        corrected = code == 0 and not finished and (kind == "silent" or bool(fault))
        return Ending(LOST if corrected else code, kind, hosts, who, seconds, trained, finished, corrected, fault.get("kind", ""), code_in(fault))

    @property
    def curable(self):
        """Whether a rank or host was lost or stuck, or the checkpoint writer: not so for what would come again, or what is no accident."""
        # a host that is lost may take with it what others read or write
        if self.kind == "silent" and self.code in LAUNCHER_CODES and self.fault not in LASTING_KINDS:
            return True
        if self.fault and self.fault != ANY:
            return self.fault in CURABLE_KINDS
        if self.code in LAUNCHER_CODES:
            return self.kind == "silent"
        return self.code in CURABLE_CODES or self.code - 128 in CURABLE_SIGNALS

    @property
    def text(self):
        return f"{self.who or 'the job was lost'} (exit code {self.code} after {self.seconds:.0f} s)"

    def is_as(self, other):
        return (self.code, self.fault, self.kind, self.hosts) == (other.code, other.fault, other.kind, other.hosts)


def fault_in(text):
    """What the line says, by its keys; nothing if there is none. The first one counts, as what ends then is blamed, too; but an
    internal fault only where there is no other."""
    lines = list(FAULT.finditer(text.replace("\0", "")))
    found = next((line for line in lines if not line[1].startswith(f"kind={ANY} ")), lines[0] if lines else None)
    try:
        return dict(word.partition("=")[::2] for word in shlex.split(found[1])) if found else {}
    except ValueError:  # cut off amid a value
        return dict(word.partition("=")[::2] for word in found[1].split())


def code_in(fault):
    return int(fault["code"]) if fault.get("code", "").isdigit() else 0


def culprit(text, fault):
    """Kind, hosts, and who it was in words."""
    lost = LOST_HOST.search(text)
    if lost:
        host = next(filter(None, lost.groups()))
        return "silent", [host], f"host {host} does not answer"
    dead = DEAD_RANK.search(text)
    if fault and not (dead and fault.get("how") in ("dead", "disconnected") and dead[1] in fault.get("ranks", "").split(",")):
        return of_fault(fault)
    if dead:  # mpirun knows more of it
        return "dead", [dead[2]], f"rank {dead[1]} on {dead[2]} was ended by {signal_name(int(dead[3]))}"
    if LOST_DAEMON.search(text):
        return "silent", [], "a host does not answer"
    return "", [], ""


def of_fault(fault):
    how = fault.get("how", "")
    if fault["kind"] == "writer":
        return "", [], f"the checkpoint writer {how or 'is gone'}"
    if fault["kind"] not in CURABLE_KINDS or how not in DEEDS:
        return "", [], f"{fault['kind']} on rank {fault.get('rank')} on {fault.get('host')}"
    ranks, hosts = ([word for word in fault.get(key, "").split(",") if word] for key in ("ranks", "hosts"))
    if not ranks:
        return "", [], "all ranks have waited for one another"
    who = [f"rank {rank} on {host}" for rank, host in zip(ranks, hosts)] or [f"rank {rank}" for rank in ranks]
    return how, sorted(set(hosts)), f"{', '.join(who)} {DEEDS[how]}"


def signal_name(number):
    return signal.Signals(number).name if number in iter(signal.Signals) else f"signal {number}"
