"""Reads model files (docs/reference/model-file.md) that `train` accepts: what benchmarks build in another framework. They
build layers and shapes: `init`, `decay`, gamma's first value and `variance` are left to them."""
import dataclasses
import re

import numpy


@dataclasses.dataclass(frozen=True)
class Layer:
    name: str
    operation: str
    inputs: tuple
    options: dict


def split(text):
    """The lines of the network, and of each block with its parameters."""
    lines, blocks = [], {}
    into = lines
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        is_result = words[1:2] == ["="]
        if not words or words[0] in ("model", "recipe", "images") and not is_result:
            continue
        if words[0] == "block" and not is_result:
            into = []
            blocks[words[1]] = (dict(w.split("=") for w in words[2:] if "=" in w), into)
        elif words == ["end"]:
            into = lines
        else:
            into.append(words)
    return lines, blocks


def layers_of(text, classes):
    """The layers in order, blocks written out; `input` is the image, and has the option `size`."""
    lines, blocks = split(text)
    layers = []

    def expand(lines, prefix, names, values):
        """Adds `lines`, whose names get `prefix`; what they may read is in `names`, `$values` are replaced."""
        last = names["input"]
        for words in lines:
            named = len(words) > 1 and words[1] == "="
            local, (operation, *rest) = (words[0], words[2:]) if named else (None, words)
            options = dict(w.split("=", 1) for w in rest if "=" in w)
            options = {k: values[v[1:]] if v.startswith("$") else v for k, v in options.items()}
            inputs = [names[w] for w in rest if "=" not in w]
            for name in several(local or (operation if operation == "input" else f"{operation}@{len(layers)}")):
                read = inputs or [last]
                if operation in blocks:
                    defaults, inside = blocks[operation]
                    last = expand(inside, prefix + name + ".", {"input": read[0]}, {**values, **defaults, **options})
                else:
                    last = prefix + name
                    layers.append(Layer(last, operation, tuple(read) if operation != "input" else (), options))
                names[name] = last
        return last

    expand(lines, "", {"input": "input"}, {"classes": str(classes)})
    return layers


def several(name):
    """`layer1.{0..2}` is layer1.0, layer1.1, layer1.2."""
    found = re.fullmatch(r"(.*)\{(\d+)\.\.(\d+)\}(.*)", name)
    return [found[1] + str(i) + found[4] for i in range(int(found[2]), int(found[3]) + 1)] if found else [name]


def window_of(layer):
    """Height and width, stride, and padding: SAME, VALID, or pixels before and after of either."""
    height, _, width = layer.options.get("kernel", layer.options.get("size")).partition("x")
    pool = layer.operation.endswith("pool")
    stride = int(layer.options.get("stride", height if pool else 1))
    padding = layer.options.get("padding", "valid" if pool else "same").upper()
    return (int(height), int(width or height)), stride, [(int(padding),) * 2] * 2 if padding.isdigit() else padding


def batch_of(layers, size):
    """Random images (channels last) and labels of ten classes."""
    draw = numpy.random.default_rng(1)
    extent = int(layers[0].options["size"])
    return draw.normal(size=(size, extent, extent, 3)).astype(numpy.float32), draw.integers(0, 10, size)
