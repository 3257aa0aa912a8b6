"""Curves of layers, heads and regions: each a line of its own, never a mean over them. Places are worked out from the drawing's units."""

from __future__ import annotations

import re

import pytest

from goatbench.plots.curves import Curve
from goatbench.report.page import build_page
from goatbench.report.panels import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Panel, panels
from goatbench.tasks.retrieval import NEEDLE


def curve(name, x_name, y, **conditions):
    return {"name": name, "unit": "u", "x_name": x_name, "x": list(range(len(y))), "y": y, "n": 1, "conditions": conditions}


def figure(page: str, title: str) -> str:
    return page[page.index(f'aria-label="{title}"') :].partition("</figure>")[0]


def with_curves(record, *curves):
    return type(record).model_validate(record.model_dump(mode="json") | {"curves": list(curves)})


def page_of(*records):
    return build_page([NEEDLE.card], records, [], "embedded")


def test_every_head_is_a_line_and_every_layer_a_panel(make_record):
    values = {(0, 0): [-1.0, -2.0, -3.0], (0, 1): [-3.0, -2.0, -1.0], (1, 0): [-2.0, -2.0, -2.0], (1, 1): [-1.0, -1.5, -2.0]}
    priors = [curve("log_prior", "offset", y, layer=layer, head=head) for (layer, head), y in values.items()]
    priors.append(curve("entropy", "head", [1.0, 2.0], layer=0))  # over no quantity: not drawn
    drawn = figure(page_of(with_curves(make_record(), *priors)), "Learned log-priors by offset")
    labels = re.findall(r'role="img" aria-label="([^"]*)"', drawn)
    assert labels == [
        "goat, layer 0: log_prior (u) by offset. head 0 from -1 at 0 to -3 at 2; head 1 from -3 at 0 to -1 at 2.",
        "goat, layer 1: log_prior (u) by offset. head 0 from -2 at 0 to -2 at 2; head 1 from -1 at 0 to -2 at 2.",
    ]
    assert drawn.count('class="line"') == 4 and drawn.count("<figcaption>") == 1
    assert "entropy" not in drawn


def test_only_the_first_seed_is_drawn(make_record):
    """Head 0 of one seed is not head 0 of another."""
    records = []
    for seed, low in ((1, -9.0), (0, -2.0)):
        priors = [curve("log_prior", "offset", [-1.0, low], layer=0, head=head) for head in (0, 1)]
        records.append(with_curves(make_record("goat", seed), *priors))
    drawn = figure(page_of(*records), "Learned log-priors by offset")
    assert drawn.count('role="img"') == 1 and "to -2 at 1" in drawn and "-9" not in drawn


def test_tracks_stand_beside_the_true_one_in_grey(make_record):
    tracks = [
        curve("gc_track", "window", y, contig=contig, of=of)
        for contig in ("chr3", "chr5")
        for of, y in (("true", [40.0, 50.0]), ("generated", [41.0, 42.0]), ("expected", [40.5, 45.0]))
    ]
    drawn = figure(page_of(with_curves(make_record(), *tracks)), "GC along the genome, true and generated")
    assert re.findall(r'role="img" aria-label="(goat, contig \w+):', drawn) == ["goat, contig chr3", "goat, contig chr5"]
    below_first = re.findall(r'<g class="(\w+)"><title>(\w+)', drawn.partition("</svg>")[0])
    assert below_first == [("grey", "true"), ("s1", "expected"), ("s0", "generated")]


def test_a_page_without_such_curves_has_no_panels(make_record):
    page = page_of(make_record())
    assert 'class="panels"' not in page and "GC along" not in page and "log-priors" not in page


def test_lines_lie_where_their_numbers_say_and_are_cut_below():
    """y -4 .. 0 (what is 4 below the highest is cut), padded by 5 %: 0 lies at 21/22 of the height, -4 at 1/22."""
    svg = panels([Panel("one", [Curve("a", [0, 1, 2, 3], [0.0, -4.0, -50.0, 0.0])])], "x", "y", depth=4.0)
    pieces = [[[float(n) for n in pair.split()] for pair in piece.split("L")] for piece in re.search(r'd="M([^"]*)"', svg)[1].split("M")]
    height, third = HEIGHT - BOTTOM - TOP, (WIDTH - RIGHT - LEFT) / 3
    top, low = HEIGHT - BOTTOM - height * 21 / 22, HEIGHT - BOTTOM - height / 22
    expected = [[LEFT, top], [LEFT + third, low], [LEFT + 3 * third, top]]
    assert [len(piece) for piece in pieces] == [2, 1]
    assert [place for piece in pieces for place in piece] == [pytest.approx(place, abs=0.06) for place in expected]
    assert "legend" not in svg  # one line needs none
