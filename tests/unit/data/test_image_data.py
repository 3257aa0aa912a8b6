"""The data module: exact, independent of workers and processes, honest about unreadable images."""

from __future__ import annotations

import shutil
from collections import Counter
from multiprocessing.reduction import ForkingPickler

import lightning
import numpy as np
import pytest
import torch
from made_up_images import WNIDS
from torchvision.transforms import InterpolationMode, Resize

from goatbench.data.images import ImageData
from goatbench.errors import UsageError
from goatbench.spec import AugmentationSpec


def batches(loader) -> list[tuple[torch.Tensor, ...]]:
    return [tuple(part.clone() for part in batch) for batch in loader]


def equal(first, second) -> bool:
    pairs = [(x, y) for a, b in zip(first, second, strict=True) for x, y in zip(a, b, strict=True)]
    return all(torch.equal(x, y) for x, y in pairs)


def by_id(found) -> dict[int, torch.Tensor]:
    return {int(i): image for images, _, ids in found for image, i in zip(images, ids, strict=True)}


def break_file(path) -> None:
    path.write_bytes(path.read_bytes()[:300])  # a truncated JPEG


# In memory


def test_training_batches(embedded, vit, evaluation):
    data = ImageData(embedded, vit, evaluation, seed=0, batch_size=32)
    assert data.steps_per_epoch == 7
    found = batches(data.train_loader(0))
    assert [tuple(images.shape) for images, _, _ in found] == [(32, 1, 12, 12)] * 7
    assert found[0][0].dtype == torch.float32 and found[0][1].dtype == found[0][2].dtype == torch.int64
    labels = dict(zip(data.split("train").ids.tolist(), data.split("train").labels.tolist(), strict=True))
    seen = [(int(i), int(label)) for _, ys, ids in found for i, label in zip(ids, ys, strict=True)]
    assert all(labels[i] == label for i, label in seen) and len({i for i, _ in seen}) == 224


def test_training_and_validation_images_need_not_be_square(embedded, vit, evaluation):
    data = ImageData(embedded, vit.model_copy(update={"image_size": (12, 16)}), evaluation, seed=0, batch_size=32)
    assert {tuple(images.shape) for images, _, _ in batches(data.train_loader(0))} == {(32, 1, 12, 16)}
    assert {tuple(images.shape[1:]) for images, _, _ in batches(data.val_dataloader())} == {(1, 12, 16)}


def test_training_is_a_function_of_seed_and_epoch(embedded, vit, evaluation):
    def of(seed, epoch):
        return batches(ImageData(embedded, vit, evaluation, seed=seed, batch_size=32).train_loader(epoch))

    first = of(0, 1)
    torch.manual_seed(5)
    np.random.seed(5)
    assert equal(first, of(0, 1))
    assert not equal(first, of(0, 2)) and not equal(first, of(1, 1))


def test_a_samples_augmentation_depends_on_nothing_but_seed_epoch_and_id(embedded, vit, evaluation):
    one = by_id(batches(ImageData(embedded, vit, evaluation, seed=0, batch_size=230).train_loader(3)))
    other = embedded.model_copy(update={"num_train": 600})
    for rank in (0, 1):  # another subset, batch size, order and rank
        found = by_id(batches(ImageData(other, vit, evaluation, seed=0, batch_size=20, rank=rank, world_size=2).train_loader(3)))
        assert len(set(found) & set(one)) > 50
        assert all(torch.equal(found[i], one[i]) for i in set(found) & set(one))
    later = by_id(batches(ImageData(embedded, vit, evaluation, seed=0, batch_size=230).train_loader(4)))
    assert sum(torch.equal(one[i], later[i]) for i in one) < 5


