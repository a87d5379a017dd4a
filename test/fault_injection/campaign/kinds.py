"""The kinds of faults, and what each must lead to, as docs/internals/watchdog.md promises it. Seconds are
its goals, and three more for an mpirun on a busy machine to end."""
from dataclasses import dataclass

INCOMPATIBLE, RESUME_IMPOSSIBLE, RANK_LOST, STUCK, LOCKED, DATA, STORAGE, NOT_FINITE = 65, 66, 71, 72, 73, 74, 75, 76
TERM, INT, HUP = 128 + 15, 128 + 2, 128 + 1

DEAD = r"rank {rank} (on \S+ )?has ended without a word|noticed that process rank {rank} "
FROZEN = r"rank {rank} (on \S+ )?has not been heard for \d\d+ s: its process is frozen by its control group"
SILENT = r"rank {rank} (on \S+ )?has not been heard for \d\d+ s"
STUCK_RANK = r"rank {rank} on \S+ has been in \S+ of step \d+ for \d\d+ s"
OTHER_OPTIONS = r"options: rank 0 on \S+ has .* rank {rank} on \S+ has |run: rank 0 on \S+ has .* rank {rank} on \S+ has "
FAILED_SAVE = r"save_failed: checkpoint of step \d+ in \S+/checkpoints not saved: .*%s.* bytes are free"
NOT_USED = r"not used: .*{file}: "
SAVED_AND_ENDED = r"signal %d .*the run ends after step"
LOST_HOST = SILENT + "|[OP]RTE has lost communication with a remote daemon|" + DEAD
ENDED_BY_MPIRUN = (RANK_LOST, 205)  # 205: it lost a host before the watchdog's ten seconds were over
REPLACED = "writer_replaced: the checkpoint writer process was killed by signal %d .*another one took over"
SILENT_DISK = r"(?s)the job cannot go on: rank \d on \S+ has been at \S+ \S*/checkpoints\S* for \d+ s without progress.*fault: kind=stuck code=72"
INFINITE = r"statistics/\S+"
NOT_DURABLE = "final checkpoint: .*not durable in time"
STOPPED_WRITER = NOT_DURABLE + r".*stopped \(state"


@dataclass(frozen=True)
class Kind:
    weight: int
    codes: tuple = (0,)  # that mpirun may return
    says: str = ""  # what the job must print; {rank} is the one struck, {file} the one harmed
    seconds: float = 0  # at most, from the fault to the end of the job
    ends: bool = False  # the job
    between: bool = False  # is done while no job runs
    by_chance: bool = False  # what is to fail may not be tried any more, or another fault may be in the way
    blames: bool = False  # a rank is to be named, and no other
    needs_strace: bool = False
    network: bool = False  # needs --hosts
    disk: bool = False  # needs --slowfs
    data: bool = False  # of the data, not of the checkpoints
    lasts: bool = False  # and the job may end meanwhile
    removes: bool = False  # at once only where locks are trusted, which no disk in common is
    loses_no_step: bool = False  # each finished one is durable
    at_once: bool = False  # the job notices by itself within a few steps
    chain: bool = False  # several faults in a run that starts again after each
    trains: bool = False  # a run of its own, between runs: none need come before it


def rank_ends(weight, code):
    return Kind(weight, (RANK_LOST, code), DEAD, 8, ends=True, blames=True)


def signal_ends(weight, number, codes, seconds):
    return Kind(weight, codes, SAVED_AND_ENDED % number, seconds, ends=True, at_once=True)


def call_fails(text):
    return Kind(2, (0, STORAGE), FAILED_SAVE % text, by_chance=True, needs_strace=True)


def disk_fails(text):
    return Kind(3, (0, STORAGE), FAILED_SAVE % text, by_chance=True, disk=True)


