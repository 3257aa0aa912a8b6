"""`goatbench bench gpu`: does everything hold on this GPU, and what does GOAT cost there? One command, under ten minutes, one record."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field

import torch
import torch._dynamo
from torch import nn

from ..attention.kernels.select import get_kernel
from ..attention.positions import Positions
from ..errors import UsageError
from ..progress import Progress
from ..records.environment import describe_environment
from ..training.memory import allocation_levels, cuda_levels
from ..training.process_settings import as_in_training
from . import arguments as parse
from . import gpu_checks as checks
from . import record
from .memory import saved_bytes
from .targets import PEAK_AT_MOST, PLAIN_AT_MOST, SAVED_AT_MOST, Result, judge
from .timing import Quartiles, interleaved, ratio
from .variants import EMBED_DIM, build, training_step

START_BEFORE_SECONDS = 480.0  # no job begins later
END_SECONDS = 590.0  # the command ends then, whatever a job or a compiler is doing
KERNELS = ("sdpa", "flash", "flex")
OUTPUT_AT_MOST = {"bf16": 8e-3, "fp16": 2e-3}  # rounding: 2^-8 and 2^-11 relative, a few operations deep
GRADIENT_AT_MOST = {"bf16": 2e-2, "fp16": 5e-3}
SLOPE_AT_MOST = {"bf16": 0.1, "fp16": 0.05}  # checks.kernel_errors says why it is wider; a kernel that drops the lane is wrong by 1
BOUNDS = {"output": OUTPUT_AT_MOST, "slope's gradient": SLOPE_AT_MOST}  # all others: GRADIENT_AT_MOST
KEY_TERM_AT_MOST = 2e-2  # of the largest output; one bf16 lane of slope * j is wrong by more than half of it (docs/core.md)
CUDA = torch.device("cuda")
VARIANTS = ("plain", "rope-tables", "goat", "goat-append")


@dataclass(frozen=True, slots=True)
class Settings:
    """tokens: of the comparisons with float64; key_tokens: of the exact key term; shapes: (batch, tokens) -> rounds of timing."""

    tokens: int = 1024
    flash_tokens: int = 2048
    key_tokens: int = 65_536
    shapes: dict[tuple[int, int], int] = field(default_factory=lambda: {(32, 1024): 15, (8, 4096): 15, (2, 16_384): 11, (1, 32_768): 9})
    steps_a_round: int = 5


@dataclass(slots=True)
class Found:
    """failed: jobs that ended in an error, or not in time, and why; notes: what a kernel objected to; running: the job of the moment."""

    results: list[Result] = field(default_factory=list)
    seconds: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    backends: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    running: str = ""


Job = Callable[[Found], None]


def main(argv: list[str], device: torch.device = CUDA, settings: Settings | None = None) -> int:
    """Measure, print, and with --out write one JSON record. 1 if a check of correctness misses or a job fails; a slow GPU is no failure.
    device, settings: for the tests, which run all of it on a CPU."""
    arguments = parse.gpu(argv)
    out = record.writable(arguments.out)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UsageError("bench gpu needs a CUDA device, and torch sees none here; nothing was measured")
    settings, started, found = settings or Settings(), record.now(), Found()

    def end() -> None:
        print(render(found), flush=True)
        if out is not None:
            record.write(out, record_bytes(found, settings, device, started))

    with _ended_after(END_SECONDS, found, end), as_in_training():
        measure(settings, device, found)
    end()
    return exit_code(found)


@contextmanager
def _ended_after(seconds: float, found: Found, end: Callable[[], None]) -> Iterator[None]:
    """Ends the process with what is found by then: a kernel or a compiler that hangs hears no signal."""

    def give_up() -> None:
        found.failed[found.running] = f"not finished: {seconds:g} s were over"
        try:
            end()
        finally:
            os._exit(1)

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def measure(settings: Settings, device: torch.device, found: Found, start_before: float = START_BEFORE_SECONDS) -> Found:
    """Every job, even where one before it failed, into `found`; none is begun after `start_before` seconds."""
    jobs, began = jobs_of(settings, device), time.monotonic()
    with Progress("bench gpu", len(jobs), "job") as bar:
        for label, job in jobs.items():
            if time.monotonic() - began > start_before:
                found.failed[label] = f"not begun: {start_before:g} s were over"
                continue
            found.running = label
            try:
                job(found)
            except Exception as error:  # torch and its compilers raise anything; the other jobs can still tell something
                found.failed[label] = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
            bar.advance(1, now=label)
    return found


def jobs_of(settings: Settings, device: torch.device) -> dict[str, Job]:
    """Correctness first, so that a time limit cuts timings."""
    jobs: dict[str, Job] = {}
    for name in (*checks.LANES, *checks.BIASES):
        for dtype in checks.HALF:
            for kernel in KERNELS:
                jobs[f"kernel {kernel}, {name}, {dtype}"] = _kernel_job(settings, device, kernel, name, dtype)
    for name in ("goat", "goat-append"):
        jobs[f"flash {name}"] = _flash_job(settings, device, name)
    jobs["key term"] = _key_term_job(settings, device)
    for shape, rounds in settings.shapes.items():
        jobs[f"layer {shape[0]}x{shape[1]}"] = _layer_job(settings, device, shape, rounds)
    return jobs


def _kernel_job(settings: Settings, device: torch.device, kernel_name: str, name: str, dtype: str) -> Job:
    def run(found: Found) -> None:
        torch._dynamo.reset()  # flex compiles for every bias, and dynamo gives up on a function that it has compiled eight times
        kernel, half = get_kernel(kernel_name), checks.HALF[dtype]
        if objections := checks.objections(kernel, name, settings.tokens, half, device):
            found.notes.append(f"{kernel_name}, {name}, {dtype}: {'; '.join(objections)}")
            return
        for what, error in checks.kernel_errors(kernel, name, settings.tokens, half, device).items():
            bound = BOUNDS.get(what, GRADIENT_AT_MOST)[dtype]
            found.results.append(judge("kernel", f"{kernel_name} {dtype}", f"{name}: {what}", error, at_most=bound))

    return run


def _flash_job(settings: Settings, device: torch.device, name: str) -> Job:
    def run(found: Found) -> None:
        for dtype, half in checks.HALF.items():
            reason = checks.flash_serves(name, settings.flash_tokens, half, device)
            found.results.append(judge("flash", f"sdpa {dtype}", f"{name}: eligible", int(not reason), at_least=1))
            found.backends[f"{name}, {dtype}"] = checks.backend(name, settings.flash_tokens, half, device)
            if reason:
                found.notes.append(f"flash, {name}, {dtype}: {reason}")

    return run


def _key_term_job(settings: Settings, device: torch.device) -> Job:
    def run(found: Found) -> None:
        for dtype, half in checks.HALF.items():
            error = checks.key_term_error(settings.key_tokens, half, device)
            where = f"sdpa {dtype}"
            found.results.append(judge("key term", where, f"at {settings.key_tokens} tokens", error, at_most=KEY_TERM_AT_MOST))

    return run


class InHalf(nn.Module):
    """The module under autocast to bf16, as `bf16-mixed` trains: parameters and priors stay float32."""

    def __init__(self, module: nn.Module, device: torch.device) -> None:
        super().__init__()
        self.module, self.device_type = module.to(device), device.type

    def forward(self, *inputs: object) -> torch.Tensor:
        with torch.autocast(self.device_type, torch.bfloat16):
            return self.module(*inputs).float()


def _layer_job(settings: Settings, device: torch.device, shape: tuple[int, int], rounds: int) -> Job:
    """One attention layer, forward and backward: time, bytes kept for the backward pass, most bytes at one time; over plain SDPA's."""
    batch, tokens = shape

    def repeated(step: Callable[[], None]) -> Callable[[], None]:
        def steps() -> None:
            for _ in range(settings.steps_a_round):
                step()

        return steps

    def run(found: Found) -> None:
        where = f"{batch}x{tokens}"
        layers = {name: InHalf(build(name, tokens), device) for name in VARIANTS}
        steps = {name: training_step(layer, batch, tokens, device) for name, layer in layers.items()}
        seconds = interleaved({name: repeated(step) for name, step in steps.items()}, rounds, clock=lambda: _seconds(device))
        found.seconds[where] = {name: [value / settings.steps_a_round for value in of_one] for name, of_one in seconds.items()}
        saved = {name: _saved(layer, batch, tokens, device) for name, layer in layers.items()}
        peak = {name: _peak(step, device) for name, step in steps.items()}
        for name in VARIANTS[1:]:
            bounds = (PLAIN_AT_MOST, SAVED_AT_MOST, PEAK_AT_MOST) if name == "goat" else (None, None, None)
            values = (ratio(seconds, name, "plain"), saved[name] / saved["plain"], peak[name] / peak["plain"])
            for what, value, bound in zip(("time", "saved bytes", "peak bytes"), values, bounds, strict=True):
                found.results.append(judge("layer", where, f"{name} / plain, {what}", value, at_most=bound))

    return run


