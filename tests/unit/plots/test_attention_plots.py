"""Pictures of attention: a prior in parts beside the truth, a cell a head, a line a prior. The numbers drawn are those given."""

from __future__ import annotations

import math

import numpy as np
import pytest

from goatbench.data.text.mixture_problem import true_rows
from goatbench.metrics.prior_parts import parts_of
from goatbench.plots.attention_maps import head_maps, prior_figure
from goatbench.plots.prior_parts import HEADS, prior_parts

LENGTH = 12


def lines(axes):
    """gid -> heights; what has no name of its own is the truth's."""
    named = {line.get_gid(): line.get_ydata() for line in axes.lines if (line.get_gid() or "").startswith(("curve", "prior"))}
    return named, [line.get_ydata() for line in axes.lines if line.get_gid() is None or line.get_gid() not in named]


def mesh(axes) -> np.ndarray:
    (found,) = axes.collections
    return np.ma.filled(found.get_array().astype(float), np.nan).reshape(LENGTH, LENGTH), found.get_clim()


def test_a_learned_prior_is_drawn_in_four_parts_beside_the_true_one():
    """Key, offset, row-centred total, probabilities: a row of panels each, the true curves once more below the learned ones."""
    learned = true_rows(LENGTH) + 0.02 * np.tril(np.random.default_rng(0).random((LENGTH, LENGTH)))
    shown = {"true": parts_of(true_rows(LENGTH)), "prior": parts_of(learned / learned.sum(1, keepdims=True))}
    figure = prior_parts(shown, "goat: true and learned")
    panels = np.array(figure.axes[:8], dtype=object).reshape(2, 4)  # colour bars come after them
    assert [axes.get_title(loc="left") for axes in panels[0]] == list(HEADS)
    largest = max(np.nanmax(np.abs(parts.centred)) for parts in shown.values())
    for row, parts in enumerate(shown.values()):
        for axes, values, true, name in (
            (panels[row, 0], parts.sink, shown["true"].sink, f"curve-{row}-key"),
            (panels[row, 1], parts.relative, shown["true"].relative, f"curve-{row}-off"),
        ):
            named, others = lines(axes)
            np.testing.assert_allclose(named[name], values)
            assert len(others) == (row > 0) and all(np.array_equal(other, true) for other in others)
        centred, limits = mesh(panels[row, 2])
        np.testing.assert_allclose(centred, parts.centred)
        assert limits == pytest.approx((-largest, largest))
        probabilities, limits = mesh(panels[row, 3])
        np.testing.assert_allclose(np.tril(np.nan_to_num(probabilities)), np.tril(parts.probabilities))
        assert np.isnan(probabilities[np.triu_indices(LENGTH, 1)]).all() and limits == (0, 1)
        assert panels[row, 2].get_ylim() == (LENGTH, 0)  # query 0 on top


def test_maps_of_heads_hold_their_shares():
    """Layers downwards, heads to the right, in per cent."""
    shares = np.array([[0.05, 0.5, 1.0], [0.25, np.nan, 0.0]])
    figure = head_maps({"first_token_mass, 32 tokens": shares, "entropy_share, 32 tokens": shares[::-1]}, "where")
    first, second = figure.axes[:2]
    assert [text.get_text() for text in first.texts] == ["5", "50", "100", "25", "n/a", "0"]
    assert [text.get_text() for text in second.texts] == ["25", "n/a", "0", "5", "50", "100"]
    assert first.get_ylim() == (2, 0) and (first.get_xlabel(), first.get_ylabel()) == ("head", "layer")


def test_priors_are_lines_by_offset_a_panel_a_layer():
    curves = np.log(np.random.default_rng(0).dirichlet(np.ones(LENGTH), size=(2, 3)))
    figure = prior_figure(curves, "priors")
    for layer, axes in enumerate(figure.axes[:2]):
        named, dashed = lines(axes)
        assert list(named) == [f"prior-{layer}-{head}" for head in range(3)]
        for head in range(3):
            np.testing.assert_allclose(named[f"prior-{layer}-{head}"], curves[layer, head])
        assert all(set(line) == {-math.log(LENGTH)} for line in dashed) and len(dashed) == 1  # every key alike
