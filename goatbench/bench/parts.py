"""The parts of the attention benchmark, each a list of jobs: layer, stack, preparation, memory, compile, bf16."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field

from . import targets
from .targets import Result, judge
from .timing import Quartiles, interleaved, one_thread, ratio
from .variants import EMBED_DIM, HEAD_DIM, MLP_RATIO, NUM_HEADS, PUBLISHED, VARIANTS, build, published_available, training_step

Shape = tuple[int, int]  # (batch, tokens)
ROPES = ("rope", "rope-tables")
ALLOCATOR_KEYS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_ARENA_MAX", "GLIBC_TUNABLES", "LD_PRELOAD")


@dataclass(frozen=True, slots=True)
class Settings:
    """Shapes (batch, tokens) with their number of rounds, and the rest of what a record must say to be repeated."""

    name: str
    layer: dict[Shape, int]
    stack: dict[Shape, int]
    preparation: dict[Shape, int]
    memory: tuple[Shape, ...]
    depth: int
    compile_lengths: tuple[int, ...]
    bf16_tokens: int

    @staticmethod
    def full() -> Settings:
        """Rounds chosen so that the median of a ratio scatters by less than 1 %: CPU time scatters by 5 to 10 % a round."""
        return Settings(
            name="full",
            layer={(8, 197): 30, (1, 1025): 9, (4, 1024): 9, (1, 4096): 9},
            stack={(8, 197): 30, (1, 1025): 9, (4, 1024): 9, (1, 4096): 21},
            preparation={(8, 197): 60, (4, 1024): 20},
            memory=((8, 197), (1, 4096)),
            depth=6,
            compile_lengths=(64, 100, 128, 200, 256),
            bf16_tokens=4096,
        )

    @staticmethod
    def quick() -> Settings:
        """Does everything run? Nothing is judged."""
        shape = (2, 64)
        return Settings("quick", {shape: 2}, {shape: 2}, {shape: 2}, (shape,), 2, (16, 24, 32), 300)

    @property
    def judges(self) -> bool:
        return self.name == "full"

    def as_json(self) -> dict[str, object]:
        timed = {"layer": self.layer, "stack": self.stack, "preparation": self.preparation}
        return {
            "name": self.name,
            "clock": "process CPU time, one thread",
            "dtype": "float32",
            "allocator": _allocator(),
            "causal": True,
            "embed_dim": EMBED_DIM,
            "num_heads": NUM_HEADS,
            "head_dim": HEAD_DIM,
            "mlp_ratio": MLP_RATIO,
            "depth": self.depth,
            "rounds": {part: {shape_name(shape): rounds for shape, rounds in shapes.items()} for part, shapes in timed.items()},
            "memory": [shape_name(shape) for shape in self.memory],
            "compile_lengths": list(self.compile_lengths),
            "bf16_tokens": self.bf16_tokens,
        }


@dataclass(slots=True)
class Measured:
    """seconds: part -> shape -> variant -> seconds of each round; counts: what is not a time; results: ratios and verdicts."""

    seconds: dict[str, dict[str, dict[str, list[float]]]] = field(default_factory=dict)
    counts: dict[str, dict] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, settings: Settings, results: list[Result]) -> None:
        self.results += results if settings.judges else targets.unjudged(results)

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def as_json(self) -> dict[str, object]:
        medians = {
            part: {shape: {name: asdict(Quartiles.of(s)) for name, s in variants.items()} for shape, variants in shapes.items()}
            for part, shapes in self.seconds.items()
        }
        return {
            "seconds": self.seconds,
            "seconds_quartiles": medians,
            "counts": self.counts,
            "results": [r.as_json() for r in self.results],
            "notes": self.notes,
        }


@dataclass(frozen=True, slots=True)
class Job:
    """run(measured, advance): does the work, calls advance(cost) as it goes; the costs add up to `cost`."""

    label: str
    cost: int
    run: Callable[[Measured, Callable[[int], None]], None]


def _allocator() -> str:
    """What steers malloc: with freed memory kept, allocation-heavy variants gain."""
    return " ".join(f"{key}={os.path.basename(os.environ[key])}" for key in ALLOCATOR_KEYS if key in os.environ) or "libc default"


def shape_name(shape: Shape) -> str:
    return f"{shape[0]}x{shape[1]}"


def layer_jobs(settings: Settings) -> list[Job]:
    """All variants at every length."""
    return [_time_job("layer", settings, shape, rounds, 0, available(VARIANTS)) for shape, rounds in settings.layer.items()]


def stack_jobs(settings: Settings) -> list[Job]:
    """Only the variants that have a target there, RoPE with the tables that the layers of a model share."""
    names = ["plain", "rope-tables", "goat"]
    return [_time_job("stack", settings, shape, rounds, settings.depth, names) for shape, rounds in settings.stack.items()]


def available(names: Iterable[str]) -> list[str]:
    """Without goat-attention where it is not installed."""
    return [name for name in names if name != PUBLISHED or published_available()]


def _time_job(part: str, settings: Settings, shape: Shape, rounds: int, depth: int, names: list[str]) -> Job:
    batch, tokens = shape
    cost = max(1, round(_giga_operations(batch, tokens, depth) * len(names)))

    def run(measured: Measured, advance: Callable[[int], None]) -> None:
        with one_thread():
            steps = {name: training_step(build(name, tokens, depth), batch, tokens) for name in names}
            seconds = interleaved(steps, rounds, lambda: advance(cost))
        measured.seconds.setdefault(part, {})[shape_name(shape)] = seconds
        measured.add(settings, targets.judge_times(part, shape_name(shape), tokens, _ratios(seconds)))
        _note_missing(measured)

    return Job(f"{part} {shape_name(shape)}", cost * (rounds + 1), run)


def _ratios(seconds: dict[str, list[float]]) -> dict[tuple[str, str], Quartiles]:
    rope = faster(seconds, ROPES)
    pairs = [("goat", "plain"), ("goat", rope), (PUBLISHED, "goat"), (rope, "plain"), ("goat_reference", "plain"), ("goat-append", "plain")]
    return {(a, b): ratio(seconds, a, b) for a, b in pairs if a in seconds and b in seconds}


def faster(seconds: dict[str, list[float]], names: tuple[str, ...]) -> str:
    """The rival at its best: the one with the least median."""
    return min((name for name in names if name in seconds), key=lambda name: Quartiles.of(seconds[name]).median)


def _giga_operations(batch: int, tokens: int, depth: int) -> float:
    """Multiply-adds of forward and backward, in 10^9: for the progress display only."""
    projections = 4 * batch * tokens * EMBED_DIM**2
    attention = batch * tokens**2 * EMBED_DIM * 3  # exp and the causal half included, by measurement
    mlp = 2 * MLP_RATIO * batch * tokens * EMBED_DIM**2
    return 3e-9 * (max(depth, 1) * (projections + attention) + depth * mlp)


def preparation_jobs(settings: Settings) -> list[Job]:
    names = available(("goat", "goat_reference", *ROPES, PUBLISHED))
    return [_preparation_job(settings, shape, rounds, names) for shape, rounds in settings.preparation.items()]


def _preparation_job(settings: Settings, shape: Shape, rounds: int, names: list[str]) -> Job:
    from .preparation import kernel_step, preparation_step

    batch, tokens = shape
    cost = max(1, round(_giga_operations(batch, tokens, 0)))

    def run(measured: Measured, advance: Callable[[int], None]) -> None:
        with one_thread():
            steps = {name: preparation_step(name, batch, tokens) for name in names}
            steps["sdpa"] = kernel_step("goat", batch, tokens)
            seconds = interleaved(steps, rounds, lambda: advance(cost))
        measured.seconds.setdefault("preparation", {})[shape_name(shape)] = seconds
        results = []
        where = shape_name(shape)
        if PUBLISHED in seconds:
            against = ratio(seconds, PUBLISHED, "goat")
            results.append(judge("preparation", where, f"{PUBLISHED} / goat", against, at_least=targets.PREPARATION_AT_LEAST))
        share = ratio(seconds, "goat", "sdpa")
        results.append(judge("preparation", where, "goat / sdpa", share, at_most=targets.SHARE_AT_MOST.get(tokens)))
        results += [judge("preparation", where, f"{name} / sdpa", ratio(seconds, name, "sdpa")) for name in names if name != "goat"]
        measured.add(settings, results)
        _note_missing(measured)

    return Job(f"preparation {shape_name(shape)}", cost * (rounds + 1), run)


def memory_jobs(settings: Settings) -> list[Job]:
    return [_memory_job(settings, shape) for shape in settings.memory]


def _memory_job(settings: Settings, shape: Shape) -> Job:
    from .memory import PEAK_METHOD, SAVED_METHOD, measure_in_fresh_process

    names = available(VARIANTS)
    cost = 100

    def run(measured: Measured, advance: Callable[[int], None]) -> None:
        where, counted = shape_name(shape), {}
        for name in names:
            counted[name] = measure_in_fresh_process(name, *shape)
            advance(cost)
        memory = measured.counts.setdefault("memory", {"saved_method": SAVED_METHOD, "peak_method": PEAK_METHOD, "bytes": {}})
        memory["bytes"][where] = counted
        results = []
        for name in names[1:]:
            saved, everything, peak = (counted[name][key] / counted["plain"][key] for key in ("saved", "saved_with_features", "peak"))
            is_goat = name == "goat"
            results.append(judge("memory", where, f"saved {name} / plain", saved, at_most=targets.SAVED_AT_MOST if is_goat else None))
            results.append(judge("memory", where, f"saved, features counted: {name}", everything))
            results.append(judge("memory", where, f"peak {name} / plain", peak, at_most=targets.PEAK_AT_MOST if is_goat else None))
        measured.add(settings, results)
        _note_missing(measured)

    return Job(f"memory {shape_name(shape)}", cost * len(names), run)


def compile_jobs(settings: Settings) -> list[Job]:
    names = available(("plain", "rope", "goat", PUBLISHED))
    cost = 100

    def run(measured: Measured, advance: Callable[[int], None]) -> None:
        from .checks import compile_check

        results, where = [], f"{len(settings.compile_lengths)} lengths"
        for name in names:
            found = measured.counts.setdefault("compile", {})[name] = compile_check(name, settings.compile_lengths)
            is_goat = name == "goat"
            results.append(judge("compile", where, f"{name}: full graph", int(found["fullgraph"]), at_least=1 if is_goat else None))
            results.append(judge("compile", where, f"{name}: graphs", found["graphs"], at_most=targets.GRAPHS_AT_MOST if is_goat else None))
            advance(cost)
        measured.add(settings, results)
        _note_missing(measured)

    return [Job("compile", cost * len(names), run)]


def bf16_jobs(settings: Settings) -> list[Job]:
    cost = 200

    def run(measured: Measured, advance: Callable[[int], None]) -> None:
        from .checks import SCHEMES, SLOPE, bf16_error

        results = []
        for name in SCHEMES:
            error = bf16_error(name, settings.bf16_tokens)
            measured.counts.setdefault("bf16", {"slope": SLOPE, "tokens": settings.bf16_tokens})[name] = error
            results.append(judge("bf16", f"{settings.bf16_tokens} tokens", f"{name}: error", error, at_most=_bf16_bound(name)))
            advance(cost)
        measured.add(settings, results)

    return [Job("bf16", cost * 2, run)]


def _bf16_bound(name: str) -> float | None:
    return targets.BF16_AT_MOST if name == "goat" else None


def _note_missing(measured: Measured) -> None:
    if not published_available():
        measured.note(f"{PUBLISHED} is not installed (pip install {PUBLISHED}==0.1.1), so nothing is compared with it")


PARTS: dict[str, Callable[[Settings], list[Job]]] = {
    "layer": layer_jobs,
    "stack": stack_jobs,
    "preparation": preparation_jobs,
    "memory": memory_jobs,
    "compile": compile_jobs,
    "bf16": bf16_jobs,
}
