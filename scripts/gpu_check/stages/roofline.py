"""How near our speed comes to what the memory allows: planned bytes an image, over the rate of a copy."""
import re

from stage import FAILED, MEASURED, SKIPPED, Command, Finding, Stage

CASES = (("resnet50", 256, "fp16"), ("resnet50", 256, "bf16"), ("resnet20", 128, "fp16"), ("cifar10_cnn", 128, "fp16"))
COPY = "ceilings/copy"


def commands(place):
    gpu = "h200" if any("H200" in name for name in place.gpus()) else "h100"
    return [Command("-".join(map(str, case)), place.ours(place.executable("train"), "--plan", "--plan-device", gpu, "--model", case[0],
                                                         "--batch", case[1], "--precision", case[2]), 20, needs=("train",))
            for case in CASES]


def planned(text):
    """Megabytes an image, and images a second by kernel, of --plan; None where it does not say."""
    def number(pattern):
        found = re.search(pattern, text, re.MULTILINE)
        return float(found.group(1)) if found else None
    return number(r"^([\d.]+) MB/image$"), number(r"^predicted: .* ms/step, (\d+) images/s$")


def judge_case(what, text, known):
    megabytes, predicted = planned(text)
    if not megabytes:
        return Finding(what, FAILED, note="the plan tells no MB/image")
    copy, reached = known.get(COPY), known.get(f"speed/{what}")
    if not copy or not reached:
        lacking = "ceilings" if not copy else "speed"
        return Finding(what, SKIPPED, megabytes, "MB/image", f"nothing to compare with: {lacking} did not measure it")
    floor = copy * 1e12 / (megabytes * 1e6)
    plan = f"; {reached / predicted:.0%} of the plan's {predicted:,.0f}" if predicted else ""
    return Finding(f"{what}: share of the bound", MEASURED, reached / floor, "",
                   f"{reached:,.0f} of {floor:,.0f} images/s at {megabytes:g} MB/image and {copy:.2f} TB/s{plan}")


def judge(outcomes, known):
    names = ["-".join(map(str, case)) for case in CASES]
    return [judge_case(name.replace("-", " "), outcomes[name].output, known) for name in names if name in outcomes]


ROOFLINE = Stage("roofline", "our speed against planned bytes over the rate of a copy", 5, commands, judge)
