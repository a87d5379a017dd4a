"""each_test.py PROGRAM SECONDS JOBS FOLDER [-- PREFIX...]: runs every test case of a Catch2 program in a process of its own, so many at
a time, because an error of CUDA stays with its process. PREFIX goes before the program. One that takes longer than SECONDS is ended
with its stacks in its log, FOLDER/NUMBER.log. Reports which failed and the first words of why."""
import concurrent.futures
import json
import re
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import stacks

words = sys.argv[1:]
prefix = words[words.index("--") + 1:] if "--" in words else []
program, limit_s, jobs, folder = words[0], float(words[1]), int(words[2]), Path(words[3])
folder.mkdir(parents=True, exist_ok=True)


def command(*arguments):
    return [*prefix, program, *arguments]


def names():
    """Catch2 breaks long names; what follows them is indented by four, tags by six."""
    listed = subprocess.run(command("~[simulated]", "--list-tests"), capture_output=True, text=True, timeout=limit_s)
    found = []
    for line in listed.stdout.split("\n\n")[0].splitlines()[1:]:
        if re.match(r"  \S", line):
            found.append(line.strip())
        elif re.match(r"    \S", line):
            found[-1] += " " + line.strip()
    return found, listed.stdout + listed.stderr


def escaped(name):
    """As Catch2 wants it on the command line."""
    return re.sub(r"([\\,\[\]\"*~])", r"\\\1", name)


def run(number, name):
    begun, log = time.monotonic(), folder / f"{number}.log"
    with open(log, "w") as output:
        process = subprocess.Popen(command(escaped(name)), stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            output.write("\n" + stacks.of(process.pid))
            process.kill()
            process.wait()
            code = None
    text = log.read_text(errors="replace")
    passed = code == 0 and re.search(r"All tests passed \([1-9]", text)
    return {"name": name, "code": code, "seconds": round(time.monotonic() - begun, 1), "passed": bool(passed), "log": log.name,
            "why": "" if passed else reason(text, code)}


def reason(text, code):
    if code is None:
        return f"killed after {limit_s:.0f} s"
    failed = re.findall(r"^(?:.*(?:FAILED|unexpected exception|fatal error).*\n(?:.*\n){0,6})", text, re.MULTILINE)
    return (failed[0] if failed else text[-400:])[:500]


every, listing = names()
if not every:
    print(listing)
    sys.exit("each_test: the program lists no tests")
with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
    results = list(pool.map(run, range(len(every)), every))
for result in results:
    print(("ok    " if result["passed"] else "FAILED"), f"{result['seconds']:6.1f} s", result["log"], result["name"])
for result in results:
    if not result["passed"]:
        print("\n" + result["name"] + ":\n" + result["why"])
print("RESULT " + json.dumps({"tests": len(results), "failed": [r["name"] for r in results if not r["passed"]],
                              "why": {r["name"]: r["why"][:300] for r in results if not r["passed"]}}))
