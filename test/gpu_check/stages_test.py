import json
import unittest

from support import FAILED, MEASURED, PASSED, SKIPPED, curve, ended, step, verdicts

from place import Place
from stages import ALL, checkpoint, deterministic, device, gradients, kernels, leak, ranks, roofline, sanitizer, speed, sums, tests, train, versions


def result(**values):
    return ended("some words\nRESULT " + json.dumps(values))


class Machine(unittest.TestCase):
    def test_a_library_that_is_not_found_fails(self):
        both = {"cuDNN": {"built_with": "9.19.0", "runs_with": "9.26.1"}, "NCCL": {"built_with": "2.28.9", "runs_with": "not found"}}

        found = verdicts(versions.libraries(json.dumps({"libraries": both})))

        self.assertEqual(found, {"library cuDNN": MEASURED, "library NCCL": FAILED})

    def test_speed_without_an_option_is_told(self):
        self.assertEqual(verdicts(versions.judge({"options": ended("  --model NAME\n")}, {})), {"train without --autotune": MEASURED})
        self.assertEqual(versions.judge({"options": ended("  --autotune    time plans\n")}, {}), [])

    def test_the_built_in_description_is_compared_by_the_name_of_the_gpu(self):
        here = ended('{"deviceVer":900,"pciDeviceId":4,"deviceName":"NVIDIA H200","l2CacheSize":1}')
        built_in = ended('{"deviceVer":900,"pciDeviceId":0,"deviceName":"NVIDIA H200","l2CacheSize":2}')

        findings = device.judge({"this": here, "h100": ended("{}"), "h200": built_in}, {})

        self.assertEqual((findings[1].value, findings[1].note), (1, "l2CacheSize 2 is 1"))

    def test_a_gpu_without_a_built_in_description_is_no_failure(self):
        findings = device.judge({"this": ended('{"deviceName":"NVIDIA L4"}')}, {})

        self.assertNotIn(FAILED, verdicts(findings).values())


class Sums(unittest.TestCase):
    def test_comparisons_are_counted_and_none_is_a_failure(self):
        ran, empty = ended("All tests passed (1234 assertions in 1 test case)\n"), ended("No test cases matched 'cuda engines'\n")

        self.assertEqual([(f.verdict, f.value) for f in sums.judge({"bn_bwd_weights": ran}, {})], [(PASSED, 1234)])
        self.assertEqual(verdicts(sums.judge({"bn_bwd_weights": empty}, {})), {"bn_bwd_weights": FAILED})

    def test_they_come_first_and_a_rehearsal_has_a_simulated_gpu(self):
        self.assertIs(ALL[0], sums.SUMS)
        programs = [sums.commands(Place("out", rehearse))[0].needs for rehearse in (False, True)]
        self.assertEqual(programs, [("test_cuda_gpu",), ("test_cuda_on_host",)])


class Tests(unittest.TestCase):
    def judge(self, **found):
        return verdicts(tests.judge({"t": result(**found)}, {}))

    def test_all_tests_pass_or_those_that_fail_are_named(self):
        self.assertEqual(self.judge(tests=31, failed=[], why={}), {"t": PASSED})
        self.assertEqual(self.judge(tests=31, failed=["a step"], why={"a step": "1 == 2"}), {"t": FAILED, "t: a step": FAILED})

    def test_nothing_checked_is_a_failure(self):
        self.assertEqual(self.judge(tests=0, failed=[], why={}), {"t": FAILED})
        self.assertEqual(verdicts(tests.judge({"t": ended("it crashed\n")}, {})), {"t": FAILED})


class Gradients(unittest.TestCase):
    def test_each_way_has_its_bound(self):
        near, far = "relative difference 0.017, median of tensors 0.01\n  then 0.02 in a\n", "relative difference 1, median of tensors 1\n"
        outcomes = {"resnet50-fp16-compared": ended(near), "resnet50-fp16-unfused-compared": ended(far),
                    "inception_v3-exact-compared": ended("no such file\n")}

        self.assertEqual(verdicts(gradients.judge(outcomes, {})),
                         {"resnet50 fp16": PASSED, "resnet50 fp16-unfused": FAILED, "inception_v3 exact": FAILED})

    def test_the_step_itself_is_no_finding(self):
        self.assertEqual(gradients.judge({"resnet50-cpu": ended()}, {}), [])


