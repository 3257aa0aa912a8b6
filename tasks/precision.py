"""What does half precision do to a position mechanism, by length? Nothing is trained and no data is read.

A recency term in one lane becomes a staircase, phases and distances held in 8 bits fall together: no other benchmark shows it, as
short sequences do not have it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from goatbench.errors import UsageError
from goatbench.records.canonical import digest
from goatbench.records.record import Curve, DataInfo, Measurement, Metric, Outcome, TaskCard
from goatbench.spec import ToyRunSpec

from .causal import CausalTask, absent, device_of, out_of_range

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from goatbench.attention.layer import SelfAttention
    from goatbench.models.decoder import Decoder

ROWS = 64  # the last queries, so that memory is linear in the length
DTYPES = {"bf16": "bfloat16", "fp16": "float16"}
CONTENT = "random numbers that bf16 and fp16 hold exactly"
METRICS = (
    Metric(name="output_error", unit="fraction", direction="lower", bounds=(0, None), digits=2, percent=True, counted="queries"),
    Metric(name="prior_error", unit="fraction", direction="lower", bounds=(0, 1), digits=2, percent=True, counted="queries"),
    Metric(
        name="gradient_error", unit="fraction", direction="lower", bounds=(0, None), digits=2, percent=True, everywhere=False,
        counted="tokens",
    ),
)  # fmt: skip
PROTOCOL = (
    "One attention layer, untrained, every parameter of its mechanism N(0, 0.1) away from the initial value, slopes as seeded. Queries, "
    "keys and values are random numbers that every dtype holds exactly, so that the same layer in float64 differs by rounding alone. The "
    "last 64 queries of 1,024 to 65,536 tokens are compared. output_error: relative, of the output before its projection. prior_error: "
    "total variation between the rows of attention (content and prior, as the kernel is handed them), mean over heads and queries. "
    "gradient_error: relative, of the gradient of a random function of all outputs, at the shortest length; the worst parameter of the "
    "mechanism, each of which is a curve of the record. bf16 (headline) and fp16, parameters of the mechanism in float32. "
    "positions=rounded: coordinates that were held in that dtype, as casting position ids, phases or a table of distances does. nope is "
    "the floor: what remains without positions. Rows that no softmax makes (multi-token) have no prior_error. "
)
NO_SOFTMAX = "not applicable: rows of attention that no softmax makes"
NO_PARAMETERS = "not applicable: the mechanism has no trained parameters"


class Content(NamedTuple):
    """Stands where other tasks have sequences."""

    info: DataInfo


@dataclass(frozen=True, slots=True)
class Precision(CausalTask):
    """`goatbench run task=precision`."""

    trains: ClassVar[bool] = False

    def fingerprint(self, spec: ToyRunSpec) -> str:
        return digest([CONTENT, ROWS, _lengths(spec)])

    def data(self, spec: ToyRunSpec) -> Content:
        counts = {"queries": ROWS, "lengths": len(_lengths(spec))}
        return Content(DataInfo(name="exact_numbers", fingerprint=self.fingerprint(spec), counts=counts, source=f"synthetic: {CONTENT}"))

    def protocol(self, spec: ToyRunSpec) -> dict[str, Any]:
        return {
            "lengths": " ".join(map(str, _lengths(spec))), "queries": ROWS, "device": device_of(spec), "model": spec.model.name,
            "train_context": spec.model.seq_len,
        }  # fmt: skip

    def measure(self, spec: ToyRunSpec, net: Decoder, data: Content, folder: Path | None) -> Outcome:
        from goatbench.metrics.rounding import exact_layer
        from goatbench.progress import Progress

        layer = exact_layer(net.attention_layers[0], spec.seed).to(device_of(spec))
        lengths = _lengths(spec)
        measurements: list[Measurement] = []
        curves: list[Curve] = []
        with Progress("rounding", total=len(lengths), unit="length") as bar:
            for tokens in lengths:
                if net.max_positions is not None and tokens > net.max_positions:
                    measurements += [absent(m, {"tokens": tokens, "dtype": dtype}, out_of_range(net)) for m in METRICS for dtype in DTYPES]
                    continue
                found = _errors(layer, tokens, spec.seed)
                measurements += [m for m, _ in found]
                curves += [curve for _, by_head in found for curve in by_head]
                if tokens == lengths[0]:
                    found = _gradient_errors(layer, tokens, spec.seed)
                    measurements += [m for m, _ in found]
                    curves += [curve for _, by_name in found for curve in by_name]
                bar.advance(1, tokens=tokens)
        return Outcome(measurements=measurements, curves=curves, artifacts=_plots(folder, spec.attention.name, measurements))


def _lengths(spec: ToyRunSpec) -> list[int]:
    """Tokens, shortest first. UsageError if there are none, or too few for a row to have a past."""
    lengths = [spec.model.seq_len * multiple for multiple in sorted(set(spec.task.multiples))]
    if not lengths or lengths[0] <= ROWS:
        raise UsageError(f"task.multiples={spec.task.multiples}: precision compares the last {ROWS} queries of longer sequences")
    return lengths


def _errors(layer: SelfAttention, tokens: int, seed: int) -> list[tuple[Measurement, list[Curve]]]:
    """Output and rows at one length in each dtype, with positions as they are and rounded; the rows' error by head as a curve."""
    import torch

    from goatbench.attention.positions import Positions
    from goatbench.metrics import rounding as r

    device = next(layer.buffers()).device
    x, positions = r.content(tokens, layer.shape.embed_dim, seed).to(device), Positions.line(tokens, device=device)
    true = r.last_rows(r.in_dtype(layer, torch.float64), x.double(), positions, ROWS)
    reads_places = layer.scheme.coordinate_modes != ("none",)
    found = []
    for name, torch_name in DTYPES.items():
        dtype = getattr(torch, torch_name)
        low = r.in_dtype(layer, dtype)
        places = {"": positions} | ({"rounded": r.rounded(positions, dtype)} if reads_places else {})
        for how, where in places.items():
            conditions = {"tokens": tokens, "dtype": name} | ({"positions": how} if how else {})
            if not bool(where.coords.isfinite().all()):
                found += [(absent(metric, conditions, f"positions are not finite in {name}"), []) for metric in METRICS[:2]]
                continue
            got = r.last_rows(low, x.to(dtype), where, ROWS)
            found.append((_value(METRICS[0], r.relative_error(got.out, true.out), ROWS, conditions), []))
            if true.weights is None:
                found.append((absent(METRICS[1], conditions, NO_SOFTMAX), []))
                continue
            by_head = r.total_variation(got.weights, true.weights)
            found.append((_value(METRICS[1], float(by_head.mean()), ROWS, conditions), _by_head(by_head.tolist(), ROWS, conditions)))
    return found


