"""What happens to files between two runs, and runs that are started wrongly: DAMAGE and ODD_RUNS."""
import os
import pathlib

from strikes import TooLate


def checkpoints(directory):
    """Newest first; regular files that have bytes."""
    files = [file for file in directory.glob("step-*.h5") if not file.is_symlink() and file.is_file() and file.stat().st_size > 0]
    return sorted(files, reverse=True)


def newest(directory):
    for file in checkpoints(directory):
        return file
    raise TooLate()


def flip(directory, fault):
    file = newest(directory)
    data = bytearray(file.read_bytes())
    data[fault.number % len(data)] ^= 1 << fault.number // 64 % 8
    file.write_bytes(data)
    return [file.name]


def truncate(directory, fault):
    file = newest(directory)
    os.truncate(file, fault.number % os.path.getsize(file))
    return [file.name]


def truncate_all(directory, fault):
    newest(directory)
    files = checkpoints(directory)
    for file in files:
        os.truncate(file, fault.number % os.path.getsize(file))
    return [file.name for file in files]


def delete(directory, fault):
    newest(directory).unlink()
    return []


def swap(directory, fault):
    files = checkpoints(directory)
    if len(files) < 2:
        raise TooLate()
    files[0].rename(directory / "aside")
    files[1].rename(files[0])
    (directory / "aside").rename(files[1])
    return []


def leave_temporary(directory, fault):
    file = directory / f".step-{fault.number % 200:010}.h5.tmp"
    file.write_bytes(os.urandom(fault.number % 10_000))
    return [file.name]


def planted_name(directory, fault):
    """Newer than any, so that it is looked at first."""
    return directory / f"step-{10**6 + fault.number % 10**6:010}.h5"


def plant_link(directory, fault):
    planted_name(directory, fault).symlink_to(newest(directory).name)
    return [planted_name(directory, fault).name]


def plant_fifo(directory, fault):
    newest(directory)
    os.mkfifo(planted_name(directory, fault))
    return [planted_name(directory, fault).name]


def plant_hostile(directory, fault):
    """A checkpoint of a kilobyte, whose header speaks of more than there is."""
    head = bytearray(newest(directory).read_bytes()[:1024])
    first = 8 + fault.number % 56
    head[first : first + 16] = b"\xff" * 16
    planted_name(directory, fault).write_bytes(head)
    return [planted_name(directory, fault).name]


# Each takes the directory of checkpoints, in which no job works, and returns the names that are no good any more.
DAMAGE = {
    "flipped byte": flip,
    "truncated file": truncate,
    "deleted file": delete,
    "swapped files": swap,
    "stale temporary": leave_temporary,
    "planted link": plant_link,
    "planted FIFO": plant_fifo,
    "planted hostile file": plant_hostile,
    "nothing intact": truncate_all,
}


def other_options(setting, options, fault):
    """On one rank: mpirun with one group of ranks before it, it, and one behind."""
    odd = [*options, *(("--lr", "0.07"), ("--seed", "6"), ("--steps", "150"))[fault.number % 3]]
    command = setting.command(*options)
    start = command.index(str(setting.train))
    groups = [(fault.rank, options), (1, odd), (setting.ranks - 1 - fault.rank, options)]
    command = command[:start]
    del command[command.index("-np") : command.index("-np") + 2]
    for ranks, of in groups:
        if ranks > 0:
            command += [*([":"] if ":" in command or str(setting.train) in command else []), "-np", str(ranks), str(setting.train), *of]
    return command


def elsewhere(options):
    """A directory of checkpoints beside the training's."""
    return pathlib.Path(options[options.index("--checkpoint-dir") + 1]).parent / "elsewhere"


def unreadable_samples(setting, options, fault):
    return setting.command(*setting.options(elsewhere(options), setting.broken_data))


def infinite_statistics(setting, options, fault):
    """Loss and gradients are finite for long."""
    return setting.command(*setting.options(elsewhere(options)), "--data", "shapes", "--batch", "64", "--lr", "1000000", "--steps", "1500")


def second_training(setting, options, fault):
    return setting.command(*options, "--resume", "never")


def impatient(setting, options, fault):
    """With 4 s for what needs an answer from a disk, as only watched_train has it, in place of 60."""
    return ["env", "START_LIMIT_S=4", *setting.command(*options)]


# Commands of runs that must fail by themselves; a disk is silent meanwhile.
ODD_RUNS = {
    "second training": second_training,
    "other options on a rank": other_options,
    "infinite statistics": infinite_statistics,
    "unreadable samples": unreadable_samples,
    "silent disk at the start": impatient,
}