class Kernels(unittest.TestCase):
    def test_the_time_of_a_step_is_told(self):
        found = kernels.judge({"resnet50-256-fp16": result(steps=12, step_ms=35.0, busy_ms=34.0, kernels=774)}, {})

        self.assertEqual((found[0].verdict, found[0].value), (MEASURED, 34.0))
        self.assertEqual(verdicts(kernels.judge({"k": ended("nothing was recorded\n")}, {})), {"k": FAILED})


class Training(unittest.TestCase):
    def test_curves_of_all_precisions_are_compared_with_the_cpu(self):
        falling, flat = curve(2.0, 1.5, 1.0, 0.8, 0.6), curve(2.0, 2.0, 2.0, 2.0, 2.0)
        outcomes = {f"resnet20-{how}": ended(records=falling) for how in ("cpu-fp32", "cuda-fp32")}
        outcomes["resnet20-cuda-fp16"] = ended(records=flat)
        outcomes["resnet20-cuda-bf16"] = ended(records=curve(2.001, 1.5, 1.0, 0.8, 0.6))

        found = verdicts(train.judge(outcomes, {}))

        self.assertEqual(found["resnet20 fp32: curve"], PASSED)
        self.assertEqual(found["resnet20 fp16: curve"], FAILED)
        self.assertEqual(found["cifar10_cnn"], FAILED)  # nothing to compare with

    def test_a_run_that_was_not_on_the_gpu_is_found_by_its_bits(self):
        outcomes = {f"resnet20-{how}": ended(records=curve(2.0, 1.0)) for how in ("cpu-fp32", "cuda-fp32")}

        found = {f.what: f for f in train.judge(outcomes, {})}

        self.assertEqual(found["resnet20: no two curves are one"].verdict, FAILED)
        self.assertEqual(found["resnet20: no two curves are one"].note, "resnet20-cpu-fp32 = resnet20-cuda-fp32")
        self.assertNotIn("resnet20: no two curves are one", verdicts(train.judge(outcomes, {"rehearsal": True})))

    def deterministic(self, once, again, parts, second="resumed from step-0000000030.h5\n"):
        outcomes = {"resnet20-parts-second": ended(second)}
        for run, state in (("once", once), ("again", again), ("parts", parts)):
            outcomes[f"resnet20-{run}-inspect"] = ended(f"model resnet20\nstate-hash {state}\n" if state else "model resnet20\n")
        found = verdicts(deterministic.judge(outcomes, {}))
        return found["resnet20 fp16: twice"], found["resnet20 fp16: resumed"]

    def test_equal_states_pass_and_others_fail(self):
        self.assertEqual(self.deterministic("aa", "aa", "aa"), (PASSED, PASSED))
        self.assertEqual(self.deterministic("aa", "ab", "aa"), (FAILED, PASSED))
        self.assertEqual(self.deterministic("aa", "aa", "ab"), (PASSED, FAILED))

    def test_no_state_is_not_an_equal_state(self):
        self.assertEqual(self.deterministic(None, None, None), (FAILED, FAILED))

    def test_a_second_part_that_began_anew_proves_nothing(self):
        self.assertEqual(self.deterministic("aa", "aa", "aa", "training starts from scratch\n"), (PASSED, FAILED))


