"""watch_memory.py METRICS TRAIN...: runs a training job that writes METRICS and reports, about twice a second, the GPU's used memory and
the trainer's own, in MiB, with the step it had reached."""
import json
import subprocess
import sys
import time
from pathlib import Path

metrics, command = Path(sys.argv[1]), sys.argv[2:]
QUERY = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]


def step_reached():
    steps = [line for line in metrics.read_text().splitlines()[-3:] if '"kind":"step"' in line] if metrics.is_file() else []
    try:
        return json.loads(steps[-1])["step"]
    except (IndexError, ValueError):
        return 0


def gpu_mib():
    try:
        return int(subprocess.run(QUERY, capture_output=True, text=True, timeout=10).stdout.split()[0])
    except (OSError, IndexError, ValueError, subprocess.TimeoutExpired):
        return None


def host_mib(process):
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * 4096 / 2**20
    except (OSError, IndexError):
        return None


job = subprocess.Popen(command, stdin=subprocess.DEVNULL)
samples = []
while job.poll() is None:
    step = step_reached()  # before the readings: what they show was there at this step
    samples.append({"step": step, "gpu": gpu_mib(), "host": host_mib(job.pid)})
    time.sleep(0.4)
print("RESULT " + json.dumps({"samples": [s for s in samples if s["host"] is not None]}))
sys.exit(job.returncode)
