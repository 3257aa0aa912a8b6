"""`goatbench bench image_loader`: what one core makes of image files, from every layout that is read, beside ready tensors."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from ..config_tree import ConfigTree
from ..data.datasets import EvaluationImages, PreparedImages, TrainingImages
from ..data.decode import UnreadableImageError
from ..data.folder import ImageFolderSource
from ..data.order import Draw
from ..data.parquet import ImageParquetSource
from ..data.split import IMAGENET_MEAN, IMAGENET_STD
from ..data.transforms import EvaluationTransform, Normalise, TrainingTransform
from ..data.webdataset import ImageWebdatasetSource
from ..errors import UsageError
from ..progress import Progress
from ..records.environment import describe_environment, package_version
from ..spec import AugmentationSpec
from . import arguments as parse
from .image_files import MADE_UP, ROWS, made_up, of_folder, write_layouts
from .record import now, record_bytes, writable, write
from .targets import judge
from .timing import Quartiles, interleaved, one_thread, ratio

PIXELS, BATCH = 224, 64
GPU_RATE = 1_000  # images a second
FULL_ROUNDS, QUICK_ROUNDS = 11, 3
SOURCES = {"folder": ImageFolderSource, "parquet": ImageParquetSource, "tar": ImageWebdatasetSource}
TENSOR, DECODING, TRAINING = "ready tensor", "decoding alone", "training transform alone"


def main(argv: list[str]) -> int:
    """Measure, print, and with --out write one JSON record. UsageError in one line for what a user can cause."""
    arguments = parse.image_loader(argv)
    out, started = writable(arguments.out), now()
    contents = of_folder(arguments.root, arguments.images) if arguments.root else [made_up(seed) for seed in range(arguments.images)]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GOATBENCH_CACHE"] = f"{folder}/cache"  # the index of the tar goes with the tar
        write_layouts(Path(folder), contents)
        seconds = measure(Path(folder), QUICK_ROUNDS if arguments.quick else FULL_ROUNDS)
    kilobytes = sum(map(len, contents)) / len(contents) / 1000
    print(render(seconds, len(contents), kilobytes))
    if out is not None:
        environment = describe_environment(threads=1) | {name: package_version(name) for name in ("pillow", "pyarrow")}
        settings = {"clock": "process CPU time", "content": "own files" if arguments.root else MADE_UP, "images": len(contents)}
        settings |= {"mean_kilobytes": kilobytes, "pixels": PIXELS, "batch": BATCH, "parquet_rows_a_group": ROWS}
        results = [judge("image_loader", name, f"time / {TENSOR}", ratio(seconds, name, TENSOR)).as_json() for name in seconds]
        write(out, record_bytes("image_loader", started, environment, settings=settings, seconds=seconds, results=results))
    return 0


def measure(folder: Path, rounds: int) -> dict[str, list[float]]:
    """CPU seconds of every round for all images, by what is done with them. UsageError, naming the file, if one cannot be decoded."""
    splits = {name: source(str(folder / name)).split("test") for name, source in SOURCES.items()}
    normalise, transform = Normalise(IMAGENET_MEAN, IMAGENET_STD), EvaluationTransform(PIXELS, PIXELS, 1.0, "bicubic")
    evaluated = {name: EvaluationImages(split, transform, normalise) for name, split in splits.items()}
    files = splits["folder"]
    in_order = list(range(len(files)))
    try:
        opened = _Opened([files.image(index) for index in in_order], files.labels, files.ids)
    except UnreadableImageError as error:
        raise UsageError(f"{error}; remove the file") from error
    if any(not torch.equal(evaluated[name].pixels([0, -1]), evaluated["folder"].pixels([0, -1])) for name in SOURCES):
        raise RuntimeError("two layouts of the same files disagree")
    augmentation = AugmentationSpec(**ConfigTree.find().read("data", "imagenet_folder")["augmentation"])
    crops, flags = TrainingTransform(PIXELS, PIXELS, "bicubic", augmentation), torch.zeros(len(files), dtype=torch.uint8)
    training = TrainingImages(opened, crops, normalise, 0, 0, flags)
    scattered = sorted(in_order, key=lambda index: index % ROWS)  # each of another row group, as shuffled training reads
    steps = {f"evaluation from {name}": _over(images.batch, in_order) for name, images in evaluated.items()}
    steps["evaluation from parquet, shuffled"] = _over(evaluated["parquet"].batch, scattered)
    steps[DECODING] = _over(lambda batch: [files.image(index) for index in batch], in_order)
    steps[TRAINING] = _over(training.batch, [Draw(0, index) for index in in_order])
    steps[TENSOR] = _over(PreparedImages(opened, transform, normalise).batch, in_order)
    with one_thread(), Progress("bench image_loader", rounds + 1, "round") as bar:  # one unmeasured
        return interleaved(steps, rounds, after_round=lambda: bar.advance(1))


def render(seconds: dict[str, list[float]], count: int, kilobytes: float) -> str:
    """A table: images a second of one core, time over that of a ready tensor, and the cores that keep up with a GPU."""
    width = max(map(len, seconds))
    lines = [f"{count:,} images of {kilobytes:.0f} kB on average, to {PIXELS} px, CPU time of one thread"]
    lines.append(f"{'':{width}}  {'images/s':>22}  {'x tensor':>8}  cores for {GPU_RATE:,} images/s")
    for name, taken in seconds.items():
        rate = Quartiles.of([count / one for one in taken])
        spread = f"{rate.median:,.0f} [{rate.q1:,.0f}, {rate.q3:,.0f}]"
        lines.append(f"{name:{width}}  {spread:>22}  {ratio(seconds, name, TENSOR).median:>8.1f}  {GPU_RATE / rate.median:.1f}")
    return "\n".join(lines)


@dataclass(frozen=True)
class _Opened:
    """A split of images that are decoded already."""

    images: list[Image.Image]
    labels: np.ndarray
    ids: np.ndarray
    array = None

    def __len__(self) -> int:
        return len(self.images)

    def image(self, index: int) -> Image.Image:
        return self.images[index]


def _over(read: Callable[[list], object], requests: list) -> Callable[[], None]:
    """All requests, batch by batch."""

    def step() -> None:
        for start in range(0, len(requests), BATCH):
            read(requests[start : start + BATCH])

    return step
