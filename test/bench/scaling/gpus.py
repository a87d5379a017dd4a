"""What docs/evidence/scaling.md predicts of GPUs that are not here: steps of ResNet-50, and what failures cost. See model.py."""
import math

import numpy as np

from steps import Computing, exposed_s

GPUS_A_HOST = 8
GRADIENTS = 25.6e6  # of ResNet-50
IMAGES = 256
PLANNED_S = IMAGES / 10480  # docs/evidence/gpu.md, "Planned cards": a bound, fp16 on an H100
BACKWARD = 2 / 3
DEVIATION = 0.01  # of a rank's step: assumed
UPDATE_S = 0.3e-3

# src/graph/tuning.cc of NCCL: microseconds for LL, LL128 and Simple, and the share of bandwidth that each reaches.
BASE_US = {"ring": (3.6, 10.0, 8.4), "tree": (4.4, 4.4, 0.0)}
NVLINK_US = {"ring": (0.47, 1.9, 3.4), "tree": (0.52, 1.2, 28.0)}
NETWORK_US = {"ring": (2.7, 4.0, 9.6), "tree": (5.0, 8.5, 50.0)}
SHARE = {"ring": (1 / 4, 0.92, 1.0), "tree": (0.9 / 3.8, 0.9 * 0.915, 0.9)}


def nccl_sum_s(gpus, size, rate, how="ring"):
    """A sum over `gpus`, whose hosts have one link of `rate` bytes a second each, by the best of NCCL's protocols."""
    hosts = max(1, gpus // GPUS_A_HOST)
    best = math.inf
    for base, near, far, share in zip(BASE_US[how], NVLINK_US[how], NETWORK_US[how], SHARE[how]):
        if how == "ring":
            latency = base + 2 * (gpus - hosts) * near + 2 * (hosts - 1) * far
            bytes_s = 2 * (gpus - 1) / gpus * size / (share * rate)
        else:
            latency = base + 2 * ((GPUS_A_HOST - 1) * near + math.log2(hosts) * far)
            bytes_s = 2 * size / (share * rate)
        best = min(best, 1e-6 * latency + bytes_s)
    return best


def gpu_step_s(gpus, rate, number_bytes, bucket_mib=16, how="ring", slower=1.0):
    """Buckets count gradients as fp32. They become final evenly over the backward pass."""
    count = max(1, round(GRADIENTS * 4 / (bucket_mib * 2 ** 20)))
    compute = Computing(slower * PLANNED_S, DEVIATION * slower * PLANNED_S).slowest_s(gpus)
    alone = [nccl_sum_s(gpus, GRADIENTS * number_bytes / count, rate, how)] * count
    leads = [compute * BACKWARD * (1 - (b + 1) / count) for b in range(count)]
    return compute + exposed_s(leads, alone, alone, 1) + UPDATE_S


def best_bucket(gpus, rate, number_bytes, how="ring", slower=1.0):
    return min((4, 8, 16, 32, 64, 128), key=lambda mib: gpu_step_s(gpus, rate, number_bytes, mib, how, slower))


def efficiency(gpus, rate, number_bytes, **how):
    alone = how.get("slower", 1.0) * PLANNED_S + UPDATE_S
    return alone / gpu_step_s(gpus, rate, number_bytes, **how)


RATES = {"25G": 25e9 / 8 * 0.92, "100G": 100e9 / 8 * 0.92, "400G": 400e9 / 8 * 0.92}
GPUS = (64, 128, 256, 512, 1024, 2048, 4096)


def predict():
    for slower, title in ((1.0, "step of 24.4 ms, the planned bound"), (3.0, "step of 73.3 ms")):
        print(f"\n{title}: weak efficiency, ring as it is (buckets of 16 MiB) / with the best bucket / NCCL's tree with its best bucket\n")
        print("| links | gradients | " + " | ".join(str(g) for g in GPUS) + " |\n|" + "---|" * (len(GPUS) + 2))
        for name, rate in RATES.items():
            for number_bytes, dtype in ((4, "fp32"), (2, "fp16")):
                cells = []
                for gpus in GPUS:
                    values = [efficiency(gpus, rate, number_bytes, slower=slower)]
                    for how in ("ring", "tree"):
                        bucket = best_bucket(gpus, rate, number_bytes, how, slower)
                        values.append(efficiency(gpus, rate, number_bytes, bucket_mib=bucket, how=how, slower=slower))
                    cells.append(" / ".join(f"{100 * v:.0f}" for v in values))
                print(f"| {name} | {dtype} | " + " | ".join(cells) + " |")
    print("\nfixed time of one sum, ms: " + ", ".join(
        f"{g}: ring {1e3 * nccl_sum_s(g, 0, 1e12):.1f}, tree {1e3 * nccl_sum_s(g, 0, 1e12, 'tree'):.2f}" for g in GPUS))


GPU_MTBF_S = 16384 * 54 * 86400 / 419  # 419 interruptions in 54 days of 16,384 H100 (The Llama 3 Herd of Models, 2024)
STALL_S = 0.014      # of a save of ResNet-50's 205 MB: docs/evidence/performance.md, "Checkpoints"
DURABLE_S = 0.6      # until such a save is durable, there
RESTART_S = 120.0    # to notice, start again and load: assumed


def lost_share(interval_s, mtbf_s):
    """Of all time, to saves, to what is done again and to starting again."""
    return STALL_S / interval_s + (interval_s / 2 + DURABLE_S + RESTART_S) / mtbf_s


def young_s(mtbf_s):
    return max(DURABLE_S, math.sqrt(2 * STALL_S * mtbf_s))


def simulated_share(interval_s, mtbf_s, days=4000, seed=1):
    """The same by drawing failures: what is durable when one comes is kept."""
    random, at, lost = np.random.default_rng(seed), 0.0, 0.0
    while at < days * 86400:
        up = random.exponential(mtbf_s)
        kept = max(0.0, math.floor((up - DURABLE_S) / (interval_s + STALL_S))) * interval_s
        lost += up - kept + RESTART_S
        at += up + RESTART_S
    return lost / at


def failures():
    print("\n| GPUs | hours between failures | Young's interval, s | time lost | simulated | with a save every 10 min |\n|---|---|---|---|---|---|")
    for gpus in GPUS:
        mtbf = GPU_MTBF_S / gpus
        interval = young_s(mtbf)
        print(f"| {gpus} | {mtbf / 3600:.1f} | {interval:.0f} | {100 * lost_share(interval, mtbf):.2f} % "
              f"| {100 * simulated_share(interval, mtbf):.2f} % | {100 * lost_share(600, mtbf):.2f} % |")