def test_repeated_augmentation_shows_an_image_in_several_ways(embedded, vit, evaluation):
    def first_batch(repeats):
        spec = embedded.model_copy(update={"repeats": repeats})
        return next(iter(ImageData(spec, vit, evaluation, seed=3, batch_size=12).train_loader(0)))

    images, labels, ids = first_batch(3)
    assert len(ids.unique()) == 12 and int(ids.min()) >= 0
    looks, their_labels = images.reshape(4, 3, -1), labels.reshape(4, 3)
    assert (their_labels == their_labels[:, :1]).all()
    assert all(not torch.equal(one[0], one[1]) and not torch.equal(one[1], one[2]) for one in looks)
    once, of_once = first_batch(1), set(first_batch(1)[2].tolist())
    kept = [i for i, number in enumerate(ids.tolist()) if number in of_once]  # the first look is that of an epoch without repeats
    assert len(kept) == 4 and all(torch.equal(images[i], by_id([once])[int(ids[i])]) for i in kept)


def test_accumulation_splits_the_batches_of_the_optimizer(embedded, vit, evaluation):
    whole = ImageData(embedded, vit, evaluation, seed=0, batch_size=32)
    parts = ImageData(embedded, vit, evaluation, seed=0, batch_size=32, accumulate=4)
    assert whole.steps_per_epoch == parts.steps_per_epoch == 7
    found = batches(parts.train_loader(0))
    joined = [tuple(torch.cat(part) for part in zip(*found[4 * step : 4 * step + 4], strict=True)) for step in range(7)]
    assert len(found) == 28 and equal(joined, batches(whole.train_loader(0)))


def test_whole_images_in_training_are_the_evaluation_images_or_their_mirror(embedded, vit, evaluation):
    for flip in (True, False):
        augmentation = AugmentationSpec(crop_min_scale=1.0, crop_max_ratio=1.0, horizontal_flip=flip)
        spec = embedded.model_copy(update={"augmentation": augmentation})
        data = ImageData(spec, vit, evaluation, seed=0, batch_size=230)
        plain, found = by_id(batches(data.eval_loader("train", 12))), by_id(batches(data.train_loader(0)))
        same = {i for i in found if torch.equal(found[i], plain[i])}
        mirrored = {i for i in found if torch.equal(found[i], plain[i].flip(-1))}
        assert same | mirrored == set(found) == set(plain)
        assert 80 < len(mirrored) < 150 if flip else len(same) == 230


def test_start_step_continues_the_epoch(embedded, vit, evaluation):
    data = ImageData(embedded, vit, evaluation, seed=0, batch_size=32)
    assert equal(batches(data.train_loader(2))[3:], batches(data.train_loader(2, start_step=3)))


def test_loaders_do_not_move_the_global_random_stream(embedded, vit, evaluation):
    data = ImageData(embedded, vit, evaluation, seed=0, batch_size=32)
    before = torch.random.get_rng_state()
    batches(data.train_loader(0))
    batches(data.eval_loader("test", 12))
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("pixels", [12, 28, (12, 20)])
def test_evaluation_values(embedded, vit, evaluation, pixels):
    data = ImageData(embedded, vit, evaluation, seed=0, batch_size=32)
    height, width = (pixels, pixels) if isinstance(pixels, int) else pixels
    split, found = data.split("test"), by_id(batches(data.eval_loader("test", pixels)))
    assert set(found) == set(split.ids.tolist()) and len(found) == 50
    cover = Resize(max(height, width), InterpolationMode.BICUBIC)
    for index in range(0, 50, 7):
        expected = np.asarray(cover(split.image(index))).astype(np.float64)
        top = (max(height, width) - height) // 2
        expected = (expected[top : top + height, :width] / 255 - 0.2860) / 0.3530
        assert np.allclose(found[int(split.ids[index])][0].numpy(), expected, atol=1e-5)