class Ranks(unittest.TestCase):
    KILLED = {"started": True, "ranks": 2, "ended": True, "seconds": 2.1, "code": 137, "left": 0, "words": "rank 1 was killed"}

    def test_losses_are_compared_with_one_ranks(self):
        outcomes = {"ranks-1": ended(records=curve(2.0, 1.5)), "ranks-2": ended(records=curve(2.0, 1.501)),
                    "ranks-4": ended(records=curve(2.0, 1.55))}

        found = verdicts(ranks.judge(outcomes, {}))

        self.assertEqual(found, {"2 ranks as one: losses": PASSED, "4 ranks as one: losses": FAILED})

    def test_each_way_is_compared_with_one_rank_of_its_own_or_of_the_way_it_names(self):
        outcomes = {"ranks-1": ended(records=curve(2.0)), "ranks-resnet50-1": ended(records=curve(1.0)), "ranks-resnet50-2": ended(records=curve(1.04)),
                    "ranks-resnet50-sharded-optimizer-4": ended(records=curve(1.06)), "ranks-bf16-gradients-1": ended(records=curve(1.0)),
                    "ranks-bf16-gradients-2": ended(records=curve(2.0))}

        found = verdicts(ranks.judge(outcomes, {}))

        self.assertEqual(found, {"resnet50 2 ranks as one: losses": PASSED, "resnet50-sharded-optimizer 4 ranks as one: losses": FAILED,
                                 "bf16-gradients 2 ranks as one: losses": FAILED})

    def test_sums_that_cannot_be_captured_fail(self):
        line = "graphs: sums between GPUs are queued between CUDA graphs, as they cannot be part of one here: no"
        outcomes = {"ranks-1": ended(records=curve(2.0)), "ranks-2": ended(f"a line\n{line}\nanother\n", records=curve(2.0))}

        found = verdicts(ranks.judge(outcomes, {}))

        self.assertEqual(found, {"2 ranks as one: losses": PASSED, "ranks-2: a step is one graph": FAILED})

    def test_what_no_gpu_has_run_comes_first_in_some_20_buckets(self):
        commands = ranks.commands(Place("out"))
        first = [" ".join(map(str, command.argv)) for command in commands[:5]]

        self.assertEqual([command.name for command in commands[:5]],
                         [f"ranks-resnet50-{n}" for n in (1, 2, 4)] + [f"ranks-resnet50-sharded-optimizer-{n}" for n in (2, 4)])
        for words in first:
            self.assertRegex(words, "--precision fp16 .*--model resnet50 .*--sync-batchnorm --bucket-mb 4 ")
        self.assertLess(ALL.index(ranks.RANKS), ALL.index(speed.SPEED))

    def test_without_one_rank_there_is_nothing_to_agree_with(self):
        self.assertEqual(verdicts(ranks.judge({"ranks-2": ended(records=curve(2.0))}, {})), {"2 ranks as one: losses": FAILED})

    def test_a_killed_job_must_end_in_time_with_a_message_and_leave_nobody(self):
        self.assertEqual(ranks.judge_kill(self.KILLED).verdict, PASSED)
        for wrong in ({"started": False}, {"ranks": 1}, {"ended": False}, {"seconds": 40.0}, {"code": 0}, {"left": 1}, {"words": ""}):
            self.assertEqual(ranks.judge_kill({**self.KILLED, **wrong}).verdict, FAILED, wrong)
        self.assertEqual(ranks.judge_kill({}).verdict, FAILED)


