"""Network.predict(): images in an array, through `train --predict`."""
import json
import os
import shutil
import subprocess
import sys
import tempfile

import numpy

from . import program


def _command():
    """How this package's program is started, else the one on the PATH."""
    if os.path.exists(os.path.join(program.PACKAGE, "bin", "train")):
        return [sys.executable, "-c", "import sys; sys.argv[0] = 'train'; from ringtrain.program import train; train()"]
    found = os.environ.get("RINGTRAIN_PROGRAM") or shutil.which("train")
    if not found:
        raise FileNotFoundError("no program `train`: install the wheel, or put it on the PATH")
    return [found]


def _environment():
    """Without what launchers say to their ranks: the program that is started is a job of its own."""
    launchers = ("OMPI_", "PMIX_", "PMI_", "PRTE_", "SLURM_")
    return {name: value for name, value in os.environ.items() if not name.startswith(launchers)}


class Network:
    """Weights of a file, to predict with. `model`: the network's name, where the file holds weights only; `options`: others of `train`."""

    def __init__(self, file, model=None, options=()):
        self.file = os.fspath(file)
        self._options = ["--init-from", self.file, *(["--model", model] if model else []), *options]

    def predict(self, images):
        """Probabilities, images x classes as float64, of uint8 images x height x width x 3 (or x 1, or none): as `train --predict` has
        them, scaled and cropped as the network's evaluation is. ValueError with what `train` says where it cannot."""
        images = numpy.ascontiguousarray(images)
        if images.dtype != numpy.uint8 or images.ndim not in (3, 4):
            raise ValueError(f"images are uint8, images x height x width x channels; got {images.dtype} of {images.shape}")
        if images.ndim == 3 and images.shape[2] == 3:
            raise ValueError(f"an array of {images.shape} is grey images 3 pixels wide, or one image in colour, which is images[None]")
        if len(images) == 0:
            raise ValueError("there are no images in the array")
        with tempfile.TemporaryDirectory(prefix="ringtrain-") as folder:
            array, told = os.path.join(folder, "images.npy"), os.path.join(folder, "told.jsonl")
            numpy.save(array, images)
            run = subprocess.run([*_command(), "--predict", array, "--output", told, "--top-k", "1000000", "--quiet", *self._options],
                                 stdin=subprocess.DEVNULL, capture_output=True, text=True, env=_environment())
            if run.returncode != 0:
                said = [line for line in run.stderr.splitlines() if not line.startswith("fault: ")]
                raise ValueError("\n".join(said) or f"train ended with {run.returncode}")
            probabilities = None
            with open(told, encoding="utf-8") as lines:
                for place, line in enumerate(lines):
                    classes = json.loads(line).get("classes", ())
                    if probabilities is None and classes:
                        probabilities = numpy.full((len(images), len(classes)), numpy.nan)
                    for one in classes:
                        probabilities[place, one["index"]] = one["probability"]
        return numpy.full((len(images), 0), numpy.nan) if probabilities is None else probabilities
