"""What does a training step cost, by length? Peak memory and throughput, equal kernels on both sides, each point in a fresh process.

The GOAT paper states 36 % less peak memory than RoPE on DNA (arXiv 2601.15380). Under a fused kernel both keep q, k, v, the output
and the log-sum-exp for the backward pass, whatever turned q and k before; this task measures whether anything else differs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from goatbench.records.canonical import digest
from goatbench.records.record import Curve, DataInfo, Measurement, Metric, Outcome, TaskCard
from goatbench.spec import GenomeRunSpec

from .genome import GenomeTask, device_of

if TYPE_CHECKING:
    from goatbench.models.decoder import Decoder

MIB = 2**20
BATCH = 1  # sequences a step
TOKENS = "synthetic: random A C G T, which cost what real bases cost"

METRICS = tuple(
    Metric(
        name=name, unit=unit, direction=direction, bounds=(0, None), digits=digits,
        counted="timed steps" if name == "tokens_per_second" else "examples",
    )
    for name, unit, direction, digits in (
        ("peak_mib", "MiB", "lower", 2),
        ("state_mib", "MiB", "lower", 2),
        ("saved_mib", "MiB", "lower", 2),
        ("forward_mib", "MiB", "lower", 2),
        ("backward_mib", "MiB", "lower", 2),
        ("optimizer_mib", "MiB", "lower", 2),
        ("inference_mib", "MiB", "lower", 2),
        ("tokens_per_second", "tokens/s", "higher", 0),
        ("flops_per_token", "FLOP", "lower", 0),
    )
)  # fmt: skip

PROTOCOL = (
    "One training step (forward with loss, backward, clipping and AdamW) of the decoder on one sequence of random bases; the model is "
    "built for training at each length. Each point is a fresh process, measured at its second step. peak_mib: most bytes held at "
    "one time during the step, with parameters and optimizer state; state_mib: what stands between steps; the other sizes are above "
    "that state: saved_mib at the end of the forward pass, the peak of each phase, and of a forward pass without gradient "
    "(inference_mib). Methods are rows of their own and never compared: cuda_allocator (GPU) and allocations (CPU, the profiler's "
    "exact record) are the plain rows; rss is the rise of the process's resident peak, code pages and allocator slack included; "
    "estimate counts live storages of fake tensors under the CPU's kernels. tokens_per_second: median, of CPU time on a CPU. "
    "flops_per_token: formula, 3 times the forward pass, all pairs counted. nope is plain attention under the same kernel: the ratio "
    "of any row to it, or to rope, is the answer to the claim of 36 % less memory. Columns: share of the longest length."
)
REASONS = {
    "rss": "not applicable: freed memory stays resident, so phases cannot be told apart; speed is timed in another row",
    "estimate": "not applicable: fake tensors compute nothing",
}


class StepData(NamedTuple):
    """Stands where other tasks have sequence."""

    info: DataInfo


@dataclass(frozen=True, slots=True)
class GenomeMemory(GenomeTask):
    """`goatbench run task=genome_memory`."""

    trains: ClassVar[bool] = False

    def fingerprint(self, spec: GenomeRunSpec) -> str:
        return digest([TOKENS, BATCH, sorted(spec.evaluation.lengths)])

    def data(self, spec: GenomeRunSpec) -> StepData:
        counts = {"lengths": len(set(spec.evaluation.lengths))}
        return StepData(DataInfo(name="random_bases", fingerprint=self.fingerprint(spec), counts=counts, source=TOKENS))

    def model_info(self, spec: GenomeRunSpec, net: Decoder) -> dict[str, Any]:
        """The kernels are those of the longest length that memory suffices for, on the device of the run; parameters are those of the
        training length."""
        from goatbench.models import model_info
        from goatbench.training.memory import is_out_of_memory
        from goatbench.training.step_cost import kernels_at

        for length in sorted(set(spec.evaluation.lengths), reverse=True):
            try:
                train, evaluation = kernels_at(spec, length, BATCH, device_of(spec))
                break
            except RuntimeError as error:  # the cells of this length will say so
                if not is_out_of_memory(error) or length == min(spec.evaluation.lengths):
                    raise
        return {**model_info(net), "kernel_train": train, "kernel_eval": evaluation}

    def protocol(self, spec: GenomeRunSpec) -> dict[str, Any]:
        return {
            "preset": spec.evaluation.preset, "lengths": " ".join(map(str, sorted(set(spec.evaluation.lengths)))), "batch": BATCH,
            "dtype": spec.trainer.precision, "device": device_of(spec), "model": spec.model.name,
            "checkpoint_activations": spec.trainer.checkpoint_activations, "optimizer": spec.training.optimizer,
        }  # fmt: skip

    def measure(self, spec: GenomeRunSpec, net: Decoder, data: StepData, folder: Path | None) -> Outcome:
        from goatbench.progress import Progress
        from goatbench.training.step_cost import measure_in_fresh_process

        lengths = sorted(set(spec.evaluation.lengths))
        methods = ("cuda_allocator", "estimate") if device_of(spec) == "cuda" else ("allocations", "rss", "estimate")
        measurements: list[Measurement] = []
        curves = []
        with Progress("measuring steps", total=len(lengths) * len(methods), unit="point") as bar:
            for method in methods:
                peaks: dict[int, float] = {}
                for length in lengths:
                    result = measure_in_fresh_process(spec, length, BATCH, method)
                    where = {"length_share": length / lengths[-1], "length": length, "method": method}
                    found = list(_measurements(result, method, where))
                    measurements += found
                    if found[0].value is not None:
                        peaks[length] = found[0].value
                    bar.advance(1, method=method, tokens=length)
                if peaks:
                    x, y = [float(length) for length in peaks], list(peaks.values())
                    curves.append(Curve(name="peak_mib", unit="MiB", x_name="length", x=x, y=y, n=BATCH, conditions={"method": method}))
        artifacts = _plot(curves, spec.attention.name, folder) if folder is not None and curves else []
        return Outcome(measurements=measurements, curves=curves, artifacts=artifacts)


def _measurements(result: dict[str, Any], method: str, where: dict[str, Any]) -> Iterator[Measurement]:
    """Every metric of one point; None with its reason where the method, the memory or the mechanism does not give it."""
    reason = f"not applicable: {result['refused']}" if "refused" in result else REASONS.get(method)
    for metric in METRICS:
        value = result.get(metric.name.removesuffix("_mib"))
        if value is not None and metric.unit == "MiB":
            value /= MIB
        n = result.get("timed_steps", 1) if metric.name == "tokens_per_second" else BATCH
        kind = None if value is not None else reason
        yield Measurement(metric=metric.name, value=value, unit=metric.unit, n=0 if value is None else n, reason=kind, conditions=where)


def _plot(measured: list[Curve], attention: str, folder: Path) -> list[str]:
    """Writes peak memory by length, a line for each method, as PNG and SVG; the names of the files."""
    from goatbench.plots import curves, style

    lines = [curves.Curve(str(curve.conditions["method"]), curve.x, curve.y) for curve in measured]
    labels = curves.Labels(f"One training step, {attention}: peak memory", "length (bases)", "MiB")
    return [path.name for path in style.save(curves.curves(lines, labels, log_y=True), folder / "peak_memory")]


GENOME_MEMORY = GenomeMemory(
    TaskCard(
        name="genome_memory",
        version=1,
        domain="genome",
        summary="peak memory and throughput of a training step by length",
        protocol=PROTOCOL,
        metrics=METRICS,
        primary_metric="peak_mib",
        primary_conditions={"length_share": 1.0},
        column_condition="length_share",
        column_label="length",
        row_conditions=("method",),
        headline_rows={"method": ("cuda_allocator", "allocations")},
        controls=("nope",),
        expected_time={
            "smoke": "under a minute", "embedded": "about 2 minutes on one CPU core", "paper": "minutes on one GPU",
        },
        source="arXiv 2601.15380 (GOAT, claim on memory), arXiv 2204.02311 (FLOPs by formula)",
    )
)  # fmt: skip
