"""Hosts on this machine for --hosts, made by test/support/hosts/hosts.sh: one rank on each, and faults of the network
between them."""
import os
import pathlib
import signal
import subprocess
import tempfile
import time

from job import kill, processes_of

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "support/hosts/hosts.sh"
# Without these, mpirun may wait for ever for a host that lost its power; with fewer probes, it gives up a link that is cut for
# 3 s (docs/internals/watchdog.md).
KEEPALIVE = "--mca oob_tcp_keepalive_time 2 --mca oob_tcp_keepalive_intvl 1 --mca oob_tcp_keepalive_probes 9"


class Hosts:
    """Until the `with` statement ends."""

    def __init__(self, count):
        self.run = pathlib.Path(tempfile.mkdtemp(prefix="hosts-"))
        self.count = count

    def __enter__(self):
        os.environ |= {"HOSTS_RUN": str(self.run), "MPIRUN_FLAGS": KEEPALIVE, "HOSTS_DETACHED": "1"}
        self.call("up", self.count)
        return self

    def __exit__(self, *_):
        self.call("down")
        self.run.rmdir()

    @staticmethod
    def why_not():
        """Empty if hosts can be made here."""
        with tempfile.TemporaryDirectory() as run:
            result = subprocess.run([SCRIPT, "check"], capture_output=True, text=True, env=os.environ | {"HOSTS_RUN": run})
        return "" if result.returncode == 0 else (result.stdout + result.stderr).strip()

    def call(self, *arguments):
        subprocess.run([SCRIPT, *map(str, arguments)], check=True, capture_output=True)

    def mpirun(self):
        return [str(SCRIPT), "mpirun", "1"]

    def processes(self, folder, host):
        """Of the job in that folder, on that host."""
        [pid_file] = self.run.glob(f"*-{host}.pid")
        network = os.readlink(f"/proc/{pid_file.read_text().strip()}/ns/net")
        return [pid for pid in processes_of(folder) if network_of(pid) == network]


def network_of(pid):
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return None


def cut(scene, fault):
    scene.hosts.call("cut", fault.rank)
    scene.afterwards.append(lambda: scene.hosts.call("heal", fault.rank))


def cut_briefly(scene, fault):
    scene.hosts.call("cut", fault.rank)
    time.sleep(3)
    scene.hosts.call("heal", fault.rank)


def lose_power(scene, fault):
    """Nobody hears of what ends there: the link is cut first."""
    cut(scene, fault)
    for pid in scene.hosts.processes(scene.job.folder, fault.rank):
        kill(pid, signal.SIGKILL)


NETWORK_STRIKES = {
    "cut link of a host": cut,
    "cut link of rank 0": cut,
    "healing link": cut_briefly,
    "power loss of a host": lose_power,
    "power loss of rank 0": lose_power,
}
