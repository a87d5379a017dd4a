#!/usr/bin/env python3
"""What checkpoints cost training, as Markdown tables: the stall of a save, the steps beside a writing
helper, its rate beside a plain O_DIRECT write, the same with a disk that is slow, full or frozen, and
the time of a resume, and of being ready to save. Everything comes from the metrics of `train` itself. Runs with and without saves
alternate; for disks that fail they take turns on one core, half a second each, --rounds blocks of 12 turns,
so that what else the machine does hits both.

  stall_table.py TRAIN [--models MODEL:BATCH:STEPS:EVERY ...] [--ranks N ...] [--rounds N]
                 [--dir DIR] [--slowfs PROGRAM] [--parts stall,faults,resume,ready] [--helper CLASS]

--helper sets the scheduling of the writing process from outside, to compare: nice0, nice10 (what it
takes itself), nice19, batch or idle. Full and frozen disks need root; what cannot run says why."""
import argparse, contextlib, json, mmap, os, pathlib, signal, statistics, struct, subprocess, sys, tempfile, time, zlib

MB = 1e6


def quantile(values, q):
    values = sorted(values)
    return values[min(len(values) - 1, int(q * len(values)))] if values else float("nan")


def row(*cells):
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def table(*titles):
    print()
    row(*titles)
    row(*["---"] * len(titles))


def child_named(pid, name):
    """The process of that name below `pid`, or None."""
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            with contextlib.suppress(OSError):
                if pathlib.Path(f"/proc/{child}/comm").read_text().strip() == name[:15]:
                    return int(child)
                found = child_named(int(child), name)
                if found:
                    return found
    return None


HELPER = {"nice0": ["renice", "-n", "0", "-p"], "nice10": ["renice", "-n", "10", "-p"],
          "nice19": ["renice", "-n", "19", "-p"], "batch": ["chrt", "-b", "-p", "0"], "idle": ["chrt", "-i", "-p", "0"]}


class Job:
    """One run of `train` and the metrics that it wrote."""

    def __init__(self, options, model, ranks, extra=(), started=lambda: None):
        name, batch, steps, every = model
        self.every = every if "--checkpoint-dir" in extra else 0
        with tempfile.TemporaryDirectory() as folder:
            metrics = pathlib.Path(folder) / "metrics.jsonl"
            command = [options.train, "--model", name, "--data", f"images:{options.data}", "--classes", "1000", "--lr", "1e-6", "--batch", str(batch), "--steps", str(steps),
                       "--log-every", "1", "--quiet", "--metrics", str(metrics), *extra]
            if ranks > 1:
                command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", str(ranks), *command]
            begin = time.monotonic()
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                self.prepare(process, metrics, options.helper, started)
                process.communicate()
            finally:
                process.kill()
            self.seconds, self.code = time.monotonic() - begin, process.returncode
            if self.code not in (0, 75):
                raise RuntimeError(f"train ended with exit code {self.code}")
            self.records = [json.loads(line) for line in metrics.read_text().splitlines()] if metrics.exists() else []

    @staticmethod
    def prepare(process, metrics, helper, started):
        while process.poll() is None and not (metrics.exists() and metrics.stat().st_size):
            time.sleep(0.01)
        writer = helper and child_named(process.pid, "ringtrain-writer")
        if writer:
            subprocess.run([*HELPER[helper], str(writer)], check=True, stdout=subprocess.DEVNULL)
        started()

    def of(self, kind):
        return [record for record in self.records if record["kind"] == kind]

    def steps(self):
        """Of each step without the warm-up: its seconds, those of the save in it (None: no save), and whether the helper
        was writing beside it."""
        writing, result = False, []
        for record in self.records:
            if record["kind"] == "step":
                saves = self.every and record["step"] % self.every == 0
                result.append((record["seconds_per_batch"], record["phases"]["checkpoint"] if saves else None, writing))
                writing = writing or saves
            elif record["kind"] == "checkpoint":
                writing = False
        return result[3:]


