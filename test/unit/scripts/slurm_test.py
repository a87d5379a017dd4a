#!/usr/bin/env python3
"""slurm_test.py TRAIN SCRIPTS: the script that `train --emit-sbatch` prints, and scripts/slurm/watch_spot.sh, with launchers, a
Slurm and a metadata service of AWS that only play."""
import http.server
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

TRAIN = pathlib.Path(sys.argv.pop(1)).resolve()
SCRIPTS = pathlib.Path(sys.argv.pop(1)).resolve()
CHECKPOINT = SCRIPTS.parent / "test/data/format_1/step-0000000004.h5"

# Notes its words, one a line; does what the file `play` says; its rank is a child, as mpirun's are.
LAUNCHER = """#!/bin/bash
[ "$1" != --version ] || { cat version 2>/dev/null || echo "mpirun (Open MPI) 4.1.4"; exit; }
printf '%s\\n' "$(basename "$0")" "$@" >called
[ ! -f play ] || . ./play
"""
RANK = 'trap : USR1; sleep 30 >/dev/null 2>&1 & rank=$!; touch ready; wait "$rank"; exit 143\n'
SLURM = '#!/bin/bash\n[ "${0##*/} $1" != "squeue -h" ] || { echo "7.1 ranks"; exit; }\necho "$(basename "$0") $*" >>slurm\n[ ! -f refuses ]\n'


def save(step):
    """What a run may play: that it saves a checkpoint."""
    return f"cp '{CHECKPOINT}' saves/step-{step:010}.h5;"


