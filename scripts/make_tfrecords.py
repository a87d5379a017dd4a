#!/usr/bin/env python3
"""Writes an image folder as TFRecord shards like ImageNet's, for tests and small data sets; needs no TensorFlow.

  scripts/make_tfrecords.py IMAGES OUT [SHARDS]     IMAGES has train/<class>/<image> and perhaps val/<class>/<image>

Labels count from 1 in the order of the sorted classes; samples keep the order of the sorted files. Of fewer images
than SHARDS (4) each is a shard.
"""
import pathlib
import struct
import sys

CRC_TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (byte & 1) * 0x82F63B78
    CRC_TABLE.append(byte)


def masked_crc(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC_TABLE[(crc ^ byte) & 255]
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def varint(value):
    text = b""
    while value >= 128:
        text += bytes([value & 127 | 128])
        value >>= 7
    return text + bytes([value])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def feature(name, value):
    kind = 3 if isinstance(value, int) else 1
    return field(1, field(1, name.encode()) + field(2, field(kind, field(1, value))))


def record(image, label):
    example = field(1, feature("image/encoded", image.read_bytes()) + feature("image/class/label", label)
                    + feature("image/class/synset", image.parent.name.encode())
                    + feature("image/filename", image.name.encode()))
    length = struct.pack("<Q", len(example))
    return length + masked_crc(length) + example + masked_crc(example)


def write_split(folder, classes, out, name, shards):
    images = [image for c in classes for image in sorted((folder / c).glob("*"))
              if image.is_file() and not image.name.startswith(".")]
    shards = min(shards, len(images))  # train refuses empty ones
    for i in range(shards):
        part = images[len(images) * i // shards:len(images) * (i + 1) // shards]
        with open(out / f"{name}-{i:05}-of-{shards:05}", "wb") as shard:
            for image in part:
                shard.write(record(image, 1 + classes.index(image.parent.name)))


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    source, target = map(pathlib.Path, sys.argv[1:3])
    target.mkdir(parents=True, exist_ok=True)
    names = sorted(c.name for c in (source / "train").iterdir() if c.is_dir())
    write_split(source / "train", names, target, "train", int(sys.argv[3]) if len(sys.argv) == 4 else 4)
    if (source / "val").is_dir():
        write_split(source / "val", names, target, "validation", 1)
