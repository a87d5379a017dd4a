#!/usr/bin/env python3
"""supervise_test.py SUPERVISE: scripts/supervise with an mpirun and a train that only play: each run takes the next line of a
script, `CODE [TEXT]`, and notes how it was called."""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SUPERVISE = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else "scripts/supervise").resolve()
sys.path.insert(0, str(SUPERVISE.parent))
sys.dont_write_bytecode = True
from supervision.checkpoints import seconds_of
from supervision.ending import Ending
from supervision.hosts import same_host

KILLED = "mpirun noticed that process rank 1 with PID 99 on node n{} exited on signal 9 (Killed)."
LOST_BY_5 = "PRTE has lost communication with a remote daemon. Remote daemon: [prterun-n0-11@0,1] on node n3"
FAULT = "fault: kind={} code={} rank=0 host=n0 step=7 resume=none{}"
SILENT = FAULT.format("rank_lost", 71, " how=silent ranks=3 hosts=n3")
WRITER = FAULT.format("writer", 75, ' how="was killed by signal 9 (Killed)"')

TRAIN = """#!/bin/sh
restarts=0 lost=false
while [ $# -gt 0 ]; do
  case $1 in --restarts) restarts=$2 ;; --without-lost-hosts) lost=true ;; --checkpoint-dir) echo "checkpoint-dir = \\"$2\\"" ;;
    --final-save-timeout) echo "final-save-timeout = $2" ;;
    --resume) echo "resume = \\"$2\\"" ;; --bad) exit 64 ;; esac
  shift
done
echo "restarts = $restarts
without-lost-hosts = $lost"
"""
MPIRUN = """#!/bin/bash
echo "$*" >>calls
read -r code text <<<"$(sed -n "$(wc -l <calls)p" script)"
[[ $text == wait ]] && { trap 'exit 1' TERM; trap 'echo USR1 >>calls; [ $code -ne 71 ] || exit 71' USR1; touch ready; for ((i = 0; i < 1000; i++)); do sleep 0.02; done; }
[[ $text == hang ]] && { trap '' TERM; touch ready; exec sleep 60; }
[[ $text == end* ]] && { trap 'echo "${text#end}" >&2; echo "trained 9 steps, 72 images in 1 s on 4 ranks"; exit $code' TERM; touch ready; for ((i = 0; i < 1000; i++)); do sleep 0.02; done; }
[[ $text == twice ]] && { trap 'echo TERM >>calls' TERM; trap 'echo INT >>calls' INT; echo "step 9, loss = 1"; touch ready; for ((i = 0; i < 40; i++)); do sleep 0.02; done; exit $code; }
[[ $text == vanish* ]] && { touch "saves/step-${text#vanish}.h5"; sleep 0.3; rm saves/*; text=; }
[[ $text == lose ]] && { rm -f saves/*.h5; text=; }
[[ $text == save* ]] && { touch "saves/step-${text#save}.h5"; text=; }
[[ $text == "step "* ]] && echo "$text"
[[ $text == "finished "* ]] && echo "trained 9 steps, 72 images in 1 s on 4 ranks"
[[ $text == file ]] && { cp "${*: -1}" seen; text=; }
echo "$text" >&2
[ "$code" -lt 128 ] || kill -$((code - 128)) $$
exit "$code"
"""


HOLDER = """import fcntl, pathlib, sys, time
lock = open("saves/lock", "w")
fcntl.lockf(lock, fcntl.LOCK_EX)
pathlib.Path("held").touch()
while not pathlib.Path("ready").exists(): time.sleep(0.01)
time.sleep(float(sys.argv[1]))
pathlib.Path("saves/last-save.txt").write_text("step: 7\\nresult: saved\\nfile: step-0000000007.h5\\nof: job\\n")
"""
FINISHING = """import fcntl, pathlib, sys, time
lock = open("saves/lock", "w")
lock.write("ringtrain lease 1 finishing\\n")
lock.flush()
fcntl.lockf(lock, fcntl.LOCK_EX)
pathlib.Path("held").touch()
time.sleep(float(sys.argv[1]))
"""
FAST = """import runpy, sys
names = runpy.run_path(sys.argv[1])
names["main"].__globals__.update(PAUSE_S=0, LOCK_PAUSE_S=0)
sys.modules["supervision.checkpoints"].LOOK_S = 0.01
sys.exit(names["main"](sys.argv[2:]))"""
SLOW = FAST.replace("PAUSE_S=0,", "PAUSE_S=60,")


