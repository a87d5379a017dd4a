"""Our images a second, and PyTorch's on the same GPU, in turns."""
import statistics
import sys
from dataclasses import dataclass

from records import phase_shares, rate
from stage import FAILED, MEASURED, SKIPPED, Command, Finding, Stage
from stages.common import PROBES, probe, synthetic, toy


@dataclass(frozen=True)
class Case:
    model: str
    batch: int
    precision: str
    graph: bool = True
    peers: str = ""  # PyTorch's modes to compare with
    goal: float = 0.0  # our rate over PyTorch's best mode, or over `rival`; 0: none
    rival: str = ""
    variant: str = ""  # of a case that is there already

    def what(self):
        return f"{self.model} {self.batch} {self.precision}" + ("" if self.graph else " no-graph") + (f" {self.variant}" if self.variant else "")

    def name(self):
        return self.what().replace(" ", "-")


CASES = (
    Case("resnet50", 256, "fp16", peers="compile,reduce-overhead,max-autotune", goal=1.5),
    Case("inception_v3", 128, "fp16", peers="compile,reduce-overhead", goal=1.5),
    Case("cifar10_cnn", 128, "fp16", peers="eager,reduce-overhead", goal=5, rival="eager"),
    Case("resnet50", 256, "fp16", graph=False),
    Case("resnet50", 256, "bf16"),
    Case("cifar10_cnn", 128, "fp16", graph=False),
    Case("resnet20", 128, "fp16"),
    Case("mobilenet_v3_large", 256, "fp16", peers="compile"), Case("efficientnet_b0", 256, "fp16", peers="compile"),
    Case("convnext_tiny", 128, "fp16", peers="compile"),
    # What is left is for longer runs: --stages speed.
    Case("resnet50", 256, "fp16", peers="eager,max-autotune-no-cudagraphs", goal=1.5, variant="other-modes"),
    Case("resnet50", 128, "fp16"), Case("resnet50", 512, "fp16"), Case("cifar10_cnn", 1024, "fp16"), Case("resnet20", 1024, "fp16"),
    Case("resnet20", 128, "fp32", peers="eager,reduce-overhead"),
    Case("cifar10_cnn", 128, "fp32", peers="eager,reduce-overhead", goal=5, rival="eager"),
    Case("resnet50", 512, "bf16", peers="compile", goal=1.5),
    Case("resnet20", 128, "bf16", graph=False), Case("resnet50", 256, "fp32"),
)
PREPARED = 2  # of CASES, those whose PyTorch is compiled before anything is measured
LOG_EVERY = {"cifar10_cnn": 100, "resnet20": 100}  # steps, else 5: some records a second
FOREVER = 10_000_000  # steps; the probe ends a run. `train` counts at most 65,535 epochs, of 1,000,000 images


def command(place, case):
    files, batch = place.out / "speed" / case.name(), place.size(case.batch, 8)
    asked = ("--modes", place.size(case.peers, "eager")) if case.peers else ()
    words = ("--model", case.model, "--batch", batch, "--precision", place.size(case.precision, "fp32"), *asked, "--files", files, *toy(place), "--")
    options = synthetic(case.model, batch, FOREVER, "--lr", 0.001, "--ema", 0, "--autotune",
                        "--log-every", place.size(LOG_EVERY.get(case.model, 5), 2), *(() if case.graph else ("--no-graph",)))
    return Command(case.name(), probe("pair", *words, *place.train(*options, precision=case.precision)), 180 if case.peers else 30,
                   needs=("train",), may_wait=True, metrics=files.with_name(files.name + "-0.jsonl"))


def prepare(place):
    """torch.compile takes a minute or two for a network, mostly on CPUs; later ones find what it made."""
    if place.rehearse:
        return []
    worker = PROBES / "torch_worker.py"
    # The slowest last: what is not there in time holds nothing else up.
    modes = sorted(((mode == "max-autotune", case, mode) for case in CASES[:PREPARED] for mode in case.peers.split(",")), key=lambda m: m[0])
    return [Command(f"{case.name()}-{mode}", (sys.executable, str(worker), case.model, str(case.batch), case.precision, mode), 300,
                    needs=("torch", "gpu"))
            for _, case, mode in modes]


def commands(place):
    """ResNets take a CPU too long for a rehearsal."""
    return [command(place, case) for case in CASES if not place.rehearse or case.model == "cifar10_cnn"]


def where_time_goes(records):
    _, spread = rate(records)
    shares = ", ".join(f"{phase} {share:.0%}" for phase, share in phase_shares(records)[:4])
    return f"+- {spread:,.0f}; {shares}" if shares else ""


def judge_ratio(case, rates, medians):
    """Round by round, since the GPU's clock moves."""
    best = case.rival if case.rival in medians else max(medians, key=medians.get)
    ratio = statistics.median(a / b for a, b in zip(rates["ours"], rates[best]))
    aim = f"the goal of {case.goal:g} is {'reached' if ratio >= case.goal else 'missed'}" if case.goal else ""
    return Finding(f"{case.what()}: ours over {best}", MEASURED, ratio, "", aim)


def judge_case(case, outcome):
    found = outcome.result()
    rates = {side: values for side, values in found.get("rates", {}).items() if values}
    if not rates.get("ours"):
        return [Finding(case.what(), FAILED, note="no rate of ours")]
    medians = {side: statistics.median(values) for side, values in rates.items()}
    findings = [Finding(case.what(), MEASURED, medians.pop("ours"), "images/s", where_time_goes(outcome.records))]
    findings += [Finding(f"{case.what()}: PyTorch {mode}", MEASURED, value, "images/s") for mode, value in medians.items()]
    findings += [Finding(f"{case.what()}: PyTorch {mode}", SKIPPED, note=why) for mode, why in found.get("failed", {}).items()]
    return findings + ([judge_ratio(case, rates, medians)] if medians else [])


def judge(outcomes, known):
    return [finding for case in CASES if case.name() in outcomes for finding in judge_case(case, outcomes[case.name()])]


SPEED = Stage("speed", "our images a second, by batch, precision and graph, and PyTorch's in turns", 100, commands, judge, prepare=prepare)
