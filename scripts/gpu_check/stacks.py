"""Where a process that hangs stands: the stacks of its threads, of the processes below it, too."""
import shutil
import subprocess
from pathlib import Path

DEBUGGERS = ("gdb", "cuda-gdb")
LIMIT_S, MOST = 10, 2  # of a process, and so many of them


def below(process):
    """Its children and theirs, by their threads' lists."""
    found = []
    for children in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            pids = children.read_text().split()
        except OSError:
            continue
        for pid in map(int, pids):
            found += [pid, *below(pid)]
    return found


def waits(process):
    """What each thread waits for in the kernel."""
    lines = []
    for task in sorted(Path(f"/proc/{process}/task").glob("*")):
        try:
            lines.append(f"  thread {task.name} {(task / 'comm').read_text().strip()}: {(task / 'wchan').read_text().strip()}")
        except OSError:
            continue
    return "\n".join(lines)


def of_one(process):
    debugger = next(filter(None, map(shutil.which, DEBUGGERS)), None)
    if debugger is None:
        return f"process {process} (no gdb here):\n{waits(process)}"
    try:
        done = subprocess.run([debugger, "-batch", "-nx", "-p", str(process), "-ex", "thread apply all backtrace 25"], capture_output=True,
                              text=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return f"process {process}: {debugger} did not answer\n{waits(process)}"
    return f"process {process}:\n{done.stdout[-20000:]}"


def of(process):
    """As text, of the last ones below `process`, or of itself; few, because each takes time."""
    return "\n".join(of_one(pid) for pid in [process, *below(process)][-MOST:])
