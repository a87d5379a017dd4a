import unittest

from support import FAILED, PASSED, curve, verdicts

import curves
from records import losses


class Curves(unittest.TestCase):
    ORACLE = losses(curve(2.0, 1.8, 1.6, 1.4, 1.2))

    def compare(self, ours, precision="fp32"):
        return verdicts(curves.compare("net", losses(curve(*ours)), self.ORACLE, precision))

    def test_the_same_curve_passes(self):
        self.assertEqual(self.compare((2.0, 1.8, 1.6, 1.4, 1.2)), {"net: first loss": PASSED, "net: curve": PASSED})

    def test_another_first_loss_fails_though_the_curve_is_near(self):
        self.assertEqual(self.compare((2.02, 1.8, 1.6, 1.4, 1.2)), {"net: first loss": FAILED, "net: curve": PASSED})

    def test_a_curve_that_parts_fails(self):
        self.assertEqual(self.compare((2.0, 2.0, 1.9, 1.9, 1.9)), {"net: first loss": PASSED, "net: curve": FAILED})

    def test_16_bits_may_lie_further_away(self):
        near = (2.01, 1.95, 1.7, 1.5, 1.3)

        self.assertEqual(self.compare(near, "fp16"), {"net: first loss": PASSED, "net: curve": PASSED})
        self.assertEqual(self.compare(near), {"net: first loss": FAILED, "net: curve": FAILED})

    def test_a_run_that_broke_off_fails(self):
        self.assertEqual(self.compare((2.0, 1.8)), {"net": FAILED})

    def test_a_loss_that_is_no_number_fails(self):
        self.assertEqual(self.compare((2.0, 1.8, float("nan"), 1.4, 1.2))["net: curve"], FAILED)

    def test_a_flat_oracle_fails_since_it_agrees_with_anything(self):
        self.assertEqual(curves.compare_fall("cpu", losses(curve(2.0, 2.0, 1.9, 1.9, 1.9))).verdict, FAILED)
        self.assertEqual(curves.compare_fall("cpu", self.ORACLE).verdict, PASSED)
        self.assertEqual(curves.compare_fall("cpu", {}).verdict, FAILED)


unittest.main()
