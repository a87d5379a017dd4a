"""jax_on_demand.py MODEL.model BATCH THREADS PRECISION LAYOUT: JAX's side of arena.py, one jitted function a step whose state
is donated. PRECISION is fp32 or bf16 (convolutions and matrix products; weights, statistics and loss stay fp32), LAYOUT
contiguous (NCHW) or channels_last. For every number on standard input, trains so many steps and prints the seconds."""
import os
import sys
import time
from pathlib import Path

os.environ["NPROC"] = sys.argv[3]
import jax
import jax.numpy as jnp
import numpy
from jax import lax

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from model_layers import batch_of, layers_of, window_of

path, batch, _, precision, layout = sys.argv[1:]
last = layout == "channels_last"
pixels, channel = ((1, 2), 3) if last else ((2, 3), 1)
layers = layers_of(Path(path).read_text(), 10)
working = jnp.bfloat16 if precision == "bf16" else jnp.float32
parameters = {}  # filled by the first pass
momentum = 0 if Path(path).stem.startswith("cifar10_cnn") else 0.9


class Network:
    """A pass over the layers with these parameters; `new` gets the running statistics."""

    def __init__(self, parameters, statistics, key):
        self.parameters, self.statistics, self.key, self.new, self.loss = parameters, statistics, key, {}, 0

    def parameter(self, name, shape, deviation=0.05, value=None):
        if name not in self.parameters:
            drawn = numpy.random.default_rng(len(parameters)).normal(0, deviation, shape)
            self.parameters[name] = numpy.asarray(drawn if value is None else numpy.full(shape, value), numpy.float32)
        return self.parameters[name]

    def per_channel(self, values, x):
        return values.reshape([-1 if i == channel else 1 for i in range(x.ndim)]).astype(x.dtype)

    def convolution(self, layer, x):
        (height, width), stride, padding = window_of(layer)
        inputs, outputs = x.shape[channel], int(layer.options["channels"])
        w = self.parameter(layer.name, (height, width, inputs, outputs), (2 / (height * width * outputs)) ** 0.5)
        y = lax.conv_general_dilated(x, w.astype(working), (stride, stride), padding,
                                     dimension_numbers=("NHWC" if last else "NCHW", "HWIO", "NHWC" if last else "NCHW"))
        if "bias" in layer.options:
            y = y + self.per_channel(self.parameter(layer.name + ".bias", (outputs,), value=float(layer.options["bias"])), y)
        return y

    def matrix_product(self, layer, x):
        x = x.reshape(x.shape[0], -1)
        outputs = int(layer.options["outputs"])
        w = self.parameter(layer.name, (x.shape[1], outputs), x.shape[1] ** -0.5)
        return x @ w.astype(working) + self.parameter(layer.name + ".bias", (outputs,), value=0).astype(working)

    def batch_norm(self, layer, x):
        wide, axes = x.astype(jnp.float32), (0, *pixels)
        mean = wide.mean(axes)
        variance = (wide * wide).mean(axes) - mean * mean
        beta = self.parameter(layer.name + ".beta", mean.shape, value=0)
        scale = lax.rsqrt(variance + float(layer.options.get("epsilon", 1e-5)))
        if layer.options.get("gamma") != "none":
            scale = scale * self.parameter(layer.name + ".gamma", mean.shape, value=1)
        share = float(layer.options.get("momentum", 0.1))
        old = self.statistics.get(layer.name, jnp.zeros((2, *mean.shape)))
        self.new[layer.name] = (1 - share) * old + share * jnp.stack([mean, variance])
        return (wide * self.per_channel(scale, wide) + self.per_channel(beta - mean * scale, wide)).astype(x.dtype)

    def relu(self, _, x):
        return jax.nn.relu(x)

    def sum(self, _, a, b):
        return a + b

    def concat(self, _, *inputs):
        return jnp.concatenate(inputs, channel)

    def windows(self, layer, x, start, operation):
        (height, width), stride, padding = window_of(layer)
        shape = [1] * 4, [1] * 4
        for axis, size in zip(pixels, (height, width)):
            shape[0][axis], shape[1][axis] = size, stride
        if not isinstance(padding, str):
            pads = iter(padding)
            padding = [next(pads) if axis in pixels else (0, 0) for axis in range(4)]
        return lax.reduce_window(x, numpy.asarray(start, x.dtype), operation, *shape, padding)

    def max_pool(self, layer, x):
        return self.windows(layer, x, -numpy.inf, lax.max)

    def average_pool(self, layer, x):
        one = jnp.ones([x.shape[axis] if axis in pixels else 1 for axis in range(4)], x.dtype)
        return self.windows(layer, x, 0, lax.add) / self.windows(layer, one, 0, lax.add)

    def global_pool(self, _, x):
        return x.mean(pixels, dtype=jnp.float32).astype(x.dtype)

    def shortcut(self, layer, x):
        stride, channels = int(layer.options.get("stride", 1)), int(layer.options.get("channels", x.shape[channel]))
        x = x[:, ::stride, ::stride] if last else x[:, :, ::stride, ::stride]
        return jnp.pad(x, [(0, channels - x.shape[channel] if axis == channel else 0) for axis in range(4)])

    def lrn(self, _, x):
        wide = x.astype(jnp.float32)
        window = [9 if axis == channel else 1 for axis in range(4)]
        around = lax.reduce_window(wide * wide, 0.0, lax.add, window, (1,) * 4, "SAME")
        return (wide * (1 + 0.001 / 9 * around) ** -0.75).astype(x.dtype)

    def dropout(self, layer, x):
        keep = float(layer.options["keep"])
        return jnp.where(jax.random.bernoulli(self.key, keep, x.shape), x / keep, 0)

    def run(self, x, labels):
        values = {"input": x.astype(working)}
        for layer in layers[1:]:
            inputs = [values[name] for name in layer.inputs]
            if layer.operation == "loss":
                log = jax.nn.log_softmax(inputs[0].astype(jnp.float32))
                loss = -jnp.take_along_axis(log, labels[:, None], 1).mean()
                self.loss += float(layer.options.get("weight", 1)) * loss
            else:
                values[layer.name] = getattr(self, layer.operation)(layer, *inputs)
        return self.loss, self.new


def loss_of(parameters, statistics, key, x, labels):
    return Network(parameters, statistics, key).run(x, labels)


def step(parameters, statistics, velocities, key, x, labels):
    key, used = jax.random.split(key)
    gradients, statistics = jax.grad(loss_of, has_aux=True)(parameters, statistics, used, x, labels)
    velocities = jax.tree.map(lambda v, g: momentum * v + g, velocities, gradients) if momentum else velocities
    parameters = jax.tree.map(lambda p, v: p - 0.01 * v, parameters, velocities if momentum else gradients)
    return parameters, statistics, velocities, key


images, labels = batch_of(layers, int(batch))
x, labels = jnp.asarray(images if last else images.transpose(0, 3, 1, 2)), jnp.asarray(labels)
key = jax.random.key(1)
_, shapes = jax.eval_shape(lambda: Network(parameters, {}, key).run(x, labels))
state = (jax.tree.map(jnp.asarray, parameters), jax.tree.map(lambda s: jnp.zeros(s.shape), shapes),
         jax.tree.map(jnp.zeros_like, parameters) if momentum else {}, key)
step = jax.jit(step, donate_argnums=(0, 1, 2, 3))
for line in sys.stdin:
    start = time.perf_counter()
    for _ in range(int(line)):
        state = step(*state, x, labels)
    jax.block_until_ready(state)
    print(f"{time.perf_counter() - start:.6f}", flush=True)