class Playing(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        os.chdir(folder.name)
        self.addCleanup(os.chdir, "/")
        for name, text in (("mpirun", LAUNCHER), ("srun", LAUNCHER), ("scontrol", SLURM), ("scancel", SLURM), ("squeue", SLURM)):
            pathlib.Path(name).write_text(text)
            pathlib.Path(name).chmod(0o755)
        os.mkdir("saves")
        self.environment = {**os.environ, "PATH": f"{folder.name}:{os.environ['PATH']}", "SLURM_JOB_ID": "7", "SLURM_NTASKS": "4",
                            "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_SUBMIT_DIR": folder.name}
        for name in ("RINGTRAIN_TRAIN", "RINGTRAIN_LAUNCHER", "RINGTRAIN_SPOT", "SLURM_CPUS_PER_TASK", "SLURM_RESTART_COUNT"):
            self.environment.pop(name, None)

    def emit(self, *words, spec="nodes=2"):
        done = subprocess.run([TRAIN, "--emit-sbatch", spec, *words], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        pathlib.Path("job").write_text(done.stdout)

    def start(self, *words):
        self.job = subprocess.Popen(["bash", "job", *words], env=self.environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def end(self, code):
        """What the job said on standard error."""
        said = self.job.communicate(timeout=60)[1]
        self.assertEqual(self.job.returncode, code, said)
        return said

    def run_job(self, play, code):
        pathlib.Path("play").write_text(play)
        self.start()
        return self.end(code)

    def called(self):
        return pathlib.Path("called").read_text().splitlines()

    def slurm(self):
        """How Slurm was called since the last time."""
        calls = pathlib.Path("slurm")
        text = calls.read_text().splitlines() if calls.exists() else []
        calls.unlink(missing_ok=True)
        return text

    def wait_for(self, happened):
        deadline = time.monotonic() + 60
        while not happened():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)


class Launching(Playing):
    def test_options_reach_the_ranks_as_they_were_typed(self):
        odd = "a'b \"c\" $HOME `x` \\ *\n#"
        self.emit("--model", "mlp", "--metrics", odd)
        self.start("--seed", "3")
        self.end(0)
        called = self.called()
        self.assertEqual("\n".join(called[called.index(str(TRAIN)) + 1:]), f"--model\nmlp\n--metrics\n{odd}\n--seed\n3")

    def test_mpirun_starts_all_ranks_unbound(self):
        self.emit("--interface", "eth7")
        self.start()
        self.end(0)
        called = " ".join(self.called())
        self.assertIn("mpirun --bind-to none ", called)
        self.assertIn(" --mca oob_tcp_if_include eth7 -np 4 ", called)

    def test_srun_starts_them_where_that_is_asked_for(self):
        self.emit(spec="nodes=2,launcher=srun,cpus=3")
        self.environment["SLURM_CPUS_PER_TASK"] = "3"
        self.start()
        self.end(0)
        self.assertEqual(self.called()[:7], ["srun", "--job-name=ranks", "--mpi=pmix", "--cpu-bind=none", "--gpu-bind=none", "--kill-on-bad-exit=1", "--cpus-per-task=3"])

    def test_a_bundles_own_mpirun_is_taken(self):
        os.mkdir("bundle")
        os.symlink(TRAIN, "bundle/train")
        os.rename("mpirun", "bundle/mpirun")
        self.environment["RINGTRAIN_TRAIN"] = os.path.abspath("bundle/train")
        self.emit()
        self.start()
        self.end(0)
        self.assertEqual(self.called()[0], "mpirun")

    def test_restarts_are_the_supervisors(self):
        self.emit("--restarts", "2")
        self.start()
        self.assertIn("supervise: up to 2 restarts", self.end(0))
        self.assertEqual(self.called()[-2:], ["--restarts", "0"])

    def test_a_wrong_option_ends_the_job_in_trains_words(self):
        self.emit()
        self.start("--modl", "mlp")
        self.assertIn("did you mean --model?", self.end(64))
        self.assertFalse(os.path.exists("called"))

    def test_another_launcher_is_refused(self):
        self.emit()
        self.environment["RINGTRAIN_LAUNCHER"] = "ssh"
        self.start()
        self.assertIn("set it to mpirun or srun", self.end(64))


class Requeueing(Playing):
    def setUp(self):
        super().setUp()
        self.emit("--checkpoint-dir", "saves")

    def leave(self, play, code, number=signal.SIGUSR2):
        pathlib.Path("play").write_text(play)
        self.start()
        self.wait_for(lambda: os.path.exists("ready"))
        self.wait_for(lambda: self.job.send_signal(number) or time.sleep(0.3) or self.job.poll() is not None)
        return self.end(code)

    def test_a_job_that_was_told_to_leave_is_requeued_once_it_has_saved(self):
        said = self.leave(save(100) + RANK, 143)
        self.assertEqual(self.slurm(), ["scontrol requeue 7"])
        self.assertIn("about to end; requeued, to go on from what saves has: step-0000000100.h5", said)

    def test_under_srun_all_ranks_are_signalled_by_slurm(self):
        self.emit("--checkpoint-dir", "saves", spec="nodes=2,launcher=srun")
        pathlib.Path("scancel").write_text(SLURM + "pkill -TERM -P $(cat pid)\n")
        self.leave(save(100) + "echo $$ >pid\n" + RANK, 143)
        self.assertEqual(self.slurm(), ["scancel --signal=TERM 7.1", "scontrol requeue 7"])

    def test_a_job_that_was_cancelled_is_not_requeued(self):
        self.leave(save(100) + RANK.replace("exit 143", "exit 1"), 1, signal.SIGTERM)
        self.assertEqual(self.slurm(), [])

    def test_a_lost_rank_or_node_requeues(self):
        for code in (1, 71, 72, 134, 135, 137, 139, 205, 255):
            with self.subTest(code):
                self.run_job(save(code) + f"exit {code}", code)
                self.assertEqual(self.slurm(), ["scontrol requeue 7"])

    def test_a_lost_node_requeues_though_mpirun_returns_0(self):
        pathlib.Path("version").write_text("mpirun (Open MPI) 5.0.7\n")
        lost = "echo 'PRTE has lost communication with a remote daemon. Remote daemon: [prterun@0,1] on node n2' >&2;"
        self.run_job(save(1) + lost, 1)
        self.assertEqual(self.slurm(), ["scontrol requeue 7"])
        self.run_job("echo trained 9 steps, 72 images in 1 s on 4 ranks;" + lost, 0)
        self.assertEqual(self.slurm(), [])

    def test_what_would_come_again_does_not_and_nor_does_success(self):
        for code in (0, 64, 65, 66, 70, 73, 74, 75, 76, 77, 143):
            with self.subTest(code):
                self.run_job(save(code) + f"exit {code}", code)
                self.assertEqual(self.slurm(), [])

    def test_the_kind_of_fault_decides_and_not_the_code(self):
        line = "echo 'fault: kind={} code={} rank=0 host=n1 step=3 resume=none' >&2;"
        for kind, code, way_on in (("writer", 75, True), ("storage", 75, False), ("rank_lost", 137, True), ("stuck", 255, True), ("storage", 1, False),
                                   ("data", 137, False), ("nan", 76, False), ("mismatch", 71, False), ("internal", 70, False), ("internal", 137, True)):
            with self.subTest(kind):
                said = self.run_job(save(code) + line.format(kind, code) + f"exit {code}", code)
                self.assertEqual(self.slurm(), ["scontrol requeue 7"] if way_on else [], said)
                self.assertIn(f"fault: kind={kind} ", said)

    def test_of_several_faults_the_last_runs_first_one_counts(self):
        line = "echo 'fault: kind={} code=75 rank=0 host=n1 step=3 resume=none' >&2;"
        restart = "echo 'supervise: restart 1 of 2: ...' >&2;"
        for play, way_on in ((line.format("writer") + line.format("data"), True), (line.format("data") + line.format("writer"), False),
                             (line.format("storage") + restart + line.format("writer"), True), (line.format("writer") + restart, False),
                             (restart + line.format("locked") + "echo 'supervise: what is left of the lost job holds ...' >&2;" + line.format("writer"), True)):
            self.run_job(save(1) + play + "exit 75", 75)
            self.assertEqual(self.slurm(), ["scontrol requeue 7"] if way_on else [])

    def test_the_third_run_in_a_row_that_saves_nothing_is_the_last(self):
        for way_on, saving in ((True, ""), (True, ""), (True, save(1)), (True, ""), (True, ""), (False, "")):
            said = self.run_job(saving + "exit 71", 71)
            self.assertEqual(self.slurm(), ["scontrol requeue 7"] if way_on else [], said)
        self.assertIn("not requeued, as three runs in a row saved nothing", said)

    def test_what_resume_auto_would_take_is_the_newest_whatever_the_names(self):
        self.run_job(save(9_999_999_999) + "echo damaged >saves/step-20000000000.h5; exit 71", 71)
        for step in range(10_000_000_000, 10_000_000_004):  # a name with a digit more comes first, as text
            said = self.run_job(save(step) + "exit 71", 71)
        self.assertIn("requeued, to go on from what saves has: step-10000000003.h5", said)
        self.assertEqual(self.slurm(), ["scontrol requeue 7"] * 5)

    def test_checkpoints_that_take_longer_than_a_minute_to_read_still_count_as_progress(self):
        pathlib.Path("slow_train").write_text(f"#!/bin/sh\n[ \"$1\" != --inspect ] || exec sleep 100\nexec '{TRAIN}' \"$@\"\n")
        pathlib.Path("timeout").write_text('#!/bin/bash\n[ "$3" != 60 ] || set -- -k 5 0.2 "${@:4}"\nexec /usr/bin/timeout "$@"\n')
        for name in ("slow_train", "timeout"):
            pathlib.Path(name).chmod(0o755)
        self.environment["RINGTRAIN_TRAIN"] = os.path.abspath("slow_train")
        for step in range(9_999_999_998, 10_000_000_002):
            said = self.run_job(save(step) + "exit 71", 71)
        self.assertIn("requeued, to go on from what saves has: step-10000000001.h5", said)
        self.assertEqual(self.slurm(), ["scontrol requeue 7"] * 4)

    def test_a_run_that_would_begin_anew_is_not_requeued(self):
        for options, why in (((), "without --checkpoint-dir"), (("--checkpoint-dir", "saves", "--resume", "never"), "--resume never")):
            with self.subTest(why):
                self.emit(*options)
                self.assertIn(f"not requeued, as with" if "never" in why else "not requeued, as without", self.run_job("exit 71", 71))
                self.assertEqual(self.slurm(), [])

    def test_the_last_save_of_killed_ranks_is_waited_for(self):
        writer = f"echo 'ringtrain lease 1 finishing' >saves/lock; (sleep 1; {save(7)} echo 'ringtrain lease 1 released ' >saves/lock) >/dev/null 2>&1 3>&- &\n"
        said = self.run_job(writer + "exit 137", 137)
        self.assertIn("waiting for the last save in saves", said)
        self.assertIn("requeued, to go on from what saves has: step-0000000007.h5", said)

    def test_that_wait_has_a_limit(self):
        self.emit("--checkpoint-dir", "saves", "--final-save-timeout", "1s")
        said = self.run_job("echo 'ringtrain lease 1 finishing' >saves/lock; exit 137", 137)
        self.assertIn("has not ended: not waited for any longer", said)

    def test_a_requeued_job_whose_checkpoints_are_out_of_sight_does_not_begin_anew(self):
        self.run_job(save(100) + "exit 71", 71)
        os.rename("saves", "unmounted")
        os.mkdir("saves")
        os.unlink("called")
        said = self.run_job("exit 0", 74)
        self.assertIn("had the checkpoint step-0000000100.h5", said)
        self.assertFalse(os.path.exists("called"))
        os.rmdir("saves")
        os.rename("unmounted", "saves")
        self.run_job("exit 0", 0)
        self.assertFalse(os.path.exists(".ringtrain-checkpoint-of-7"))

    def test_what_a_run_said_that_it_saved_counts_as_seen(self):
        lines = "echo 'step 400, loss = 1 | checkpoint 340, 2.0 s old'; echo 'step 410, loss = 1 | checkpoint 350, 1.1 s old';"
        pathlib.Path("play").write_text(lines + "exit 71")
        self.start()
        out, _ = self.job.communicate(timeout=60)
        self.assertEqual(self.job.returncode, 71)
        self.assertEqual(out.count("| checkpoint "), 2)
        self.assertEqual(self.slurm(), ["scontrol requeue 7"])
        os.unlink("called")
        shutil.copy(CHECKPOINT, "saves")  # as one that lies below a mount point: of step 4
        self.assertIn("had the checkpoint step-0000000350.h5", self.run_job("exit 0", 74))
        self.assertFalse(os.path.exists("called"))

    def test_slurms_refusal_is_told(self):
        pathlib.Path("refuses").touch()
        self.assertIn("Slurm says above why not: unless", self.run_job("exit 71", 71))


class Metadata(http.server.BaseHTTPRequestHandler):
    """Version 2: nothing without a token. What it says is in `server`."""

    def do_PUT(self):
        self.server.tokens += 1
        self.answer(200, f"token{self.server.tokens}")

    def do_GET(self):
        if self.headers["X-aws-ec2-metadata-token"] != f"token{self.server.tokens}":
            return self.answer(401, "")
        if self.path == "/latest/meta-data/instance-life-cycle":
            self.server.busy = not self.server.busy
            return self.answer(*((503, "") if self.server.busy else (200, self.server.life_cycle)))
        self.server.asked += 1
        if self.server.asked == 2:
            self.server.tokens += 10  # the token has expired
            return self.answer(401, "")
        self.answer(*((200, self.server.notice) if self.server.asked > 3 else (404, "")))

    def answer(self, status, text):
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


class Watching(Playing):
    def watch(self, life_cycle):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metadata)
        server.tokens, server.asked, server.life_cycle, server.busy = 0, 0, life_cycle, False
        server.notice = json.dumps({"action": "terminate", "time": "2026-11-22T08:22:00Z"})
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.environment["RINGTRAIN_METADATA"] = f"http://127.0.0.1:{server.server_address[1]}"
        return self.watch_now()

    def watch_now(self):
        script = (SCRIPTS / "slurm/watch_spot.sh").read_text().replace("pause_s=5", "pause_s=0.05")
        done = subprocess.run(["bash", "-c", script], env=self.environment, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stderr

    def test_a_notice_tells_the_jobs_script_even_after_a_token_expired(self):
        said = self.watch("spot")
        self.assertEqual(self.slurm(), ["scancel --batch --signal=USR2 7"])
        self.assertIn('AWS takes this instance back: {"action": "terminate"', said)

    def test_other_instances_and_machines_are_not_watched(self):
        self.assertIn("no spot instance", self.watch("on-demand"))
        self.environment["RINGTRAIN_METADATA"] = "http://127.0.0.1:9"
        self.assertIn("no instance metadata", self.watch_now())
        self.assertEqual(self.slurm(), [])

    def test_it_is_started_on_every_node_where_it_is_asked_for(self):
        pathlib.Path("srun").write_text('#!/bin/bash\necho "$*" >watched\n')
        self.emit("--model", "mlp", spec="nodes=2,spot=yes")
        self.start()
        self.end(0)
        self.wait_for(lambda: os.path.exists("watched"))
        self.assertRegex(pathlib.Path("watched").read_text(), r"^--overlap .*--ntasks=2 --ntasks-per-node=1 .*/slurm/watch_spot.sh$")


if __name__ == "__main__":
    unittest.main()
