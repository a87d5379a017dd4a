"""Disks with faults of their own: mounts of test/support/slowfs on one directory, as hosts have one file system in common. Runs of a
trial take them in turn. Checkpoints have two mounts, data has one."""
import contextlib
import errno
import os
import subprocess
import time

LATE_S = 3  # for so long, a host does not see what the other made
# What is wrong all the time.
ALWAYS = {"sound": "", "without locks": "locks none\n", "late names": f"late {LATE_S}\n"}


class Disk:
    """Until the `with` statement ends."""

    def __init__(self, kind, slowfs, backing, mounts, faults):
        self.kind, self.slowfs, self.backing, self.mounts, self.faults = kind, slowfs, backing, mounts, faults
        self.servers = []

    @staticmethod
    def why_not(slowfs):
        """Empty if there can be such disks here."""
        if slowfs is None or not slowfs.exists():
            return "no slowfs (libfuse3)"
        return "" if os.access("/dev/fuse", os.W_OK) else "no /dev/fuse"

    def __enter__(self):
        self.backing.mkdir(exist_ok=True)
        self.write("")
        for mount in self.mounts:
            mount.mkdir(parents=True)
            self.servers.append(subprocess.Popen([self.slowfs, self.backing, mount, self.faults], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True))
            deadline = time.monotonic() + 10
            while not os.path.ismount(mount):
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{mount} does not come up")
                time.sleep(0.01)

    def __exit__(self, *_):
        self.write("")
        for server, mount in zip(self.servers, self.mounts):
            server.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(10)
            subprocess.run(["fusermount3", "-quz", mount], check=False)

    def shown(self):
        return self.mounts[0]

    def other_host(self):
        """For the next run, which none of the last one's faults meets. It sees what the last one left."""
        self.mounts.reverse()
        self.write("")
        self.settle()

    def settle(self):
        """Until each mount shows what is there."""
        if self.kind == "late names":
            time.sleep(LATE_S + 0.5)

    def write(self, lines):
        """The faults from now on, beside those of this kind of disk."""
        new = self.faults.with_suffix(".new")
        new.write_text(ALWAYS[self.kind] + lines)
        new.rename(self.faults)


def fails(number):
    def strike(scene, fault):
        call = ("write", "fsync", "rename", "open")[fault.number % 4]
        scene.disk.write(f"nth {call} {number} {1 + fault.number // 16 % 5} {1 + fault.number // 256 % 3}\n")

    return strike


def fail_data(scene, fault):
    """Images are opened in each step. A read that fails may be one that the kernel makes ahead, and makes again."""
    scene.data.write(f"nth open {errno.EIO} {1 + fault.number // 16 % 5} {1 + fault.number // 256 % 2}\n")


@contextlib.contextmanager
def silent(disk, fault):
    """It does not answer until the `with` statement ends."""
    disk.write(f"hang {('open', 'list', 'any')[fault.number % 3]}\n")
    try:
        yield
    finally:
        disk.write("")


def come_back(scene, fault):
    """Nothing is written or synced for a while, which no step waits for."""
    scene.disk.write("hang write\nhang fsync\n")
    time.sleep((1, 4, 9)[fault.number % 3])
    scene.disk.write("")


DISK_STRIKES = {
    "EIO of the disk": fails(errno.EIO),
    "ENOSPC of the disk": fails(errno.ENOSPC),
    "disk that comes back": come_back,
    "EIO of the data's disk": fail_data,
}
