"""make.py: what Pillow makes of two of the photographs beside this folder by each operation of torchvision's and timm's policies, at
each of their magnitudes, as checksums. Without arguments it writes pillow.txt, which test/unit/io/image/pixel_operations_test.cpp
reads; with --check it ends with 1 where the installed Pillow makes other pixels."""
import os
import sys
import zlib

try:
    from PIL import Image, ImageEnhance, ImageOps
except ImportError as failure:
    print(f"skipped: there is no Pillow: {failure}")
    sys.exit(77)

HOME = os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.path.join(HOME, "pillow.txt")
PHOTOGRAPHS = [os.path.join(HOME, "..", "photographs", "train", name) for name in ("living/cat.png", "objects/cup.png")]
FILLS = {"bilinear": (0, 0, 0), "bicubic": (124, 116, 104)}  # torchvision's, and timm's for ImageNet


def affine(*matrix):
    return lambda image, how: image.transform(
        image.size, Image.Transform.AFFINE, matrix, getattr(Image.Resampling, how.upper()), fillcolor=FILLS[how])


def point(table):
    return lambda image, how: image.point([min(255, table(v)) for v in range(256)] * 3)


def enhanced(kind):
    return lambda m: lambda image, how: kind(image).enhance(m)


OPERATIONS = {
    "Identity": lambda m: lambda image, how: image,
    "ShearX": lambda m: affine(1, m, 0, 0, 1, 0),
    "ShearY": lambda m: affine(1, 0, 0, m, 1, 0),
    "TranslateX": lambda m: affine(1, 0, -m, 0, 1, 0),
    "TranslateY": lambda m: affine(1, 0, 0, 0, 1, -m),
    "Rotate": lambda m: lambda image, how: image.rotate(m, getattr(Image.Resampling, how.upper()), fillcolor=FILLS[how]),
    "Brightness": enhanced(ImageEnhance.Brightness),
    "Color": enhanced(ImageEnhance.Color),
    "Contrast": enhanced(ImageEnhance.Contrast),
    "Sharpness": enhanced(ImageEnhance.Sharpness),
    "Posterize": lambda m: lambda image, how: ImageOps.posterize(image, int(m)),
    "Solarize": lambda m: lambda image, how: ImageOps.solarize(image, m),
    "SolarizeAdd": lambda m: point(lambda v: v + int(m) if v < 128 else v),
    "AutoContrast": lambda m: lambda image, how: ImageOps.autocontrast(image),
    "Equalize": lambda m: lambda image, how: ImageOps.equalize(image),
    "Invert": lambda m: lambda image, how: ImageOps.invert(image),
}


def steps(most, last):
    return [most * k / last for k in range(last + 1)]


def both_ways(magnitudes):
    return sorted({sign * m for m in magnitudes for sign in (-1, 1)})


def magnitudes(name):
    """Of TrivialAugmentWide, RandAugment and AutoAugment; what timm draws lies between."""
    if name.startswith("Shear"):
        return both_ways(steps(0.99, 30) + steps(0.3, 30) + steps(0.3, 9))
    if name.startswith("Translate"):
        return both_ways(list(range(33)) + [45, 57, 71, 100, 126, 130] + steps(0.45 * 126, 20))
    if name == "Rotate":
        return both_ways(steps(135, 30) + steps(30, 30) + steps(30, 9)) + [180, 270]
    if name in ("Brightness", "Color", "Contrast", "Sharpness"):
        return [1 + m for m in both_ways(steps(0.99, 30) + steps(0.9, 30) + steps(0.9, 9))]
    if name == "Posterize":
        return list(range(1, 9))
    if name == "Solarize":
        return sorted(set(steps(255, 30) + steps(255, 9) + [256]))
    return list(range(0, 111, 10)) if name == "SolarizeAdd" else [0]


def lines():
    images = [Image.open(file).convert("RGB") for file in PHOTOGRAPHS]
    for name, operation in OPERATIONS.items():
        geometric = name.startswith(("Shear", "Translate", "Rotate"))
        for number, m in enumerate(magnitudes(name)):
            for how in ("bilinear", "bicubic") if geometric and number % 4 == 1 else ("bilinear",):
                sums = [zlib.crc32(operation(m)(image, how).tobytes()) for image in images]
                yield f"{name} {m!r} {how} {sums[0]} {sums[1]}\n"


text = "".join(lines())
if "--check" in sys.argv:
    differ = [one for one, other in zip(text.splitlines(), open(GOLDEN).read().splitlines(), strict=True) if one != other]
    print(*differ[:20], f"{len(differ)} lines differ", sep="\n")
    sys.exit(bool(differ))
with open(GOLDEN, "w") as file:
    file.write(text)
