"""PIL images -> uint8 arrays of the wanted size, in training and in evaluation; then uint8 -> normalised float tensors.

All resizing is Pillow's (antialiased), as in the published evaluations: tensor resizing gives other numbers.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from torch import Tensor

from ..spec import AugmentationSpec
from .split import IMAGENET_MEAN

RESAMPLING = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}
CROP_ATTEMPTS = 10  # torchvision's RandomResizedCrop
NUM_UNIFORMS = 32  # per image: 2 an attempt, 2 for the place, flip, choice, blur, 3 jitter factors, 3 for their order, RandAugment
SOLARIZE_THRESHOLD = 128  # DeiT III, ThreeAugment
BLUR_RADIUS = (0.1, 2.0)  # DeiT III, ThreeAugment


def to_array(image: Image.Image) -> np.ndarray:
    """uint8 [C, h, w]."""
    flat = np.frombuffer(image.tobytes(), np.uint8)  # for small images twice as fast as Pillow's array interface
    return flat.reshape(image.height, image.width, -1).transpose(2, 0, 1)


def with_channels(image: Image.Image, channels: int) -> Image.Image:
    """The image as L (1 channel) or RGB (3)."""
    mode = {1: "L", 3: "RGB"}[channels]
    return image if image.mode == mode else image.convert(mode)


@dataclass(frozen=True)
class Normalise:
    """uint8 [B, C, h, w] -> float32 of the same shape: (x / 255 - mean) / std per channel."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __call__(self, images: Tensor) -> Tensor:
        mean, std = (torch.tensor(values, dtype=torch.float32).view(1, -1, 1, 1) for values in (self.mean, self.std))
        return images.to(torch.float32).div_(255.0).sub_(mean).div_(std)


@dataclass(frozen=True)
class EvaluationTransform:
    """Resize so that the image covers (height, width) / crop_pct, keeping its ratio; then crop the centre.

    For a square this is resizing the short side to floor(pixels / crop_pct) (timm). Rounding as in torchvision: the long side
    is rounded down, the crop's corner to the nearest (ties to even).
    """

    height: int
    width: int
    crop_pct: float
    interpolation: str

    def resized(self, width: int, height: int) -> tuple[int, int]:
        """(width, height) that an image of this size is resized to."""
        to_height, to_width = math.floor(self.height / self.crop_pct), math.floor(self.width / self.crop_pct)
        if to_height * width >= to_width * height:  # the height binds
            return to_height * width // height, to_height
        return to_width, to_width * height // width

    def __call__(self, image: Image.Image) -> Image.Image:
        width, height = self.resized(*image.size)
        if (width, height) != image.size:
            image = image.resize((width, height), RESAMPLING[self.interpolation])
        left, top = round((width - self.width) / 2), round((height - self.height) / 2)
        return image.crop((left, top, left + self.width, top + self.height))


