"""Numbers that any program can make from a name: those of test/support/named_values.hpp. Needs numpy and xxhash."""
import numpy as np
import xxhash

PURPOSE = 4 << 24  # Philox: Purpose::synthetic


def words(name, count):
    """The first words of Philox4x32-10 keyed by the XXH64 of `name`."""
    blocks = (count + 3) // 4
    key = xxhash.xxh64_intdigest(name.encode())
    k0, k1, low = key & 0xFFFFFFFF, key >> 32, np.uint64(0xFFFFFFFF)
    x = [np.arange(blocks, dtype=np.uint64)] + [np.full(blocks, c, np.uint64) for c in (PURPOSE, 0, 0)]
    for _ in range(10):
        p, q = x[0] * np.uint64(0xD2511F53), x[2] * np.uint64(0xCD9E8D57)
        x = [(q >> np.uint64(32)) ^ x[1] ^ np.uint64(k0), q & low, (p >> np.uint64(32)) ^ x[3] ^ np.uint64(k1), p & low]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack(x, 1).ravel()[:count].astype(np.uint32)


def uniform(name, shape, low, high):
    """fp32 of [low, high)."""
    parts = (words(name, int(np.prod(shape))) >> 8).astype(np.float32) * np.float32(2.0**-24)
    return (np.float32(low) + (np.float32(high) - np.float32(low)) * parts).reshape(shape)


def parameter(name, shape):
    """By name and shape in the checkpoint's layout: a weight (He's deviation), a gamma, a bias or beta, or a running statistic."""
    if len(shape) > 1:
        bound = np.sqrt(6 / np.prod(shape[1:]))
        return uniform(name, shape, -bound, bound)
    if name.endswith((".weight", ".running_var")):
        return uniform(name, shape, 0.5, 1.5)
    return uniform(name, shape, -0.2, 0.2)


def images(count, extent):
    """uint8, count x extent x extent x 3: patches of 8 x 8 pixels of one colour under noise."""
    cells = (extent + 7) // 8
    patches = (words("patches", count * cells * cells * 3) >> 25).reshape(count, cells, cells, 3)
    noise = (words("noise", count * extent * extent * 3) >> 25).reshape(count, extent, extent, 3)
    return (patches.repeat(8, 1).repeat(8, 2)[:, :extent, :extent] + noise).astype(np.uint8)


def labels(count, classes):
    return (words("labels", count) % classes).astype(np.int32)


def probe(name, values):
    """The norm of a tensor in the checkpoint's layout, and its product with a fixed vector of the same norm's expectation."""
    values = np.asarray(values, np.float64).ravel()
    return np.sqrt(values @ values), values @ uniform("probe " + name, values.shape, -1, 1).astype(np.float64)
