"""What all tasks of a causal decoder share, whatever its tokens are: how the model is built, trained and scored.

Imports no torch at the top: `goatbench list` and the leaderboards read the cards.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from goatbench.records.canonical import canonical_json
from goatbench.records.record import Cost, Curve, Measurement, Metric, Outcome, TaskCard
from goatbench.records.statistics import WILSON, wilson_interval
from goatbench.spec import RunSpec

if TYPE_CHECKING:
    from torch import Tensor

    from goatbench.data.causal import CausalData
    from goatbench.models.decoder import Decoder
    from goatbench.training.evaluate_lm import LikelihoodResult

MAX_CURVE_POINTS = 128
BATCH_METHOD = "largest forward pass of one process; halved where memory did not suffice"
ROPE_SCALING = "rope_scaling"  # row condition of the tasks that measure several lengths
SCALINGS = (
    "RoPE, trained plainly, is measured a second, third and fourth time beyond its training length: rope_scaling=pi, ntk and yarn, the "
    "same weights with frequencies scaled by length / training length, which no other mechanism is told. "
)


@dataclass(frozen=True, slots=True)
class CausalTask:
    """One task; goatbench.execute calls the methods in this order. Subclasses give the data and measure."""

    card: TaskCard
    trains: ClassVar[bool] = True

    def fingerprint(self, spec: Any) -> str:
        """Of what this run would read; no torch."""
        raise NotImplementedError

    def model(self, spec: Any) -> Decoder:
        from goatbench.attention.kernels.select import get_kernel
        from goatbench.models import build_decoder

        net = build_decoder(spec.model, spec.attention, get_kernel(spec.kernel), self.family())
        net.set_grad_checkpointing(spec.trainer.checkpoint_activations)
        return net

    def family(self) -> type[Decoder]:
        """The class of the model."""
        from goatbench.models import Decoder

        return Decoder

    def model_info(self, spec: Any, net: Decoder) -> dict[str, Any]:
        """Fields of records.ModelInfo but for the name; the kernels are observed on training and evaluation windows."""
        from functools import partial

        import torch

        from goatbench.models import model_info
        from goatbench.training.observing import observed_kernels

        tokens = torch.zeros(1, spec.model.seq_len, dtype=torch.int64)
        return {**model_info(net), **observed_kernels(spec, net, device_of(spec), tokens, tokens, partial(self.beside, spec))}

    def beside(self, spec: Any, tokens: Tensor) -> tuple[Any, ...]:
        """What training gives the model beside token ids [B, K]: nothing, or positions and mask."""
        return ()

    def data(self, spec: Any) -> CausalData:
        raise NotImplementedError

    def protocol(self, spec: Any) -> dict[str, Any]:
        """What must agree between two rows of one board, beside task version, scale and data."""
        return {
            "preset": spec.evaluation.preset, "train_context": spec.model.seq_len, "dtype": spec.trainer.precision,
            "part": spec.task.split, "model": spec.model.name,
        }  # fmt: skip

    def answer_tokens(self, spec: Any) -> int | None:
        """Only the last so many targets of a window are trained and validated; None: all."""
        return None

    def train(self, spec: Any, net: Decoder, data: CausalData, checkpoint: Path, meta: dict[str, Any]) -> None:
        """Trains and writes the weights of the best epoch, with meta and what training did, to `checkpoint`."""
        from goatbench.training.causal_lm import CausalLM
        from goatbench.training.fit import fit

        steps = spec.training.epochs * data.steps_per_epoch
        module = CausalLM(net, spec.training, spec.learning_rate, steps, spec.model.num_scored, self.answer_tokens(spec))
        fit(module, data, spec.trainer, spec.training.epochs, checkpoint, seed=spec.seed, meta=meta, retrain=spec.retrain)

    def check(self, spec: Any, data: CausalData) -> None:
        """UsageError, before training, if the data cannot give what `measure` will ask for."""

    def measure(self, spec: Any, net: Decoder, data: CausalData, folder: Path | None) -> Outcome:
        raise NotImplementedError

    def contradictions(self, measurements: list[Measurement]) -> Iterator[str]:
        """What cannot all be true of one record: nats, bits and perplexity under the same conditions are one number."""
        yield from unit_contradictions(measurements)


def by_conditions(measurements: Iterable[Measurement]) -> Iterator[tuple[dict[str, Any], dict[str, Measurement]]]:
    """(conditions, metric -> measurement) of those that have a value."""
    groups: dict[str, dict[str, Measurement]] = {}
    for m in measurements:
        if m.value is not None:
            groups.setdefault(canonical_json(m.conditions), {})[m.metric] = m
    for found in groups.values():
        yield next(iter(found.values())).conditions, found


def unit_contradictions(measurements: Iterable[Measurement]) -> Iterator[str]:
    for conditions, found in by_conditions(measurements):
        if "nll_nats" not in found:
            continue
        nats = found["nll_nats"].value
        same = {"bits_per_base": nats / math.log(2), "perplexity": math.exp(nats)}
        for name, value in same.items():
            if name in found and not math.isclose(found[name].value, value, rel_tol=1e-6):
                yield f"{name} = {found[name].value:g}, but nll_nats = {nats:g} means {value:g} ({canonical_json(conditions)})"


def contexts_of(spec: Any) -> list[int]:
    """Tokens of every length that the task asks for, the training length first."""
    return [spec.model.seq_len * multiple for multiple in sorted({1, *spec.task.multiples})]


def machine_of(spec: RunSpec) -> dict[str, int]:
    """The arguments of a CausalData that the machine decides, and the batch."""
    return {
        "seed": spec.seed,
        "batch_size": spec.training.batch_size,
        "num_workers": spec.trainer.num_workers,
        "accumulate": spec.trainer.accumulate,
    }


def evaluate(spec: Any, net: Decoder, data: CausalData, windows: Any, label: str, last: int | None = None) -> LikelihoodResult:
    """Exact likelihood of every target of the windows, or of their last `last` ones."""
    import torch

    from goatbench.training.evaluate_lm import evaluate_lm

    return evaluate_lm(
        net,
        data.eval_loader(windows),
        num_windows=len(windows),
        num_scored=spec.model.num_scored,
        device=device_of(spec),
        last=last,
        progress_label=label,
        autocast_dtype=torch.bfloat16 if spec.trainer.precision == "bf16-mixed" else None,
    )


def absent(metric: Metric, conditions: dict[str, Any], reason: str) -> Measurement:
    """A cell without a value, and why."""
    return Measurement(metric=metric.name, value=None, unit=metric.unit, n=0, reason=reason, conditions=conditions)


def rate(metric: str, successes: int, n: int, conditions: dict[str, Any]) -> Measurement:
    """A share of n in 0..1, with the error that Wilson's interval stands for: not 0 where all or none succeed."""
    low, high = wilson_interval(successes, n)
    return Measurement(
        metric=metric, value=successes / n, unit="fraction", n=n, stderr=(high - low) / (2 * 1.959964),
        stderr_method=WILSON, conditions=conditions,
    )  # fmt: skip