def test_evaluation_batch_size_follows_the_tokens(embedded, vit, evaluation):
    data = ImageData(embedded, vit, evaluation, seed=0, batch_size=32)
    assert data.eval_batch_size(12, 12) == 1000 // (36 + 1)
    assert data.eval_batch_size(28, 28) == 1000 // (196 + 1)
    assert data.eval_batch_size(280, 280) == 1
    with pytest.raises(UsageError, match=r"13x12 px is not a multiple of model\.patch_size=2"):
        data.eval_loader("test", (13, 12))


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_every_image_is_evaluated_once_over_all_ranks(embedded, vit, evaluation, world_size):
    small = embedded.model_copy(update={"num_test": 21})
    ids = Counter()
    for rank in range(world_size):
        data = ImageData(small, vit, evaluation, seed=0, batch_size=6, rank=rank, world_size=world_size)
        ids.update(int(i) for _, _, part in data.eval_loader("test", 28) for i in part)
    assert ids == Counter(data.split("test").ids.tolist()) and sum(ids.values()) == 21


def test_info(embedded, vit, evaluation):
    info = ImageData(embedded, vit, evaluation, seed=0, batch_size=32).info
    assert info.counts == {"train": 230, "validation": 40, "test": 50}
    assert info.skipped == 0 and info.source.startswith("real: Fashion-MNIST")


def test_grey_images_for_a_color_model_keep_their_statistics(embedded, vit, evaluation):
    grey = batches(ImageData(embedded, vit, evaluation, seed=0, batch_size=32).eval_loader("test", 12))
    color = batches(ImageData(embedded, vit.model_copy(update={"in_chans": 3}), evaluation, seed=0, batch_size=32).eval_loader("test", 12))
    assert torch.equal(color[0][0], grey[0][0].expand(-1, 3, -1, -1))


def test_classes_must_fit_the_model(embedded, vit, evaluation):
    with pytest.raises(UsageError, match=r"model\.num_classes=7, but fashion_mnist has 10 classes"):
        ImageData(embedded, vit.model_copy(update={"num_classes": 7}), evaluation, seed=0, batch_size=32)


