"""tensorflow_on_demand.py MODEL.model BATCH THREADS PRECISION EXECUTION: TensorFlow's side of arena.py, its layout NHWC.
PRECISION is fp32 or bf16 (convolutions and matrix products; weights, statistics and loss stay fp32), EXECUTION graph
(tf.function) or xla (its jit_compile). For every number on standard input, trains so many steps and prints the seconds."""
import os
import sys
import time
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import tensorflow as tf

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from model_layers import batch_of, layers_of, window_of

path, batch, threads, precision, execution = sys.argv[1:]
tf.config.threading.set_intra_op_parallelism_threads(int(threads))
tf.config.threading.set_inter_op_parallelism_threads(int(threads))
tf.random.set_seed(1)
layers = layers_of(Path(path).read_text(), 10)
working = tf.bfloat16 if precision == "bf16" else tf.float32
momentum = 0 if Path(path).stem.startswith("cifar10_cnn") else 0.9
parameters, statistics = {}, {}  # filled by the first pass


def variable(of, name, start):
    if name not in of:
        of[name] = tf.Variable(start, trainable=of is parameters)
    return of[name]


def padded(x, padding, value=0):
    """x and the padding that is left: gradients of convolutions with explicit padding are not oneDNN's."""
    if isinstance(padding, str):
        return x, padding
    return tf.pad(x, [(0, 0), *padding, (0, 0)], constant_values=value), "VALID"


def convolution(layer, x):
    (height, width), stride, padding = window_of(layer)
    inputs, outputs = x.shape[-1], int(layer.options["channels"])
    deviation = (2 / (height * width * outputs)) ** 0.5
    w = variable(parameters, layer.name, lambda: tf.random.normal((height, width, inputs, outputs), stddev=deviation))
    x, padding = padded(x, padding)
    y = tf.nn.conv2d(x, tf.cast(w, working), stride, padding)
    if "bias" not in layer.options:
        return y
    bias = variable(parameters, layer.name + ".bias", lambda: tf.fill((outputs,), float(layer.options["bias"])))
    return tf.nn.bias_add(y, tf.cast(bias, working))


def matrix_product(layer, x):
    x = tf.reshape(x, (x.shape[0], -1))
    shape = x.shape[1], int(layer.options["outputs"])
    w = variable(parameters, layer.name, lambda: tf.random.normal(shape, stddev=shape[0] ** -0.5))
    bias = variable(parameters, layer.name + ".bias", lambda: tf.zeros(shape[1:]))
    return tf.nn.bias_add(tf.matmul(x, tf.cast(w, working)), tf.cast(bias, working))


def batch_norm(layer, x):
    channels = x.shape[-1:]
    beta = variable(parameters, layer.name + ".beta", lambda: tf.zeros(channels))
    has_gamma = layer.options.get("gamma") != "none"
    gamma = variable(parameters, layer.name + ".gamma", lambda: tf.ones(channels)) if has_gamma else tf.ones(channels)
    running = [variable(statistics, f"{layer.name}.{kind}", lambda: tf.zeros(channels)) for kind in ("mean", "variance")]
    y, *new = tf.compat.v1.nn.fused_batch_norm(x, gamma, beta, *running, epsilon=float(layer.options.get("epsilon", 1e-5)),
                                               exponential_avg_factor=float(layer.options.get("momentum", 0.1)))
    for statistic, value in zip(running, new):
        statistic.assign(tf.stop_gradient(value))
    return y


def relu(_, x):
    return tf.nn.relu(x)


def add(_, a, b):
    return a + b


def concat(_, *inputs):
    return tf.concat(inputs, -1)


def max_pool(layer, x):
    size, stride, padding = window_of(layer)
    x, padding = padded(x, padding, x.dtype.min)
    return tf.nn.max_pool2d(x, size, stride, padding)


def average_pool(layer, x):
    size, stride, padding = window_of(layer)
    return tf.nn.avg_pool2d(x, size, stride, padding)


def global_pool(_, x):
    return tf.reduce_mean(x, (1, 2))


def shortcut(layer, x):
    stride, channels = int(layer.options.get("stride", 1)), int(layer.options.get("channels", x.shape[-1]))
    return tf.pad(x[:, ::stride, ::stride], [(0, 0)] * 3 + [(0, channels - x.shape[-1])])


def lrn(_, x):
    return tf.cast(tf.nn.lrn(tf.cast(x, tf.float32), 4, 1, 0.001 / 9, 0.75), x.dtype)


def dropout(layer, x):
    return tf.nn.dropout(x, 1 - float(layer.options["keep"]))


def loss_of(x, labels):
    values, total = {"input": tf.cast(x, working)}, 0.0
    for layer in layers[1:]:
        inputs = [values[name] for name in layer.inputs]
        if layer.operation == "loss":
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, tf.cast(inputs[0], tf.float32))
            total += float(layer.options.get("weight", 1)) * tf.reduce_mean(losses)
        else:
            values[layer.name] = operations[layer.operation](layer, *inputs)
    return total


def step(x, labels):
    with tf.GradientTape() as tape:
        loss = loss_of(x, labels)
    for name, gradient in zip(parameters, tape.gradient(loss, list(parameters.values()))):
        if momentum:
            tf.raw_ops.ResourceApplyMomentum(var=parameters[name].handle, accum=velocities[name].handle, lr=0.01, grad=gradient,
                                             momentum=momentum)
        else:
            tf.raw_ops.ResourceApplyGradientDescent(var=parameters[name].handle, alpha=0.01, delta=gradient)


operations = {f.__name__: f for f in (convolution, matrix_product, batch_norm, relu, concat, max_pool, average_pool,
                                      global_pool, shortcut, lrn, dropout)} | {"sum": add}
x, labels = map(tf.constant, batch_of(layers, int(batch)))
loss_of(x, labels)
velocities = {name: tf.Variable(tf.zeros(p.shape), trainable=False) for name, p in parameters.items()} if momentum else {}
step = tf.function(step, jit_compile=execution == "xla")
for line in sys.stdin:
    start = time.perf_counter()
    for _ in range(int(line)):
        step(x, labels)
    next(iter(parameters.values())).numpy()
    print(f"{time.perf_counter() - start:.6f}", flush=True)
