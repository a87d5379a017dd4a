"""What this machine and this checkout have, and how our programs are started here."""
import functools
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
IF_KNOWN = ("--autotune",)  # options that a build may not have, and whose lack changes speed only
GPU_TESTS = ("test_cuda_gpu",)


def find_runtime(environment=os.environ):
    """The carried runtime of scripts/gpu_bundle.sh, if there is one."""
    for folder in (environment.get("RINGTRAIN_RUNTIME"), ROOT / "runtime"):
        if folder and (Path(folder) / "env.sh").is_file():
            return Path(folder).resolve()
    return None


def find_build(runtime):
    """The carried executables, else this checkout's own build (which may not be there yet)."""
    if runtime and (runtime / "build/release/train").is_file():
        return runtime / "build/release"
    return ROOT / "build/release"


class Place:
    """`out` is an empty folder for logs and results. A rehearsal runs the same commands on the CPU
    at toy sizes: it proves the script and says nothing about a GPU."""

    def __init__(self, out, rehearse=False):
        self.out, self.rehearse = Path(out), rehearse
        self.runtime = find_runtime()
        self.build = find_build(self.runtime)

    # ---- what is here ----
    def gpus(self):
        """Names of the GPUs; an empty list without a driver."""
        try:
            done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30)
        except (OSError, subprocess.TimeoutExpired):
            return []
        return [line for line in done.stdout.splitlines() if line.startswith("GPU ")]

    def executable(self, name):
        """A built program; where it would be, when it is not there. The newest: where a folder has moved, a build keeps the one before."""
        found = [f for f in self.build.glob(f"**/{name}") if f.is_file() and os.access(f, os.X_OK)]
        return max(found, key=lambda f: f.stat().st_mtime, default=self.build / name)

    def ctest(self):
        """Whether ctest knows the tests: the build folder was configured for this checkout."""
        cache = self.build / "CMakeCache.txt"
        return shutil.which("ctest") is not None and cache.is_file() and \
            f"CMAKE_HOME_DIRECTORY:INTERNAL={ROOT}\n" in cache.read_text()

    def missing(self, need):
        """Why `need` cannot be used here; None if it can. Needs: torch, torchvision, compute-sanitizer,
        gpu, train, mpirun and the names of our programs."""
        if need in ("torch", "torchvision"):
            return None if importlib.util.find_spec(need) else f"python3 here has no {need}"
        if need == "gpu":
            return None if self.gpus() else "no GPU here"
        if need == "mpirun" and self.runtime:
            return None if (self.runtime / "bin/mpirun").exists() else "no mpirun in the runtime"
        if need in ("mpirun", "compute-sanitizer", "nvidia-smi"):
            return None if shutil.which(need) else f"{need} is not installed"
        return None if self.executable(need).is_file() else f"{need} is not built"

    @functools.cached_property
    def help(self):
        """What `train --help` prints; nothing while it is not built."""
        if self.missing("train"):
            return ""
        return subprocess.run(self.ours(self.executable("train"), "--help"), capture_output=True, text=True, timeout=30).stdout

    def lacking(self):
        """Those of IF_KNOWN that this build does not have."""
        return [option for option in IF_KNOWN if self.help and f"  {option} " not in self.help]

    # ---- how our programs are started ----
    def ours(self, *argv):
        """A command that uses the carried libraries. PyTorch must not see them."""
        words = tuple(str(word) for word in argv)
        if self.runtime:
            return ("bash", "-c", '. "$0/env.sh" && exec "$@"', str(self.runtime)) + words
        return words

    def train(self, *options, ranks=1, device="cuda", precision="fp32"):
        """`train` on the GPU, unless `device` says otherwise."""
        launcher = ("mpirun", "-np", ranks, "--oversubscribe") if ranks > 1 else ()
        where = ("--device", device, "--precision", precision)
        if ranks > 1:
            where += ("--allreduce", "nccl")
        if self.rehearse or device == "cpu":
            where = ("--device", "cpu")
            options = [o for o in options if o not in ("--deterministic", "--autotune", "--no-graph")]
        options = [o for o in options if o not in self.lacking()]
        return self.ours(*launcher, self.executable("train"), *where, *options)

    def size(self, real, toy):
        return toy if self.rehearse else real
