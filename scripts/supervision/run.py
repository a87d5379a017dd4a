"""One run of a command, with signals handed on to it, and what it writes passed on and looked at."""
import fcntl
import os
import pty
import re
import signal
import subprocess
import termios
import threading
import time
import tty

KEPT_BYTES = 1 << 18  # of standard error: reports come last
# Words of src/metrics/log_text.cpp and src/train/checkpoint.
STEP = re.compile(rb"\bstep (\d+), (?:loss|evaluation)")
SAVED = re.compile(rb"\| checkpoint (\d+), |\bcheckpoint +step (\d+), |\bcheckpoint (?:is )?of step (\d+)(?: is durable|, [^\n]* ago)")
FINISHED = re.compile(rb"^trained \d+ steps", re.MULTILINE)
HANDED_ON = {signal.SIGTERM: signal.SIGTERM, signal.SIGINT: signal.SIGINT, signal.SIGHUP: signal.SIGTERM,
             signal.SIGUSR1: signal.SIGUSR1, signal.SIGUSR2: signal.SIGUSR2}
ENDED_EARLY = re.compile(rb"\bsignal \d+ \([^\n]*\): the run ends after step (\d+)")  # of src/train/training_run.cpp
LONGEST_WAIT_S = 1
LEAVE_S = 90  # 30 s more than --final-save-timeout for the last checkpoint and 60 s to leave, as the watchdog has it
SAME_WISH_S = 3  # as for train: `timeout` and others signal twice
GOES_ON = (signal.SIGUSR1, signal.SIGUSR2)


class Run:
    """Of a session of its own, so that Ctrl-C comes to it once: from here."""

    def __init__(self, words):
        self.began, self.seconds, self.code = time.monotonic(), 0.0, 0
        self.kept, self.finished, self.cut_short = b"", False, False
        self.step = self.saved = None  # the last ones that it has told of
        (out, its_out), (error, its_error) = stream_like(1), stream_like(2)
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=its_out, stderr=its_error, start_new_session=True)
        os.close(its_out)
        os.close(its_error)
        self.threads = [threading.Thread(target=self.relay, args=streams, daemon=True) for streams in ((out, 1), (error, 2))]
        before = signal.pthread_sigmask(signal.SIG_BLOCK, HANDED_ON)  # for the threads: signals are the main thread's
        for thread in self.threads:
            thread.start()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def relay(self, source, target):
        line = b""  # the last one, which may be cut
        for text in iter(lambda: read(source), b""):
            seen, line = line + text, (line + text)[-200:].rpartition(b"\n")[2]
            self.note(seen)
            self.finished = not self.cut_short and (self.finished or FINISHED.search(seen) is not None)
            if target == 2:
                self.kept = (self.kept + text)[-KEPT_BYTES:]
            write(target, text)
        os.close(source)

    def note(self, text):
        """Two threads do: what this text does not tell stays as it is."""
        for name, pattern in (("step", STEP), ("step", ENDED_EARLY), ("saved", SAVED)):
            for found in pattern.finditer(text):
                setattr(self, name, int(found[found.lastindex]))
        self.cut_short = self.cut_short or ENDED_EARLY.search(text) is not None

    @property
    def trained(self):
        return self.step is not None

    def wait(self, is_late=lambda: False):
        """What does not end once `is_late` says so is killed, with all of its process group: an mpirun may hang."""
        code = None
        while code is None:  # a signal that comes just before a wait is taken behind it, so none is long
            try:
                code = self.process.wait(timeout=LONGEST_WAIT_S)
            except subprocess.TimeoutExpired:
                if is_late():
                    os.killpg(self.process.pid, signal.SIGKILL)
        for thread in self.threads:
            thread.join(2)  # what outlives mpirun may hold its streams open
        self.seconds, self.code = time.monotonic() - self.began, 128 - code if code < 0 else code
        return self

    @property
    def text(self):
        return self.kept.decode(errors="replace")


def stream_like(target):
    """Both ends of a terminal where `target` is one, for the progress bar; else of a pipe."""
    if not os.isatty(target):
        return os.pipe()
    ours, its = pty.openpty()
    tty.setraw(its)
    fcntl.ioctl(its, termios.TIOCSWINSZ, fcntl.ioctl(target, termios.TIOCGWINSZ, bytes(8)))
    return ours, its


def read(source):
    try:
        return os.read(source, 1 << 16)
    except OSError:
        return b""  # a terminal that nobody writes to any more


def write(target, text):
    try:
        while text:
            text = text[os.write(target, text):]
    except OSError:
        pass  # who read it has gone: training goes on


class Signals:
    """Hands signals on to the run there is, or that comes next."""

    def __init__(self, last_save_s):
        self.longest_end_s = last_save_s + LEAVE_S
        self.current, self.starting, self.waiting, self.ended_by, self.code = None, False, [], "", 0
        self.ended_at, self.repeated = 0.0, False
        for number in HANDED_ON:
            if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
                signal.signal(number, self.take)

    def take(self, number, _frame):
        if number not in GOES_ON:
            again = bool(self.ended_by)
            self.ended_at = self.ended_at if again else time.monotonic()
            self.repeated = again and time.monotonic() - self.ended_at > SAME_WISH_S
            self.ended_by, self.code = signal.Signals(number).name, 128 + HANDED_ON[number]
            if again and not self.repeated:  # Ctrl-C pressed twice: at the second one, mpirun 4.1 leaves its ranks at once
                return
        if self.current or self.starting or self.ended_by:  # between runs, there is nothing to save
            self.waiting.append(HANDED_ON[number])
        self.hand_on()

    def hand_on(self):
        while self.current and self.waiting:
            self.current.process.send_signal(self.waiting.pop(0))

    def run(self, words):
        self.starting = True  # the command may run before Run() returns
        self.current = Run(words)
        self.starting = False
        self.hand_on()
        self.current.wait(self.is_late)
        run, self.current = self.current, None
        return run

    def is_late(self):
        return self.ended_by and time.monotonic() - self.ended_at > self.longest_end_s

    def sleep(self, seconds):
        """Unless the job is to end."""
        ends = time.monotonic() + seconds
        while not self.ended_by and time.monotonic() < ends:
            time.sleep(0.1)
