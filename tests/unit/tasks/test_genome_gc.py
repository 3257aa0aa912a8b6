"""Parts of genome_gc that need no trained model: expected GC, neighbours, plots and names."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from goatbench.tasks.genome_gc import Places, _lag1, expected_gc
from goatbench.tasks.genome_gc_files import file_name, plot_regions


def places(*starts: tuple[str, int]) -> Places:
    return Places(np.zeros((len(starts), 8), np.uint8), list(starts), prompt=4)  # windows of 4


def test_only_windows_that_touch_are_neighbours():
    track = np.array([1.0, 2.0, 3.0, 9.0, 8.0, 7.0])
    gap = places(("a", 0), ("a", 4), ("a", 8), ("a", 100), ("a", 104), ("a", 108))
    pairs = [(1, 2), (2, 3), (9, 8), (8, 7)]
    assert _lag1(track, gap) == pytest.approx(np.corrcoef(*zip(*pairs, strict=True))[0, 1])
    other = places(("a", 0), ("a", 4), ("a", 8), ("b", 12), ("b", 16), ("b", 20))
    assert _lag1(track, other) == _lag1(track, gap)


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
    found = expected_gc(Net(), tokens, last=2, device="cpu", batch_size=2)
    np.testing.assert_allclose(found, [50.0, 70.0, 70.0], rtol=1e-6)
