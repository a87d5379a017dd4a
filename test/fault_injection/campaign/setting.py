"""What is trained in every trial, and what an undisturbed run of it comes to."""
import collections
import pathlib
import random
import re
import struct
import subprocess
import zlib

from job import Job
from plan import SAVE_EVERY, STEPS

HERE = pathlib.Path(__file__).parent
KEEP = 3  # checkpoints
IMAGES, SIDE, CLASSES = 1000, 24, "abcd"


def png(dice):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + dice.randbytes(3 * SIDE) for _ in range(SIDE))
    header = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b"")


def make_images(folder, unreadable):
    """The same images each time; every `unreadable`-th ends after 100 bytes, 0: none."""
    dice = random.Random(1)
    for i in range(IMAGES):
        file = folder / "train" / CLASSES[i % len(CLASSES)] / f"{i:04}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        image = png(dice)
        file.write_bytes(image[:100] if unreadable and i % unreadable == unreadable // 2 else image)


class Setting:
    """Data of one kind and its reference run; prepare() makes both."""

    def __init__(self, folder, train, ranks, hosts, slowfs, unreadable, broken_data):
        self.folder, self.train, self.ranks, self.hosts, self.slowfs, self.unreadable = folder, train, ranks, hosts, slowfs, unreadable
        self.data, self.broken_data = folder / "images", broken_data
        self.hashes, self.references, self.samples = {}, [], None

    def options(self, directory, data=None):
        return ["--model-file", str(HERE / "network.model"), "--data", f"images:{data or self.data}", "--batch", "16", "--steps", str(STEPS), "--threads", "1",
                "--data-threads", "1", "--log-every", "1", "--optimizer", "momentum", "--ema", "0.99", "--seed", "5", "--checkpoint-dir", str(directory),
                "--checkpoint-every", str(SAVE_EVERY), "--keep", str(KEEP), "--final-save-timeout", "10s", "--metrics", "METRICS"]

    def command(self, *options):
        """Later options win."""
        if self.hosts:
            return [*self.hosts.mpirun(), str(self.train), *options]
        return ["mpirun", "-np", str(self.ranks), "--oversubscribe", "--bind-to", "none", str(self.train), *options]

    def prepare(self):
        if not self.references:
            make_images(self.data, self.unreadable)
            self.train_references()

    def train_references(self):
        """Until all steps are known at which trials save by plan: a save is left out while another one is under way."""
        for every in (1, *[SAVE_EVERY] * 11):  # of some seconds each; on a busy machine, most saves are left out
            self.train_reference(every)
            if not (missing := [step for step in range(SAVE_EVERY, STEPS + 1, SAVE_EVERY) if not self.hash_at(step)]):
                return
        raise SystemExit(f"no undisturbed run saved steps {missing}")

    def train_reference(self, every):
        directory = self.folder / f"checkpoints{len(self.references)}"
        options = self.options(directory)
        options[options.index("--checkpoint-every") + 1], options[options.index("--keep") + 1] = str(every), str(STEPS)
        with Job(self.command(*options), self.folder, -len(self.references)) as job:
            code, _ = job.ends(120)
            if code != 0:
                raise SystemExit(f"the undisturbed run ended with {code}:\n{job.log()}")
            self.samples = samples_of(job.base)
        self.references.append(directory)

    def hash_at(self, step):
        """Of the undisturbed run's state; None if none of them was saved at that step."""
        for directory in self.references:
            file = directory / f"step-{step:010}.h5"
            if step not in self.hashes and file.exists():
                self.hashes[step] = self.inspect(file)[1]
        return self.hashes.get(step)

    def inspect(self, file):
        """(step, hash of the state, ""), or (None, None, what is wrong)."""
        result = subprocess.run([self.train, "--inspect", str(file)], capture_output=True, text=True, timeout=60)
        said = dict(re.findall(r"^(step|state-hash) +(\S+)", result.stdout, re.M))
        if result.returncode != 0:
            return None, None, result.stderr.strip()
        return int(said["step"]), said["state-hash"], ""


def samples_of(base):
    """step -> those trained on in a run, of all ranks, as "EPOCH SAMPLE"; None if the program does not tell (watched_train does)."""
    steps = collections.defaultdict(list)
    files = list(base.parent.glob(base.name + ".samples.*"))
    for file in files:
        for line in file.read_text().split("\n")[:-1]:
            step, sample = line.split(" ", 1)
            steps[int(step)].append(sample)
    return {step: sorted(of) for step, of in steps.items()} if files else None
