"""resize_against_pil.py DIR [PROGRAM]: compares what the loader makes of the images of DIR (any depth) with what Pillow does: decode,
resize with BILINEAR and a box, first across, then down (as Pillow 11 does itself; 13 does tall images the other way round, which differs
by up to one level, 0.24 on average of an image); where images are reduced while decoding, as Pillow's thumbnails are (draft). PROGRAM: the build
folder's test/unit/io/render_image. Prints the differences in grey levels, and fails where one is above 1 or a mean above 0.1. A
development script: it needs pillow and numpy from PyPI."""
import glob
import os
import random
import subprocess
import sys

import numpy as np
from PIL import Image

directory = sys.argv[1]
program = sys.argv[2] if len(sys.argv) > 2 else "build/release/test/unit/io/render_image"
files = sorted(f for f in glob.glob(os.path.join(directory, "**"), recursive=True) if os.path.isfile(f))
random.seed(1)


def cases(file):
    """(box, side, mirrored): central parts, random ones, small ones that are enlarged, and the whole as a thumbnail."""
    width, height = Image.open(file).size
    for side in 224, 299:
        yield (width / 16, height / 16, width * 7 / 8, height * 7 / 8), side, 0
        for _ in range(3):
            w, h = random.randint(width // 3, width), random.randint(height // 3, height)
            yield (random.randint(0, width - w), random.randint(0, height - h), w, h), side, random.randint(0, 1)
    yield (width / 3, height / 3, 50, 40), 224, 0
    for side in 70, 33, 20:
        yield (0, 0, width, height), side, 0


def expected(file, box, side, mirrored):
    image = Image.open(file)
    reduction = next(r for r in (8, 4, 2, 1) if r <= max(1, min(box[2:]) / side / 2))
    if reduction > 1:
        image.draft(image.mode, (image.width // reduction, image.height // reduction))
    left, top, width, height = (v / reduction for v in box)
    image = image.convert("RGB")
    image = image.resize((side, image.height), Image.BILINEAR, box=(left, 0, left + width, image.height))
    image = image.resize((side, side), Image.BILINEAR, box=(0, top, side, top + height))
    return reduction, np.asarray(image.transpose(Image.FLIP_LEFT_RIGHT) if mirrored else image, int)


wanted = [(file, *case) for file in files for case in cases(file)]
lines = "".join("%r %r %r %r %d %d %s\n" % (*box, side, mirrored, file) for file, box, side, mirrored in wanted)
pixels = np.frombuffer(subprocess.run([program], input=lines.encode(), stdout=subprocess.PIPE, check=True).stdout, np.uint8)
worst = {}
for file, box, side, mirrored in wanted:
    ours, pixels = pixels[: side * side * 3].reshape(side, side, 3).astype(int), pixels[side * side * 3 :]
    reduction, theirs = expected(file, box, side, mirrored)
    difference = abs(ours - theirs)
    worst.setdefault(reduction, []).append((difference.max(), difference.mean(), file))
failed = False
for reduction, all_of in sorted(worst.items()):
    largest, mean = max(all_of)[0], max(m for _, m, _ in all_of)
    print(f"reduced by {reduction}: {len(all_of)} pictures, largest difference {largest}, largest mean {mean:.4f}, "
          f"{sum(m == 0 for _, m, _ in all_of)} equal to the bit")
    failed |= largest > 1 or mean > 0.1
sys.exit(int(failed))
