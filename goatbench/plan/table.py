"""What `goatbench plan` prints: a line a job, totals, and how each number was come by."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..compose import Composer
from ..errors import UsageError
from ..overrides import job_label
from ..progress import Progress, counted, duration, tell
from ..records.canonical import digest
from ..records.store import iter_records, results_root
from ..registry import tasks
from ..spec import sides
from .amount import Amount, amount_of
from .sizes import parse_bytes
from .throughput import Throughput, measured

if TYPE_CHECKING:
    from .memory import Fit

HEADER = ("job", "params", "steps", "samples", "tokens", "train FLOPs", "batch/device", "peak/device", "wall")
QUIET_SECONDS = 5.0


@dataclass(frozen=True)
class Planned:
    """One job. peak: bytes on one device, or why there is none. fit: what would fit, where the job does not."""

    label: str
    spec: Any
    amount: Amount
    params: int
    flops: int  # of the whole training
    peak: int | str
    throughput: Throughput | None
    fit: Fit | None = None
    training: str = field(default="", compare=False)  # jobs of equal key share their weights

    @property
    def devices(self) -> int:
        return self.spec.trainer.devices * self.spec.trainer.num_nodes

    @property
    def batch(self) -> int:
        """Samples of one forward pass on one device."""
        return self.spec.training.batch_size // (self.devices * self.spec.trainer.accumulate)

    @property
    def seconds(self) -> float | None:
        if not self.amount.samples:
            return 0.0
        return self.amount.samples / self.throughput.samples_per_second / self.devices if self.throughput is not None else None


def plan_jobs(
    overrides: list[str], memory: str | None = None, throughput: float | None = None, config_dir: str | None = None
) -> list[Planned]:
    """Every job of the sweep. memory: of a device, such as 80GiB: jobs beyond it get a `fit`. throughput: of one device, in images or
    tokens a second. UsageError if any job cannot be composed, built or counted."""
    limit = None if memory is None else parse_bytes(memory)
    composer = Composer(config_dir)
    lines = composer.split_sweep(overrides)
    jobs = [job for line in lines for job in _stages(job_label(line, overrides), composer.compose(line).spec)]
    names = {name for name in tasks.names() for _, spec in jobs if throughput is None and tasks.get(name).card.domain == spec.domain}
    records = list(iter_records(results_root(), [], names)) if names else []
    known: dict[str, tuple[int, int, int | str, Fit | None]] = {}
    planned = []
    tell(f"planning {counted(len(jobs), 'job')}: loading PyTorch ...")
    with Progress("planning", len(jobs), "job", after=QUIET_SECONDS) as bar:
        for label, spec in jobs:
            amount = amount_of(spec)
            key = digest([spec.identity | {"seed": 0, "task": amount.steps and spec.task.name}, spec.trainer.model_dump(mode="json")])
            if key not in known:
                known[key] = _of_model(spec, bool(amount.steps), limit)
            params, flops, peak, fit = known[key]
            rate = _given(spec, amount, throughput) if throughput is not None else measured(spec, records)
            training = spec.training_hash("0" * 8, "0" * 8)
            planned.append(Planned(label, spec, amount, params, flops * amount.samples, peak, rate, fit, training))
            bar.advance()
    return planned


def _stages(label: str, spec: Any) -> list[tuple[str, Any]]:
    """A training with an earlier stage counts as two jobs."""
    return [(label, spec)] if spec.first_stage is None else [(f"{label}, first stage", spec.first_stage), (label, spec)]


def _of_model(spec: Any, trains: bool, limit: int | None) -> tuple[int, int, int | str, Fit | None]:
    """Parameters, FLOPs of training on one sample, peak bytes (or why not), and what fits if that is too much."""
    from ..models.flops import training_flops_per_image, training_flops_per_token
    from .memory import build_undrawn, estimate, largest_fit

    try:
        net = build_undrawn(spec)
    except ValueError as error:
        raise UsageError(str(error)) from None
    params = sum(parameter.numel() for parameter in net.parameters())
    if spec.domain == "vision":
        flops = training_flops_per_image(net, *sides(spec.model.image_size))
    else:
        flops = training_flops_per_token(net, spec.model.seq_len) * spec.model.seq_len
    if not trains:
        return params, flops, "no training", None
    machine = spec.trainer
    batch = spec.training.batch_size // (machine.devices * machine.num_nodes * machine.accumulate)
    try:
        here = estimate(spec, net, batch, machine.accumulate > 1)
        peak = max(here.values())
        fit = None if limit is None or peak <= limit else largest_fit(spec, net, limit, here)
    except ValueError as error:
        return params, flops, f"n/a: {error}", None
    return params, flops, peak, fit


def _given(spec: Any, amount: Amount, throughput: float) -> Throughput:
    if spec.domain == "vision":
        return Throughput(throughput, f"--throughput {throughput:g} images/s a device")
    return Throughput(throughput / amount.sample_tokens, f"--throughput {throughput:g} tokens/s a device")


def plan_lines(planned: Sequence[Planned]) -> list[str]:
    """The table, its totals and notes."""
    once = list({job.training: job for job in planned}.values())  # weights that several jobs share are trained once
    rows = [HEADER, *(_row(job) for job in planned)]
    if len(planned) > 1:
        rows.append(_totals(planned, once))
    widths = [max(len(row[n]) for row in rows) for n in range(len(HEADER))]
    lines = ["  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))]).rstrip() for row in rows]
    return [*lines, "", *(f"- {note}" for note in _notes(planned, once))]


def _row(job: Planned) -> tuple[str, ...]:
    from .memory import show_bytes

    amount = job.amount
    peak = show_bytes(job.peak) if isinstance(job.peak, int) else job.peak.partition(":")[0]
    seconds = job.seconds
    return (
        job.label, f"{job.params:,}", f"{amount.steps:,}", f"{amount.samples:,} {amount.unit}", f"{amount.tokens:.3g}", f"{job.flops:.3g}",
        f"{job.batch:,}", f"{peak}{' (!)' if job.fit is not None else ''}", "n/a" if seconds is None else duration(seconds),
    )  # fmt: skip


def _totals(planned: Sequence[Planned], once: Sequence[Planned]) -> tuple[str, ...]:
    from .memory import show_bytes

    units = {job.amount.unit for job in once}
    samples = f"{sum(job.amount.samples for job in once):,} {units.pop()}" if len(units) == 1 else "-"
    peaks = [job.peak for job in planned if isinstance(job.peak, int)]
    seconds = [job.seconds for job in once]
    total = "n/a" if any(one is None for one in seconds) else duration(sum(seconds))
    return (
        f"total of {counted(len(planned), 'job')}", "", f"{sum(job.amount.steps for job in once):,}", samples,
        f"{sum(job.amount.tokens for job in once):.3g}", f"{sum(job.flops for job in once):.3g}", "",
        f"max {show_bytes(max(peaks))}" if peaks else "-", total,
    )  # fmt: skip


def _notes(planned: Sequence[Planned], once: Sequence[Planned]) -> Iterable[str]:
    from .memory import METHOD, SHARDED

    yield "FLOPs: by formula, 3 times the forward pass, all pairs of tokens counted; evaluation comes on top of training everywhere here"
    yield f"peak: {METHOD}; a GPU adds its context, workspaces and fragmentation"
    if any(job.spec.trainer.strategy == "fsdp2" for job in planned):
        yield f"peak: {SHARDED}"
    yield from dict.fromkeys(f"{job.label}: {job.peak}" for job in planned if isinstance(job.peak, str) and ":" in job.peak)
    for source in dict.fromkeys(job.throughput.source for job in planned if job.throughput is not None and job.amount.steps):
        yield f"wall: training alone, one job after the other; {source}, times the number of devices"
    for name in dict.fromkeys(job.spec.model.name for job in planned if job.seconds is None):
        kind = "GPU" if planned[0].spec.trainer.accelerator == "gpu" else "CPU"
        yield f"wall: no record of {name} on a {kind}: give --throughput N (images or tokens a second of one device)"
    if len(once) < len(planned):
        yield f"{len(planned)} jobs share {len(once)} trainings: totals count each once"
    yield from dict.fromkeys(job.amount.note for job in planned if job.amount.note)
    devices = {job.devices for job in once}
    if all(job.seconds is not None for job in once) and devices != {1}:
        yield f"device time: {duration(sum((job.seconds or 0) * job.devices for job in once))}"


def refusals(planned: Sequence[Planned], memory: str) -> list[str]:
    """A line for each job that does not fit, with the nearest batch that does."""
    from .memory import show_bytes

    lines = []
    for job in planned:
        if (fit := job.fit) is None:
            continue
        assert isinstance(job.peak, int)
        what = f"{job.label}: {show_bytes(job.peak)} a device at {job.batch} {job.amount.unit} a pass do not fit in {memory}"
        if fit.batch == 0:
            lines.append(f"{what}, nor does a single one ({show_bytes(fit.peak_of_one)}): {_smaller(job.spec)}")
            continue
        size = fit.batch * job.devices * job.spec.trainer.accumulate
        same = f"trainer.accumulate={fit.accumulate} fits with the same batch ({show_bytes(fit.peak)}); " if fit.accumulate else ""
        lines.append(f"{what}; {same}the nearest training.batch_size that fits is {size}")
    return lines


def _smaller(spec: Any) -> str:
    hint = "" if spec.trainer.checkpoint_activations else "trainer.checkpoint_activations=true, "
    return f"{hint}a smaller model or shorter samples"


def write_plan(overrides: list[str], memory: str | None, throughput: float | None, config_dir: str | None) -> None:
    """Prints the plan; UsageError, after it, if something does not fit in `memory`."""
    planned = plan_jobs(overrides, memory, throughput, config_dir)
    print("\n".join(plan_lines(planned)), flush=True)
    if memory is not None and (lines := refusals(planned, memory)):
        print("\n".join(lines[1:]), end="\n" if lines[1:] else "")
        more = f" (and {len(lines) - 1} more, above)" if lines[1:] else ""
        raise UsageError(f"{lines[0]}{more}")
