"""Reads model files (docs/reference/model-file.md) that `train` accepts: layers, shapes, and how their weights lie."""
import dataclasses
import os
import re

PACKAGE = os.path.dirname(os.path.abspath(__file__))
# Of the package that is installed, and of a checkout.
MODELS = [os.path.join(PACKAGE, "share", "ringtrain", "models"), os.path.join(PACKAGE, "..", "..", "models")]


@dataclasses.dataclass(frozen=True)
class Layer:
    name: str
    operation: str
    inputs: tuple
    options: dict


def built_in(name):
    """The text of `train --model NAME --print-model`."""
    if re.fullmatch("[A-Za-z0-9_]+", name):
        for folder in MODELS:
            path = os.path.join(folder, name + ".model")
            if os.path.exists(path):
                with open(path, encoding="utf-8") as file:
                    return file.read()
    raise ValueError(f"{name!r} is no built-in network: give its model file")


def words_of(line):
    """Its words; `train` knows no other white space."""
    return [word for word in re.split("[ \t\r]", line.partition("#")[0]) if word]


def lines_of(text):
    return text.removeprefix("\ufeff").split("\n")


def head_of(text):
    """The line that begins the file: its place, and the network's name and number of classes."""
    for place, line in enumerate(lines_of(text)):
        if not (words := words_of(line)):
            continue
        names = [word for word in words[1:] if "=" not in word]
        options = dict(word.split("=", 1) for word in words[1:] if "=" in word)
        if words[0] == "model" and len(names) == 1 and list(options) == ["classes"] and re.fullmatch("[0-9]+", options["classes"]):
            return place, names[0], options["classes"]
        break
    raise ValueError("no model file: it begins with a line such as: model NAME classes=10")


def split(text):
    """The lines of the network, and of each block with its parameters."""
    lines, blocks = [], {}
    into = lines
    for line in lines_of(text):
        words = words_of(line)
        is_result = words[1:2] == ["="]
        if not words or words[0] in ("model", "recipe", "images") and not is_result:
            continue
        if words[0] == "block" and not is_result:
            into = []
            name = next(w for w in words[1:] if "=" not in w)
            blocks[name] = (dict(w.split("=", 1) for w in words[1:] if "=" in w), into)
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


def pixels_after(layer, pixels):
    """Height and width behind a window."""
    window, stride, padding = window_of(layer)
    if padding == "SAME":
        return tuple(-(-size // stride) for size in pixels)
    around = (0, 0) if padding == "VALID" else tuple(map(sum, padding))
    return tuple((size + more - side) // stride + 1 for size, more, side in zip(pixels, around, window))


def shapes_of(layers):
    """Height, width and channels of each layer's result, by its name. What no line here names keeps the shape of what it reads."""
    shapes = {}
    for layer in layers:
        if layer.operation == "input":
            height, _, width = layer.options["size"].partition("x")
            shapes[layer.name] = (int(height), int(width or height), int(layer.options.get("channels", 3)))
            continue
        *pixels, channels = shapes[layer.inputs[0]]
        if layer.operation == "convolution":
            pixels, channels = pixels_after(layer, pixels), int(layer.options["channels"])
        elif layer.operation == "linear":
            channels = int(layer.options["channels"])
        elif layer.operation in ("max_pool", "average_pool"):
            pixels = pixels_after(layer, pixels)
        elif layer.operation == "reflect_pad":
            pixels = [size + 2 * int(layer.options["border"]) for size in pixels]
        elif layer.operation == "blur_pool":
            stride = int(layer.options.get("stride", 2))
            pixels = [-(-size // stride) for size in pixels]
        elif layer.operation == "global_pool":
            pixels = (1, 1)
        elif layer.operation == "matrix_product":
            pixels, channels = (1, 1), int(layer.options["outputs"])
        elif layer.operation == "concat":
            channels = sum(shapes[name][2] for name in layer.inputs)
        elif layer.operation == "shortcut":
            stride = int(layer.options.get("stride", 1))
            pixels, channels = [-(-size // stride) for size in pixels], int(layer.options.get("channels", channels))
        shapes[layer.name] = (*pixels, channels)
    return shapes


class Network:
    """What a model file says of weights: `flattened` has the shape that each matrix product reads, by the name of its weight, and
    `without_gamma` the names of BatchNorms that have none, `layer_scales` those parameters' names. `head` is the name of the layer that gives the logits."""

    def __init__(self, text):
        self.text = text
        _, self.name, self.classes = head_of(text)
        layers = layers_of(text, self.classes)
        shapes = shapes_of(layers)
        self.flattened = {layer.name + ".weight": shapes[layer.inputs[0]] for layer in layers if layer.operation == "matrix_product"}
        self.without_gamma = {layer.name for layer in layers if layer.operation == "batch_norm" and layer.options.get("gamma") == "none"}
        self.layer_scales = {layer.name for layer in layers if layer.operation == "layer_scale"}
        self.head = next(layer.inputs[0] for layer in layers if layer.operation == "loss" and layer.options.get("auxiliary") != "yes")

    def with_classes(self, classes):
        """The same network for another number of classes."""
        lines = lines_of(self.text)
        place = head_of(self.text)[0]
        lines[place] = re.sub("classes=[0-9]+", f"classes={classes}", lines[place], count=1)
        return Network("\n".join(lines))
