"""Image transforms against torchvision's PIL path and closed forms."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
import torchvision.transforms.functional as reference
from made_up_images import picture
from PIL import Image
from timm.data.auto_augment import rand_augment_transform
from torchvision.transforms import CenterCrop, InterpolationMode, RandomResizedCrop, Resize

from goatbench.data.philox import AUGMENTATION, uniforms
from goatbench.data.transforms import NUM_UNIFORMS, EvaluationTransform, Normalise, TrainingTransform, to_array, with_channels
from goatbench.spec import AugmentationSpec


def noise(width: int, height: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(width * 1000 + height).integers(0, 256, (height, width, 3), dtype=np.uint8))


@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
@pytest.mark.parametrize(("pixels", "crop_pct"), [(12, 1.0), (28, 0.9), (56, 0.875), (112, 0.95)])
@pytest.mark.parametrize("size", [(28, 28), (50, 37), (37, 50), (125, 94), (17, 203), (57, 56)])
def test_evaluation_equals_torchvision_to_the_last_bit(size, pixels, crop_pct, interpolation):
    image = noise(*size)
    expected = CenterCrop(pixels)(Resize(int(pixels / crop_pct), InterpolationMode(interpolation), antialias=True)(image))
    found = EvaluationTransform(pixels, pixels, crop_pct, interpolation)(image)
    assert np.array_equal(np.asarray(found), np.asarray(expected))


def test_evaluation_at_a_size_that_is_not_square():
    """500 x 375 must cover 320 x 224: the width binds (320 / 500 > 224 / 375), so 320 x 240, and 8 rows go at either side."""
    image = noise(500, 375)
    found = EvaluationTransform(224, 320, 1.0, "bicubic")(image)
    expected = image.resize((320, 240), Image.Resampling.BICUBIC).crop((0, 8, 320, 232))
    assert found.size == (320, 224) and np.array_equal(np.asarray(found), np.asarray(expected))
    tall = image.transpose(Image.Transpose.TRANSPOSE)
    expected = tall.resize((240, 320), Image.Resampling.BICUBIC).crop((8, 0, 232, 320))
    assert np.array_equal(np.asarray(EvaluationTransform(320, 224, 1.0, "bicubic")(tall)), np.asarray(expected))


@pytest.mark.parametrize("size", [(28, 28), (31, 500), (500, 31), (1, 7)])
@pytest.mark.parametrize("target", [(12, 20), (20, 12), (16, 16)])
def test_evaluation_never_pads(size, target):
    transform = EvaluationTransform(*target, 0.9, "bilinear")
    width, height = transform.resized(*size)
    assert height >= target[0] / 0.9 - 1 and width >= target[1] / 0.9 - 1
    white = Image.new("L", size, 255)
    assert np.asarray(transform(white)).min() == 255


def test_normalise():
    images = torch.tensor([[[[0, 255]], [[51, 102]], [[255, 0]]]], dtype=torch.uint8)
    found = Normalise((0.5, 0.2, 0.0), (0.5, 0.1, 2.0))(images)
    assert torch.allclose(found, torch.tensor([[[[-1.0, 1.0]], [[0.0, 2.0]], [[0.5, 0.0]]]]), atol=1e-6)


def test_channels_and_array():
    color = picture(0, 9, 7)
    assert np.array_equal(to_array(color), np.asarray(color).transpose(2, 0, 1))
    grey = with_channels(color, 1)
    assert grey.mode == "L" and np.array_equal(to_array(grey)[0], np.asarray(color.convert("L")))
    assert with_channels(grey, 3).mode == "RGB"


def training(size=(16, 16), interpolation="bicubic", **options) -> TrainingTransform:
    return TrainingTransform(*size, interpolation, AugmentationSpec(**{"crop_min_scale": 0.2} | options))


def numbers(count: int) -> np.ndarray:
    return uniforms(0, 0, np.arange(count), NUM_UNIFORMS, AUGMENTATION)


@pytest.mark.parametrize("size", [(400, 400), (500, 375), (300, 700)])
def test_crops_are_distributed_as_torchvisions(size):
    """Area, log ratio and place: means within 4 standard errors of 3,000 draws of RandomResizedCrop, deviations within 10%."""
    torch.manual_seed(0)
    image, count = Image.new("L", size), 3000
    drawn = np.array([RandomResizedCrop.get_params(image, [0.2, 1.0], [3 / 4, 4 / 3]) for _ in range(count)], np.float64)
    their = np.stack([drawn[:, 2] * drawn[:, 3], np.log(drawn[:, 3] / drawn[:, 2]), drawn[:, 1], drawn[:, 0]])
    left, top, right, bottom = training().boxes(numbers(count), np.tile(size, (count, 1))).T
    our = np.stack([(right - left) * (bottom - top), np.log((right - left) / (bottom - top)), left, top])
    error = np.sqrt((our.var(1) + their.var(1)) / count)
    assert (np.abs(our.mean(1) - their.mean(1)) < 4 * error + 1).all()  # + 1: theirs are rounded to whole pixels
    assert np.allclose(our.std(1), their.std(1), rtol=0.1)
    assert left.min() >= 0 and top.min() >= 0 and right.max() <= size[0] and bottom.max() <= size[1]


@pytest.mark.parametrize("size", [(10, 1000), (1000, 10)])
def test_where_no_crop_fits_it_is_torchvisions_centre_crop(size):
    top, left, height, width = RandomResizedCrop.get_params(Image.new("L", size), [0.9, 1.0], [3 / 4, 4 / 3])
    box = training(crop_min_scale=0.9).boxes(numbers(1), np.array([size]))[0]
    assert np.abs(box - [left, top, left + width, top + height]).max() <= 1


def test_a_whole_square_image_is_only_resized():
    image = noise(28, 28)
    transform = training((12, 12), crop_min_scale=1.0, crop_max_ratio=1.0)
    draws = numbers(5)
    boxes = transform.boxes(draws, np.array([image.size] * 5))
    for box, row in zip(boxes, draws, strict=True):
        assert np.array_equal(np.asarray(transform(image, box, row)), np.asarray(image.resize((12, 12), Image.Resampling.BICUBIC)))


def test_a_crop_is_taken_from_the_native_image():
    image = noise(60, 40)
    found = training((20, 10), interpolation="bilinear")(image, np.array([5.0, 8.0, 15.0, 28.0]), numbers(1)[0])
    expected = image.crop((5, 8, 15, 28)).resize((10, 20), Image.Resampling.BILINEAR)
    assert np.abs(np.asarray(found).astype(int) - np.asarray(expected)).max() <= 1


def test_flips_are_half_and_can_be_off():
    draws = numbers(4000)
    assert abs(training().flips(draws).mean() - 0.5) < 4 * 0.5 / np.sqrt(4000)
    assert not training(horizontal_flip=False).flips(draws).any()


def whole(image: Image.Image, draws: dict[int, float], **options) -> np.ndarray:
    row = np.full(NUM_UNIFORMS, 0.5)
    for place, value in draws.items():
        row[place] = value
    return np.asarray(training(image.size[::-1], **options)(image, np.array([0.0, 0.0, *image.size]), row))


def test_three_augment_is_grey_solarize_or_blur():
    image = noise(24, 16)
    grey = whole(image, {23: 0.1}, three_augment=True)
    solarized = whole(image, {23: 0.5}, three_augment=True)
    blurred = whole(image, {23: 0.9, 24: 0.5}, three_augment=True)
    assert np.array_equal(grey, np.asarray(reference.rgb_to_grayscale(image, 3)))
    assert np.array_equal(solarized, np.asarray(reference.solarize(image, 128)))
    expected = np.asarray(reference.gaussian_blur(image, [11, 11], [1.05, 1.05])).astype(float)  # radius 0.1 + 0.5 * 1.9
    assert np.abs(blurred[4:-4, 4:-4] - expected[4:-4, 4:-4]).mean() < 3  # Pillow blurs by repeated box filters
    assert blurred.std() < 0.6 * np.asarray(image).std()


def test_color_jitter_is_torchvisions_in_the_drawn_order():
    image = picture(9, 24, 16)
    # factors: brightness 0.7 + 0.5 * 0.6 = 1.0 by 0.5; order: saturation, brightness, contrast
    found = whole(image, {25: 0.0, 26: 1.0, 27: 0.25, 28: 0.5, 29: 0.9, 30: 0.1}, color_jitter=0.3)
    expected = reference.adjust_contrast(reference.adjust_brightness(reference.adjust_saturation(image, 0.85), 0.7), 1.3)
    assert np.array_equal(found, np.asarray(expected))


def test_rand_augment_is_timms_drawn_for_each_image_alone():
    image, recipe = picture(9, 24, 16), "rand-m9-mstd0.5-inc1"
    settings = {"translate_const": int(16 * 0.45), "interpolation": Image.Resampling.BICUBIC, "img_mean": (124, 116, 104)}
    timms = rand_augment_transform(recipe, settings | {"magnitude_max": 9.999})
    random.seed(7)
    np.random.seed(7)
    states = random.getstate(), np.random.get_state()[1].tolist()
    seen = []
    for draw in np.arange(200) / 200:  # some are posterised at the largest magnitude
        found = whole(image, {31: draw}, rand_augment=recipe)
        assert (random.getstate(), np.random.get_state()[1].tolist()) == states
        seed = int(draw * 2**32)
        random.seed(seed)
        np.random.seed(seed)
        assert np.array_equal(found, np.asarray(timms(image)))
        random.seed(7)
        np.random.seed(7)
        seen.append(found.tobytes())
    assert len(set(seen)) > 100
