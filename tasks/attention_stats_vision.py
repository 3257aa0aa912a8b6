"""Where does a trained ViT look? Mass on the class token, entropy and distance in patches, per layer and head.

A description of the model that vit_resolution trained (the weights are shared), at its training resolution and beyond. Neither end of
these numbers is better.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from goatbench.records.record import Curve, Measurement, Outcome, TaskCard
from goatbench.spec import VisionRunSpec, sides, size_label

from .attention_stats import METRICS as OF_SEQUENCES
from .attention_stats import SHOWN, UNIFORM, by_head, collect, evenly, measurement, plots
from .causal import device_of
from .vit_resolution import VIT_RESOLUTION, VisionTask, coordinate_modes

if TYPE_CHECKING:
    import numpy as np

    from goatbench.data.images import ImageData
    from goatbench.models.vit import GoatViT

MAX_IMAGES = 64  # a mean over heads needs no more
UNITS = {"distance": "patches"}
METRICS = tuple(m.model_copy(update={"unit": UNITS.get(m.name, m.unit)}) for m in OF_SEQUENCES if m.name != "recent_mass")  # no latest keys
PROTOCOL = (
    "The trained ViT of vit_resolution reads test images (at most 64, the same at each resolution) at the base resolution and beyond, with "
    "raw patch indices (a learned table is stretched). Of the rows of attention that it really uses, means over layers, heads and "
    "queries: mass on the class token; largest probability of a key; mass of a learned sink; entropy over the keys, in nats and over "
    "ln(keys); among patches mean Euclidean distance to a key, in patches and over the farthest one. largest_norm: the largest norm of a "
    "token behind any layer. Values by layer and head are curves of the record. The reference looks at every key alike. Rows that do not "
    "sum to one (differential) are refused. "
)


@dataclass(frozen=True, slots=True)
class VisionAttention(VisionTask):
    """`goatbench run task=attention_stats_vision`."""

    def model(self, spec: VisionRunSpec) -> GoatViT:
        from goatbench.metrics.attention_stats import require_softmax

        net = VisionTask.model(self, spec)
        require_softmax(net)
        return net

    def measure(self, spec: VisionRunSpec, net: GoatViT, data: ImageData, folder: Path | None) -> Outcome:
        from goatbench.metrics.prior_curves import prior_maps
        from goatbench.progress import Progress

        split, pixels, total = spec.task.split, spec.evaluation.pixels, data.split_size(spec.task.split)
        places, shown = evenly(min(MAX_IMAGES, total), total), [metric.name for metric in METRICS if metric.name in SHOWN]
        mode = coordinate_modes(net.position.coordinate_modes, ["raw"])[0]
        net.to(device_of(spec))
        measurements: list[Measurement] = []
        curves: list[Curve] = []
        maps: dict[str, np.ndarray] = {}
        for nominal in sorted({spec.evaluation.base, *spec.task.resolutions}):
            label = size_label(pixels[nominal])
            where = {"nominal": nominal, "resolution": label, "coords": mode, "split": split}
            images, _, _ = data.eval_loader(split, pixels[nominal]).dataset.batch(places)
            with Progress(f"attention over {label} px", total=len(places), unit="image") as bar:
                found = collect(net, images, 1, bar)
            for metric in METRICS:
                measurements.append(measurement(metric, found[metric.name], where))
                curves += by_head(metric, found[metric.name], {"nominal": nominal, "resolution": label})
            maps |= {f"{name}, {label} px": found[name].mean(0) for name in shown}
            measurements += _uniform(spec, nominal, len(places), where)
        priors = prior_maps(net, *(side // spec.model.patch_size for side in sides(spec.model.image_size)))
        drawn = plots(folder, spec.attention.name, maps, None if priors is None else priors.numpy())
        return Outcome(measurements=measurements, curves=curves, artifacts=drawn)


def _uniform(spec: VisionRunSpec, nominal: int, count: int, where: dict[str, Any]) -> list[Measurement]:
    """What attention to every key alike gives, worked out from the grid."""
    height, width = (side // spec.model.patch_size for side in sides(spec.evaluation.pixels[nominal]))
    tokens = height * width + spec.model.class_token + spec.model.num_reg_tokens
    places = [(y, x) for y in range(height) for x in range(width)]
    rows = [[math.dist(a, b) for b in places] for a in places]
    values = {
        "first_token_mass": 1 / tokens, "largest_mass": 1 / tokens, "sink_mass": 0.0,
        "entropy_nats": math.log(tokens), "entropy_share": 1.0,
        "distance": fmean(map(fmean, rows)), "distance_share": fmean(fmean(row) / max(1.0, *row) for row in rows),
    }  # fmt: skip
    where, units = {**where, "reference": UNIFORM}, {metric.name: metric.unit for metric in METRICS}
    return [Measurement(metric=name, value=value, unit=units[name], n=count, conditions=where) for name, value in values.items()]


ATTENTION_STATS_VISION = VisionAttention(
    TaskCard(
        name="attention_stats_vision",
        version=1,
        domain="vision",
        summary="where the model of vit_resolution looks: class token, entropy, distance, per layer and head",
        protocol=PROTOCOL,
        metrics=METRICS,
        primary_metric="first_token_mass",
        primary_conditions={"nominal": 224, "split": "test"},
        column_condition="nominal",
        column_label="resolution",
        row_conditions=("coords",),
        headline_rows=VIT_RESOLUTION.card.headline_rows,
        controls=VIT_RESOLUTION.card.controls,
        expected_time={"smoke": "under 20 s", "embedded": "under a minute after training", "paper": "minutes on one GPU after training"},
        source=f"{VIT_RESOLUTION.card.source}; arXiv 2309.16588 (artifacts and registers), arXiv 2402.17762 (massive activations)",
    )
)
