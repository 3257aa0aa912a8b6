"""Where the charts put things: worked out by hand from the drawing's units."""

from __future__ import annotations

import re

import numpy as np
import pytest

from goatbench.plots.curves import Curve, Labels
from goatbench.report.cost_chart import Point, frontier
from goatbench.report.heat_table import colour
from goatbench.report.line_chart import line_chart
from goatbench.report.svg import BOTTOM, LEFT, NAME_GAP, RIGHT, TOP, WIDTH, Look, names, tag, tick_texts, ticks


def test_ticks_are_round_and_written_with_the_fewest_decimals():
    assert tick_texts(ticks(29.3, 71.2)) == ["30", "40", "50", "60", "70"]
    assert tick_texts(ticks(1.8915, 1.9085, 6)) == ["1.8925", "1.8950", "1.8975", "1.9000", "1.9025", "1.9050", "1.9075"]


def test_text_is_escaped():
    assert tag("text", "a<b", x=1.0, aria_label='"') == '<text x="1" aria-label="&#34;">a&lt;b</text>'


def test_lines_lie_where_their_numbers_say():
    """x 1, 2, 4 on a log2 axis: the middle one half way. y 0, 5, 10 in a range padded by 5 %: from 1/22 to 21/22 of the height."""
    svg = line_chart([Curve("goat", [1, 2, 4], [0, 5, 10])], Labels("", "x", "y"), {"goat": Look(0)}, "label")
    path = next(d for d in re.findall(r'd="(M[^"]*)" class="line"', svg))
    points = np.array([[float(n) for n in pair.split()] for pair in path[1:].split("L")])
    left, right, bottom = LEFT + 8, WIDTH - RIGHT - 8, 330 - BOTTOM
    assert points[:, 0] == pytest.approx([left, (left + right) / 2, right], abs=0.06)
    height = bottom - TOP
    assert points[:, 1] == pytest.approx([bottom - height / 22, bottom - height / 2, TOP + height / 22], abs=0.06)


def test_names_stay_apart_and_inside():
    bottom = TOP + 6 * NAME_GAP
    _, places = names([(name, Look(0), y) for name, y in (("a", 50.0), ("b", 50.0), ("c", 51.0), ("d", bottom), ("e", bottom))], bottom)
    assert np.diff(places).min() >= NAME_GAP - 1e-9 and places[0] >= TOP and places[-1] <= bottom
    assert places[0] == 50.0


def test_the_frontier_holds_what_nothing_beats_on_both():
    cheap, good, beaten, dear = Point("cheap", 1, 50, 0), Point("good", 2, 60, 0), Point("beaten", 3, 55, 0), Point("dear", 4, 60, 0)
    assert frontier([dear, beaten, good, cheap], True) == [cheap, good]
    assert frontier([dear, beaten, good, cheap], False) == [cheap]


def test_heat_colours_are_cividis():
    from matplotlib import colormaps

    cividis = colormaps["cividis"]
    for value in np.linspace(0, 1, 41):
        ours = [int(colour(value)[at : at + 2], 16) for at in (1, 3, 5)]
        assert np.abs(np.array(ours) - 255 * np.array(cividis(value)[:3])).max() < 14, value
