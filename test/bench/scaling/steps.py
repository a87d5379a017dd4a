"""The model of a step in docs/evidence/scaling.md: what sums take, what of them backward hides, and the slowest of many ranks."""
import math
from dataclasses import dataclass

import numpy as np

KIB = 1024.0


@dataclass(frozen=True)
class Link:
    """Between two neighbours of the ring: seconds that a message takes besides its bytes, and bytes a second."""
    hop_s: float
    rate: float


def ring_sum_s(hosts, size, link):
    """A sum alone, in the segments of src/allreduce/ring/ring.cpp: each waits for the one before it to come from the left."""
    part = size / hosts
    segments = max(1, math.ceil(part / min(max(part / 8, 8 * KIB), 31 * KIB)))
    segment = part / segments
    one, all_of_part = segment / link.rate + link.hop_s, part / link.rate
    if one <= all_of_part:  # while a part is sent, the next one comes
        return 2 * (hosts - 1) * all_of_part + link.hop_s
    return 2 * (hosts - 1) * one + all_of_part - segment / link.rate


def carried_s(hosts, size, link):
    return 2 * (hosts - 1) / hosts * size / link.rate


def exposed_s(leads, alone, carried, at_once):
    """How long after backward the last sum ends. `leads`: seconds before that at which each bucket is final."""
    ends, link_free = [], -math.inf
    for b, lead in enumerate(leads):
        start = -lead if b < at_once else max(-lead, ends[b - at_once])
        link_free = max(start, link_free) + min(carried[b], alone[b])
        ends.append(link_free + max(0.0, alone[b] - carried[b]))
    return max(0.0, ends[-1]) if ends else 0.0


def largest_of(count):
    """Expected largest of `count` standard normal numbers."""
    x = np.linspace(-8, 8, 4001)
    below = np.array([0.5 * (1 + math.erf(v / math.sqrt(2))) for v in x]) ** count
    return float(8 - np.sum((below[1:] + below[:-1]) / 2 * np.diff(x)))


@dataclass(frozen=True)
class Computing:
    """Of a rank's step: mean, and standard deviation from step to step and rank to rank."""
    mean_s: float
    deviation_s: float

    def slowest_s(self, ranks):
        return self.mean_s + self.deviation_s * largest_of(ranks)