class Playing(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        os.chdir(self.folder.name)
        self.addCleanup(os.chdir, "/")
        for name, text in (("train", TRAIN), ("mpirun", MPIRUN)):
            pathlib.Path(name).write_text(text)
            pathlib.Path(name).chmod(0o755)
        os.mkdir("saves")

    def play(self, script, words, code):
        """What the supervisor said; the runs' commands are in self.calls."""
        pathlib.Path("script").write_text("\n".join(script) + "\n")
        done = subprocess.run([sys.executable, "-c", FAST, SUPERVISE, *words.split()], capture_output=True, text=True, timeout=60)
        calls = pathlib.Path("calls")
        self.calls = calls.read_text().splitlines() if calls.exists() else []
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stderr

    def wait_for(self, happened):
        deadline = time.monotonic() + 60
        while not happened():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def test_a_lost_rank_starts_the_job_again_from_its_checkpoints(self):
        said = self.play(["137 " + KILLED.format(1), "0"], "./mpirun -np 4 ./train --restarts 2 --checkpoint-dir saves", 0)
        self.assertEqual(self.calls, ["-np 4 ./train --restarts 2 --checkpoint-dir saves --restarts 0"] * 2)
        self.assertIn("restart 1 of 2: rank 1 on n1 was ended by SIGKILL (exit code 137", said)
        self.assertIn("done after 1 restart", said)

    def test_restarts_are_counted_in_all(self):
        self.play(["71 step 1, loss"] * 5, "./mpirun -np 4 ./train --restarts 3", 71)
        self.assertEqual(len(self.calls), 4)

    def test_what_comes_again_is_not_started_again(self):
        for code in (1, 64, 70, 73, 143, 205):
            with self.subTest(code):
                pathlib.Path("calls").unlink(missing_ok=True)
                said = self.play([str(code), "0"], "./mpirun -np 4 ./train --restarts 2", code)
                self.assertEqual(len(self.calls), 1)
                self.assertIn("nothing that a restart cures", said)

    def test_the_kind_of_fault_decides_and_not_the_code(self):
        said = self.play(["75 " + WRITER, "0"], "./mpirun -np 4 ./train --restarts 2", 0)
        self.assertIn("restart 1 of 2: the checkpoint writer was killed by signal 9 (Killed) (exit code 75", said)
        for kind, code, of_mpirun in (("storage", 75, 75), ("data", 74, 74), ("nan", 76, 76), ("mismatch", 65, 65), ("checkpoint", 66, 66),
                                      ("usage", 64, 64), ("internal", 70, 70), ("storage", 75, 137), ("nan", 76, 72)):
            with self.subTest(kind):
                pathlib.Path("calls").unlink(missing_ok=True)
                said = self.play([f"{of_mpirun} {FAULT.format(kind, code, '')}", "0"], "./mpirun -np 4 ./train --restarts 2", of_mpirun)
                self.assertEqual(len(self.calls), 1)
                self.assertIn("nothing that a restart cures", said)

    def test_twice_alike_before_anything_was_trained_is_the_end(self):
        said = self.play(["139"] * 5, "./mpirun -np 4 ./train --restarts 4", 139)
        self.assertEqual(len(self.calls), 2)
        self.assertIn("twice in a row before anything was trained", said)

    def test_runs_that_save_have_trained(self):
        self.play(["139 save0000000001", "139 save0000000002", "139 save0000000003"], "./mpirun -np 4 ./train --restarts 2 --checkpoint-dir saves", 139)
        self.assertEqual(len(self.calls), 3)

    def test_a_directory_that_a_lost_rank_still_holds_is_tried_again(self):
        self.play(["71", "73", "73", "0"], "./mpirun -np 4 ./train --restarts 1 --checkpoint-dir saves", 0)
        self.assertEqual(len(self.calls), 4)

    def test_older_checkpoints_are_not_for_a_training_that_does_not_begin_with_them(self):
        pathlib.Path("saves/step-0000000900.h5").touch()
        self.play(["71 step 2, loss", "71 save0000000100", "0"], "./mpirun -np 4 ./train --restarts 2 --checkpoint-dir saves --resume old.h5", 0)
        self.assertTrue(self.calls[1].endswith("--restarts 0"))
        self.assertTrue(self.calls[2].endswith("--resume saves/step-0000000100.h5"))

    def test_the_newest_checkpoint_is_of_the_last_step_whatever_its_digits(self):
        script = ["71 save9999999999", "71 save10000000000", "0"]
        self.play(script, "./mpirun -np 4 ./train --restarts 2 --checkpoint-dir saves --resume old.h5", 0)
        self.assertTrue(self.calls[2].endswith("--resume saves/step-10000000000.h5"), self.calls)

    def test_a_silent_host_is_left_out_and_the_batch_kept(self):
        words = "./mpirun --host n0,n1,n2,n3 -np 4 --map-by node ./train --restarts 2 --without-lost-hosts"
        said = self.play(["71 " + SILENT, "0"], words, 0)
        self.assertEqual(self.calls[1], "-np 3 --host n0,n1,n2 --map-by node ./train --restarts 2 --without-lost-hosts --as-ranks 4 --restarts 0")
        self.assertIn("without n3, with 3 of 4 ranks", said)

    def test_no_host_is_left_out_for_a_lost_connection(self):
        lost = FAULT.format("rank_lost", 71, " how=disconnected ranks=1 hosts=n1")
        said = self.play([f"71 step 5, loss {lost}"] * 2 + ["0"], "./mpirun --host n0,n1 -np 2 ./train --restarts 3 --without-lost-hosts", 0)
        self.assertTrue(all("--host n0,n1" in call for call in self.calls), self.calls)
        self.assertIn("rank 1 on n1 has lost its connection", said)

    def test_a_host_on_which_a_process_dies_twice_is_left_out(self):
        script = [f"137 step 5, loss {KILLED.format(host)}" for host in (1, 2, 2)] + ["0"]
        self.play(script, "./mpirun -np 4 --host n0:2,n1:2,n2:2 ./train --restarts 3 --without-lost-hosts", 0)
        self.assertEqual(["--host n0:2,n1:2 " in call for call in self.calls], [False, False, False, True])

    def test_a_host_file_loses_the_lines_of_the_host(self):
        pathlib.Path("hosts").write_text("# ours\nn0 slots=2 max_slots=2\nn3.cluster.org slots=2\n")
        pathlib.Path("mpirun").write_text(MPIRUN.replace('"${*: -1}" seen', '"$4" seen'))
        self.play(["71 " + SILENT, "0 file"], "./mpirun --hostfile hosts -np 4 ./train --restarts 1 --without-lost-hosts", 0)
        self.assertEqual(pathlib.Path("seen").read_text(), "# ours\nn0 slots=2 max_slots=2\n")

    def test_signals_are_handed_on_and_end_it(self):
        pathlib.Path("script").write_text("1 wait\n0\n")
        job = subprocess.Popen([SUPERVISE, "./mpirun", "-np", "2", "./train", "--restarts", "3"], stderr=subprocess.PIPE, text=True)
        self.addCleanup(job.kill)
        self.wait_for(pathlib.Path("ready").exists)
        job.send_signal(signal.SIGUSR1)
        self.wait_for(lambda: "USR1" in pathlib.Path("calls").read_text())
        job.send_signal(signal.SIGTERM)
        _, said = job.communicate(timeout=60)
        self.assertEqual(job.returncode, 143)
        self.assertEqual(pathlib.Path("calls").read_text().count("./train"), 1)
        self.assertIn("SIGTERM: not started again", said)

    def test_a_signal_that_comes_while_the_run_starts_is_handed_on(self):
        pathlib.Path("script").write_text("1 wait\n0\n")
        slow_start = """import runpy, subprocess, sys, time
start = subprocess.Popen.__init__
def wait_then(self, *words, **named):
    start(self, *words, **named)
    if words[0][0] == "./mpirun": time.sleep(1)
subprocess.Popen.__init__ = wait_then
sys.exit(runpy.run_path(sys.argv[1])["main"](sys.argv[2:]))"""
        job = subprocess.Popen([sys.executable, "-c", slow_start, SUPERVISE, "./mpirun", "-np", "2", "./train", "--restarts", "3"],
                               stderr=subprocess.PIPE, text=True)
        self.addCleanup(job.kill)
        self.wait_for(pathlib.Path("ready").exists)
        job.send_signal(signal.SIGUSR1)
        self.wait_for(lambda: "USR1" in pathlib.Path("calls").read_text())
        job.send_signal(signal.SIGTERM)
        job.communicate(timeout=60)
        self.assertEqual(job.returncode, 143)

    def with_a_writer(self, seconds):
        """The job, ended while a process that plays its writer holds the directory for so long, and then says that it saved step 7."""
        pathlib.Path("saves").mkdir(exist_ok=True)
        writer = subprocess.Popen([sys.executable, "-c", HOLDER, str(seconds)])
        self.addCleanup(writer.wait)
        self.addCleanup(writer.kill)
        pathlib.Path("script").write_text("1 wait\n0\n")
        self.wait_for(pathlib.Path("held").exists)
        job = subprocess.Popen([SUPERVISE, "./mpirun", "-np", "2", "./train", "--checkpoint-dir", "saves"], stderr=subprocess.PIPE, text=True)
        self.addCleanup(job.kill)
        self.wait_for(pathlib.Path("ready").exists)
        job.send_signal(signal.SIGTERM)
        return job

    def test_the_last_save_of_killed_ranks_is_waited_for(self):
        job = self.with_a_writer(3)
        _, said = job.communicate(timeout=60)
        self.assertEqual(job.returncode, 143)
        self.assertIn("the writer saved step 7: step-0000000007.h5", said)

    def test_a_second_signal_ends_that_wait(self):
        job = self.with_a_writer(600)
        time.sleep(1)  # mpirun is over by then
        job.send_signal(signal.SIGINT)  # the same wish
        time.sleep(3)
        self.assertIsNone(job.poll())
        job.send_signal(signal.SIGINT)
        _, said = job.communicate(timeout=60)
        self.assertEqual(job.returncode, 130)
        self.assertNotIn("the writer saved", said)

    def ended(self, script, *options, before="", number=signal.SIGTERM):
        """What was said and the exit code of a job that gets a signal once it runs."""
        pathlib.Path("ready").unlink(missing_ok=True)
        pathlib.Path("calls").unlink(missing_ok=True)
        pathlib.Path("script").write_text(script + "\n0\n")
        start = f"import sys; sys.path.insert(0, {str(SUPERVISE.parent)!r}); import supervision.run; {before or 0}\n" + FAST
        job = subprocess.Popen([sys.executable, "-c", start, SUPERVISE, "./mpirun", "-np", "2", "./train", "--checkpoint-dir", "saves", *options],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(job.kill)
        self.wait_for(pathlib.Path("ready").exists)
        job.send_signal(number)
        return job.communicate(timeout=30)[1], job.returncode

    def test_of_two_signals_within_a_second_mpirun_gets_one(self):
        pathlib.Path("script").write_text("1 twice\n")
        job = subprocess.Popen([SUPERVISE, "./mpirun", "-np", "2", "./train", "--checkpoint-dir", "saves"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(job.kill)
        self.wait_for(pathlib.Path("ready").exists)
        job.send_signal(signal.SIGINT)
        self.wait_for(lambda: "INT" in pathlib.Path("calls").read_text() or job.poll() is not None)
        job.send_signal(signal.SIGINT)
        job.communicate(timeout=60)
        self.assertEqual(pathlib.Path("calls").read_text().count("INT"), 1)

    def test_an_end_by_a_signal_that_saved_nothing_has_a_code_of_its_own(self):
        said, code = self.ended("1 twice")
        self.assertEqual(code, 75)
        self.assertIn("step 9 was trained, but nothing is the newest that was saved in saves", said)
        pathlib.Path("saves/step-0000000009.h5").touch()
        self.assertEqual(self.ended("1 twice")[1], 143)
        shutil.rmtree("saves")  # as where only the ranks' host has it
        self.assertEqual(self.ended("1 twice")[1], 143)

    def test_a_run_that_a_signal_ended_has_not_trained_all(self):
        pathlib.Path("saves/step-0000000009.h5").touch()
        self.assertEqual(self.ended("1 endsignal 15 (Terminated): the run ends after step 9")[1], 143)
        self.assertEqual(self.ended("1 end")[1], 1)

    def test_a_last_save_that_failed_is_told_by_the_code(self):
        self.assertEqual(self.ended("1 end" + FAULT.format("storage", 75, ""))[1], 75)
        pathlib.Path("saves/step-0000000009.h5").touch()
        self.assertEqual(self.ended("1 endsignal 15 (Terminated): the run ends after step 9 " + SILENT)[1], 143)
        pathlib.Path("saves/last-save.txt").write_text("step: 7\nresult: failed\nwhy: No space left on device\nof: job\n")
        said, code = self.ended("1 wait")
        self.assertEqual(code, 75)
        self.assertIn("the writer failed step 7: No space left on device", said)

    def test_an_mpirun_that_hangs_is_killed_in_the_end(self):
        self.assertEqual(self.ended("0 hang", "--final-save-timeout", "1s", before="supervision.run.LEAVE_S = 0")[1], 143)

    def test_without_a_signal_the_last_save_is_waited_for_too(self):
        writer = subprocess.Popen([sys.executable, "-c", FINISHING, "1.5"])
        self.addCleanup(writer.wait)
        self.wait_for(pathlib.Path("held").exists)
        self.play(["137 x"], "./mpirun -np 4 ./train --checkpoint-dir saves", 137)
        self.assertIsNotNone(writer.poll())

    def test_checkpoints_that_are_out_of_sight_are_no_reason_to_begin_anew(self):
        said = self.play(["71 save0000000100", "71 lose", "0"], "./mpirun -np 4 ./train --restarts 2 --checkpoint-dir saves", 74)
        self.assertEqual(len(self.calls), 2)
        self.assertIn("no checkpoint is seen any more in saves", said)

    def test_what_a_run_said_that_it_saved_counts_as_seen(self):
        for word in ("step 400, loss = 1 (9 examples/sec) | checkpoint 350, 1.1 s old", "SIGUSR1: the checkpoint of step 350 is durable: step-0000000350.h5",
                     "rank 0: save_failed: no space; the last good checkpoint is of step 350, 95 s ago", "  checkpoint         step 350, 0.3 s old: step-0000000350.h5"):
            with self.subTest(word):
                pathlib.Path("calls").unlink(missing_ok=True)
                said = self.play([f"71 {word}", "0"], "./mpirun -np 4 ./train --restarts 2 --checkpoint-dir saves", 74)
                self.assertEqual(len(self.calls), 1)
                self.assertIn("no checkpoint is seen any more in saves of step 350 or later", said)
            pathlib.Path("saves/step-0000000100.h5").touch()  # as one that lies below a mount point

    def test_what_was_seen_while_a_silent_run_went_on_counts_too(self):
        self.play(["71 vanish0000000350", "0"], "./mpirun -np 4 ./train --restarts 2 --checkpoint-dir saves", 74)
        self.assertEqual(len(self.calls), 1)

    def test_a_directory_that_only_the_ranks_host_has_is_not_out_of_sight(self):
        self.play(["71 step 400, loss = 1 | checkpoint 350, 1.1 s old", "0"], "./mpirun -np 4 ./train --restarts 2 --checkpoint-dir elsewhere", 0)
        self.assertEqual(len(self.calls), 2)

    def test_a_name_that_leads_nowhere_does_not_hide_the_other_checkpoints(self):
        pathlib.Path("saves/step-0000000009.h5").symlink_to("nowhere")
        self.play(["71 save0000000100", "71 save0000000200", "0"], "./mpirun -np 4 ./train --restarts 2 --checkpoint-dir saves", 0)
        self.assertEqual(len(self.calls), 3)

    def test_help_is_passed_on(self):
        pathlib.Path("train").write_text("#!/bin/sh\necho help\n")
        self.play(["0 helped"], "./mpirun -np 2 ./train --help", 0)
        self.assertEqual(self.calls, ["-np 2 ./train --help"])

    def test_durations_are_those_of_train(self):
        for text, seconds in (("2m", 120), ("2m30s", 150), ("1h30m", 5400), ("90", 90), ("500ms", 0.5)):
            self.assertEqual(seconds_of(text), seconds)

    def test_a_signal_to_save_ends_nothing(self):
        pathlib.Path("script").write_text("71 wait\n\n0\n")  # the second line is the signal's
        job = subprocess.Popen([sys.executable, "-c", FAST, SUPERVISE, "./mpirun", "-np", "2", "./train", "--restarts", "1"], stderr=subprocess.PIPE)
        self.addCleanup(job.kill)
        self.wait_for(pathlib.Path("ready").exists)
        job.send_signal(signal.SIGUSR1)
        job.communicate(timeout=60)
        self.assertEqual(job.returncode, 0)

    def test_a_signal_between_two_runs_ends_it(self):
        pathlib.Path("script").write_text("71\n0\n")
        job = subprocess.Popen([sys.executable, "-c", SLOW, SUPERVISE, "./mpirun", "-np", "2", "./train", "--restarts", "3"], stderr=subprocess.PIPE, text=True)
        self.addCleanup(job.kill)
        for line in job.stderr:
            if "restart 1" in line:
                break
        job.send_signal(signal.SIGTERM)
        job.communicate(timeout=60)
        self.assertEqual(job.returncode, 71)
        self.assertEqual(len(pathlib.Path("calls").read_text().splitlines()), 1)

    def test_without_restarts_it_is_the_command(self):
        self.assertEqual(self.play(["5 hello"], "./mpirun -np 4 ./train", 5), "hello\n")

    def test_a_lost_host_is_no_good_end_though_mpirun_returns_0(self):
        words = "./mpirun -np 4 --host n0,n1,n2,n3 ./train --restarts 1 --without-lost-hosts"
        self.assertIn("host n3 does not answer (exit code 1 ", self.play(["0 " + LOST_BY_5, "0"], words, 0))
        self.assertIn("-np 3 --host n0,n1,n2", self.calls[1])

    def test_without_restarts_too(self):
        self.assertIn("host n3 does not answer", self.play(["0 " + LOST_BY_5], "./mpirun -np 4 ./train", 1))

    def test_a_host_that_is_lost_when_all_is_trained_is_none(self):
        self.play(["0 finished " + LOST_BY_5], "./mpirun -np 4 ./train --restarts 1", 0)
        self.assertEqual(len(self.calls), 1)

    def test_wrong_commands_are_not_begun(self):
        for words, why in (("./mpirun -np 4 hostname --restarts 2", "no train that can be run here"),
                           ("./mpirun -np 1 ./train --restarts 2 : -np 1 ./train", "differ"),
                           ("./mpirun -np 4 ./train --restarts 2 --without-lost-hosts", "--host or --hostfile"),
                           ("./mpirun --host a,b ./train --restarts 2 --without-lost-hosts", "-np N"),
                           ("env ./train --restarts 2 --without-lost-hosts", "env cannot"),
                           ("./mpirun -np 4 ./train --bad", "")):
            self.assertIn(why, self.play(["0"], words, 64))
            self.assertEqual(self.calls, [])


class Endings(unittest.TestCase):
    def ending(self, code, text):
        return Ending.of(code, text, 1, trained=True, finished=False)

    def test_mpirun_names_a_host_it_has_lost(self):
        text = "ORTE has lost communication with a remote daemon.\n\n  HNP daemon   : [[1,0],0] on node n0\n  Remote daemon: [[1,0],3] on node n3\n"
        for code in (1, 205):
            lost = self.ending(code, text)
            self.assertTrue(lost.curable)
            self.assertEqual((lost.kind, lost.hosts), ("silent", ["n3"]))
        self.assertFalse(self.ending(64, text).curable)

    def test_open_mpi_5_says_the_same_in_other_words(self):
        text = ("PRTE has lost communication with a remote daemon.\n\n  HNP daemon   : [prterun-n0-11@0,0] on node n0\n"
                "  Remote daemon: [prterun-n0-11@0,1] on node n3\n")
        for code in (1, 205, 255):
            lost = self.ending(code, text)
            self.assertTrue(lost.curable)
            self.assertEqual((lost.kind, lost.hosts), ("silent", ["n3"]))
        killed = self.ending(137, "prterun noticed that process rank 1 with PID 78 on node n2 exited on\nsignal 9 (Killed).\n")
        self.assertTrue(killed.curable)
        self.assertEqual((killed.kind, killed.hosts), ("dead", ["n2"]))
        self.assertIn("SIGKILL", killed.text)

    def test_a_verdict_may_blame_several_ranks_or_none(self):
        both = self.ending(72, "train: some words\n" + FAULT.format("stuck", 72, " how=stuck ranks=2,3 hosts=b,c") + "\n")
        none = self.ending(72, FAULT.format("stuck", 72, " how=stuck") + "\n")
        alone = self.ending(72, "[1,0]<stderr>:" + FAULT.format("stuck", 72, " how=stuck ranks=0 hosts=a") + "\n")
        rank_0 = self.ending(71, FAULT.format("rank_lost", 71, " how=dead ranks=0"))
        self.assertEqual((alone.kind, alone.hosts), ("stuck", ["a"]))
        self.assertEqual((both.kind, both.hosts), ("stuck", ["b", "c"]))
        self.assertEqual((none.kind, none.hosts), ("", []))
        self.assertIn("all ranks have waited", none.text)
        self.assertEqual((rank_0.kind, rank_0.hosts), ("dead", []))
        self.assertTrue(both.curable and none.curable and alone.curable and rank_0.curable)

    def test_the_first_line_counts_and_may_be_cut_off(self):
        first = self.ending(71, f"{SILENT}\n{FAULT.format('data', 74, '')}\n")
        self.assertEqual((first.fault, first.hosts), ("rank_lost", ["n3"]))
        cut = self.ending(75, WRITER[:-5])
        self.assertEqual(cut.fault, "writer")

    def test_sentences_do_not_decide(self):
        said = self.ending(75, "train: checkpoints: the checkpoint writer process was killed by signal 9 (Killed)\n")
        self.assertFalse(said.curable)

    def test_a_call_that_failed_because_another_rank_has_gone_is_the_launchers_to_judge(self):
        self.assertTrue(self.ending(137, FAULT.format("internal", 70, "")).curable)
        self.assertFalse(self.ending(70, FAULT.format("internal", 70, "")).curable)
        both = self.ending(1, FAULT.format("internal", 70, "") + "\n" + FAULT.format("rank_lost", 71, " how=silent ranks=1 hosts=b"))
        self.assertTrue(both.curable)
        self.assertEqual(both.hosts, ["b"])

    def test_a_lost_host_takes_with_it_what_others_read(self):
        lost = "ORTE has lost communication with a remote daemon.\n  HNP daemon : on node a\n  Remote daemon: [[1,0],1] on node b\n"
        self.assertTrue(self.ending(205, FAULT.format("data", 74, "") + "\n" + lost).curable)
        self.assertFalse(self.ending(205, FAULT.format("storage", 75, "") + "\n" + lost).curable)
        self.assertFalse(self.ending(74, FAULT.format("data", 74, "")).curable)

    def test_a_fault_that_open_mpi_5_returns_0_for_is_no_good_end(self):
        self.assertEqual(self.ending(0, WRITER).code, 1)
        self.assertTrue(self.ending(0, WRITER).curable)
        self.assertEqual(self.ending(0, FAULT.format("storage", 75, "")).code, 1)
        self.assertFalse(self.ending(0, FAULT.format("storage", 75, "")).curable)

    def test_of_a_death_mpirun_knows_more_than_the_watchdog(self):
        verdict = FAULT.format("rank_lost", 71, " how=dead ranks={} hosts=n1\n")
        self.assertIn("SIGKILL", self.ending(71, verdict.format(1) + KILLED.format(1)).text)
        self.assertIn("rank 2 on n1 has ended", self.ending(71, verdict.format(2) + KILLED.format(1)).text)

    def test_a_lost_connection_blames_no_host(self):
        lost = self.ending(71, FAULT.format("rank_lost", 71, " how=disconnected ranks=3 hosts=n3"))
        self.assertTrue(lost.curable)
        self.assertEqual(lost.kind, "disconnected")
        self.assertIn("rank 3 on n3 has lost its connection", lost.text)
        verdict = FAULT.format("rank_lost", 71, " how=disconnected ranks=1 hosts=n1\n")
        self.assertEqual(self.ending(71, verdict + KILLED.format(1)).kind, "dead")

    def test_hosts_have_domains_or_none(self):
        self.assertTrue(same_host("n3", "n3.cluster.org"))
        self.assertFalse(same_host("n3", "n31"))
        self.assertFalse(same_host("10.0.0.3", "10.0.0.4"))


if __name__ == "__main__":
    unittest.main()