@dataclass(frozen=True)
class TrainingTransform:
    """A random resized crop from the native image straight to (height, width), then ThreeAugment, RandAugment and colour jitter if asked
    for.

    Crop: area uniform in [crop_min_scale, 1] of the image, ratio log-uniform in [1 / crop_max_ratio, crop_max_ratio], ten attempts,
    then the largest centred crop within the ratios. Sides are real numbers: small images lose nothing to rounding.
    `draws` is one row of philox.uniforms: the result depends on the image and on it only. The flip comes after, see `flips`.
    """

    height: int
    width: int
    interpolation: str
    augmentation: AugmentationSpec

    def boxes(self, draws: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Crop boxes float64 [n, 4] (left, top, right, bottom) for draws [n, NUM_UNIFORMS] and sizes [n, 2] = (width, height)."""
        low, limit = self.augmentation.crop_min_scale, math.log(self.augmentation.crop_max_ratio)
        width, height = sizes[:, :1].astype(np.float64), sizes[:, 1:].astype(np.float64)
        area = (low + (1 - low) * draws[:, :CROP_ATTEMPTS]) * width * height
        ratio = np.exp(limit * (2 * draws[:, CROP_ATTEMPTS : 2 * CROP_ATTEMPTS] - 1))
        crop_w, crop_h = np.sqrt(area * ratio), np.sqrt(area / ratio)  # [n, attempts]
        fits = (crop_w <= width) & (crop_h <= height)
        first = fits.argmax(1)[:, None]
        crop_w, crop_h = np.take_along_axis(crop_w, first, 1), np.take_along_axis(crop_h, first, 1)
        none, bound = ~fits.any(1, keepdims=True), self.augmentation.crop_max_ratio
        crop_w = np.where(none, np.minimum(width, height * bound), crop_w)
        crop_h = np.where(none, np.minimum(height, width * bound), crop_h)
        place = np.where(none, 0.5, draws[:, 2 * CROP_ATTEMPTS : 2 * CROP_ATTEMPTS + 2])
        left, top = place[:, :1] * (width - crop_w), place[:, 1:] * (height - crop_h)
        # the sums may exceed the image by a rounding error, which Pillow refuses
        return np.concatenate([left, top, np.minimum(left + crop_w, width), np.minimum(top + crop_h, height)], 1)

    def flips(self, draws: np.ndarray) -> np.ndarray:
        """bool [n]: which images are mirrored. Everything else here commutes with it, so that a batch is mirrored at once."""
        return (draws[:, 2 * CROP_ATTEMPTS + 2] < 0.5) & self.augmentation.horizontal_flip

    @cached_property
    def _rand_augment(self) -> Callable[[Image.Image], Image.Image]:
        """With timm's own settings for training (timm.data.create_transform), but a magnitude just below 10: at 10 it keeps 0 bits of a
        posterised image, which Pillow refuses."""
        from timm.data.auto_augment import rand_augment_transform

        settings = {
            "translate_const": int(min(self.height, self.width) * 0.45), "interpolation": RESAMPLING[self.interpolation],
            "img_mean": tuple(round(255 * mean) for mean in IMAGENET_MEAN), "magnitude_max": 9.999,
        }  # fmt: skip
        return rand_augment_transform(self.augmentation.rand_augment, settings)

    def __call__(self, image: Image.Image, box: np.ndarray, draws: np.ndarray) -> Image.Image:
        image = image.resize((self.width, self.height), RESAMPLING[self.interpolation], box=tuple(box.tolist()))
        if self.augmentation.three_augment:
            image = _three_augment(image, float(draws[23]), float(draws[24]))
        if self.augmentation.rand_augment is not None:
            with _global_draws(int(draws[31] * 2**32)):
                image = self._rand_augment(image)
        if self.augmentation.color_jitter:
            image = _color_jitter(image, self.augmentation.color_jitter, draws[25:28], draws[28:31])
        return image


@contextmanager
def _global_draws(seed: int) -> Iterator[None]:
    """timm draws from the two global generators: they begin at `seed` in this block, and are afterwards where they were."""
    ours, numpys = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed)
    try:
        yield
    finally:
        random.setstate(ours)
        np.random.set_state(numpys)


def _three_augment(image: Image.Image, choice: float, blur: float) -> Image.Image:
    """One of grey, solarized, blurred, each with probability 1/3 (DeiT III, Touvron et al. 2022, section 3)."""
    if choice < 1 / 3:
        return image.convert("L").convert(image.mode)
    if choice < 2 / 3:
        return ImageOps.solarize(image, SOLARIZE_THRESHOLD)
    return image.filter(ImageFilter.GaussianBlur(BLUR_RADIUS[0] + blur * (BLUR_RADIUS[1] - BLUR_RADIUS[0])))


def _color_jitter(image: Image.Image, strength: float, factors: np.ndarray, order: np.ndarray) -> Image.Image:
    """Brightness, contrast and saturation, in random order, each by a factor uniform in [max(0, 1 - strength), 1 + strength]."""
    low = max(0.0, 1 - strength)
    kinds = ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color
    for which in np.argsort(order):
        image = kinds[which](image).enhance(low + float(factors[which]) * (1 + strength - low))
    return image
