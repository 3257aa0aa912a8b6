"""How much a run trains: optimizer steps, samples and tokens, from its specification alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..checking_images import IMAGENET_CLASSES, IMAGENET_COUNTS
from ..errors import UsageError
from ..registry import tasks
from ..spec import sides

KNOWN = {"fashion_mnist": 12_000, "fashion_mnist_full": 55_000}  # training images of a source whose size is no matter of files
IMAGENET = {"image_folder", "image_parquet", "image_webdataset"}
UNITS = {"vision": "images", "genome": "windows", "text": "windows", "toy": "sequences", "stories": "stories"}


@dataclass(frozen=True, slots=True)
class Amount:
    """steps: of the optimizer. tokens: read in training, in windows of `sample_tokens` each. note: what had to be assumed, or ''."""

    steps: int
    samples: int
    sample_tokens: int
    unit: str
    note: str = ""

    @property
    def tokens(self) -> int:
        return self.samples * self.sample_tokens


def amount_of(spec: Any) -> Amount:
    """What the run trains on; nothing for a task that does not train. UsageError if that depends on data that nobody has counted."""
    unit, length = UNITS.get(spec.domain, "samples"), tokens_of(spec)
    if not tasks.get(spec.task.name).trains:
        return Amount(0, 0, length, unit)
    num_train, note = _samples_an_epoch(spec)
    if spec.training.batch_size > num_train:
        raise UsageError(f"training.batch_size={spec.training.batch_size}, but an epoch has {num_train} {unit}: set a smaller one")
    steps = spec.training.epochs * (num_train // spec.training.batch_size)
    return Amount(steps, steps * spec.training.batch_size, length, unit, note)


def tokens_of(spec: Any) -> int:
    """Tokens of one training sample: patches and prefix of an image, the training length of a sequence."""
    if spec.domain != "vision":
        return spec.model.seq_len
    height, width = (side // spec.model.patch_size for side in sides(spec.model.image_size))
    return height * width + int(spec.model.class_token) + spec.model.num_reg_tokens


def _samples_an_epoch(spec: Any) -> tuple[int, str]:
    if spec.data.num_train is not None:
        return spec.data.num_train, ""
    if spec.data.name in KNOWN:
        return KNOWN[spec.data.name], ""
    if spec.data.name in IMAGENET and spec.model.num_classes == IMAGENET_CLASSES:
        whole = IMAGENET_COUNTS["train"]
        count = round(0.99 * whole)  # one in a hundred is held out for selection (data/split.py)
        return count, f"{count:,} training images assumed: 99 % of ImageNet-1k's {whole:,}"
    raise UsageError(
        f"data.num_train is null, and how much {spec.data.name} holds is not known without reading it: plan with data.num_train=N"
    )