KINDS = {
    # nothing, or nothing that matters: no alarm, no loss
    "nothing": Kind(6),
    "pause of a rank": Kind(4),
    "pause of the job": Kind(3),
    "pause of the writer": Kind(3),
    "USR1 to a rank": Kind(3, says="SIGUSR1: (saving step|step [0-9]+ is saved|a checkpoint follows)"),
    "slow disk": Kind(3, needs_strace=True),
    "EINTR in a save": Kind(3, needs_strace=True),
    "second job": Kind(3),
    "two jobs at once": Kind(3, lasts=True),
    "another writer's temporaries": Kind(2),
    "strangers at the ports": Kind(2, lasts=True),
    "starved ranks": Kind(1, lasts=True),
    "lost connection": Kind(4, says=r"rank \d on \S+ lost its connection to rank 0 and has made it again", by_chance=True, lasts=True),
    "renamed directory": Kind(2, says=r"folder_moved: .*/renamed"),
    # ends of processes
    "kill of a rank": rank_ends(8, 137),
    "kill of rank 0": rank_ends(6, 137),
    "segv of a rank": rank_ends(4, 139),
    "abort of a rank": rank_ends(2, 134),
    "kill of mpirun": Kind(6, (-9,), seconds=16, ends=True, loses_no_step=True),
    "INT twice to mpirun": Kind(3, (INT, 1, -11), seconds=16, ends=True, by_chance=True, loses_no_step=True),
    # another one takes over
    "kill of the writer": Kind(6, says=REPLACED % 9),
    "segv of the writer": Kind(3, says=REPLACED % 11),
    "kill of the fork server": Kind(2, says="fork_server_lost: the fork server.*was killed by signal 9"),
    "kill of writer and fork server": Kind(3, (STORAGE,), "(?s)checkpoint writer process was killed by signal 9.*fault: kind=writer code=75", 16, ends=True, at_once=True),
    "stop of a rank": Kind(3, (RANK_LOST,), SILENT, 18, ends=True, blames=True),
    "stop of rank 0": Kind(3, (RANK_LOST,), SILENT, 18, ends=True, blames=True),
    "stop of the writer": Kind(2, (STORAGE,), STOPPED_WRITER, by_chance=True),
    "frozen rank": Kind(2, (RANK_LOST,), FROZEN, 18, ends=True, blames=True),
    "stuck rank": Kind(1, (STUCK,), STUCK_RANK, 33, ends=True, blames=True, needs_strace=True),
    "TERM to a rank": signal_ends(4, 15, (TERM,), 16),
    "INT to a rank": signal_ends(3, 2, (INT,), 16),
    "HUP to a rank": signal_ends(2, 1, (HUP,), 16),
    # mpirun hands it on and kills the ranks a second later, so they may not get to say it; what they finished is saved all the same
    # mpirun 4.1 itself may crash: -11
    "TERM to mpirun": Kind(3, (TERM, 1, -11), SAVED_AND_ENDED % 15, 16, ends=True, by_chance=True, loses_no_step=True),
    "directory taken over": Kind(2, (LOCKED,), "run another on host far, process 7 has taken it over", 16, ends=True),
    # storage
    "ENOSPC in a save": call_fails("No space left on device"),
    "EIO in a save": call_fails("Input/output error"),
    "EDQUOT in a save": call_fails("Disk quota exceeded"),
    "EROFS in a save": call_fails("Read-only file system"),
    "failing rename": call_fails("Input/output error"),
    "file too large": Kind(2, (STORAGE,), FAILED_SAVE % "(File too large|H5F)", by_chance=True),
    "frozen disk": Kind(2, (STORAGE,), NOT_DURABLE, by_chance=True, needs_strace=True),
    "power loss": Kind(6, (-9, STORAGE), seconds=60, ends=True, needs_strace=True),
    # of the file system itself (test/support/slowfs), which fails a call of whoever comes
    "EIO of the disk": disk_fails("Input/output error"),
    "ENOSPC of the disk": disk_fails("No space left on device"),
    "disk that comes back": Kind(3, (0, STORAGE), NOT_DURABLE, by_chance=True, disk=True, lasts=True),
    "EIO of the data's disk": Kind(3, says=r"train: (rank \d+/\d+ on \S+: )?read \S+\.png: Input/output error \(errno 5\) at byte \d+; trying again", disk=True, data=True),
    # what happens to files between two runs
    "flipped byte": Kind(4, says=NOT_USED, between=True),
    "truncated file": Kind(4, says=NOT_USED, between=True),
    "deleted file": Kind(3, between=True),
    "swapped files": Kind(3, between=True),
    "stale temporary": Kind(3, says="removed {file}: left unfinished", between=True, removes=True),
    "planted link": Kind(3, says=NOT_USED + ".*a symbolic link is not followed here", between=True),
    "planted FIFO": Kind(2, says=NOT_USED + ".*not a regular file but a FIFO", between=True),
    "planted hostile file": Kind(2, says=NOT_USED, between=True),
    "nothing intact": Kind(2, (RESUME_IMPOSSIBLE,), "{file}: ", between=True),
    # a run under scripts/supervise, which starts it again after each of several faults
    "chain of restarts": Kind(3, between=True, chain=True, trains=True),
    # runs that are started wrongly
    "silent disk at the start": Kind(2, (STUCK,), SILENT_DISK, between=True, disk=True),
    "other options on a rank": Kind(3, (64,), OTHER_OPTIONS, between=True, blames=True),
    "second training": Kind(3, (INCOMPATIBLE,), "has checkpoints of lineage .* this training is of lineage", between=True),
    "infinite statistics": Kind(2, (NOT_FINITE,), INFINITE, between=True),
    "vanished checkpoints": Kind(3, (DATA,), "no checkpoint is seen", between=True, trains=True),
    "unreadable samples": Kind(2, (DATA,), "are unreadable, more than 0.1 %", between=True),
    # of the network, between hosts; mpirun may be the first to notice
    "healing link": Kind(4, network=True),
    "cut link of a host": Kind(4, ENDED_BY_MPIRUN, LOST_HOST, 18, ends=True, network=True),
    "cut link of rank 0": Kind(4, ENDED_BY_MPIRUN, LOST_HOST + r"|rank \d on \S+ has not been heard for \d\d+ s", 18, ends=True, network=True),
    "power loss of a host": Kind(4, ENDED_BY_MPIRUN, LOST_HOST, 18, ends=True, network=True),
    "power loss of rank 0": Kind(4, (-9,), seconds=18, ends=True, network=True),
}
HOST_KINDS = [name for name, kind in KINDS.items() if kind.network] + ["nothing", "kill of a rank", "kill of rank 0", "stop of a rank", "stop of rank 0", "lost connection"]
LOCAL_KINDS = [name for name, kind in KINDS.items() if not kind.network]