def out_of_range(net: Decoder) -> str:
    """The reason of a measurement beyond the positions that the mechanism has."""
    return f"not applicable: positions beyond {net.max_positions} {net.position.why_limited}"


def length_variants(net: Decoder, context: int, train_length: int) -> Iterator[tuple[dict[str, str], AbstractContextManager[Any]]]:
    """({}, nothing to apply), then beyond the training length each way in which the mechanism can serve such lengths with the same
    weights: its condition and the with-block to evaluate in. A measurement without the condition is of the model as it was trained.

    RoPE has pi, ntk and yarn, each with the factor context / train_length, which is the condition `multiple`.
    """
    yield {}, nullcontext()
    if context > train_length:
        for name in net.length_variants:
            yield {ROPE_SCALING: name}, net.length_variant(name, context / train_length)


def device_of(spec: RunSpec) -> str:
    import torch

    return "cuda" if spec.trainer.accelerator != "cpu" and torch.cuda.is_available() else "cpu"


def evaluation_costs(result: LikelihoodResult, unit: str, conditions: dict[str, Any]) -> list[Cost]:
    """Throughput, peak memory and batch of an evaluation. unit: 'tokens', 'bytes', 'bases'."""
    return [
        Cost(
            name=f"eval_{unit}_per_second", value=result.tokens_per_second, unit=f"{unit}/s",
            method=result.tokens_per_second_method, conditions=conditions,
        ),
        Cost(
            name="eval_peak_memory_bytes", value=result.peak_memory_bytes, unit="bytes",
            method=result.peak_memory_method, conditions=conditions,
        ),
        Cost(name="eval_batch_size", value=result.batch_size, unit="windows", method=BATCH_METHOD, conditions=conditions),
    ]  # fmt: skip


def position_curve(name: str, x_name: str, result: LikelihoodResult, conditions: dict[str, Any]) -> Curve:
    """Mean bits per token by the number of tokens before the target, averaged over at most 128 equal stretches of positions."""
    import numpy as np

    nll = result.position_nll_nats / math.log(2)
    edges = np.unique(np.linspace(0, len(nll), min(len(nll), MAX_CURVE_POINTS) + 1).astype(int))
    pairs = list(pairwise(edges.tolist()))
    x = [float((a + 1 + b) / 2) for a, b in pairs]
    y = [float(nll[a:b].mean()) for a, b in pairs]
    return Curve(name=name, unit="bits", x_name=x_name, x=x, y=y, n=max(1, int(result.position_count.min())), conditions=conditions)
