"""The hosts that mpirun may use, and how it is told to leave some of them out."""
import collections
import re
import socket
import subprocess
import tempfile

from supervision.command import RANKS, Unclear

NAMES = ("--host", "-host", "-H")
FILE = ("--hostfile", "-hostfile", "--machinefile", "-machinefile")

# What the user wrote of a host. Lines of a file that name none have `host` None.
Entry = collections.namedtuple("Entry", "host slots text")


class Hosts:
    def __init__(self, entries, ranks, in_file=False):
        self.entries, self.in_file = entries, in_file
        self.ranks = self.all_ranks = ranks
        self.all_slots = self.slots()
        self.left_out = []

    @staticmethod
    def of(command, environment):
        """Those of the command line, or of Slurm's allocation."""
        if command.mpirun() is None:
            raise Unclear(f"--without-lost-hosts: mpirun can be told what to leave out, {command.launcher[0]} cannot")
        ranks, names, file = command.value(RANKS), command.value(NAMES), command.value(FILE)
        if not (ranks or "").isdigit():
            raise Unclear("--without-lost-hosts: how many ranks there are must be known; give mpirun -np N")
        if names:
            return Hosts([of_name(text) for text in names.split(",")], int(ranks))
        if file:
            with open(file) as lines:
                return Hosts([of_line(line.rstrip("\n")) for line in lines], int(ranks), in_file=True)
        if "SLURM_JOB_NODELIST" in environment:
            return Hosts(of_slurm(environment), int(ranks))
        raise Unclear("--without-lost-hosts: the hosts must be known; give mpirun --host or --hostfile, or start under Slurm")

    def slots(self):
        return sum(entry.slots for entry in self.entries)

    def names(self):
        return list(dict.fromkeys(entry.host for entry in self.entries if entry.host))

    def leave_out(self, lost):
        """The hosts that are left out from now on; where that cannot be, why not."""
        found = [name for name in self.names() if any(same_host(name, other) for other in lost)]
        if not found:
            return [], f"{', '.join(lost)} is none of {', '.join(self.names())}"
        if len(found) == len(self.names()):
            return [], "no other is left"
        self.entries = [entry for entry in self.entries if entry.host not in found]
        self.left_out += found
        self.ranks = self.ranks_on(self.slots())
        return found, ""

    def ranks_on(self, slots):
        """Spare slots are used first; where there were more ranks than slots, each slot has as many as before."""
        if self.all_ranks <= self.all_slots:
            return min(self.all_ranks, slots)
        return max(1, self.all_ranks * slots // self.all_slots)

    def launcher_options(self):
        """In place of those of RANKS, NAMES and FILE."""
        texts = [entry.text for entry in self.entries]
        if not self.in_file:
            return ["-np", str(self.ranks), "--host", ",".join(texts)]
        self.written = tempfile.NamedTemporaryFile("w", prefix="supervise-", suffix=".hosts")  # there until the next one is
        self.written.write("\n".join(texts) + "\n")
        self.written.flush()
        return ["-np", str(self.ranks), "--hostfile", self.written.name]


def of_name(text):
    """Of `node3:2`, or `node3`, which is one slot."""
    host, _, slots = text.partition(":")
    return Entry(host, int(slots) if slots.isdigit() else 1, text)


def of_line(text):
    """Of `node3 slots=2`, a comment, or nothing."""
    words = text.split("#")[0].split()
    if not words:
        return Entry(None, 0, text)
    slots = re.search(r"\b(?:slots|count|cpus)\s*=\s*(\d+)", text)
    return Entry(words[0].split("@")[-1], int(slots[1]) if slots else 1, text)


def of_slurm(environment):
    listed = subprocess.run(["scontrol", "show", "hostnames", environment["SLURM_JOB_NODELIST"]], stdout=subprocess.PIPE, text=True, check=True)
    tasks = re.findall(r"(\d+)(?:\(x(\d+)\))?", environment["SLURM_TASKS_PER_NODE"])  # 2(x3),1
    slots = [int(n) for n, times in tasks for _ in range(int(times or 1))]
    return [Entry(host, n, f"{host}:{n}") for host, n in zip(listed.stdout.split(), slots)]


def same_host(one, other):
    """Names may have a domain or none, or be addresses."""
    short = one.split(".")[0] == other.split(".")[0] and not one[0].isdigit()
    return one == other or short or bool(addresses(one) & addresses(other))


def addresses(name):
    try:
        found = {info[4][0] for info in socket.getaddrinfo(name, None)}
    except OSError:
        return set()
    return {address for address in found if not address.startswith("127.") and address != "::1"}
