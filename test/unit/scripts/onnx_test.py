#!/usr/bin/env python3
"""onnx_test.py DUMP MODELS [NETWORK...]: what ONNX's checker and onnxruntime say of the networks in MODELS, as DUMP (onnx_dump) writes them.

Logits of three images, and of one, are compared with those of this program: the norm of the difference must be at most 1e-4 of their
norm. One file takes pixels and normalises them, the other has BatchNorms folded."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

OWN = pathlib.Path(sys.prefix, "onnx/bin/python")  # scripts/setup.sh makes it
if OWN.exists():
    os.execv(OWN, [OWN, *sys.argv])
try:
    import numpy as np
    import onnx
    import onnxruntime
except ImportError as missing:
    print(f"skipped: {missing}; scripts/setup.sh installs onnx and onnxruntime from PyPI")
    sys.exit(77)

DUMP, MODELS, NAMES = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
LIMIT, IMAGES = 1e-4, 3


def words(text):
    """A size that takes little time; the auxiliary head of Inception v3 needs all pixels."""
    size = re.search(r"(?m)^input size=(\S+)", text).group(1)
    return f"size={size}" if int(size.split("x")[0]) <= 64 or "model inception_v3" in text else "size=64"


def session_of(path, more_outputs=()):
    made = onnx.load(path)
    onnx.checker.check_model(made, full_check=True)
    assert made.ir_version == 8 and [o.version for o in made.opset_import] == [17], "IR 8 and opset 17"
    for name in more_outputs:
        made.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    return onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])


def error(got, wanted):
    return float(np.linalg.norm(got - wanted) / np.linalg.norm(wanted))


def errors_of(model, folder):
    name, out = model.stem, str(folder / model.stem)
    subprocess.run([DUMP, str(model), words(model.read_text()), out], check=True)
    logits = np.fromfile(out + ".logits", "<f4").reshape(IMAGES, -1)
    takes_pixels = session_of(out + ".uint8.onnx", ["input"])
    shape = takes_pixels.get_inputs()[0].shape
    assert shape[0] == "batch" and takes_pixels.get_outputs()[0].shape == ["batch", logits.shape[1]]
    apart = error(logits[0], logits[1])
    images = np.fromfile(out + ".images", np.uint8).reshape(IMAGES, *shape[1:])
    of_pixels, normalised = takes_pixels.run(["logits", "input"], {"images": images})
    folded = session_of(out + ".folded.onnx")
    norms = sum(node.op_type == "BatchNormalization" for node in onnx.load(out + ".folded.onnx").graph.node)
    for path in folder.glob(f"{name}.*"):
        path.unlink()
    return {"pixels": error(of_pixels, logits), "folded": error(folded.run(["logits"], {"input": normalised})[0], logits),
            "one image": error(folded.run(["logits"], {"input": normalised[:1]})[0], logits[:1])}, apart, norms


def main():
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "out").mkdir()
        for model in [pathlib.Path(__file__).parents[2] / "support/operations.model", *([MODELS / f"{name}.model" for name in NAMES] or sorted(MODELS.glob("*.model")))]:
            errors, apart, norms = errors_of(model, pathlib.Path(folder, "out"))
            bad += max(errors.values()) > LIMIT or apart < 0.005
            print(f"{model.stem}: " + ", ".join(f"{what} {value:.1e}" for what, value in errors.items()) + f"; images are {apart:.3f} apart; {norms} BatchNorms left", flush=True)
    sys.exit(bad > 0)


main()
