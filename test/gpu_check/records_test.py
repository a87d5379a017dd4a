import unittest

from support import step

import records


class Records(unittest.TestCase):
    # One of each kind, as `train --metrics` wrote them.
    FILE = """{"kind":"start","configuration":{"batch":16},"build":"x","ranks":1,"hosts":["vm"]}
{"kind":"step","step":10,"epoch":0.5,"loss":2.30258509,"lr":0.1,"examples_per_second":225.6,"seconds_per_batch":0.071,"phases":{"data_wait":0.01,"forward":0.03}}
{"kind":"checkpoint","step":10,"file":"step-0000000010.h5","bytes":2256616,"seconds":0.01,"stall_seconds":0.0002}
{"kind":"event","what":"save_failed","rank":0,"text":"no space"}
{"kind":"end","steps":10,"examples":160,"seconds":0.7,"examples_per_second":225.6,"top1":null}
{"kind":"step","ste"""

    def test_a_file_is_read_up_to_its_torn_line(self):
        found = records.parse(self.FILE)

        self.assertEqual([r["kind"] for r in found], ["start", "step", "checkpoint", "event", "end"])
        self.assertEqual(records.losses(found), {10: 2.30258509})

    def test_nothing_is_read_from_nothing(self):
        self.assertEqual(records.parse(""), [])
        self.assertEqual(records.rate([]), (None, None))
        self.assertEqual(records.phase_shares([]), [])

    def test_the_rate_is_the_median_after_the_first_third(self):
        run = [step(i, rate=r) for i, r in enumerate((1, 1, 100, 110, 90, 104))]

        middle, spread = records.rate(run)

        self.assertEqual(middle, 102)
        self.assertAlmostEqual(spread, 1.4826 * 5)

    def test_phases_are_shares_largest_first(self):
        self.assertEqual(records.phase_shares([step(1, forward=1.0, backward=3.0)]), [("backward", 0.75), ("forward", 0.25)])

    def test_a_save_may_slow_its_step_and_the_next(self):
        run = [step(i, seconds=float(i)) for i in range(1, 10)] + [{"kind": "checkpoint", "step": 6}]

        slowed, plain = records.save_steps(run)

        self.assertEqual((slowed, plain), ([6.0, 7.0], [4.0, 5.0, 8.0, 9.0]))

    def test_percentiles(self):
        values = list(range(100, 0, -1))

        self.assertEqual([records.percentile(values, p) for p in (0.01, 0.5, 0.99, 1)], [1, 50, 99, 100])
        self.assertEqual(records.percentile([7], 0.99), 7)


unittest.main()
