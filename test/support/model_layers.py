"""Model files for benchmarks that build the same network in another framework: layers and shapes. `init`, `decay`, gamma's first
value and `variance` are left to them."""
import os
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
from ringtrain.model_file import layers_of, window_of  # noqa: F401, for those who import this


def batch_of(layers, size):
    """Random images (channels last) and labels of ten classes."""
    draw = numpy.random.default_rng(1)
    extent = int(layers[0].options["size"])
    return draw.normal(size=(size, extent, extent, 3)).astype(numpy.float32), draw.integers(0, 10, size)
