"""Reads checkpoints and writes new ones, as docs/reference/checkpoint-format.md describes them. Needs numpy and xxhash
from PyPI, and to write also h5py."""
import collections
import json
import math
import os
import re
import struct

import numpy as np
import xxhash

HEADERS = {1: 96, 2: 128}  # bytes, by version
HEADER_BYTES = HEADERS[2]
MAGIC = b"\x89rtckp\r\n"
NUMBERS = ("step", "epoch", "position", "seed", "world_size", "global_batch")
TEXTS = ("model", "config", "optimizer", "plans")
MORE_TEXTS = ("network",)  # where there are any

# network: a model file; class_names: by label. Files of earlier builds hold neither.
Checkpoint = collections.namedtuple("Checkpoint", "model step tensors network class_names", defaults=("", ()))


def read_index(file, path):
    """The index of an open checkpoint, its hash checked."""
    head = file.read(56)
    if len(head) < 56 or head[:8] != MAGIC:
        raise ValueError("not a ringtrain checkpoint")
    version, user_block, length, index_bytes, _, index_hash, _ = struct.unpack("<IIQQQQQ", head[8:])
    if version not in HEADERS:
        raise ValueError(f"format version {version}; this script reads versions 1 and 2")
    if length != os.path.getsize(path) or not HEADER_BYTES <= user_block <= 4 << 20:
        raise ValueError("its length is not what its header says")
    file.seek(HEADERS[version])
    rest = file.read(user_block - HEADERS[version])
    if int(digest(head[:40] + rest), 16) != index_hash:
        raise ValueError("the index fails its hash")
    return json.loads(rest[:index_bytes])


def read(path):
    """A Checkpoint; its tensors are {name: fp32 array}. Reads the index and what it points to, never HDF5; the hashes of what it reads
    are checked."""
    tensors, length = {}, os.path.getsize(path)
    with open(path, "rb") as file:
        index = read_index(file, path)
        for entry in index["tensors"]:
            name, size = entry["name"], 4 * math.prod(entry["shape"])
            if not 0 <= size <= length - entry["offset"] <= length or name in tensors:
                raise ValueError(f"tensor {name!r} is there twice or lies outside of the file")
            file.seek(entry["offset"])
            data = file.read(size)
            if digest(data) != entry["xxh64"]:
                raise ValueError(f"tensor {name!r} fails its hash")
            tensors[name] = np.frombuffer(bytearray(data), "<f4").reshape(entry["shape"])
    metadata = index["metadata"]
    return Checkpoint(metadata["model"], metadata["step"], tensors, metadata.get("network", ""), names_in(metadata.get("class_names", "")))


def names_in(text):
    """Class names of a checkpoint's text, a line each. One that is not UTF-8 is as os.fsdecode() has it."""
    def plain(found):
        return bytes([int(found[1], 16)]) if found[1] else {b"\\n": b"\n", b"\\\\": b"\\"}.get(found[0], found[0])
    names = text.encode().split(b"\n") if text else []
    return [re.sub(rb"\\(?:x([0-9a-f]{2})|.)", plain, name).decode("utf-8", "surrogateescape") for name in names]


def digest(data):
    return xxhash.xxh64_hexdigest(data)


def index_text(metadata, rows):
    return json.dumps({"metadata": metadata, "tensors": rows}, separators=(",", ":")).encode()


def row(name, array, offset, hash_of_bytes):
    return {"name": name, "shape": list(array.shape), "offset": offset, "xxh64": hash_of_bytes}


def user_block_bytes(metadata, tensors):
    widest = [row(name, array, 2**64 - 1, "0" * 16) for name, array in tensors.items()]
    needed = HEADER_BYTES + len(index_text(metadata, widest))
    return max(4096, 1 << (needed - 1).bit_length())


def write_hdf5(path, metadata, tensors, user_block):
    """Each tensor's offset in the file."""
    import h5py  # who only reads needs none
    with h5py.File(path, "w", libver=("v108", "v108"), userblock_size=user_block, alignment_threshold=1024, alignment_interval=64) as file:
        for name in NUMBERS:
            file.create_dataset(f"metadata/{name}", data=np.uint64(metadata[name]))
        file.create_dataset("metadata/model_hash", data=np.uint64(int(metadata["model_hash"], 16)))
        for name in (*TEXTS, *(name for name in MORE_TEXTS if name in metadata)):
            text = metadata[name].encode() or b"\0"
            file.create_dataset(f"metadata/{name}", data=np.array(text, h5py.string_dtype("utf-8", len(text))))
        return {name: file.create_dataset(name, data=array).id.get_offset() for name, array in tensors.items()}


def header(user_block, length, index, outside_hash, run_id):
    front = MAGIC + struct.pack("<IIQQQ", 2, user_block, length, len(index), int(outside_hash, 16))
    rest = index.ljust(user_block - HEADER_BYTES, b"\0")
    run = run_id.encode()[:39].ljust(40, b"\0") + bytes(32)  # of no lineage: such a file starts trainings
    return front + struct.pack("<QQ", int(digest(front + rest), 16), int(digest(run), 16)) + run + rest


def outside(body, user_block, rows):
    """The bytes from the user block on that belong to no tensor."""
    position, parts = 0, []
    for entry in sorted(rows, key=lambda r: r["offset"]):
        first = entry["offset"] - user_block
        parts.append(body[position:first])
        position = first + 4 * int(np.prod(entry["shape"]))
    return b"".join(parts + [body[position:]])


def write(path, model, tensors, run_id, network=""):
    """A checkpoint of step 0 that `train --init-from` takes. `tensors`: by name, with its folder; stored as fp32. `network`: the text of
    its model file, without which `train` needs --model or --model-file unless `model` is built in."""
    tensors = {name: np.ascontiguousarray(array, "<f4") for name, array in tensors.items()}
    metadata = dict.fromkeys(NUMBERS, 0) | dict.fromkeys(TEXTS, "") | {"model": model, "model_hash": "0" * 16, "world_size": 1, "buckets": []}
    if network:
        metadata["network"] = network
    user_block = user_block_bytes(metadata, tensors)
    temporary = f"{path}.tmp"
    offsets = write_hdf5(temporary, metadata, tensors, user_block)
    rows = [row(name, array, offsets[name], digest(array.tobytes())) for name, array in tensors.items()]
    with open(temporary, "r+b") as file:
        file.seek(user_block)
        body = file.read()
        length = user_block + len(body)
        file.seek(0)
        file.write(header(user_block, length, index_text(metadata, rows), digest(outside(body, user_block, rows)), run_id))
    os.replace(temporary, path)
