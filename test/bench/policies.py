"""policies.py PROGRAM [SIDE [ROUNDS]]: TrivialAugmentWide on a photograph of SIDE x SIDE pixels [224], by policy_bench and by Pillow as
torchvision calls it (bilinear), in turn; one thread each. Prints images a CPU second, medians of ROUNDS [7]. Needs Pillow."""
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

from PIL import Image, ImageEnhance, ImageOps

PROGRAM = sys.argv[1]
SIDE, ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 224, int(sys.argv[3]) if len(sys.argv) > 3 else 7
PHOTOGRAPH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "photographs", "train", "living", "cat.png")
SECONDS, BLACK, BILINEAR = 1.0, (0, 0, 0), Image.Resampling.BILINEAR


def affine(image, *matrix):
    return image.transform(image.size, Image.Transform.AFFINE, matrix, BILINEAR, fillcolor=BLACK)


SIGNED = [
    (0.99, lambda image, m: affine(image, 1, m, 0, 0, 1, 0)),
    (0.99, lambda image, m: affine(image, 1, 0, 0, m, 1, 0)),
    (32, lambda image, m: affine(image, 1, 0, -int(m), 0, 1, 0)),
    (32, lambda image, m: affine(image, 1, 0, 0, 0, 1, -int(m))),
    (135, lambda image, m: image.rotate(m, BILINEAR, fillcolor=BLACK)),
    (0.99, lambda image, m: ImageEnhance.Brightness(image).enhance(1 + m)),
    (0.99, lambda image, m: ImageEnhance.Color(image).enhance(1 + m)),
    (0.99, lambda image, m: ImageEnhance.Contrast(image).enhance(1 + m)),
    (0.99, lambda image, m: ImageEnhance.Sharpness(image).enhance(1 + m)),
]
OTHERS = [
    lambda image, k: image,
    lambda image, k: ImageOps.posterize(image, 8 - round(k / 5)),
    lambda image, k: ImageOps.solarize(image, 255 - 8.5 * k),
    lambda image, k: ImageOps.autocontrast(image),
    lambda image, k: ImageOps.equalize(image),
]


def trivial_augment(image, draw):
    operation, k = draw.randrange(14), draw.randrange(31)
    if operation >= len(SIGNED):
        return OTHERS[operation - len(SIGNED)](image, k)
    most, change = SIGNED[operation]
    return change(image, draw.choice((-1, 1)) * most * k / 30)


def pillow(image):
    draw, images, start = random.Random(1), 0, time.process_time()
    while time.process_time() - start < SECONDS:
        for _ in range(20):
            trivial_augment(image, draw)
        images += 20
    return images / (time.process_time() - start)


photograph = Image.open(PHOTOGRAPH).convert("RGB").resize((SIDE, SIDE), Image.Resampling.BICUBIC)
with tempfile.NamedTemporaryFile(suffix=".ppm") as file:
    photograph.save(file.name)
    ours, theirs = [], []
    for _ in range(ROUNDS):
        ours.append(float(subprocess.run([PROGRAM, file.name, str(SECONDS)], stdout=subprocess.PIPE, check=True).stdout))
        theirs.append(pillow(photograph))
a, b = statistics.median(ours), statistics.median(theirs)
print(f"TrivialAugmentWide at {SIDE}x{SIDE}: {a:.0f} images a CPU second, Pillow {b:.0f}: {a / b:.2f} times")
