#!/usr/bin/env python3
"""test_summary.py [--only-skips REGEX] JUNIT_FILE...: what CTest's results come to, and why tests were skipped, each reason once.

Ends with 1 where a test failed, where none ran, or where one was skipped for a reason that the expression does not name."""
import argparse
import collections
import re
import sys
import xml.etree.ElementTree

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--only-skips", metavar="REGEX", help="the reasons for which a test may be skipped")
parser.add_argument("results", nargs="+", metavar="JUNIT_FILE")
arguments = parser.parse_args()

passed, failed, skipped = 0, [], collections.Counter()
for file in arguments.results:
    cases = list(xml.etree.ElementTree.parse(file).getroot().iter("testcase"))
    if not cases:
        failed.append(f"{file} has no test: its label has gone, or CTest found none")
    for case in cases:
        if case.get("status") == "run":
            passed += 1
        elif case.find("skipped") is not None and case.get("status") == "notrun" and "77" in case.find("skipped").get("message", ""):
            said = re.findall(r"^skipped: (.*)", case.findtext("system-out") or "", re.MULTILINE)
            skipped[said[-1] if said else "no reason given"] += 1
        else:
            failed.append(case.get("name"))

for name in failed:
    print(f"failed: {name}")
not_permitted = [why for why in skipped if arguments.only_skips and not re.search(arguments.only_skips, why)]
for why, count in sorted(skipped.items()):
    print(f"skipped ({count}): {why}" + ("  <- not permitted here" if why in not_permitted else ""))
print(f"{passed} passed, {len(failed)} failed, {skipped.total()} skipped")
sys.exit(1 if failed or not_permitted or passed == 0 else 0)
