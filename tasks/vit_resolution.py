"""Zero-shot resolution: a ViT trained at 224 px, evaluated at larger sizes without any fine-tuning.

The question is the position mechanism's: which one still works on a grid of tokens that it has never seen? All tasks of the
family share one training; they differ in the resolutions that they evaluate. Published anchors: RoPE-ViT (arXiv 2403.13298)
and LookHere (arXiv 2405.13985), ImageNet-1k.

Imports no torch at the top: `goatbench list` and the leaderboards read the cards.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from goatbench.records.record import Cost, Examples, Measurement, Metric, Outcome, TaskCard
from goatbench.records.statistics import BINOMIAL
from goatbench.spec import ImageSize, VisionRunSpec, sides, size_label

from .causal import BATCH_METHOD, device_of

if TYPE_CHECKING:
    from goatbench.data.images import ImageData
    from goatbench.models.vit import GoatViT
    from goatbench.training.evaluate import Evaluation

BASE = 224
LADDER = (224, 288, 320, 384, 448, 512)

TOP1_CHANCE = {"smoke": 0.1, "embedded": 0.1, "paper": 0.001}
TOP5_CHANCE = {"smoke": 0.5, "embedded": 0.5, "paper": 0.005}
NLL_CHANCE = {"smoke": 2.303, "embedded": 2.303, "paper": 6.908}  # ln of the number of classes

OF_ALL = {"classes": "all"}  # not of a test set that shows some of them

METRICS = (
    Metric(name="top1", unit="fraction", direction="higher", chance=TOP1_CHANCE, chance_where=OF_ALL, bounds=(0, 1), percent=True),
    Metric(name="top5", unit="fraction", direction="higher", chance=TOP5_CHANCE, chance_where=OF_ALL, bounds=(0, 1), percent=True),
    Metric(name="nll_nats", unit="nats", direction="lower", chance=NLL_CHANCE, chance_where=OF_ALL, bounds=(0, None), digits=3),
    Metric(name="ece", unit="fraction", direction="lower", bounds=(0, 1), percent=True),
    Metric(name="top1_change", unit="fraction", direction="higher", bounds=(-1, 1), percent=True),
)

PROTOCOL = (
    "Train at the base resolution (random resized crops of the native image), choose the epoch by top-1 on validation at base, then "
    "evaluate the test images once each at every resolution: resize the short side to floor(pixels / crop_pct), centre crop, no "
    "fine-tuning, no tuning at test time. Two coordinate modes are rows of their own: raw patch indices (the headline; offsets beyond "
    "the training grid are new to the model) and scaled (multiplied by training grid / test grid, so that offsets stay in the trained "
    "range). top1_change is the paired difference to the base resolution on the same images. At scale embedded the nominal "
    "224/288/320/384/448/512 are 12/14/16/20/24/28 px of Fashion-MNIST (native 28 px): it does not stand for ImageNet."
)


@dataclass(frozen=True, slots=True)
class VisionTask:
    """One task of the family; the methods are called in this order by goatbench.execute."""

    card: TaskCard
    trains: ClassVar[bool] = True

    def fingerprint(self, spec: VisionRunSpec) -> str:
        """Of the images that this run would use; no torch."""
        from goatbench.data.sources import fingerprint_of

        return fingerprint_of(spec.data)

    def data(self, spec: VisionRunSpec) -> ImageData:
        from goatbench.data.images import ImageData

        return ImageData(
            spec.data,
            spec.model,
            spec.evaluation,
            seed=spec.seed,
            batch_size=spec.training.batch_size,
            num_workers=spec.trainer.num_workers,
            accumulate=spec.trainer.accumulate,
        )

    def model(self, spec: VisionRunSpec) -> GoatViT:
        from goatbench.attention.kernels.select import get_kernel
        from goatbench.models import build_vit

        net = build_vit(spec.model, spec.attention, get_kernel(spec.kernel))
        net.set_grad_checkpointing(spec.trainer.checkpoint_activations)
        return net

    def model_info(self, spec: VisionRunSpec, net: GoatViT) -> dict[str, Any]:
        """Fields of records.ModelInfo but for the name; the kernels are observed on training images and the largest of evaluation."""
        import torch

        from goatbench.models import model_info
        from goatbench.training.observing import observed_kernels

        def image(nominal: int) -> torch.Tensor:
            return torch.zeros(1, spec.model.in_chans, *sides(spec.evaluation.pixels[nominal]))

        largest = max([spec.evaluation.base, *spec.task.resolutions])
        return {**model_info(net), **observed_kernels(spec, net, device_of(spec), image(spec.evaluation.base), image(largest))}

    def train(self, spec: VisionRunSpec, net: GoatViT, data: ImageData, checkpoint: Path, meta: dict[str, Any]) -> None:
        """Trains and writes the weights of the best epoch, with meta and what training did, to `checkpoint`."""
        from goatbench.training.classifier import Classifier
        from goatbench.training.fit import fit

        if (first := spec.first_stage) is not None:
            from goatbench.training.stages import begin_with

            def earlier(stage: VisionRunSpec, its_net: GoatViT, weights: Path) -> None:
                self.train(stage, its_net, self.data(stage), weights, {"run_id": meta["run_id"]})

            done = begin_with(first, net, checkpoint, meta["run_id"], self.model, earlier)
            data.count_unreadable(done["unreadable"])  # an image that neither stage could read counts once
            meta = {**meta, "first_fit": done["fit"], "first_learning_rate": first.learning_rate}
        steps = spec.training.epochs * data.steps_per_epoch
        module = Classifier(net, spec.training, spec.data.augmentation, spec.learning_rate, steps, spec.model.num_classes, spec.seed)
        fit(module, data, spec.trainer, spec.training.epochs, checkpoint, seed=spec.seed, meta=meta, retrain=spec.retrain)

    def protocol(self, spec: VisionRunSpec) -> dict[str, Any]:
        """What must agree between two rows of one board, beside task version, scale and data."""
        e = spec.evaluation
        fields = {
            "preset": e.preset, "crop_pct": e.crop_pct, "interpolation": e.interpolation, "antialias": True, "resize": "short side, PIL",
            "dtype": spec.trainer.precision, "tuned_at_test": False, "split": spec.task.split, "base": e.base,
        }  # fmt: skip
        if e.classes != "all" and spec.task.split == "test":
            fields["classes"] = e.classes
        if e.base_crop_pct is not None:
            fields["base_crop_pct"] = e.base_crop_pct
        if oblong := [f"{nominal}: {size_label(size)}" for nominal, size in sorted(e.pixels.items()) if not isinstance(size, int)]:
            fields["pixels"] = ", ".join(oblong)
        return fields

    def measure(self, spec: VisionRunSpec, net: GoatViT, data: ImageData, folder: Path | None) -> Outcome:
        """Every resolution under every coordinate mode that makes a difference for the scheme."""
        split, base, pixels = spec.task.split, spec.evaluation.base, spec.evaluation.pixels
        modes = coordinate_modes(net.position.coordinate_modes, spec.evaluation.coords)
        if not set(spec.task.resolutions) - {base}:
            modes = modes[:1]  # at base the modes are the same thing
        results: dict[tuple[int, str], Evaluation] = {}
        for nominal in sorted({base, *spec.task.resolutions}):
            for mode in modes:
                if nominal == base and mode != modes[0]:  # scaled by 1: the same numbers
                    results[nominal, mode] = results[nominal, modes[0]]
                else:
                    results[nominal, mode] = self._evaluate(spec, net, data, pixels[nominal], mode)
        measurements: list[Measurement] = []
        costs: list[Cost] = []
        examples: list[Examples] = []
        for (nominal, mode), result in results.items():
            size = sides(pixels[nominal])
            side = math.floor(min(size) / spec.evaluation.crop_at(*size))
            where = {"nominal": nominal, "resolution": size_label(pixels[nominal]), "coords": mode, "split": split}
            measurements += _measurements(result, results[base, mode], {**where, "resize_side": side})
            if (nominal, mode) == (base, modes[0]) or nominal != base:  # at base the modes are the same images
                examples += _examples(result, {**where, "resize_side": side})
            for name, value, unit, method in (
                ("eval_images_per_second", result.images_per_second, "images/s", result.images_per_second_method),
                ("eval_peak_memory_bytes", result.peak_memory_bytes, "bytes", result.peak_memory_method),
                ("eval_batch_size", result.batch_size, "images", BATCH_METHOD),
            ):
                costs.append(Cost(name=name, value=value, unit=unit, method=method, conditions=where))
        return Outcome(measurements=measurements, costs=costs, examples=examples)

    def contradictions(self, measurements: list[Measurement]) -> Iterator[str]:
        """What cannot all be true of one record: top-5 below top-1, or a change that is not the difference to base."""
        found = {(m.metric, m.conditions["nominal"], m.conditions["coords"]): m.value for m in measurements if m.value is not None}
        for (metric, nominal, coords), value in found.items():
            top5, base = found.get(("top5", nominal, coords)), found.get(("top1", BASE, coords))
            change = found.get(("top1_change", nominal, coords))
            if metric != "top1":
                continue
            if top5 is not None and top5 < value - 1e-9:
                yield f"top5 = {top5:g} is below top1 = {value:g} at {nominal}"
            if base is not None and change is not None and abs(value - base - change) > 1e-6:
                yield f"top1_change = {change:g} at {nominal}, but top1 is {value:g} there and {base:g} at base"

    def _evaluate(self, spec: VisionRunSpec, net: GoatViT, data: ImageData, pixels: ImageSize, mode: str) -> Evaluation:
        import torch

        from goatbench.training.evaluate import evaluate

        with net.coordinates("scaled" if mode == "scaled" else "raw"):
            return evaluate(
                net,
                data.eval_loader(spec.task.split, pixels),
                num_examples=data.split_size(spec.task.split),
                num_classes=spec.model.num_classes,
                classes=data.scored_classes(spec.task.split),
                device=device_of(spec),
                progress_label=f"evaluating {size_label(pixels)} px {mode}",
                autocast_dtype=torch.bfloat16 if spec.trainer.precision == "bf16-mixed" else None,
            )


def coordinate_modes(of_scheme: tuple[str, ...], asked: list[str]) -> list[str]:
    """The evaluation-time variants that make a difference for this scheme."""
    return [m for m in asked if m in of_scheme] if "raw" in of_scheme else list(of_scheme)


def _measurements(result: Evaluation, base: Evaluation, conditions: dict[str, Any]) -> list[Measurement]:
    import numpy as np

    def one(metric: str, value: float, stderr: float | None, method: str | None, unit: str = "fraction") -> Measurement:
        return Measurement(metric=metric, value=value, unit=unit, n=result.n, stderr=stderr, stderr_method=method, conditions=conditions)

    def correct(evaluation: Evaluation) -> np.ndarray:
        return np.unpackbits(np.frombuffer(evaluation.correct, np.uint8), count=result.n).astype(float)

    change = correct(result) - correct(base)
    paired = float(change.std(ddof=1) / result.n**0.5) if result.n > 1 else None
    return [
        one("top1", result.top1, result.top1_stderr, BINOMIAL),
        one("top5", result.top5, result.top5_stderr, BINOMIAL),
        one("nll_nats", result.nll_nats, result.nll_stderr, "sample sd / sqrt(n)", "nats"),
        one("ece", result.ece, None, None),
        one("top1_change", float(change.mean()), paired, "paired sd / sqrt(n)"),
    ]


def _examples(result: Evaluation, conditions: dict[str, Any]) -> list[Examples]:
    """Of each image, whether it was right and its NLL; half precision, as there are thousands, unless one is beyond it."""
    import numpy as np

    correct = np.unpackbits(np.frombuffer(result.correct, np.uint8), count=result.n).astype(bool)
    dtype = np.float16 if result.image_nll_nats.max() <= np.finfo(np.float16).max else np.float32
    return [Examples("top1", conditions, correct), Examples("nll_nats", conditions, result.image_nll_nats.astype(dtype))]


def _task(name: str, headline: int, summary: str, expected_time: dict[str, str]) -> VisionTask:
    return VisionTask(
        TaskCard(
            name=name,
            version=1,
            domain="vision",
            summary=summary,
            protocol=PROTOCOL,
            metrics=METRICS,
            primary_metric="top1",
            primary_conditions={"nominal": headline},
            column_condition="nominal",
            column_label="resolution",
            column_details=("resize_side",),
            row_conditions=("coords",),
            headline_rows={"coords": ("raw", "resampled", "none")},
            controls=("nope", "goat_sink", "sink_scalar", "softmax1"),
            expected_time=expected_time,
            source="arXiv 2403.13298 (RoPE-ViT), arXiv 2405.13985 (LookHere), arXiv 2601.15380 (GOAT)",
        )
    )


_TIME = {"smoke": "under 20 s", "embedded": "2 to 3 minutes on one CPU core", "paper": "days on 8 GPUs (ViT-S/16, 400 epochs)"}


def _at(nominal: int) -> VisionTask:
    if nominal == BASE:
        return _task(f"vit_res{nominal}", nominal, "top-1 at the training resolution (224 px)", _TIME)
    return _task(f"vit_res{nominal}", nominal, f"zero-shot top-1 at {nominal} px of a ViT trained at {BASE} px", _TIME)


VIT_RES224, VIT_RES288, VIT_RES320, VIT_RES384, VIT_RES448, VIT_RES512 = (_at(nominal) for nominal in LADDER)
VIT_RESOLUTION = _task("vit_resolution", LADDER[-1], "the whole ladder 224 .. 512 px, zero-shot, in one run", _TIME)
VIT_TUNING = _task("vit_tuning", BASE, "top-1 on validation at base resolution: chooses learning rates and lane settings", _TIME)
