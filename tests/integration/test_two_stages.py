"""A training in two stages, as DeiT III's ViT-B: at one size first, with a recipe of its own, then at the base resolution."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from goatbench.compose import compose
from goatbench.errors import PreemptedError, UsageError
from goatbench.execute import execute
from goatbench.training.classifier import Classifier

SMALL = ["task=vit_res224", "scale=smoke", "attention=learned_absolute", "data.num_train=256", "training.epochs=1"]
NO_DROP_PATH = "pretraining.drop_path=0"  # each rank draws its own
RECIPE = """\
# @package _global_
# goatbench run scale=smoke recipe=short_first
model:
  position_size: 8
pretraining:
  training: {epochs: 2, batch_size: 64, default_learning_rate: 4.0e-3}
  drop_path: 0.1
  augmentation: {crop_min_scale: 0.5}
"""


@pytest.fixture
def configs(tmp_path: Path) -> str:
    (tmp_path / "configs" / "recipe").mkdir(parents=True)
    (tmp_path / "configs" / "recipe" / "short_first.yaml").write_text(RECIPE)
    return str(tmp_path / "configs")


def run(configs: str, runs_dir: Path, *more: str):
    return execute(compose([*SMALL, "recipe=short_first", f"runs_dir={runs_dir}", *more], configs))


def weights(runs_dir: Path) -> tuple[dict, dict]:
    (folder,) = (path.parent for path in runs_dir.glob("checkpoints/*/weights.pt"))
    last, first = (torch.load(folder / name, weights_only=True) for name in ("weights.pt", "first_stage/weights.pt"))
    return last, first


def test_the_second_stage_goes_on_from_the_first_and_the_record_counts_both(configs, tmp_path):
    record = run(configs, tmp_path / "runs")
    last, first = weights(tmp_path / "runs")
    assert all(part["state_dict"]["blocks.0.attn.scheme.table"].shape[:2] == (4, 4) for part in (first, last))
    steps = [part["meta"]["fit"]["steps"] for part in (first, last)]
    assert steps[0] == 2 * 256 // 64 and record.budget.steps == sum(steps) and record.budget.samples == 3 * 256
    (note,) = (note for note in record.notes if note.startswith("first stage"))
    assert "8 steps, 512 samples" in note
    cpu = {cost.name: cost.value for cost in record.costs}["train_cpu_seconds"]
    assert cpu == sum(part["meta"]["fit"]["train_cpu_seconds"] for part in (first, last))
    still = run(configs, tmp_path / "still", "training.learning_rate=1e-12")  # the second stage moves nothing: what is left is the first
    _, again = weights(tmp_path / "still")
    for name, value in again["state_dict"].items():
        assert torch.equal(value, first["state_dict"][name])  # the first stage knows nothing of the second one's rate
        assert torch.allclose(weights(tmp_path / "still")[0]["state_dict"][name], value, atol=1e-7)
    assert still.training.training_hash != record.training.training_hash


def test_a_finished_first_stage_is_kept_when_the_second_fails(configs, tmp_path, monkeypatch):
    from goatbench.training import fit as fitting

    real, calls = fitting.fit, []

    def fit(module, data, trainer, epochs, *rest, **more):
        calls.append(epochs)
        if epochs == 1 and calls.count(1) == 1:
            raise OSError("the node went away")
        return real(module, data, trainer, epochs, *rest, **more)

    monkeypatch.setattr(fitting, "fit", fit)
    failed = run(configs, tmp_path / "runs")
    assert failed.status == "failed" and calls == [2, 1]
    resumed = run(configs, tmp_path / "runs")
    assert resumed.status == "ok" and calls == [2, 1, 1]
    whole = run(configs, tmp_path / "whole")
    assert [m.value for m in resumed.measurements] == [m.value for m in whole.measurements]
    calls.clear()
    run(configs, tmp_path / "runs", "retrain=true")
    assert calls == [2, 1]


def test_unreadable_images_of_both_stages_count_once_and_stay_with_the_weights(configs, tmp_path, monkeypatch):
    """Images 1 and 2 in the first stage, 2 and 3 in the second: three, of the run that trained and of the one that takes its weights."""
    from goatbench.training import fit as fitting

    real = fitting.fit

    def fit(module, data, trainer, epochs, *rest, **more):
        data._training_set.unreadable[[1, 2] if epochs == 2 else [2, 3]] = 1
        return real(module, data, trainer, epochs, *rest, **more)

    monkeypatch.setattr(fitting, "fit", fit)
    trained = run(configs, tmp_path / "runs")
    other = run(configs, tmp_path / "runs", "evaluation.crop_pct=0.9", "evaluation.base_crop_pct=1.0")
    assert (trained.training.reused, other.training.reused) == (False, True)
    assert (trained.data.skipped, other.data.skipped) == (3, 3)


def test_unreadable_images_are_counted_by_the_run_that_goes_on(configs, tmp_path, monkeypatch):
    """Stopped between the stages, and by a signal in the very last step, after which the weights are there already."""
    from goatbench.training import fit as fitting

    real, stops = fitting.fit, [True, True]

    def fit(module, data, trainer, epochs, *rest, **more):
        data._training_set.unreadable[[1, 2] if epochs == 2 else [2, 3]] = 1
        if epochs == 1 and stops.pop():
            if stops:
                raise PreemptedError("stopped between the stages")
            monkeypatch.setattr(Classifier, "check_finite", last_step_stops)
        return real(module, data, trainer, epochs, *rest, **more)

    def last_step_stops(self, loss):
        if self.global_step == 3:
            os.kill(os.getpid(), signal.SIGUSR1)

    def go_on():
        overrides = [*SMALL, "recipe=short_first", "training.batch_size=64", f"runs_dir={tmp_path}"]
        return execute(compose(overrides, configs), "20260131t120000-0123abcd-45ef67")

    monkeypatch.setattr(fitting, "fit", fit)
    for steps in ("stopped between the stages", "stopped after 4 steps"):
        with pytest.raises(PreemptedError, match=steps):
            go_on()
    assert go_on().data.skipped == 3


def test_two_processes_train_the_same_two_stages(configs, tmp_path):
    command = [sys.executable, "-P", "-m", "goatbench", "run", "--config-dir", configs, *SMALL, "recipe=short_first", "runs_dir=two"]
    machine = ["trainer.devices=2", "trainer.strategy=ddp", NO_DROP_PATH]
    done = subprocess.run([*command, *machine], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    one = run(configs, tmp_path / "one", NO_DROP_PATH)
    (path,) = (tmp_path / "two").glob("2*/record.json")
    two = json.loads(path.read_text())
    assert two["budget"] == one.budget.model_dump() and two["notes"] == one.notes
    assert [m["value"] for m in two["measurements"]] == pytest.approx([m.value for m in one.measurements], rel=1e-4)
    for ours, theirs in zip(weights(tmp_path / "one"), weights(tmp_path / "two"), strict=True):
        for name, value in ours["state_dict"].items():
            assert torch.allclose(value, theirs["state_dict"][name], atol=1e-4), name


def test_both_stages_count_in_the_training_hash(configs):
    def hash_of(*more: str) -> str:
        overrides = ["task=vit_res224", "scale=smoke", "attention=goat", "recipe=short_first", *more]
        return compose(overrides, configs).spec.training_hash("0", "0")

    same = hash_of("task=vit_res512")
    changed = {hash_of(f"pretraining.{key}") for key in ("training.epochs=3", "training.learning_rate=1e-3", "drop_path=0.2", "repeats=2")}
    assert hash_of() == same and same not in changed and len(changed) == 4
    plain = compose(["task=vit_res224", "scale=smoke", "attention=goat"]).spec
    assert plain.first_stage is None and "pretraining" not in plain.identity and "position_size" not in plain.identity["model"]
    stored = json.loads(compose(["task=vit_res224", "scale=smoke", "recipe=short_first"], configs).spec.model_dump_json())
    assert stored["pretraining"]["training"]["epochs"] == 2


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.position_size=null", "pretraining and model.position_size .* go together"),
        ("model.position_size=9", "position_size: 9 px is not a multiple of patch_size"),
        ("pretraining.training.batch_size=63", "pretraining.training.batch_size 63 is global and no multiple"),
        ("pretraining.augmentation.rand_augment=rand-m9", "pretraining.augmentation.rand_augment works on colours"),
        ("pretraining.augmentation.rand_augment=m9", "'m9' is not written as timm does"),
    ],
)
def test_stages_that_do_not_fit_are_one_line(configs, override, message):
    with pytest.raises(UsageError, match=message) as caught:
        compose(["task=vit_res224", "scale=smoke", "recipe=short_first", "trainer.devices=2", "trainer.strategy=ddp", override], configs)
    assert "\n" not in str(caught.value)


def test_the_published_recipe_of_vit_b():
    spec = compose(["task=vit_res512", "scale=paper", "recipe=deit3_base"]).spec
    first = spec.first_stage
    assert (first.model.image_size, first.training.epochs, first.learning_rate, first.model.drop_path) == (192, 400, 3e-3, 0.1)
    assert (first.training.optimizer, first.training.loss, first.data.repeats) == ("lamb", "binary_cross_entropy", 3)
    assert (spec.model.image_size, spec.training.epochs, spec.learning_rate, spec.model.drop_path) == (224, 20, 1e-5, 0.2)
    assert (spec.training.optimizer, spec.training.weight_decay, spec.data.repeats) == ("adamw", 0.1, 1)
    augmentation = spec.data.augmentation
    assert (augmentation.mixup, augmentation.cutmix, augmentation.label_smoothing) == (0.8, 1.0, 0.1)
    assert augmentation.rand_augment == "rand-m9-mstd0.5-inc1" and not augmentation.three_augment


def test_a_recipe_for_another_kind_of_model_is_one_line():
    with pytest.raises(UsageError, match="recipe=deit3_base trains model vit_base_patch16, which does not fit task=lm_length"):
        compose(["task=lm_length", "recipe=deit3_base"])
