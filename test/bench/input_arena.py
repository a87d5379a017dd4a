"""input_arena.py DIR [SIDE [ROUNDS]]: images a second and core (CPU seconds of all processes) that others make of images:DIR, at random
resized crops and flips: torchvision with PIL and with decode_jpeg, and simplejpeg with OpenCV, each through a DataLoader of one worker;
DALI's CPU pipeline, which decodes the crop alone; FFCV, from a file of its own with the images as JPEG of quality 90. They take turns
with input_bench, if INPUT_BENCH names it; ratios are of one round.
A development script: it needs torch and torchvision from PyPI; simplejpeg, opencv-python-headless, nvidia-dali-cuda130
and ffcv where they are."""
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile

import numpy
import torch
from torchvision import datasets, io, transforms
from torchvision.transforms import v2

torch.set_num_threads(1)
directory, side, rounds = (sys.argv[1:] + ["224", "7"][len(sys.argv) - 2:])[:3]
side, rounds = int(side), int(rounds)
REPEATS = 12  # of the few images, so that starting the worker does not count
BATCH = 16
FOLDER = tempfile.TemporaryDirectory()


def from_tensors(path):
    return io.decode_jpeg(io.read_file(path), mode=io.ImageReadMode.RGB)


class Repeated(torch.utils.data.Dataset):
    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data) * REPEATS

    def __getitem__(self, i):
        return self.data[i % len(self.data)]


def images(loader, transform):
    return Repeated(datasets.ImageFolder(os.path.join(directory, "train"), transform=transform, loader=loader))


def cpu_seconds():
    return sum(u.ru_utime + u.ru_stime for u in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


def of_data_loader(data):
    def rate():
        start, count = cpu_seconds(), 0
        for pixels, _ in torch.utils.data.DataLoader(data, batch_size=BATCH, num_workers=1, shuffle=True):
            count += len(pixels)
        return count / (cpu_seconds() - start)
    return rate


def of_simplejpeg():
    import cv2
    import simplejpeg
    cv2.setNumThreads(1)

    def load(path):
        with open(path, "rb") as file:
            return simplejpeg.decode_jpeg(file.read(), "RGB")

    def cut(image):
        size = torch.empty((3, *image.shape[:2]), device="meta")
        top, left, height, width = transforms.RandomResizedCrop.get_params(size, [0.08, 1.0], [0.75, 4 / 3])
        part = image[top:top + height, left:left + width]
        smaller = height > side and width > side
        part = cv2.resize(part, (side, side), interpolation=cv2.INTER_AREA if smaller else cv2.INTER_LINEAR)
        if torch.rand(()) < 0.5:
            part = part[:, ::-1]
        return torch.from_numpy(numpy.ascontiguousarray(part.transpose(2, 0, 1)))

    return of_data_loader(images(load, cut))


def of_dali():
    from nvidia.dali import fn, pipeline_def, types

    @pipeline_def(batch_size=BATCH, num_threads=1, device_id=None)
    def pipeline():
        files, labels = fn.readers.file(file_root=os.path.join(directory, "train"), random_shuffle=True)
        decoded = fn.decoders.image_random_crop(files, device="cpu", output_type=types.RGB, random_area=[0.08, 1.0], random_aspect_ratio=[0.75, 4 / 3])
        resized = fn.resize(decoded, resize_x=side, resize_y=side, interp_type=types.INTERP_TRIANGULAR, antialias=True)
        return fn.transpose(fn.flip(resized, horizontal=fn.random.coin_flip()), perm=[2, 0, 1]), labels

    pipe = pipeline()
    pipe.build()

    def rate():
        pipe.run()
        start, batches = cpu_seconds(), 40
        for _ in range(batches):
            pipe.run()
        return batches * BATCH / (cpu_seconds() - start)
    return rate


def of_ffcv():
    from ffcv.fields import IntField, RGBImageField
    from ffcv.fields.decoders import IntDecoder, RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import RandomHorizontalFlip, ToTensor, ToTorchImage
    from ffcv.writer import DatasetWriter

    packed = os.path.join(FOLDER.name, "images.beton")
    DatasetWriter(packed, {"image": RGBImageField(write_mode="jpg"), "label": IntField()}, num_workers=1).from_indexed_dataset(
        Repeated(datasets.ImageFolder(os.path.join(directory, "train"))))
    loader = Loader(packed, batch_size=BATCH, num_workers=1, order=OrderOption.RANDOM, pipelines={
        "image": [RandomResizedCropRGBImageDecoder((side, side)), RandomHorizontalFlip(), ToTensor(), ToTorchImage()],
        "label": [IntDecoder(), ToTensor()]})

    def rate():
        start, count = cpu_seconds(), 0
        for pixels, _ in loader:
            count += len(pixels)
        return count / (cpu_seconds() - start)
    return rate


def of_ours():
    bench = os.environ["INPUT_BENCH"]

    def rate():
        done = subprocess.run([bench, f"images:{directory}", str(side), "1", "1"], capture_output=True, text=True, check=True)
        return float(re.search(r"random resized\s+(\d+)", done.stdout)[1])
    return rate


contenders = {
    "torchvision, PIL": lambda: of_data_loader(images(datasets.folder.pil_loader, transforms.Compose(
        [transforms.RandomResizedCrop(side), transforms.RandomHorizontalFlip(), transforms.PILToTensor()]))),
    "torchvision, decode_jpeg": lambda: of_data_loader(images(from_tensors, transforms.Compose(
        [v2.RandomResizedCrop(side, antialias=True), v2.RandomHorizontalFlip()]))),
    "simplejpeg, OpenCV": of_simplejpeg,
    "DALI": of_dali,
    "FFCV": of_ffcv,
    "ringtrain": of_ours,
}
rates, makers = {}, {}
for name, make in contenders.items():
    try:
        makers[name] = make()
        makers[name]()
    except (ImportError, KeyError, OSError) as failure:
        print(f"without {name}: {failure!r}", file=sys.stderr)
        makers.pop(name, None)
for _ in range(rounds):
    for name, rate in makers.items():
        rates.setdefault(name, []).append(rate())
for name, values in rates.items():
    of_them = [ours / theirs for ours, theirs in zip(rates.get("ringtrain", []), values)]
    behind = f"; ringtrain over it {statistics.median(of_them):.2f} ({min(of_them):.2f} to {max(of_them):.2f})" if of_them and name != "ringtrain" else ""
    print(f"{name}, random resized to {side}: {statistics.median(values):.0f} images a second and core{behind}")
