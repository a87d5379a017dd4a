"""What will happen in a trial: a pure function of the seed and the trial's number."""
import random
from dataclasses import asdict, dataclass

from kinds import KINDS

STEPS, SAVE_EVERY = 200, 10


@dataclass(frozen=True)
class Fault:
    kind: str
    step: int  # not before this one is done
    in_save: bool  # and then within a save, if one comes
    rank: int
    number: int  # whatever else is to be chosen

    def __str__(self):
        where = "before the next run" if KINDS[self.kind].between else f"after step {self.step}" + ", in a save" * self.in_save
        return f"{self.kind} (rank {self.rank}, {self.number}) {where}"


@dataclass(frozen=True)
class Plan:
    seed: int
    trial: int
    damaged_sample: bool  # in the training data, from the first run on
    faults: tuple
    disk: str = ""  # of the checkpoints: "" the host's, else a kind of slowfs

    def as_record(self):
        return asdict(self)


DISKS = ("", "", "sound", "without locks", "late names")
INTERRUPTIONS = ("kill of a rank", "kill of rank 0", "kill of mpirun", "TERM to a rank")


def plan_of(seed, trial, ranks, kinds):
    """`kinds`: those to choose from, by their weights. Before files are harmed, a run is interrupted, so that there are some. A chain
    of restarts trains to the end: it is its trial's only fault."""
    dice = random.Random(f"{seed}/{trial}")
    names = dice.choices(kinds, [KINDS[name].weight for name in kinds], k=dice.choice((1, 1, 2, 2, 3)))
    names = [name for name in names if KINDS[name].chain][:1] or names
    if KINDS[names[0]].between and not KINDS[names[0]].trains:
        names.insert(0, dice.choice(INTERRUPTIONS))
    steps = sorted(dice.randrange(STEPS // 20, STEPS * 3 // 4) for _ in names)

    def fault(name, step):
        rank = 0 if name.endswith("rank 0") else dice.randrange(1, ranks)
        return Fault(name, step, dice.random() < 0.4, rank, dice.getrandbits(30))

    damaged_sample, faults = dice.random() < 0.1, tuple(map(fault, names, steps))
    disk = dice.choice(DISKS) if any(KINDS[name].disk for name in kinds) else ""
    if not disk and any(KINDS[name].disk and not KINDS[name].data for name in names):
        disk = "sound"
    return Plan(seed, trial, damaged_sample, faults, disk)
