"""What a save costs the step loop."""
import statistics

from records import of_kind, percentile, save_steps
from stage import FAILED, Command, Finding, Stage, verdict
from stages.common import synthetic

STALL_S, STALL_SHARE = 1e-3, 0.01  # the larger of the two is allowed: 1 ms, or 1 % of a step
LEAST_SAVES = 3
NOT_SAVED = ("no slot is free", "the copy before it is not done")  # slow, and no stall


def commands(place):
    metrics = place.out / "checkpoint" / "saves.jsonl"
    model, batch = place.size("resnet50", "cifar10_cnn"), place.size(256, 8)
    options = synthetic(model, batch, place.size(300, 60), "--lr", 0.001, "--log-every", 1, "--metrics", metrics, "--checkpoint-every",
                        place.size(40, 10), "--checkpoint-dir", place.out / "checkpoint" / "files")
    return [Command("saves", place.train(*options, precision="fp16"), 60, needs=("train",), metrics=metrics)]


def judge(outcomes, known):
    if "saves" not in outcomes:
        return []
    records = outcomes["saves"].records
    lost = [r.get("text", "") for r in of_kind(records, "event") if r.get("what") == "save_failed"]
    broken = [text for text in lost if not any(known in text for known in NOT_SAVED)]
    if broken:
        return [Finding("saves", FAILED, len(broken), "failed", broken[0])]
    slowed, plain = save_steps(records)
    saves = len(of_kind(records, "checkpoint"))
    if saves < LEAST_SAVES or not slowed or not plain:
        return [Finding("saves", FAILED, saves, "saves", f"{LEAST_SAVES} are needed; {len(lost)} were left out")]
    usual = statistics.median(plain)
    stall, noise = percentile(slowed, 0.99) - usual, percentile(plain, 0.99) - usual
    allowed = max(STALL_S, STALL_SHARE * usual)
    return [Finding("p99 of save steps over p50 of plain ones", verdict(stall <= allowed), stall * 1e3, f"ms of <= {allowed * 1e3:.2g}",
                    f"{saves} saves, {len(lost)} left out; a plain step {usual * 1e3:.2f} ms, their own p99 {noise * 1e3:.2f} ms above")]


CHECKPOINT = Stage("checkpoint", "what a save costs the step loop", 20, commands, judge)
