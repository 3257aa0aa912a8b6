"""Depth by length as a picture: means over seeds in the right cells, one scale for all panels, and no picture where there is none."""

from __future__ import annotations

import numpy as np
import pytest

from goatbench.errors import UsageError
from goatbench.plots import style
from goatbench.plots.heat_map import Grid, heat_map, plot_heat_map
from goatbench.records.grouping import group_records
from goatbench.records.leaderboard import build_boards
from goatbench.records.record import RunRecord
from goatbench.tasks.retrieval import NEEDLE

CARD = NEEDLE.card


def record(attention: str, seed: int, table: dict[int, list[float]], has_curves: bool = True) -> RunRecord:
    """length -> exact match at depths 0 and 1; trained at 32. No number in it comes from the code under test."""
    measurements, curves = [], []
    for length, values in table.items():
        where = {"multiple": length // 32, "length": length, "split": "test"}
        measurements.append({"metric": "exact_match", "value": sum(values) / 2, "unit": "fraction", "n": 200, "conditions": where})
        for bound, shift in (("estimate", 0), ("wilson_low", -0.05), ("wilson_high", 0.05)):
            y = [value + shift for value in values]
            curve = {"name": "exact_match", "unit": "fraction", "x_name": "depth", "x": [0, 1], "y": y, "n": 100}
            curves.append({**curve, "conditions": {**where, "bound": bound}})
    return RunRecord.model_validate(
        {
            "run_id": f"20260102t03040{seed}-0123abcd-{attention.encode().hex()[:6]}", "status": "ok", "scale": "embedded", "domain": "toy",
            "task": {"name": "needle", "version": 1, "card_hash": "0123456789abcdef"}, "row": {"attention": attention}, "seed": seed,
            "config": {}, "config_hash": "0123abcd",
            "model": {
                "name": "decoder", "params_total": 450_000, "params_trainable": 450_000, "params_prior": 99, "head_dim": 32,
                "content_dim": 22, "num_lanes": 10, "lanes": "carve", "kernel_train": "sdpa", "kernel_eval": "sdpa",
            },
            "data": {"name": "needle", "fingerprint": "feedbeef01", "counts": {"train": 3200}, "source": "synthetic"},
            "code": {"version": "0.1.0", "commit": "c0ffee", "dirty": False, "source_hash": "abcdef0123456789"},
            "measurements": measurements, "curves": curves if has_curves else [], "started_at": "2026-01-02T03:04:00+00:00",
        }
    )  # fmt: skip


def draw(records):
    return plot_heat_map(build_boards(CARD, records)[0], group_records(CARD, CARD.metric("exact_match"), records, [])[0])


def meshes(figure):
    found = {c.get_gid(): c for axes in figure.axes for c in axes.collections if (c.get_gid() or "").startswith("grid-")}
    return [found[name] for name in sorted(found)]


def test_cells_are_means_over_seeds_at_their_depth_and_length():
    records = [
        record("goat", 0, {32: [1.0, 1.0], 64: [0.8, 0.9]}),
        record("goat", 1, {64: [0.6, 0.9], 32: [1.0, 0.9]}),
        record("rope", 0, {32: [0.98, 1.0]}),
    ]
    figure = draw(records)
    goat, rope = meshes(figure)
    assert np.asarray(goat.get_array()).reshape(2, 2) == pytest.approx(np.array([[1.0, 0.7], [0.95, 0.9]]))
    rope_values = np.ma.filled(rope.get_array(), np.nan).reshape(2, 2)
    assert rope_values[:, 0].tolist() == [0.98, 1.0] and np.isnan(rope_values[:, 1]).all()
    assert goat.get_clim() == rope.get_clim() == (0, 1)
    assert [text.get_text() for text in figure.axes[0].texts] == ["100", "70", "95", "90"]
    assert [text.get_text() for text in figure.axes[1].texts] == ["98", "n/a", "100", "n/a"]
    assert [axes.get_title(loc="left") for axes in figure.axes[:2]] == ["goat", "rope"]
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["32", "64"]
    assert figure.axes[0].get_ylim() == (2, 0)  # the start of the text is on top


def test_numbers_can_be_read_on_their_cells():
    """WCAG's contrast of text and cell, from their luminances: 4 or more for every value."""
    values = np.linspace(0, 1, 21)
    figure = heat_map([Grid("all", [0.0], list(range(32, 53)), values[None])], "title")
    colours = meshes(figure)[0].cmap(values)[:, :3]

    def luminance(rgb):
        linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
        return linear @ np.array([0.2126, 0.7152, 0.0722])

    for text, colour in zip(figure.axes[0].texts, luminance(colours), strict=True):
        ink = {"white": 1.0, "black": 0.0}[text.get_color()]
        assert (max(ink, colour) + 0.05) / (min(ink, colour) + 0.05) >= 4
    assert (np.diff(luminance(colours)) > 0).all()  # lightness alone tells the values apart


def test_four_panels_fill_two_rows_and_are_saved_twice(tmp_path):
    grids = [Grid(name, [0.0, 0.5, 1.0], [32, 1024], np.full((3, 2), 0.5)) for name in ("a", "b", "c", "d")]
    figure = heat_map(grids, "title")
    assert sum(axes.get_visible() for axes in figure.axes) == 4 + 1  # and the colour bar
    paths = style.save(figure, tmp_path / "heat.svg")
    assert [path.name for path in paths] == ["heat.png", "heat.svg"] and all(path.stat().st_size > 2000 for path in paths)
    assert "1k" in [label.get_text() for label in figure.axes[3].get_xticklabels()]


def test_records_without_depths_have_no_heat_map():
    with pytest.raises(UsageError, match="no scores by depth"):
        draw([record("goat", 0, {32: [1.0, 1.0]}, has_curves=False)])


def test_a_variant_of_evaluation_has_a_panel_of_its_own_curves():
    """0.2 of the variant at 64 is neither mixed into the plain row's 0.8 nor the other way round."""
    plain, variant = record("rope", 0, {32: [1.0, 1.0], 64: [0.8, 0.8]}), record("rope", 0, {64: [0.2, 0.2]})
    for part in ("measurements", "curves"):
        for one in getattr(variant, part):
            one.conditions["rope_scaling"] = "yarn"
    both = plain.model_copy(update={"measurements": plain.measurements + variant.measurements, "curves": plain.curves + variant.curves})
    first, second = (np.ma.filled(mesh.get_array().astype(float), np.nan) for mesh in meshes(draw([both])))
    assert first.ravel().tolist() == [1.0, 0.8, 1.0, 0.8]
    assert np.isnan(second[:, 0]).all() and second[:, 1].tolist() == [0.2, 0.2]
