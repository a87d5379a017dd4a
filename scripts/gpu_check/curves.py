"""How far two loss curves lie apart, and what is allowed."""
from stage import FAILED, Finding, verdict

# The first step has the same weights and images, so only rounding differs (fp32 may be tf32 on a
# GPU); later ones amplify it. Relative, of the first step's loss and of the mean over all steps.
BOUNDS = {"fp32": (2e-3, 0.05), "bf16": (2e-2, 0.10), "fp16": (1e-2, 0.10)}
LEAST_FALL = 0.15  # of the loss, within the run: a flat curve would agree with anything


def first_gap(ours, oracle):
    step = min(oracle)
    return abs(ours[step] - oracle[step]) / abs(oracle[step])


def mean_gap(ours, oracle):
    """Mean distance of the curves over the oracle's mean."""
    return sum(abs(ours[s] - oracle[s]) for s in oracle) / sum(abs(v) for v in oracle.values())


def fall(curve):
    """By what share the loss fell, from the first step to the mean of the last fifth."""
    steps = sorted(curve)
    last = [curve[s] for s in steps[-max(1, len(steps) // 5):]]
    return 1 - sum(last) / len(last) / curve[steps[0]]


def missing_steps(ours, oracle):
    return sorted(set(oracle) - set(ours))


def compare(what, ours, oracle, precision):
    """Findings about a curve beside the one it must follow."""
    if not oracle or missing_steps(ours, oracle):
        return [Finding(what, FAILED, note="steps without a loss")]
    first_bound, mean_bound = BOUNDS[precision]
    first, mean = first_gap(ours, oracle), mean_gap(ours, oracle)
    return [
        Finding(f"{what}: first loss", verdict(first <= first_bound), first, f"of <= {first_bound:g}"),
        Finding(f"{what}: curve", verdict(mean <= mean_bound), mean, f"of <= {mean_bound:g}"),
    ]


def compare_bits(what, curves):
    """Curves of other devices and precisions, by name, cannot be equal to the bit: one was then not what it is called."""
    names = list(curves)
    same = [f"{a} = {b}" for i, a in enumerate(names) for b in names[i + 1:] if curves[a] == curves[b]]
    return Finding(f"{what}: no two curves are one", verdict(not same), note=", ".join(same))


def compare_fall(what, oracle):
    share = fall(oracle) if oracle else 0.0
    return Finding(f"{what}: the curve falls", verdict(share >= LEAST_FALL), share,
                   f"of >= {LEAST_FALL:g}")