def _seconds(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _saved(layer: nn.Module, batch: int, tokens: int, device: torch.device) -> int:
    x = torch.zeros(batch, tokens, EMBED_DIM, device=device).requires_grad_()
    return saved_bytes(layer, x, Positions.line(tokens, device=device))


def _peak(step: Callable[[], None], device: torch.device) -> int:
    """Above the level at its start."""
    if device.type != "cuda":
        return allocation_levels({"step": step})["step"].peak
    before = torch.cuda.memory_allocated(device)
    return cuda_levels({"step": step}, device)["step"].peak - before


def exit_code(found: Found) -> int:
    return int(bool(found.failed) or any(r.verdict == "MISS" for r in found.results if r.part != "layer"))


def render(found: Found) -> str:
    lines = [f"{'part, where':20}{'what':34}{'value':>9}  target"]
    for r in found.results:
        spread = f" [{r.q1:.2f}, {r.q3:.2f}]" if r.q1 is not None else ""
        lines.append(f"{r.part + ' ' + r.where:20}{r.what:34}{r.value:>9.3g}  {r.target:9}{r.verdict}{spread}".rstrip(" -"))
    for where, seconds in found.seconds.items():
        listed = ", ".join(f"{name} {1e3 * Quartiles.of(values).median:.2f} ms" for name, values in seconds.items())
        lines.append(f"layer {where}: {listed}")
    lines += [f"torch's own choice for {what}: {chosen}" for what, chosen in found.backends.items()]
    lines += [f"not compared: {note}" for note in found.notes]
    lines += [f"FAILED {label}: {reason}" for label, reason in found.failed.items()]
    return "\n".join(lines)


def record_bytes(found: Found, settings: Settings, device: torch.device, started: str) -> bytes:
    """Strict JSON: environment, code, settings, every round's seconds, and the judged numbers."""
    is_cuda = device.type == "cuda"
    gpu = {"capability": "{}.{}".format(*torch.cuda.get_device_capability(device)), "cuda": torch.version.cuda} if is_cuda else {}
    environment = describe_environment(torch.get_num_threads(), torch.cuda.get_device_name(device) if is_cuda else None, int(is_cuda))
    shapes = {f"{batch}x{tokens}": rounds for (batch, tokens), rounds in settings.shapes.items()}
    how = {"dtype": "bf16-mixed", "deterministic": True, "clock": "wall time around a synchronised device"}
    settings_used = asdict(settings) | {"shapes": shapes} | how
    results = {"results": [r.as_json() for r in found.results], "seconds": found.seconds, "backends": found.backends}
    told = {"notes": found.notes, "failed": found.failed}
    return record.record_bytes("gpu", started, environment | gpu, settings=settings_used, **results, **told)
