"""Ranks that live, but are out of touch: their connection to rank 0 is cut, or their control group freezes them."""
import contextlib
import os
import pathlib
import time

from cut_connections import WAYS, connections, cut
from strangers import listening
from strikes import TooLate


def lose_connection(scene, fault):
    """In each way that a network has, at either end. There has to be another one soon."""
    rank = fault.rank or 1
    pid, other = (scene.existing(scene.job.ranks().get(number)) for number in (0, rank))
    way, at_rank_0 = WAYS[fault.number % len(WAYS)], fault.number // len(WAYS) % 2
    try:
        ports = [port for address, port in listening(pid) if set(address) != {"0"} and any(connections(pid, other, port))]  # MPI's are everywhere
        if not ports:
            raise TooLate()
        took = cut(pid, other, ports[0], way, at_rank_0)
    except (FileNotFoundError, ProcessLookupError):
        raise TooLate() from None
    if took is None and scene.job.alive():
        return f"rank {rank} has no connection again: {way.__name__} at rank {0 if at_rank_0 else rank}"
    return ""


def freezer():
    """Where groups can be frozen, with what is written to which file then and later. By version 2 where it is there: what version 1
    freezes as it ends, nobody can kill, and mpirun waits for it."""
    mounts = [line.split()[1:4] for line in pathlib.Path("/proc/mounts").read_text().splitlines()]
    for point, kind, _ in mounts:
        if kind == "cgroup2":
            return pathlib.Path(point), "cgroup.freeze", "1", "0"
    for point, kind, options in mounts:
        if kind == "cgroup" and "freezer" in options.split(","):
            return pathlib.Path(point), "freezer.state", "FROZEN", "THAWED"
    raise TooLate()


def freeze(scene, fault):
    pid = scene.rank(fault)
    root, file, on, off = freezer()
    group = root / f"faultrun-{os.getpid()}-{pid}"

    def thaw():
        with contextlib.suppress(OSError):
            (group / file).write_text(off)
        until = time.monotonic() + 5
        while group.exists() and time.monotonic() < until:
            with contextlib.suppress(OSError):  # while the rank is there
                group.rmdir()
            time.sleep(0.02)

    try:
        group.mkdir()
        scene.afterwards.append(thaw)
        (group / "cgroup.procs").write_text(str(pid))
        (group / file).write_text(on)
    except OSError:
        raise TooLate() from None


OUT_OF_TOUCH_STRIKES = {"lost connection": lose_connection, "frozen rank": freeze}
