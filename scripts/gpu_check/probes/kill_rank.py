"""kill_rank.py METRICS SECONDS MPIRUN...: starts a job that writes METRICS, kills one of its ranks once it trains, and reports after how
many seconds the job ended, how, and with which words."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

metrics, patience_s, command = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]


def descendants(process):
    """Process ids below `process`, with their names."""
    children = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        name, rest = text[text.index("(") + 1:text.rindex(")")], text[text.rindex(")") + 2:].split()
        children.setdefault(int(rest[1]), []).append((int(stat.parent.name), name))
    found, queue = [], [process]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += [pid for pid, _ in below]
    return found


def ranks_below(process):
    """The `train` processes below it that are no other one's child: rank 0's helper bears the same name."""
    named = [pid for pid, name in descendants(process) if name == "train"]
    helpers = {pid for parent in named for pid, _ in descendants(parent)}
    return sorted(set(named) - helpers)


def alive(pid):
    """Dead ones may stay listed, as zombies, where nobody waits for them."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def trains():
    return metrics.is_file() and '"kind":"step"' in metrics.read_text()


def wait_until(condition, seconds):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


with tempfile.TemporaryFile("w+") as output:
    job = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
    started = wait_until(lambda: trains() or job.poll() is not None, patience_s) and job.poll() is None
    ranks = ranks_below(job.pid)
    names = [name for _, name in descendants(job.pid)]
    if started and ranks:
        os.kill(ranks[-1], signal.SIGKILL)
    begun = time.monotonic()
    ended = wait_until(lambda: job.poll() is not None, patience_s) if started and ranks else False
    seconds = time.monotonic() - begun
    wait_until(lambda: not any(map(alive, ranks)), 2)
    left = [pid for pid in ranks if alive(pid)]
    if not ended:
        job.terminate()
        wait_until(lambda: job.poll() is not None, 5)
        job.kill()
    output.seek(0)
    words = [line.strip() for line in output if line.strip(" -\n")]
print(*words[-30:], sep="\n")
print("RESULT " + json.dumps({"started": started, "ranks": len(ranks), "ended": ended, "seconds": seconds, "code": job.wait(),
                              "left": len(left), "processes": names, "words": " | ".join(words[-30:])[-2000:]}))
