"""Parts of genome_gc that need no trained model: expected GC, neighbours, plots and names."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from made_up_dna import little_run, random_letters

from goatbench.compose import compose
from goatbench.errors import UsageError
from goatbench.tasks.genome_gc import GENOME_GC, _all_measurements, _track_measurements, expected_gc
from goatbench.tasks.genome_gc_files import file_name, plot_regions
from goatbench.tasks.genome_gc_places import Places, autocorrelation, lag_curve, places_of, track_curves, window_gc

MODE = "free_running"


def places(*starts: tuple[str, int]) -> Places:
    return Places(np.zeros((len(starts), 8), np.uint8), list(starts), prompt=4, window=4)


def test_only_windows_that_touch_are_neighbours():
    track = np.array([1.0, 2.0, 3.0, 9.0, 8.0, 7.0])
    gap = places(("a", 0), ("a", 4), ("a", 8), ("a", 100), ("a", 104), ("a", 108))
    pairs = [(1, 2), (2, 3), (9, 8), (8, 7)]
    found, counted = autocorrelation(track, gap, 3)
    assert counted.tolist() == [4, 2, 0] and found[1] == pytest.approx(1) and np.isnan(found[2])  # (1, 3), (9, 7); none
    assert found[0] == pytest.approx(np.corrcoef(*zip(*pairs, strict=True))[0, 1])
    other = places(("a", 0), ("a", 4), ("a", 8), ("b", 12), ("b", 16), ("b", 20))
    np.testing.assert_array_equal(autocorrelation(track, other, 3)[0], found)
    curve = lag_curve(track, gap, {"mode": "free_running"})[0]
    assert curve.x == [1, 2] and curve.y == found[:2].tolist() and curve.n == 2
    assert lag_curve(np.ones(6), gap, {}) == []  # defined nowhere


def test_tracks_lie_along_their_contig():
    shown = places(("b", 0), ("a", 600), ("a", 100))
    found = track_curves({"true": np.array([1.0, 2.0, 3.0]), "generated": np.array([4.0, 5.0, 6.00049])}, shown, "test")
    assert [(curve.conditions["contig"], curve.conditions["of"], curve.y) for curve in found] == [
        ("b", "true", [1.0]), ("b", "generated", [4.0]), ("a", "true", [3.0, 2.0]), ("a", "generated", [6.0, 5.0]),
    ]  # fmt: skip
    starts = {start + shown.prompt for contig, start in shown.loci if contig == "a"}
    assert found[2].x == [start / 1000 for start in sorted(starts)] and found[0].conditions["split"] == "test"


def test_gc_windows_lie_within_what_is_generated():
    """Two places of 4 + 4 bases, GC windows of 2: ACGT|AC, GG and ACGT|TT, CA."""
    found = Places(np.array([[0, 1, 2, 3, 0, 1, 2, 2], [0, 1, 2, 3, 3, 3, 1, 0]], np.uint8), [("a", 10), ("b", 20)], prompt=4, window=2)
    assert found.window_loci == [("a", 14), ("a", 16), ("b", 24), ("b", 26)]
    assert window_gc(found.real, 2).tolist() == [50, 100, 0, 50]
    samples = np.stack([found.real, np.full((2, 4), 1, np.uint8)], axis=1)
    assert window_gc(samples, 2).tolist() == [[50, 100], [100, 100], [0, 100], [50, 100]]
    with pytest.raises(UsageError, match="gc_window=64 does not divide generate=96"):
        compose(["task=genome_gc", "scale=smoke", "attention=nope", "evaluation.generate=96"])


def test_bias_keeps_its_sign():
    track, real = np.array([30.0, 50.0]), np.array([40.0, 46.0])
    found = _track_measurements("teacher_forced", "", "test", track, track, real, None, places(("a", 0), ("a", 4)))
    values = {m.metric: m.value for m in found}
    assert values["bias_points"] == -3 and values["abs_bias_points"] == 3


def test_one_place_has_no_halves(tmp_path, monkeypatch):
    monkeypatch.setenv("GOATBENCH_CACHE", str(tmp_path / "cache"))
    with pytest.raises(UsageError, match="set 2 or more"):
        places_of(*little_run(tmp_path, GENOME_GC, {"left": random_letters(500, 3)}, "evaluation.num_prompts=1"))


def test_a_perfect_generator_is_at_the_floor_and_a_wrong_one_above_it(tmp_path, monkeypatch):
    """Test sequence is rich in A and T; the Markov models count training sequence that is not."""
    monkeypatch.setenv("GOATBENCH_CACHE", str(tmp_path / "cache"))
    rng, p = np.random.default_rng(6), [0.35, 0.15, 0.15, 0.35]
    letters = {name: "".join(rng.choice(list("ACGT"), 10_000, p=p)) for name in ("left", "right")}
    wanted = ["evaluation.prompt=8", "evaluation.generate=128", "evaluation.gc_window=64", "evaluation.num_prompts=120"]
    spec, data = little_run(tmp_path, GENOME_GC, letters, *wanted)
    found = places_of(spec, data)
    perfect = rng.choice(4, (120, 8, 128), p=p).astype(np.uint8)
    expected = np.linspace(20, 60, 240)
    measurements, curves = _all_measurements(spec, data, found, expected, perfect)
    for k, tolerance in ((3, 0.5), (6, 0.1)):
        name = f"js_{k}mer_bits"
        js = {m.conditions.get("reference"): m.value for m in measurements if m.metric == name and m.conditions["mode"] == MODE}
        assert js[None] == pytest.approx(js["real"], rel=tolerance)
        assert js["real"] < js["markov-0..3"] * (1 - tolerance)
    tracks = [c for c in curves if c.name == "gc_track"]
    assert sorted({c.conditions["of"] for c in tracks}) == ["expected", "generated", "true"] and all(len(c.x) > 1 for c in tracks)
    curves = [c for c in curves if c.name == "gc_autocorrelation"]
    modes = [(mode, reference) for mode in ("teacher_forced", MODE) for reference in (None, "markov-0..3")]
    assert [(c.conditions.get("mode"), c.conditions.get("reference")) for c in curves] == [(None, "real"), *modes]
    assert all(c.x == list(range(1, 17)) and c.n == 240 - 2 * 16 for c in curves)
    lag1 = {tuple(c.conditions.values()): c.y[0] for c in curves}
    error = next(m.value for m in measurements if m.metric == "lag1_error" and m.conditions == {"mode": MODE, "split": "test"})
    assert error == pytest.approx(abs(lag1[MODE, "test"] - lag1["test", "real"]))


def test_a_figure_shows_the_longest_stretch_and_its_true_place(tmp_path):
    loci = [("chr1", 100, 164), ("chr1", 9000, 9064), ("chr1", 9064, 9128), ("../x", 5, 69)]
    values = np.array([40.0, 50.0, 45.0, 30.0])
    names = plot_regions(tmp_path, loci, 64, values, values, values, (values - 1, values + 1))
    assert names == ["gc_chr1.png", "gc_chr1.svg", "gc____x.png", "gc____x.svg"]
    assert {path.name for path in tmp_path.iterdir()} == set(names)
    assert "chr1:9,001-9,128" in (tmp_path / "gc_chr1.svg").read_text()


def test_any_header_gives_a_plain_file_name():
    assert file_name("../../etc/pass wd|ü") == "______etc_pass_wd__" and len(file_name("x" * 5000)) == 60


def test_expected_gc_is_the_mass_on_c_and_g_of_the_last_places():
    """Logits by hand, 0.1 A, 0.2 C, 0.3 G, 0.4 T: 50 % each; where the one token before was G: 0.4 C, 0.5 G, 90 %."""

    class Net(torch.nn.Module):
        num_scored = 4

        def hidden(self, tokens):
            return torch.nn.functional.one_hot(tokens, 5).float()

        def head(self, x):
            plain, after_g = torch.tensor([0.1, 0.2, 0.3, 0.4, 9.0]).log(), torch.tensor([0.05, 0.4, 0.5, 0.05, 9.0]).log()
            return torch.where(x[..., 2:3] == 1, after_g, plain)  # the fifth, N, is no target

    tokens = torch.tensor([[2, 0, 0, 0, 0], [0, 0, 0, 2, 2], [2, 2, 2, 0, 2]])
    found = expected_gc(Net(), tokens, last=2, window=2, device="cpu", batch_size=2)
    np.testing.assert_allclose(found, [50.0, 70.0, 70.0], rtol=1e-6)
    halves = expected_gc(Net(), tokens, last=2, window=1, device="cpu", batch_size=2)
    np.testing.assert_allclose(halves, [50.0, 50.0, 50.0, 90.0, 90.0, 50.0], rtol=1e-6)