def write_images(folder):
    """256 pictures of two classes, and none to evaluate with: a run ends with its last step."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    side = 64
    pixels = b"".join(b"\0" + os.urandom(3 * side) for _ in range(side))
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)) \
        + chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b"")
    for i in range(256):
        path = pathlib.Path(folder) / "train" / f"class{i % 2}" / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png)


def checkpoint_options(directory, every):
    return ["--checkpoint-dir", str(directory), "--checkpoint-every", str(every), "--keep", "2", "--resume", "never"]


def plain_write(directory, size):
    """Seconds of a write of that many bytes with O_DIRECT, and fsync."""
    path, block = pathlib.Path(directory) / "yardstick", mmap.mmap(-1, 8 << 20)
    block.write(os.urandom(1 << 20) * 8)
    begin = time.monotonic()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_DIRECT, 0o600)
    os.posix_fallocate(file, 0, size)
    for _ in range(0, size, 8 << 20):
        os.write(file, block)
    os.fsync(file)
    os.close(file)
    seconds = time.monotonic() - begin
    path.unlink()
    return seconds


def stall(options):
    table("model", "ranks", "state, MB", "step without saves, ms: p50, p99", "plain step, p50, p99", "save step, p50, p99",
          "stall, p50, p99", "steps beside the helper / plain", "run with saves / without", "until durable, ms", "MB/s",
          "O_DIRECT, MB/s")
    for model in options.models:
        for ranks in options.ranks:
            without, plain, beside, saving, stalls, ratios, durable, direct, size = [], [], [], [], [], [], [], [], 0
            for _ in range(options.rounds):
                with tempfile.TemporaryDirectory(dir=options.dir) as folder:
                    bare = Job(options, model, ranks).steps()
                    job = Job(options, model, ranks, checkpoint_options(folder, model[3]))
                    steps = job.steps()
                    for record in job.of("checkpoint"):
                        size = record["bytes"]
                        durable.append(record["seconds"])
                        direct.append(plain_write(folder, size))
                without += [s for s, _, _ in bare]
                plain += [s for s, stall, busy in steps if stall is None and not busy]
                beside += [s for s, stall, busy in steps if stall is None and busy]
                saving += [s for s, stall, _ in steps if stall is not None]
                stalls += [stall for _, stall, _ in steps if stall is not None]
                ratios.append(statistics.fmean(s for s, _, _ in steps) / statistics.fmean(s for s, _, _ in bare))
            ms = lambda values: f"{1e3 * quantile(values, 0.5):.1f}, {1e3 * quantile(values, 0.99):.1f}"
            row(f"`{model[0]}`", ranks, f"{size / MB:.1f}", ms(without), ms(plain), ms(saving), ms(stalls),
                f"{quantile(beside, 0.5) / quantile(plain, 0.5):.3f}", f"{statistics.median(ratios):.3f}",
                f"{1e3 * quantile(durable, 0.5):.0f}", f"{size / MB / quantile(durable, 0.5):.0f}",
                f"{size / MB / quantile(direct, 0.5):.0f}")


def ready(options):
    """What it costs to be ready to save at any moment: a folder, and no save before the end."""
    table("model", "ranks", "median step without a folder, ms", "with a folder / without: median", "least", "most")
    for model in options.models:
        for ranks in options.ranks:
            without, ratios = [], []
            for turn in range(options.rounds):
                medians = {}
                for with_folder in (turn % 2 == 0, turn % 2 == 1):
                    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
                        extra = checkpoint_options(folder, 10 * model[2]) if with_folder else []
                        medians[with_folder] = statistics.median(s for s, _, _ in Job(options, model, ranks, extra).steps())
                without.append(medians[False])
                ratios.append(medians[True] / medians[False])
            row(f"`{model[0]}`", ranks, f"{1e3 * statistics.median(without):.2f}", f"{statistics.median(ratios):.4f}", f"{min(ratios):.4f}", f"{max(ratios):.4f}")


@contextlib.contextmanager
def slow_disk(options, faults):
    """A directory behind slowfs, and a function that lets the faults begin."""
    if not options.slowfs:
        raise RuntimeError("no --slowfs (it is built where libfuse3 is)")
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        backing, mount, file = (pathlib.Path(folder) / name for name in ("backing", "mount", "faults"))
        backing.mkdir(), mount.mkdir()
        process = subprocess.Popen([options.slowfs, backing, mount, file], stderr=subprocess.DEVNULL)
        try:
            for _ in range(100):
                if mount.is_mount() or process.poll() is not None:
                    break
                time.sleep(0.02)
            if not mount.is_mount():
                raise RuntimeError("no FUSE file system can be mounted here")
            yield mount, lambda: file.write_text(faults)
        finally:
            file.unlink(missing_ok=True)
            process.terminate()
            process.wait()


@contextlib.contextmanager
def mounted(folder, *arguments):
    done = subprocess.run(["mount", *arguments, folder], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError("mount: " + done.stderr.strip())
    try:
        yield pathlib.Path(folder)
    finally:
        for _ in range(50):  # a helper may hold it for a moment yet
            if subprocess.run(["umount", folder], capture_output=True).returncode == 0:
                break
            time.sleep(0.2)


@contextlib.contextmanager
def full_disk(options, size):
    with tempfile.TemporaryDirectory() as folder, \
            mounted(folder, "-t", "tmpfs", "-o", f"size={int(2.2 * size + 8 * MB)}", "tmpfs") as disk:
        def fill():
            with contextlib.suppress(OSError), open(disk / "filler", "wb", buffering=0) as file:
                while True:
                    file.write(bytes(64 << 10))
        yield disk, fill


@contextlib.contextmanager
def frozen_disk(options, size):
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        image, mount = f"{folder}/image", f"{folder}/mount"
        os.mkdir(mount)
        with open(image, "wb") as file:
            file.truncate(int(4 * size + 64 * MB))
        subprocess.run(["mkfs.ext4", "-q", image], check=True, capture_output=True)
        with mounted(mount, "-o", "loop", image) as disk:
            thaw = lambda: subprocess.run(["fsfreeze", "-u", mount], capture_output=True)
            try:
                yield disk, lambda: subprocess.run(["fsfreeze", "-f", mount], check=True)
            finally:
                thaw()


def faults(options):
    table("model", "disk", "step / step of a run without saves: median of blocks ± standard error (least to most)", "saved",
          "not saved", "exit code after SIGTERM", "seconds from SIGTERM to the end")
    for model in options.models:
        with tempfile.TemporaryDirectory(dir=options.dir) as folder:
            trial = Job(options, (*model[:2], 1, 1), 1, checkpoint_options(folder, 1))
            size = trial.of("checkpoint")[-1]["bytes"]
        disks = {"none: no saves": lambda: contextlib.nullcontext((None, lambda: None)),
                 "sound": lambda: sound_disk(options),
                 "1 MB/s": lambda: slow_disk(options, "rate 1000000\n"), "full": lambda: full_disk(options, size),
                 "hangs (FUSE)": lambda: slow_disk(options, "hang any\n"), "frozen (ext4)": lambda: frozen_disk(options, size)}
        for name, disk in disks.items():
            if options.disks and not name.startswith(tuple(options.disks)):
                continue
            try:
                faulty(options, model, name, disk)
            except (RuntimeError, OSError, subprocess.CalledProcessError) as reason:
                print(f"skipped: {model[0]} with a disk that is {name}: {reason}", flush=True)


@contextlib.contextmanager
def sound_disk(options):
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        yield folder, lambda: None


class Turns:
    """Two trainings on one core that run in turn, half a second each, until both had theirs: what else the machine does
    hits both alike. A job stops with its helper, whose work counts as the job's own."""

    def __init__(self, options, model, extras):
        self.folder = tempfile.TemporaryDirectory()
        self.metrics = [pathlib.Path(self.folder.name) / f"{i}.jsonl" for i in range(2)]
        self.jobs = [self.launch(options, model, *job) for job in zip(self.metrics, extras)]

    @staticmethod
    def launch(options, model, metrics, extra):
        command = ["taskset", "-c", "0", options.train, "--model", model[0], "--data", f"images:{options.data}", "--classes", "1000",
                   "--lr", "1e-6", "--batch", str(model[1]), "--steps", "200000", "--log-every", "1", "--quiet", "--metrics", str(metrics), *extra]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)

    def records(self, job, kind):
        return [r for r in map(json.loads, self.metrics[job].read_text().splitlines()) if r["kind"] == kind]

    def steps(self, job):
        return self.metrics[job].read_text().count('"kind":"step"') if self.metrics[job].exists() else 0

    def signal(self, job, number):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.jobs[job].pid, number)

    def wait_for_steps(self, count):
        while min(self.steps(0), self.steps(1)) < count:
            if any(job.poll() is not None for job in self.jobs):
                raise RuntimeError("train ended before its time")
            time.sleep(0.05)

    def ratios(self, blocks, turns):
        """Of each block: steps of the second in its turns / steps of the first in its own."""
        self.signal(0, signal.SIGSTOP), self.signal(1, signal.SIGSTOP)
        result = []
        for _ in range(blocks):
            before = [self.steps(job) for job in range(2)]
            for turn in range(turns):
                for job in ((0, 1) if turn % 2 else (1, 0)):
                    self.signal(job, signal.SIGCONT)
                    time.sleep(0.5)
                    self.signal(job, signal.SIGSTOP)
            done = [self.steps(job) - before[job] for job in range(2)]
            result.append(done[1] / done[0])
        return result

    def end(self):
        """Exit code of the second job, and the seconds that it took to end."""
        self.signal(0, signal.SIGKILL), self.signal(1, signal.SIGCONT)
        os.kill(self.jobs[1].pid, signal.SIGTERM)
        begin = time.monotonic()
        code = self.jobs[1].wait()
        return code, time.monotonic() - begin

    def close(self):
        for job in range(2):
            self.signal(job, signal.SIGKILL)
            self.jobs[job].wait()
        self.folder.cleanup()


