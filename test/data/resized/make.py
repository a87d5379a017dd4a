"""make.py: what Pillow makes of the photographs beside this folder, as torchvision's evaluation cuts them: shorter side, centre, filter.
Written once with Pillow 13.0; test/unit/io/image/golden_resize_test.cpp reads the files by their names."""
import os

from PIL import Image

HOME = os.path.dirname(os.path.abspath(__file__))
PHOTOGRAPHS = os.path.join(HOME, "..", "photographs", "train")
CASES = [("living/cat", 40, 32, "bicubic"), ("living/cat", 33, 32, "bilinear"), ("objects/cup", 45, 40, "bicubic"),
         ("objects/cup", 37, 32, "bilinear"), ("objects/cup", 24, 32, "bicubic"), ("living/cat", 150, 24, "bicubic")]


def resized(image, shorter, interpolation):
    """As torchvision.transforms.Resize: the longer side is rounded down."""
    width, height = image.size
    if width <= height:
        size = shorter, int(shorter * height / width)
    else:
        size = int(shorter * width / height), shorter
    return image.resize(size, getattr(Image.Resampling, interpolation.upper()))


def centre(image, side):
    """As torchvision.transforms.CenterCrop; Pillow fills with black what the image does not reach."""
    left, top = (int(round((length - side) / 2.0)) for length in image.size)
    return image.crop((left, top, left + side, top + side))


for name, shorter, side, interpolation in CASES:
    photograph = Image.open(os.path.join(PHOTOGRAPHS, name + ".png")).convert("RGB")
    target = f"{os.path.basename(name)}-{shorter}-{side}-{interpolation}.png"
    centre(resized(photograph, shorter, interpolation), side).save(os.path.join(HOME, target), optimize=True)
