import os
import sys
import tempfile
import time
import unittest
from pathlib import Path

from support import FAILED, PASSED, SKIPPED

import engine
import report
from place import Place
from stage import Command, Finding, Stage, verdict


def python(code, name="it", seconds=20, **more):
    return Command(name, (sys.executable, "-c", code), seconds, **more)


def stage(*commands, judge=lambda outcomes, known: [Finding("judged", verdict(True), len(outcomes))], name="one", budget_s=20, needs=()):
    return Stage(name, "a test", budget_s, lambda place: list(commands), judge, needs)


class Engine(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.place = Place(self.folder.name)

    def run_stages(self, *stages, seconds=60):
        findings = {}
        engine.run_all(stages, self.place, seconds, lambda stage, found, _: findings.update({stage.name: found}))
        return findings

    def found(self, *stages, **more):
        return [(f.what, f.verdict) for findings in self.run_stages(*stages, **more).values() for f in findings]

    def preparing(self, code, *commands, seconds=20):
        """A stage with something to prepare."""
        return Stage("two", "a test", 20, lambda place: list(commands), lambda outcomes, known: [Finding("two", verdict(True), len(outcomes))],
                     prepare=lambda place: [python(code, "prepared", seconds)])

    def test_what_a_stage_prepares_runs_beside_earlier_ones_and_has_ended_when_it_runs(self):
        mark, done = Path(self.folder.name) / "mark", Path(self.folder.name) / "done"
        prepared = f"import pathlib, time; pathlib.Path({str(mark)!r}).touch(); time.sleep(3); pathlib.Path({str(done)!r}).touch()"
        asks = python(f"import pathlib, time\nwhile not pathlib.Path({str(mark)!r}).exists(): time.sleep(0.05)")
        needs_it = python(f"import pathlib, sys; sys.exit(not pathlib.Path({str(done)!r}).exists())")

        self.assertEqual(self.found(stage(asks), self.preparing(prepared, needs_it)), [("judged", PASSED), ("two", PASSED)])

    def test_what_is_prepared_too_slowly_is_ended_before_its_stage_runs(self):
        pid, mark = Path(self.folder.name) / "pid", Path(self.folder.name) / "mark"
        prepared = "import os, pathlib, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); " \
            f"pathlib.Path({str(pid)!r}).write_text(str(os.getpid())); time.sleep(40); pathlib.Path({str(mark)!r}).touch()"
        is_gone = python(f"import os, pathlib, sys; sys.exit(os.path.exists('/proc/' + pathlib.Path({str(pid)!r}).read_text()))")

        self.assertEqual(self.found(self.preparing(prepared, is_gone, seconds=60), seconds=20), [("two", PASSED)])
        self.assertFalse(mark.exists())

    def test_what_stages_prepare_runs_one_after_the_other(self):
        alone = Path(self.folder.name) / "alone"
        code = f"import os, time; os.mkdir({str(alone)!r}); time.sleep(1); os.rmdir({str(alone)!r})"
        seen = Path(self.folder.name) / "seen"
        both = Stage("two", "a test", 20, lambda place: [], lambda outcomes, known: [],
                     prepare=lambda place: [python(code, "first"), python(code + f"; open({str(seen)!r}, 'w')", "second")])

        self.run_stages(both)

        self.assertTrue(seen.exists())

    def test_what_lacks_its_needs_is_not_prepared(self):
        prepares = Stage("two", "a test", 20, lambda place: [], lambda outcomes, known: [],
                         prepare=lambda place: [python("import sys; sys.exit(1)", needs=("no_such_program",))])

        self.run_stages(prepares)

        self.assertFalse((self.place.out / "prepare").exists())

    def test_a_command_that_fails_is_told_in_its_words_and_the_rest_goes_on(self):
        findings = self.run_stages(stage(python("import sys; print('no luck'); sys.exit(3)"), python("", "other")))["one"]

        self.assertEqual([(f.what, f.verdict, f.value, f.note) for f in findings],
                         [("judged", PASSED, 1, ""), ("it", FAILED, None, "exit code 3: no luck")])

    def test_an_optional_command_that_fails_is_skipped(self):
        self.assertIn(("it", SKIPPED), self.found(stage(python("raise SystemExit(1)", optional=True))))

    def test_a_command_over_its_time_is_killed_with_all_it_started(self):
        mark = Path(self.folder.name) / "mark"
        child = f"import time; time.sleep(12); open({str(mark)!r}, 'w')"
        code = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {child!r}]); time.sleep(60)"
        begun = time.monotonic()

        self.assertIn(("it", FAILED), self.found(stage(python(code, seconds=2.5))))
        self.assertLess(time.monotonic() - begun, 50)  # of the 60 that it would sleep
        time.sleep(max(0, begun + 16 - time.monotonic()))
        self.assertFalse(mark.exists())

    def test_a_stage_over_its_time_does_not_take_that_of_the_next(self):
        slow = stage(python("import time; time.sleep(60)"), python("", "late"), name="slow", budget_s=1)
        quick = stage(python("", "quick"), name="quick", budget_s=1)

        self.assertEqual(self.found(slow, quick, seconds=7), [("judged", PASSED), ("it", FAILED), ("late", FAILED), ("judged", PASSED)])

    def test_a_command_that_may_wait_is_skipped_for_lack_of_time_and_its_result_so_far_counts(self):
        code = 'import time; print(\'RESULT {"x": 1}\', flush=True); time.sleep(60)'
        seen = {}

        found = self.found(stage(python(code, may_wait=True), python("", "late", may_wait=True),
                                 judge=lambda outcomes, known: seen.update({n: o.result() for n, o in outcomes.items()}) or []), seconds=3)

        self.assertEqual((found, seen), ([("it", SKIPPED), ("late", SKIPPED)], {"it": {"x": 1}}))

    def test_a_command_that_may_wait_and_breaks_is_a_failure(self):
        self.assertIn(("it", FAILED), self.found(stage(python("raise SystemExit(1)", may_wait=True))))
        self.assertIn(("it", FAILED), self.found(stage(python("import time; time.sleep(60)", seconds=2.5, may_wait=True), name="two")))

    def test_what_a_stage_needs_and_does_not_have_is_told(self):
        self.assertEqual(self.found(stage(needs=("no_such_program",))), [("one", SKIPPED)])
        self.assertIn(("it", FAILED), self.found(stage(python("", needs=("no_such_program",)), name="two")))

    def test_a_program_that_is_not_there_is_a_failure_and_no_crash(self):
        self.assertIn(("it", FAILED), self.found(stage(Command("it", ("/no/such/program",), 5))))

    def test_output_that_nobody_foresaw_is_a_failure_and_no_crash(self):
        self.assertEqual(self.found(stage(python(""), judge=lambda outcomes, known: outcomes["absent"])), [("one", FAILED)])

    def test_what_a_failed_command_said_last_is_kept_and_so_is_why_the_check_broke(self):
        findings = self.run_stages(stage(python("print('first'); print('last'); raise SystemExit(1)"), judge=lambda outcomes, known: 1 / 0))["one"]

        self.assertEqual(findings[0].detail, "first\nlast")
        self.assertIn("ZeroDivisionError", findings[1].detail)

    def test_a_stage_that_cannot_say_what_to_run_is_a_failure_and_no_crash(self):
        self.assertEqual(self.found(Stage("one", "a test", 20, lambda place: place.no_such_thing, None)), [("one", FAILED)])

    def test_later_stages_know_the_numbers_of_earlier_ones(self):
        seen = {}
        first = stage(judge=lambda outcomes, known: [Finding("copy", PASSED, 3.0)], name="ceilings")

        self.run_stages(first, stage(judge=lambda outcomes, known: seen.update(known) or []))
        self.assertEqual(seen, {"rehearsal": False, "ceilings/copy": 3.0})

    def test_metrics_are_read_even_with_a_torn_end(self):
        file = Path(self.folder.name) / "m.jsonl"
        code = f"open({str(file)!r}, 'w').write('{{\"kind\":\"step\"}}\\n{{\"ki')"
        seen = {}

        self.run_stages(stage(python(code, metrics=file), judge=lambda outcomes, known: seen.update(outcomes) or []))
        self.assertEqual(seen["it"].records, [{"kind": "step"}])


