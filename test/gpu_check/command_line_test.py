import os
import subprocess
import unittest

from support import ROOT

from stages import ALL

# No nvidia-smi in there, whatever this machine has.
NO_GPU = {**os.environ, "PATH": "/nowhere", "RINGTRAIN_RUNTIME": ""}


def gpu_check(*words):
    import sys
    return subprocess.run([sys.executable, "-B", str(ROOT / "scripts/gpu_check"), *words], capture_output=True, text=True, env=NO_GPU)


class CommandLine(unittest.TestCase):
    def test_without_a_gpu_it_says_so_and_how_to_go_on(self):
        done = gpu_check()

        self.assertEqual(done.returncode, 69)
        self.assertIn("no GPU here", done.stderr)
        self.assertIn("--dry-run", done.stderr)

    def test_a_dry_run_explains_every_stage_without_a_gpu(self):
        done = gpu_check("--dry-run")

        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for stage in ALL:
            self.assertIn(f"\n{stage.name}, at most ", done.stdout)
        self.assertIn("--model resnet50", done.stdout)

    def test_stages_are_chosen_by_name(self):
        done = gpu_check("--dry-run", "--stages", "leak,device")

        self.assertIn("\ndevice, at most 224 s", done.stdout)  # two stages share all the time: 10 and 15 parts of 560 s
        self.assertNotIn("\nspeed, ", done.stdout)

    def test_a_stage_that_does_not_exist_is_a_wrong_option(self):
        done = gpu_check("--stages", "sped")

        self.assertEqual(done.returncode, 64)
        self.assertIn("speed", done.stderr)

    def test_logs_never_mix_with_what_is_there(self):
        done = gpu_check("--out", str(ROOT))

        self.assertEqual(done.returncode, 64)
        self.assertIn("not empty", done.stderr)

    def test_all_stages_fit_into_the_time_that_one_can_count_on(self):
        self.assertLessEqual(sum(stage.budget_s for stage in ALL), 560)


unittest.main()