class Recorder(lightning.LightningModule):
    """Notes the ids of every step; learns nothing."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.seen, self.validated = [], []

    def training_step(self, batch, _):
        self.seen.append((self.current_epoch, batch[2].tolist()))
        return self.weight * 1.0

    def validation_step(self, batch, _):
        self.validated += batch[2].tolist()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.filterwarnings("ignore")
def test_lightning_walks_through_the_epochs(embedded, vit, evaluation, tmp_path):
    data, recorder = ImageData(embedded, vit, evaluation, seed=0, batch_size=64), Recorder()
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    lightning.Trainer(max_epochs=2, accelerator="cpu", num_sanity_val_steps=0, default_root_dir=tmp_path, **quiet).fit(recorder, data)
    alone = ImageData(embedded, vit, evaluation, seed=0, batch_size=64)
    assert recorder.seen == [(epoch, ids.tolist()) for epoch in (0, 1) for _, _, ids in alone.train_loader(epoch)]
    assert sorted(recorder.validated) == sorted(2 * data.split("validation").ids.tolist())


# From files


def test_workers_do_not_change_the_data(folder_spec, color_vit, evaluation):
    alone = ImageData(folder_spec, color_vit, evaluation, seed=4, batch_size=8)
    expected = [batches(alone.train_loader(0)), batches(alone.train_loader(1)), batches(alone.eval_loader("test", 32))]
    for workers in (1, 2):
        data = ImageData(folder_spec, color_vit, evaluation, seed=4, batch_size=8, num_workers=workers)
        loader = data.train_loader(0)
        first = batches(loader)
        loader.sampler.set_epoch(1)  # the same workers go on
        found = [first, batches(loader), batches(data.eval_loader("test", 32))]
        assert all(equal(x, y) for x, y in zip(found, expected, strict=True))
    assert tuple(expected[0][0][0].shape) == (8, 3, 16, 16) and sum(len(ids) for _, _, ids in expected[2]) == 21


def test_spawned_workers_do_not_change_the_data(folder_spec, color_vit, evaluation):
    alone = ImageData(folder_spec, color_vit, evaluation, seed=4, batch_size=8)
    loader = ImageData(folder_spec, color_vit, evaluation, seed=4, batch_size=8, num_workers=1).train_loader(0)
    loader.multiprocessing_context = "spawn"
    assert equal(batches(alone.train_loader(0)), batches(loader))


def test_images_in_memory_reach_a_spawned_worker_whole(embedded, vit, evaluation):
    loader = ImageData(embedded, vit, evaluation, seed=4, batch_size=8).train_loader(2)
    sent = ForkingPickler.loads(ForkingPickler.dumps(loader.dataset))  # what spawning does
    requests = list(loader.sampler)[:8]
    assert equal([loader.dataset.batch(requests)], [sent.batch(requests)])


def test_a_truncated_image_stops_evaluation_and_is_named(folder_spec, color_vit, evaluation, tree):
    break_file(tree / "val" / WNIDS[1] / "003.JPEG")
    for workers in (0, 1):
        data = ImageData(folder_spec, color_vit, evaluation, seed=0, batch_size=8, num_workers=workers)
        with pytest.raises(UsageError, match=rf"^[^\n]*val/{WNIDS[1]}/003\.JPEG: cannot be decoded[^\n]*every image[^\n]*$"):
            batches(data.eval_loader("test", 16))


def _training_id(data: ImageData, tree, path) -> int:
    relative = str(path.relative_to(tree / "train")).encode()
    split = data.split("train")
    return int(split.ids[[bytes(p) for p in split._paths].index(relative)])


def test_a_truncated_image_in_training_is_an_error_by_default(folder_spec, color_vit, evaluation, tree):
    for k in (1, 2):
        break_file(tree / "train" / WNIDS[1] / f"00{k}.JPEG")
    with pytest.raises(UsageError, match=rf"{WNIDS[1]}/00[12]\.JPEG: cannot be decoded.* 1 unreadable, data\.max_unreadable=0"):
        batches(ImageData(folder_spec, color_vit, evaluation, seed=0, batch_size=10).train_loader(0))
    one_allowed = folder_spec.model_copy(update={"max_unreadable": 1})
    with pytest.raises(UsageError, match=r"2 unreadable, data\.max_unreadable=1"):
        batches(ImageData(one_allowed, color_vit, evaluation, seed=0, batch_size=60).train_loader(0))


@pytest.mark.parametrize("workers", [0, 2])
def test_an_allowed_unreadable_image_is_dropped_counted_and_not_replaced(folder_spec, color_vit, evaluation, tree, workers):
    spec = folder_spec.model_copy(update={"max_unreadable": 2})
    whole = batches(ImageData(spec, color_vit, evaluation, seed=0, batch_size=10).train_loader(0))
    bad_path = tree / "train" / WNIDS[2] / "005.JPEG"
    data = ImageData(spec, color_vit, evaluation, seed=0, batch_size=10, num_workers=workers)
    bad = _training_id(data, tree, bad_path)
    assert bad in by_id(whole)
    break_file(bad_path)
    loader = data.train_loader(0)
    found = batches(loader)
    batches(loader)  # a second look at the same image is no second image
    assert data.skipped == data.info.skipped == 1
    for (images, labels, ids), (all_images, all_labels, all_ids) in zip(found, whole, strict=True):
        keep = all_ids != bad
        assert torch.equal(ids, all_ids[keep]) and torch.equal(labels, all_labels[keep]) and torch.equal(images, all_images[keep])


def test_a_test_set_of_fewer_classes_is_scored_among_these_and_only_on_request(tree, folder_spec, color_vit, evaluation):
    whole = ImageData(folder_spec, color_vit, evaluation, seed=0, batch_size=8)
    assert whole.scored_classes("test") is None
    before = whole.training_fingerprint, whole.fingerprint
    shutil.rmtree(tree / "val" / WNIDS[1])
    with pytest.raises(UsageError, match=r"show 2 of 3 classes.*evaluation\.classes=present"):
        ImageData(folder_spec, color_vit, evaluation, seed=0, batch_size=8)
    masked = ImageData(folder_spec, color_vit, evaluation.model_copy(update={"classes": "present"}), seed=0, batch_size=8)
    assert masked.scored_classes("test").tolist() == [0, 2] and masked.scored_classes("validation") is None
    assert masked.training_fingerprint == before[0] and masked.fingerprint != before[1]
