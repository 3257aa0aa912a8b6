"""One table in six formats: numbers unrounded where a program reads, text harmless where a person does, equal bytes for equal boards."""

from __future__ import annotations

import csv
import io
import json
import os
import re

import pytest

from goatbench.errors import UsageError
from goatbench.records.files import write_output
from goatbench.records.formats import page, render
from goatbench.records.leaderboard import build_boards

FORMATS = ("terminal", "md", "csv", "latex", "html", "json")


@pytest.fixture
def records(make_record):
    tops = {"goat": (0.401, 0.413, 0.457), "rope": (0.3, 0.32, 0.35)}
    return [
        make_record(name, seed, {"raw": {(224, 12): 0.7, (512, 28): top}}, run=10 * i + seed)
        for i, (name, values) in enumerate(tops.items())
        for seed, top in enumerate(values)
    ]


@pytest.mark.parametrize("form", FORMATS)
def test_equal_records_give_equal_bytes_in_any_order(card, records, form):
    text = render(build_boards(card, records), form)
    assert text == render(build_boards(card, records[::-1]), form)
    assert "goat" in text and text.endswith("\n")
    assert not re.search(r"20\d\d-\d\d-\d\d", text)  # no time stamp


def test_json_carries_full_numbers_unit_direction_and_conditions(card, records):
    (board,) = json.loads(render(build_boards(card, records), "json"))["boards"]
    facts = board["facts"]
    assert (facts["task"], facts["version"], facts["unit"]) == ("toy_ladder", 2, "fraction")
    assert (facts["direction"], facts["chance"]) == ("higher", 0.1)
    assert facts["headline"] == 512 and facts["shared"]["data"] == "feedbeef01" and facts["shared"]["condition.split"] == "test"
    goat = next(row for row in board["rows"] if row["row"] == "goat")
    cell = goat["cells"]["512"]
    assert cell["mean"] == pytest.approx((0.401 + 0.413 + 0.457) / 3, abs=1e-15) and cell["n"] == 3
    assert cell["sd"] == pytest.approx(0.029484, abs=1e-6)  # deviations from 0.42367: -0.02267, -0.01067, 0.03333
    assert goat["cells"]["cost"]["number"] == 201.0 and goat["pareto"] is True


def test_csv_has_one_line_a_cell_and_agrees_with_json(card, records):
    boards = build_boards(card, records)
    lines = list(csv.DictReader(io.StringIO(render(boards, "csv"))))
    (board,) = json.loads(render(boards, "json"))["boards"]
    assert len(lines) == sum(len(row["cells"]) for row in board["rows"])
    for line in lines:
        cell = next(row for row in board["rows"] if row["row"] == line["row"])["cells"][line["column"]]
        assert (float(line["mean"]) if line["mean"] else None) == cell.get("mean")
    headline = [line["row"] for line in lines if line["headline"] == "true"]
    assert headline == ["goat", "rope"]


def test_every_interval_has_its_ends_and_its_method(card, make_record, records):
    """0.42367 ± t(0.975, 2) 0.029484 / sqrt(3), t = 4.3027; of one seed there is no interval."""
    single = make_record("nope", 0, {"raw": {(224, 12): 0.2, (512, 28): 0.1}}, run=99)
    cells = {}
    for against in (None, "rope"):
        lines = csv.DictReader(io.StringIO(render(build_boards(card, [*records, single], against=against), "csv")))
        cells[against] = {line["row"]: line for line in lines if line["column"] == "512"}
    goat = cells[None]["goat"]
    assert [float(goat[f"interval_{end}"]) for end in ("low", "high")] == pytest.approx([0.42367 - 0.07324, 0.42367 + 0.07324], abs=1e-4)
    assert goat["interval_method"] == "95 % t over seeds"
    assert cells["rope"]["goat"]["interval_method"] == "95 % t over paired seeds"
    assert float(cells["rope"]["goat"]["interval_low"]) < 0.301 / 3 < float(cells["rope"]["goat"]["interval_high"]) < 0.2
    assert cells[None]["nope"]["interval_low"] == cells[None]["nope"]["interval_method"] == ""


def test_a_stranger_s_text_is_harmless_in_every_format(card, make_record):
    evil = {"=cmd": "<script>x</script> & 50% of $1_{2}#\\ \x1b[2J"}
    record = make_record(row={"attention": "goat", "variant": evil})
    boards = build_boards(card, [record])
    for form in FORMATS:
        assert "\x1b" not in render(boards, form)
    html = render(boards, "html")
    assert "<script" not in html and "&lt;script&gt;" in html
    assert not re.search(r"(src|href)\s*=", html) and "http" not in html
    latex = render(boards, "latex")
    assert r"50\% of \$1\_\{2\}\#\textbackslash{}" in latex and not re.search(r"(?<!\\)[%#]", latex)
    lines = list(csv.reader(io.StringIO(render(boards, "csv"))))
    assert not any(cell.startswith(("=", "+", "@")) for line in lines for cell in line)


def test_a_difference_is_text_and_not_a_formula_in_csv(card, records):
    text = render(build_boards(card, records, against="rope"), "csv")
    line = next(line for line in csv.DictReader(io.StringIO(text)) if line["row"] == "goat" and line["column"] == "512")
    assert line["text"].startswith("'+10.0 [") and float(line["difference"]) == pytest.approx(0.301 / 3)


def test_html_has_caption_and_scopes(card, records):
    html = render(build_boards(card, records), "html")
    assert "<caption>toy_ladder@v2 · embedded · top1 (%) ↑</caption>" in html
    assert html.count('<th scope="row"') == 2 and html.count('scope="col"') == 2 + 5


def test_a_page_lists_its_tasks(card, records):
    text = page(build_boards(card, records))
    assert text.startswith("# Leaderboard\n") and "- [toy_ladder](#toy_ladder)\n" in text and "\n## toy_ladder\n\n**toy" in text


def test_output_goes_over_regular_files_only(tmp_path):
    target = tmp_path / "board.md"
    write_output(target, "a\n")
    write_output(target, "b\n")
    assert target.read_text() == "b\n" and [path.name for path in tmp_path.iterdir()] == ["board.md"]
    (tmp_path / "link").symlink_to(target)
    os.mkfifo(tmp_path / "pipe")
    for name, why in (("link", "a symbolic link"), ("pipe", "no regular file"), (".", "a folder")):
        with pytest.raises(UsageError, match=why):
            write_output(tmp_path / name, "c\n")
    with pytest.raises(UsageError, match=f"the folder {tmp_path}/nowhere does not exist"):
        write_output(tmp_path / "nowhere" / "board.md", "c\n")
    assert target.read_text() == "b\n"