def _gradient_errors(layer: SelfAttention, tokens: int, seed: int) -> list[tuple[Measurement, list[Curve]]]:
    """The worst parameter's in each dtype; every parameter's as a curve of one point."""
    import torch

    from goatbench.attention.positions import Positions
    from goatbench.metrics import rounding as r

    device = next(layer.buffers()).device
    x, positions = r.content(tokens, layer.shape.embed_dim, seed).to(device), Positions.line(tokens, device=device)
    weight = r.content(tokens, layer.head_layout.out_dim, seed + 1).to(device)
    true = r.gradients(r.in_dtype(layer, torch.float64), x.double(), positions, weight)
    found = []
    for name, torch_name in DTYPES.items():
        dtype = getattr(torch, torch_name)
        conditions = {"tokens": tokens, "dtype": name}
        if not true:
            found.append((absent(METRICS[2], conditions, NO_PARAMETERS), []))
            continue
        errors = r.gradient_errors(r.gradients(r.in_dtype(layer, dtype), x.to(dtype), positions, weight), true)
        curves = [
            Curve(
                name="gradient_error", unit="fraction", x_name="tokens", x=[float(tokens)], y=[error], n=tokens,
                conditions={"dtype": name, "parameter": parameter},
            )
            for parameter, error in errors.items()
            if math.isfinite(error)
        ]  # fmt: skip
        worst = max(errors.values(), key=lambda error: (not math.isfinite(error), error))
        found.append((_value(METRICS[2], worst, tokens, conditions), curves))
    return found


def _value(metric: Metric, value: float, n: int, conditions: dict[str, Any]) -> Measurement:
    if not math.isfinite(value):
        return absent(metric, conditions, f"not finite in {conditions['dtype']}")
    return Measurement(metric=metric.name, value=value, unit=metric.unit, n=n, conditions=conditions)


def _by_head(errors: list[float], n: int, conditions: dict[str, Any]) -> list[Curve]:
    if not all(map(math.isfinite, errors)):
        return []
    x = [float(head) for head in range(len(errors))]
    return [Curve(name="prior_error", unit="fraction", x_name="head", x=x, y=errors, n=n, conditions=conditions)]


def _plots(folder: Path | None, attention: str, measurements: list[Measurement]) -> list[str]:
    """Draws errors by length as PNG and SVG; the names of the files."""
    from goatbench.plots import style

    figures = {metric.name: by_length(metric, attention, measurements) for metric in METRICS[:2]} if folder else {}
    drawn = {f"{name}_by_length": figure for name, figure in figures.items() if figure is not None}
    return [path.name for name, figure in drawn.items() for path in style.save(figure, folder / name)]


def by_length(metric: Metric, attention: str, measurements: list[Measurement]) -> Figure | None:
    """A line a dtype and way of holding positions, per cent on a logarithmic axis, which has no 0. None without a number above it."""
    from goatbench.plots.curves import Curve as Line
    from goatbench.plots.curves import Labels, curves

    points: dict[str, dict[int, float]] = {}
    for m in measurements:
        if m.metric == metric.name and m.value:
            name = f"{m.conditions['dtype']}, positions rounded" if "positions" in m.conditions else m.conditions["dtype"]
            points.setdefault(name, {})[m.conditions["tokens"]] = 100 * m.value
    lines = [Line(name, list(found), list(found.values())) for name, found in points.items()]
    labels = Labels(f"{attention}: what half precision does, by length", "tokens", f"{metric.name} (%)")
    return curves(lines, labels, log_y=True) if lines else None


PRECISION = Precision(
    TaskCard(
        name="precision",
        version=1,
        domain="toy",
        summary="error of bf16 and fp16 against float64 at 1k to 64k tokens: output, rows of attention, gradients",
        protocol=PROTOCOL,
        metrics=METRICS,
        primary_metric="output_error",
        primary_conditions={"tokens": 65536},
        column_condition="tokens",
        row_conditions=("dtype", "positions"),
        headline_rows={"dtype": ("bf16",)},
        controls=("nope",),
        is_overall=False,
        expected_time={"smoke": "under 20 s", "embedded": "under a minute on one CPU core", "paper": "under a minute on one GPU"},
        source="own task; the staircase of one recency lane is in the released code of arXiv 2601.15380 (GOAT)",
    )
)
