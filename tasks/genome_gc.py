"""Does a model know where the genome is rich in G and C? Its expected GC given the true prefix, and the GC of what it generates.

The two answer different questions, and both need baselines: the GC of one window predicts that of the next with r = 0.6, so that
"the generated track follows the true one" means nothing unless it follows better than a copy of the prompt's GC.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from goatbench.records.record import Cost, Curve, Measurement, Metric, Outcome, TaskCard
from goatbench.spec import GenomeRunSpec

from .causal import BATCH_METHOD
from .genome import SOURCE, TRAINING, GenomeTask, device_of, interpolated, letters_note, markov_models, write_inputs
from .genome_gc_files import NO_BIGWIG, write_artifacts
from .genome_gc_places import Places, autocorrelation, lag_curve, places_of, track_curves, window_gc

if TYPE_CHECKING:
    import numpy as np

    from goatbench.data.genome.module import GenomeData
    from goatbench.models.decoder import Decoder

MAX_ROWS = 256  # sequences generated at once: their keys and values are kept

METRICS = (
    Metric(name="pearson", unit="correlation", direction="higher", chance=0.0, bounds=(-1, 1), digits=3),
    Metric(name="spearman", unit="correlation", direction="higher", chance=0.0, bounds=(-1, 1), digits=3),
    Metric(name="mae_points", unit="GC points", direction="lower", bounds=(0, 100), digits=2),
    Metric(name="abs_bias_points", unit="GC points", direction="lower", bounds=(0, 100), digits=2),
    Metric(name="bias_points", unit="GC points", direction="none", bounds=(-100, 100), digits=2),
    Metric(name="wasserstein_points", unit="GC points", direction="lower", bounds=(0, 100), digits=2),
    Metric(name="lag1_error", unit="correlation", direction="lower", bounds=(0, 2), digits=3),
    Metric(name="cpg_error", unit="ratio", direction="lower", bounds=(0, None), digits=3),
    Metric(name="js_3mer_bits", unit="bits", direction="lower", bounds=(0, 1), digits=5),
    Metric(name="js_6mer_bits", unit="bits", direction="lower", bounds=(0, 1), digits=4),
    Metric(name="homopolymer_error", unit="bases", direction="lower", bounds=(0, None), digits=0),
)
PROTOCOL = (
    TRAINING + "Places are consecutive windows in the middle of each test region, GC windows lie side by side in what follows a prompt. "
    "teacher_forced: the mean of p(C) + p(G) over a window, each base given the true ones before it. free_running: continuations of a "
    "true prompt, drawn at temperature 1 from A C G T alone, at least 8 a prompt; correlations and errors use their mean, the "
    "Wasserstein distance each one. bias is predicted minus true, abs_bias its size. lag1, cpg and homopolymer errors are absolute "
    "differences to the real windows (autocorrelation of neighbouring windows, by longer lags in the record's curves; CpG observed / "
    "expected; longest run of one base). js is the Jensen-Shannon divergence of k-mer spectra, always of samples of one size: what one "
    "sample a prompt generated at every other place against the real windows of the other places, the mean over both halves and all "
    "samples. The floor (reference real) puts the real windows of those same places where the generated ones stood: what a perfect "
    "generator gets on average; counting noise is part of every js. References: the prompt's GC (persistence), the training mean "
    "(constant), the interpolated Markov model, and real sequence."
)


@dataclass(frozen=True, slots=True)
class GenomeGc(GenomeTask):
    """`goatbench run task=genome_gc`."""

    def check(self, spec: GenomeRunSpec, data: GenomeData) -> None:
        places_of(spec, data)

    def measure(self, spec: GenomeRunSpec, net: Decoder, data: GenomeData, folder: Path | None) -> Outcome:
        import time

        from goatbench.data.tracks import has_bigwig
        from goatbench.training.memory import with_smaller_batches

        e = spec.evaluation
        places = places_of(spec, data)
        forced = lambda size: expected_gc(net, _tokens(places.codes), e.generate, e.gc_window, device_of(spec), size)
        expected, batch = with_smaller_batches(forced, max(1, e.batch_tokens // places.codes.shape[1]))
        start = time.process_time()
        drawn = free_running(net, places.codes[:, : e.prompt], e.generate, e.num_samples, spec.seed, device_of(spec))
        seconds = time.process_time() - start
        measurements, curves = _all_measurements(spec, data, places, expected, drawn)
        rate = drawn.size / max(seconds, 1e-9)
        costs = [Cost(name="generated_bases_per_cpu_second", value=rate, unit="bases/s", method="process CPU time, rank 0")]
        costs.append(Cost(name="eval_batch_size", value=batch, unit="windows", method=BATCH_METHOD))
        artifacts = write_inputs(folder, data)
        artifacts += write_artifacts(folder, data, places, expected, drawn) if folder is not None else []
        notes = [letters_note(data), *_composition_notes(places.real, drawn)]
        if folder is not None and not has_bigwig():
            notes.append(NO_BIGWIG)
        return Outcome(measurements=measurements, costs=costs, curves=curves, artifacts=artifacts, notes=notes)


def _tokens(codes: np.ndarray):
    import torch

    return torch.from_numpy((codes & 7).astype("int64"))


def expected_gc(net: Decoder, tokens, last: int, window: int, device: str, batch_size: int) -> np.ndarray:
    """[n * last / window] means of 100 (p(C) + p(G)) / p(A C G T) over windows of the last `last` of [n, K], given the true prefix."""
    import numpy as np
    import torch

    net.to(device).eval()
    found = []
    with torch.inference_mode():
        for batch in tokens.split(batch_size):
            logits = net.head(net.hidden(batch[:, :-1].to(device))[:, -last:])[..., : net.num_scored]
            p = logits.float().softmax(-1)
            found.append(100 * (p[..., 1] + p[..., 2]).unflatten(-1, (-1, window)).mean(-1).flatten().double().cpu().numpy())
    return np.concatenate(found)


def free_running(net: Decoder, prompts: np.ndarray, num_bases: int, num_samples: int, seed: int, device: str) -> np.ndarray:
    """uint8 [n, num_samples, num_bases] continuations of prompts [n, P]."""
    import numpy as np
    import torch

    from goatbench.models.generate import generate

    net.to(device)
    generator = torch.Generator(device).manual_seed(seed)
    rows = _tokens(np.repeat(prompts, num_samples, axis=0)).to(device)
    parts = list(rows.split(MAX_ROWS))
    drawn = [
        generate(net, part, num_bases, generator=generator, progress_label=f"generating, part {number} of {len(parts)}").cpu().numpy()
        for number, part in enumerate(parts, 1)
    ]
    return np.concatenate(drawn).astype(np.uint8).reshape(len(prompts), num_samples, num_bases)


def _all_measurements(
    spec: GenomeRunSpec, data: GenomeData, places: Places, expected: np.ndarray, drawn: np.ndarray
) -> tuple[list[Measurement], list[Curve]]:
    import numpy as np

    from goatbench.metrics.gc_content import gc_percent, gc_track
    from goatbench.metrics.markov import expected_gc as markov_expected
    from goatbench.metrics.markov import sample

    name, split = interpolated(spec), spec.task.split
    markov = markov_models(spec, data, only_interpolated=True)[name]
    window = places.window
    real = window_gc(places.real, window)
    prompts = places.codes[:, : places.prompt]
    training = float(np.nanmean(np.concatenate([gc_track(stretch, window) for stretch in data.stretches("train")])))
    rng = np.random.default_rng(spec.seed)
    num_samples, num_bases = drawn.shape[1:]
    by_markov = sample(markov, np.repeat(prompts, num_samples, axis=0), num_bases, rng).reshape(drawn.shape)
    persistence, constant = np.repeat(gc_percent(prompts), places.windows_each), np.full(len(real), training)
    by_markov_expected = 100 * markov_expected(markov, places.codes)[:, -num_bases:].reshape(-1, window).mean(1)
    tracks = {"persistence": persistence, "constant": constant}
    measurements, curves = [], lag_curve(real, places, {"split": split, "reference": "real"})
    curves += track_curves({"true": real, "expected": expected, "generated": window_gc(drawn, window).mean(1)}, places, split)
    for reference, track in {"": expected, name: by_markov_expected, **tracks}.items():
        measurements += _track_measurements("teacher_forced", reference, split, track, track, real, None, places)
        curves += lag_curve(track, places, _conditions("teacher_forced", reference, split)) if reference not in tracks else []
    for reference, codes in {"": drawn, name: by_markov}.items():
        each = window_gc(codes, window)
        measurements += _track_measurements("free_running", reference, split, each.mean(1), each, real, codes, places)
        curves += lag_curve(each.mean(1), places, _conditions("free_running", reference, split))
    for reference, track in tracks.items():
        measurements += _track_measurements("free_running", reference, split, track, track, real, None, places)
    for mode in ("teacher_forced", "free_running"):
        measurements += _track_measurements(mode, "real", split, real, real, real, places.real[:, None], places)
    return measurements, curves


def _conditions(mode: str, reference: str, split: str) -> dict[str, str]:
    return {"mode": mode, "split": split} | ({"reference": reference} if reference else {})


def _track_measurements(
    mode: str, reference: str, split: str, track: np.ndarray, each: np.ndarray, real: np.ndarray, codes: np.ndarray | None, places: Places
) -> list[Measurement]:
    """track: [n] predicted GC; each: the single values whose distribution is compared; codes: [places, samples, bases], None: none."""
    from goatbench.metrics import composition as c
    from goatbench.metrics import gc_content as gc

    where = _conditions(mode, reference, split)
    compared = gc.compare(track, real)
    values = {
        "pearson": compared["pearson"],
        "spearman": compared["spearman"],
        "mae_points": compared["mae"],
        "abs_bias_points": abs(compared["bias"]),
        "bias_points": compared["bias"],
        "wasserstein_points": gc.wasserstein(each, real),
        "lag1_error": abs(autocorrelation(track, places, 1)[0][0] - autocorrelation(real, places, 1)[0][0]),
    }
    if codes is not None:
        flat = codes.reshape(-1, codes.shape[-1])
        values |= {
            "cpg_error": abs(c.cpg_observed_expected(flat) - c.cpg_observed_expected(places.real)),
            "homopolymer_error": abs(_mean_homopolymer(flat) - _mean_homopolymer(places.real)),
        }
        values |= {f"js_{k}mer_bits": c.spectrum_divergence(codes, places.real, k) for k in (3, 6)}
    found = []
    for metric in METRICS:
        value = values.get(metric.name)
        value = None if value is None or math.isnan(value) else float(value)
        absent = "not applicable: nothing was generated" if metric.name not in values else "not defined: a track without variation"
        reason = None if value is not None else absent
        found.append(Measurement(metric=metric.name, value=value, unit=metric.unit, n=len(real), reason=reason, conditions=where))
    return found


def _mean_homopolymer(codes: np.ndarray) -> float:
    """The longest run of one base in a window, on average: independent of how many windows there are."""
    import numpy as np

    from goatbench.metrics.composition import longest_homopolymer

    return float(np.mean([longest_homopolymer(row) for row in codes]))


def _composition_notes(real: np.ndarray, drawn: np.ndarray) -> list[str]:
    from goatbench.metrics.composition import cpg_observed_expected, longest_homopolymer
    from goatbench.metrics.gc_content import gc_percent

    texts = []
    for name, codes in (("generated", drawn.reshape(-1, drawn.shape[-1])), ("real", real)):
        cpg, longest, gc = cpg_observed_expected(codes), longest_homopolymer(codes), float(gc_percent(codes).mean())
        texts.append(f"{name}: GC {gc:.1f} %, CpG observed/expected {cpg:.2f}, longest homopolymer {longest}")
    return texts


GENOME_GC = GenomeGc(
    TaskCard(
        name="genome_gc",
        version=2,
        domain="genome",
        summary="GC content along the genome: expected and generated, beside persistence and Markov",
        protocol=PROTOCOL,
        metrics=METRICS,
        primary_metric="pearson",
        primary_conditions={"mode": "free_running", "split": "test"},
        column_condition="mode",
        expected_time={"smoke": "under 20 s", "embedded": "6 to 11 minutes on one CPU core", "paper": "hours on one GPU after training"},
        source=SOURCE,
    )
)
