"""Reads what `train` writes, and brings weights to PyTorch and back:

  import ringtrain
  run = ringtrain.read_metrics("run.jsonl")             # {"step": [{"step": 10, "loss": ...}, ...], "eval": [...], ...}
  saved = ringtrain.read_checkpoint("step-0000005860.h5")   # saved.model, saved.step, saved.tensors["weights/fc.weight"]; saved.class_names
  network.load_state_dict(ringtrain.to_torch(saved))    # or the file's name
  ringtrain.from_torch("resnet50", network.state_dict(), "start.h5")   # train --init-from start.h5
  ringtrain.load("step-0000005860.h5").predict(images)      # probabilities, of uint8 images x height x width x 3

Metrics need nothing else. Checkpoints: pip install 'ringtrain[notebook]'; PyTorch: pip install 'ringtrain[torch]'."""
import json


def read_metrics(path):
    """The records of a file of `train --metrics`, by their kind, in the order in which they were written. Runs that went on in the
    same file follow each other. A last line that is not whole is left out: the run may still write it."""
    kinds = {}
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith("\n"):
                break
            try:
                record = json.loads(line)
                kinds.setdefault(record["kind"], []).append(record)
            except (ValueError, KeyError, TypeError) as failure:
                raise ValueError(f"{path}:{number}: no record of train --metrics: {failure!r}") from None
    return kinds


def read_checkpoint(path):
    """A Checkpoint(model, step, tensors, network, class_names); tensors are NumPy arrays, network is the text of a model file. The hashes of what is read are checked; ValueError names what is damaged."""
    return _needs("checkpoint").read(path)


def write_checkpoint(path, model, tensors, run_id="python", network=""):
    """A checkpoint for `train --init-from`: `tensors` by names like "weights/fc.weight" and "statistics/bn1.running_mean"; `network`: the
    text of a model file."""
    _needs("checkpoint").write(path, model, tensors, run_id, network)


def to_torch(checkpoint):
    """PyTorch's state dictionary of a Checkpoint or of the file of that name. Its layout follows from the network that the file holds;
    files of earlier builds hold none, and must be of a built-in network."""
    if not isinstance(checkpoint, tuple):
        checkpoint = read_checkpoint(checkpoint)
    return _needs("torch_state").to_torch(checkpoint)


def from_torch(model, state, path):
    """Writes a checkpoint for `train --init-from` from a state dictionary; `model`: its name in `train --model list`, or the path of a
    model file, which ends in ".model"."""
    torch_state = _needs("torch_state")
    own = model if str(model).endswith(".model") else None
    torch_state.write(path, torch_state.network_of(None if own else model, own), state)


def load(file, model=None):
    """A network to predict with, from a checkpoint, safetensors or torch's .pth; `model`: its name, where the file does not hold it."""
    return _needs("predict").Network(file, model)


def _needs(module):
    import importlib
    try:
        return importlib.import_module("ringtrain." + module)
    except ImportError as missing:
        extra = "torch" if module == "torch_state" else "notebook"
        raise ImportError(f"{missing}; pip install 'ringtrain[{extra}]'") from missing
