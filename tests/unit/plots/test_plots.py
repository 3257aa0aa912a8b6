"""Figures as files: what the SVG draws, read back from its XML, and the same bytes in another process."""

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import matplotlib
import numpy as np
import pytest

from goatbench.plots import style
from goatbench.plots.curves import Curve, Labels, curves, length_label, spread_apart
from goatbench.plots.gc_tracks import gc_tracks

NAN = float("nan")
TRUE = [40.0, 45.0, NAN, NAN, 50.0, 41.0, NAN, 42.0]
GENERATED = [41.0, NAN, NAN, NAN, 48.0, 43.0, NAN, 42.0]
LABELS = Labels("NLL by context", "context (bases)", "bits per base", trained_at=512, band="standard error", references={"Markov": 1.93})
PNG_START = b"\x89PNG\r\n\x1a\n"


def two_tracks():
    tracks = {"true": TRUE, "generated": GENERATED}
    return gc_tracks("chr20", 50_000_000, 1_000, tracks, {"generated": (np.array(GENERATED) - 3, np.array(GENERATED) + 3)})


def three_curves():
    lines = [
        Curve("goat", [512, 1024, 2048], [1.9, 1.89, 1.88], [1.89, 1.88, 1.87], [1.91, 1.9, 1.89]),
        Curve("rope", [512, 1024, 2048], [1.9, 2.1, 2.9]),
        Curve("learned", [512, 1024, 2048], [1.91, NAN, NAN]),
    ]
    return curves(lines, LABELS, y_range=(1.8, 2.2))


def parts(svg, gid):
    """Sub-paths of the drawn element with this id: each a list of (x, y) in SVG units."""
    tree = ElementTree.parse(svg).getroot()
    [group] = [element for element in tree.iter() if element.get("id") == gid]
    path_data = next(element.get("d") for element in group.iter() if element.tag.endswith("path") and element.get("d"))
    moves = path_data.replace("\n", " ").split("M ")[1:]
    return [[tuple(map(float, point.split())) for point in move.split("L ")] for move in moves]


def texts(figure):
    return [text.get_text() for text in figure.findobj(matplotlib.text.Text) if text.get_text()]


@pytest.mark.parametrize("make", [two_tracks, three_curves])
def test_both_files_are_written_alike_each_time(make, tmp_path):
    png, svg = style.save(make(), tmp_path / "figure.png")
    assert (png.name, svg.name) == ("figure.png", "figure.svg")
    assert png.read_bytes().startswith(PNG_START)
    assert ElementTree.parse(svg).getroot().tag.endswith("svg")
    again = style.save(make(), tmp_path / "again")
    assert [path.read_bytes() for path in again] == [png.read_bytes(), svg.read_bytes()]
    assert b"<dc:date>" not in svg.read_bytes()


def test_another_process_with_other_settings_writes_the_same_bytes(tmp_path):
    here = style.save(three_curves(), tmp_path / "here")[1]
    (tmp_path / "matplotlibrc").write_text("lines.linewidth: 9\nfont.size: 30\nsvg.fonttype: none\n")
    code = f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r})\nimport test_plots as t; t.style.save(t.three_curves(), 'there')"
    environment = os.environ | {"PYTHONHASHSEED": "7", "SOURCE_DATE_EPOCH": "1000", "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True)
    assert (tmp_path / "there.svg").read_bytes() == here.read_bytes()


def test_settings_of_the_caller_come_back(tmp_path):
    with matplotlib.rc_context({"font.size": 23.0}):
        style.save(two_tracks(), tmp_path / "figure")
        assert matplotlib.rcParams["font.size"] == 23.0


def test_gaps_stay_blank(tmp_path):
    """Eight windows on an axis of 8,000 bases: true has values in 0-2, 4-6 and 7-8, so three pieces and nothing between."""
    _, svg = style.save(two_tracks(), tmp_path / "figure")
    for gid, expected in (("track-0", [(0, 2), (4, 6), (7, 8)]), ("track-1", [(0, 1), (4, 6), (7, 8)])):
        pieces = [(min(x for x, _ in piece), max(x for x, _ in piece)) for piece in parts(svg, gid)]
        window = (pieces[-1][1] - pieces[0][0]) / 8
        np.testing.assert_allclose((np.array(pieces) - pieces[0][0]) / window, expected, atol=1e-3)


def test_tracks_share_an_axis_that_holds_the_data_and_name_the_locus():
    figure = two_tracks()
    assert [axes.get_ylim() for axes in figure.axes] == [(20, 70)] * 2
    assert "GC content of chr20:50,000,001-50,008,000, windows of 1,000 bases" in texts(figure)
    assert {"true", "generated", "GC (%)", "position on chr20 (Mb)", "grey: true, dashed: its mean"} <= set(texts(figure))
    wide = gc_tracks("chr20", 0, 10, {"true": [18.0, 30.0], "generated": [40.0, 76.0]})
    assert [axes.get_ylim() for axes in wide.axes] == [(15, 80)] * 2
    with pytest.raises(ValueError, match="one length"):
        gc_tracks("chr20", 0, 10, {"true": [1.0], "generated": [1.0, 2.0]})


def test_curves_stand_where_their_numbers_are(tmp_path):
    """x is log2: the three points are equally far apart; y goes down the page by 0.01 bits a step of goat."""
    _, svg = style.save(three_curves(), tmp_path / "figure")
    [goat] = parts(svg, "curve-0")
    x, y = np.array(goat).T
    assert x[1] - x[0] == pytest.approx(x[2] - x[1])
    assert y[1] - y[0] == pytest.approx(y[2] - y[1])
    assert y[1] > y[0]


def test_names_stand_at_the_end_and_say_what_is_not_seen():
    shown = texts(three_curves())
    assert {"goat", "rope ↑", "learned (to 512)", "Markov", " trained here"} <= set(shown)
    assert {"512", "1k", "2k", "context (bases)", "bits per base\n(band: standard error)", "NLL by context"} <= set(shown)


def test_names_do_not_touch():
    def at(*heights):
        return spread_apart(np.array(heights), 0.1).tolist()

    assert at(0.2, 0.8, 0.5) == [0.2, 0.8, 0.5]
    assert at(0.5, 0.5) == pytest.approx([0.45, 0.55])
    assert at(0.52, 0.5, 0.9) == pytest.approx([0.56, 0.46, 0.9])
    assert at(0.5, 0.5, 0.58) == pytest.approx([0.5267 - 0.1, 0.5267, 0.5267 + 0.1], abs=1e-4)  # the pair pushes the third


def test_lengths_are_written_short():
    assert [length_label(x) for x in (224, 1000, 1024, 1536, 16384, 2**20, 3 * 2**20)] == ["224", "1,000", "1k", "1,536", "16k", "1M", "3M"]


def test_bad_curves_are_refused():
    for lines, message in (([], "at least one"), ([Curve("a", [0, 1], [1, 2])], "above 0"), ([Curve("a", [1], [1, 2])], "one length")):
        with pytest.raises(ValueError, match=message):
            curves(lines, LABELS)


def test_colours_and_markers_do_not_repeat_together():
    pairs = {(style.colour(index), style.marker(index)) for index in range(14)}
    assert len(pairs) == 14