class Speed(unittest.TestCase):
    def pair(self, rates, failed=None, **more):
        case = speed.Case("resnet50", 256, "fp16", peers="eager,compile", goal=1.5, **more)
        return {f.what: f for f in speed.judge_case(case, result(rates=rates, failed=failed or {}))}

    def test_the_ratio_is_to_the_best_mode_round_by_round(self):
        found = self.pair({"ours": [6000, 9000, 6000], "eager": [2000, 2000, 2000], "compile": [3000, 4500, 4000]})

        ratio = found["resnet50 256 fp16: ours over compile"]
        self.assertEqual((found["resnet50 256 fp16"].value, ratio.value), (6000, 2.0))
        self.assertEqual(ratio.note, "the goal of 1.5 is reached")

    def test_a_goal_may_name_its_rival(self):
        found = self.pair({"ours": [6000], "eager": [2000], "compile": [3000]}, rival="eager")

        self.assertEqual(found["resnet50 256 fp16: ours over eager"].value, 3)

    def test_every_case_has_a_name_of_its_own_that_the_bounds_know(self):
        names = [case.name() for case in speed.CASES]

        self.assertEqual(len(set(names)), len(names))
        self.assertLessEqual({"-".join(map(str, case)) for case in roofline.CASES}, set(names))

    def test_a_goal_that_is_missed_is_told_and_is_no_failure(self):
        found = self.pair({"ours": [3000], "eager": [2500]})

        ratio = found["resnet50 256 fp16: ours over eager"]
        self.assertEqual((ratio.verdict, ratio.note), (MEASURED, "the goal of 1.5 is missed"))

    def test_pytorch_may_fail_and_we_may_not(self):
        found = self.pair({"ours": [3000]}, failed={"eager": "no torchvision"})

        self.assertEqual(found["resnet50 256 fp16: PyTorch eager"].verdict, SKIPPED)
        self.assertEqual(self.pair({"eager": [2500]})["resnet50 256 fp16"].verdict, FAILED)

    def test_a_plan_is_read_and_the_bound_is_copy_over_bytes(self):
        text = "273 MB/image\nfloor: 1 images/s by memory\npredicted: 25.47 ms/step, 10050 images/s\n"

        finding = roofline.judge_case("resnet50 256 fp16", text, {"ceilings/copy": 3.0, "speed/resnet50 256 fp16": 5494.5})

        self.assertAlmostEqual(finding.value, 0.5, places=3)
        self.assertEqual(roofline.judge_case("resnet50 256 fp16", text, {}).verdict, SKIPPED)
        self.assertEqual(roofline.judge_case("resnet50 256 fp16", "no plan", {}).verdict, FAILED)


class Costs(unittest.TestCase):
    def stall(self, save_s, saves=4, lost=""):
        run = [step(i, seconds=save_s if i % 10 == 0 else 0.02) for i in range(1, 101)]
        run += [{"kind": "checkpoint", "step": i} for i in range(100 - 10 * saves + 10, 101, 10)]
        run += [{"kind": "event", "what": "save_failed", "text": lost}] * bool(lost)
        return checkpoint.judge({"saves": ended(records=run)}, {})[0]

    def test_a_millisecond_is_allowed_and_two_are_not(self):
        self.assertEqual(self.stall(0.0209).verdict, PASSED)
        self.assertEqual(self.stall(0.0221).verdict, FAILED)

    def test_too_few_saves_and_failed_ones_fail_but_one_left_out_does_not(self):
        self.assertEqual(self.stall(0.02, saves=2).verdict, FAILED)
        self.assertEqual(self.stall(0.02, lost="no space left on device").verdict, FAILED)
        self.assertEqual(self.stall(0.02, lost="no slot is free: nothing saved at step 30").verdict, PASSED)

    def leak(self, gpu, host=(100, 100, 100, 100)):
        samples = [{"step": s, "gpu": g, "host": h} for s, g, h in zip((0, 300, 600, 900, 1000), (*gpu, 999), (*host, 999))]
        found = verdicts(leak.judge({"steps": result(samples=samples)}, {}))
        return found["gpu memory grows"], found["host memory grows"]

    def test_memory_may_grow_at_first_only(self):
        self.assertEqual(self.leak((10, 500, 500, 500)), (PASSED, PASSED))
        self.assertEqual(self.leak((10, 500, 500, 502)), (FAILED, PASSED))
        self.assertEqual(self.leak((10, 500, 500, 500), (50, 100, 110, 140)), (PASSED, FAILED))

    def test_memory_that_cannot_be_read_is_skipped(self):
        self.assertEqual(self.leak((None,) * 4)[0], FAILED)  # read once, so it can be read
        self.assertEqual(verdicts(leak.judge({"steps": result(samples=[])}, {}))["gpu memory grows"], SKIPPED)

    def test_the_sanitizers_words(self):
        self.assertEqual(sanitizer.faults("========= ERROR SUMMARY: 3 errors\n"), 3)
        self.assertEqual(sanitizer.faults("========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"), 0)
        self.assertEqual(verdicts(sanitizer.judge({"memcheck": ended("killed")}, {})), {"memcheck": FAILED})


unittest.main()