def faulty(options, model, name, disk):
    with disk() as (directory, begin):
        extra = [*checkpoint_options(directory, model[3]), "--final-save-timeout", "5"] if directory else []
        with contextlib.closing(Turns(options, model, [[], extra])) as turns:
            turns.wait_for_steps(5)
            begin()
            blocks = turns.ratios(options.rounds, 12)
            saved = len(turns.records(1, "checkpoint"))
            failed = sum(event["what"] == "save_failed" for event in turns.records(1, "event"))
            code, seconds = turns.end()
    slower = [1 / ratio for ratio in blocks]
    error = statistics.stdev(slower) / len(slower) ** 0.5
    row(f"`{model[0]}`", name, f"{statistics.median(slower):.3f} ± {error:.3f} ({min(slower):.3f} to {max(slower):.3f})", saved, failed,
        code, f"{seconds:.1f}")


def resume(options):
    table("model", "ranks", "state, MB", "one step from scratch, s", "one step after a resume, s", "resume, s")
    for model in options.models:
        for ranks in options.ranks:
            fresh, resumed = [], []
            with tempfile.TemporaryDirectory(dir=options.dir) as folder:
                Job(options, (*model[:2], 1, 1), ranks, checkpoint_options(folder, 1))
                file = next(pathlib.Path(folder).glob("step-*.h5"))
                for _ in range(options.rounds):
                    fresh.append(Job(options, (*model[:2], 1, 1), ranks).seconds)
                    resumed.append(Job(options, (*model[:2], 2, 1), ranks, ["--resume", str(file)]).seconds)
                size = file.stat().st_size
            differences = [b - a for a, b in zip(fresh, resumed)]
            row(f"`{model[0]}`", ranks, f"{size / MB:.1f}", f"{statistics.median(fresh):.2f}",
                f"{statistics.median(resumed):.2f}", f"{statistics.median(differences):.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train")
    parser.add_argument("--models", nargs="+", default=["cifar10_cnn:64:120:20", "resnet20:64:80:20", "resnet50:1:16:4"])
    parser.add_argument("--ranks", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", default=".", help="a folder of the disk to measure")
    parser.add_argument("--slowfs", help="build/.../slowfs")
    parser.add_argument("--disks", nargs="+", help="only those whose names start so")
    parser.add_argument("--parts", default="stall,faults,resume")
    parser.add_argument("--helper", choices=HELPER)
    options = parser.parse_args()
    options.train, options.dir = os.path.abspath(options.train), os.path.abspath(options.dir)
    options.models = [(name, int(batch), int(steps), int(every))
                      for name, batch, steps, every in (model.split(":") for model in options.models)]
    with tempfile.TemporaryDirectory() as options.data:
        write_images(options.data)
        for part in options.parts.split(","):
            {"stall": stall, "ready": ready, "faults": faults, "resume": resume}[part](options)


if __name__ == "__main__":
    sys.exit(main())