class Programs(unittest.TestCase):
    def test_of_two_programs_with_one_name_the_newest_is_meant(self):
        with tempfile.TemporaryDirectory() as folder:
            place = Place(folder)
            place.build = Path(folder)
            for where, seconds in (("a", 2), ("b", 3), ("c", 1)):
                file = Path(folder) / where / "train"
                file.parent.mkdir()
                file.touch(0o755)
                os.utime(file, (seconds, seconds))

            self.assertEqual(place.executable("train"), Path(folder) / "b/train")
            self.assertEqual(place.executable("absent"), Path(folder) / "absent")


class Report(unittest.TestCase):
    def test_the_exit_code_is_zero_only_when_something_passed_and_nothing_failed(self):
        passed, failed, skipped = (Finding("x", v) for v in (PASSED, FAILED, SKIPPED))

        self.assertEqual(report.exit_code({"a": [passed, skipped]}), 0)
        self.assertEqual(report.exit_code({"a": [passed], "b": [failed]}), 1)
        self.assertEqual(report.exit_code({"a": [skipped]}), 1)

    def test_failures_are_last_in_the_table(self):
        text = report.table({"a": [Finding("bad", FAILED, note="why")], "b": [Finding("good", PASSED, 12345.6, "images/s")]})

        self.assertRegex(text, r"(?s)good +12,346 images/s.*bad.*why\n1 passed, 1 FAILED, 0 skipped, 0 measured$")


unittest.main()
