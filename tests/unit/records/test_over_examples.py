"""Boards and comparisons where runs have stored the scores of single examples: pairs by seed and example, or nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from goatbench.boards import Asked, Format, Places, print_boards
from goatbench.records.comparing import Side, compare
from goatbench.records.examples import EXAMPLES, write_examples
from goatbench.records.files import record_bytes
from goatbench.records.formats import render
from goatbench.records.leaderboard import build_boards
from goatbench.records.over_examples import ExampleFiles
from goatbench.records.record import Examples, RunRecord
from goatbench.records.statistics import hierarchical_bootstrap
from goatbench.records.store import placed_at, submit

RESULTS = Path(__file__).resolve().parents[3] / "results"
TOP = {"nominal": 512, "resolution": 28, "coords": "raw", "split": "test"}
N = 400


@pytest.fixture
def answers():
    """By row and seed, which of 400 examples are right: rope on those below 200 and few others, goat on some forty more."""
    draw = np.random.default_rng(5)
    hard = draw.random(N)
    return {name: [hard + 0.2 * draw.normal(size=N) < share for _ in range(3)] for name, share in (("goat", 0.6), ("rope", 0.5))}


def made(make_record, runs, name, seed, correct, run):
    record = make_record(name, seed, {"raw": {(512, 28): float(correct.mean())}}, run=run)
    folder = runs / record.run_id
    folder.mkdir(parents=True)
    info, _ = write_examples(folder, [Examples("top1", TOP, correct)])
    record = RunRecord.model_validate(record.model_dump() | {"examples": info.model_dump()})
    (folder / "record.json").write_bytes(record_bytes(record))
    return record


@pytest.fixture
def records(make_record, tmp_path, answers):
    return [
        made(make_record, tmp_path / "runs", name, seed, correct, 10 * i + seed)
        for i, (name, by_seed) in enumerate(answers.items())
        for seed, correct in enumerate(by_seed)
    ]


def expected(answers):
    return hierarchical_bootstrap(np.stack(answers["goat"]).astype(float) - np.stack(answers["rope"]))


def test_a_comparison_is_paired_by_seed_and_example(card, records, answers, tmp_path):
    sides = [Side(name, name, [r for r in records if r.row.attention == name]) for name in ("goat", "rope")]
    (line,), _ = compare([card], *sides, examples=ExampleFiles(tmp_path / "runs", None, []))
    assert line.over_examples == expected(answers) and line.over_examples.mean == pytest.approx(line.comparison.difference.mean)
    unpaired = hierarchical_bootstrap(np.stack(answers["goat"]).astype(float) - np.stack(answers["rope"])[:, ::-1])
    assert line.over_examples.sd < 0.9 * unpaired.sd  # examples are hard for both: pairing takes that out
    assert compare([card], *sides)[0][0].over_examples is None


def test_n_says_what_it_counts_and_in_how_many_examples(card, make_record, records):
    """Of bytes there are 4,000 in 400 windows: the interval over examples has 400."""
    of_bytes = card.model_copy(update={"metrics": tuple(m.model_copy(update={"counted": "bytes"}) for m in card.metrics)})
    said = lambda card, found: next(part for part in build_boards(card, found)[0].notes[0].split("; ") if part.startswith("n = "))
    assert said(of_bytes, records) == "n = 4,000 (of 400 examples) bytes a cell"
    assert said(of_bytes, [make_record()]) == "n = 4,000 bytes a cell"  # not known where none are stored
    assert said(card, records) == "n = 4,000 examples a cell"


def test_a_board_has_the_intervals_at_its_headline_and_says_so(card, records, answers, tmp_path):
    files = ExampleFiles(tmp_path / "runs", None, warnings := [])
    (board,) = build_boards(card, records, examples=files)
    own = hierarchical_bootstrap(np.stack(answers["goat"]))
    assert all(row.cells["512"].interval is None for row in board.rows)  # no format has asked for them yet
    cell = next(row for row in board.rows_in_detail() if row.name == "goat").cells["512"]
    assert cell.interval == pytest.approx((own.mean - own.half_width(), own.mean + own.half_width())) and warnings == []
    (note,) = [note for note in board.notes if "over seeds and examples" in note]
    gap = expected(answers)
    best, sign = board.rows[0].name, -1 if board.rows[0].name == "goat" else 1
    assert note.startswith(f"row minus {best} ") and f"({sign * 100 * gap.mean:+.1f} [" in note
    (data,) = json.loads(render([board], "json"))["boards"]
    shown = data["rows"][0]["cells"]["512"]
    assert shown["interval_low"] < shown["mean"] and shown["interval_method"] == "95 % two-way bootstrap over seeds and examples"
    (plain,) = build_boards(card, records)
    assert not any("over seeds and examples" in note for note in plain.notes)
    assert [row.rank for row in plain.rows] == [row.rank for row in board.rows]


def test_a_board_against_a_row_has_the_interval_of_the_difference(card, records, answers, tmp_path):
    (board,) = build_boards(card, records, against="rope", examples=ExampleFiles(tmp_path / "runs", None, []))
    gap = expected(answers)
    cells = {row.name: row.cells["512"] for row in board.rows_in_detail()}
    assert cells["goat"].interval == pytest.approx((gap.mean - gap.half_width(), gap.mean + gap.half_width()))
    assert cells["rope"].interval is None and cells["goat"].difference.mean == pytest.approx(gap.mean)


def test_published_files_are_found_by_the_record_s_place(card, records, answers, tmp_path):
    (tmp_path / "results").mkdir()
    placed = submit([record.run_id for record in records], tmp_path / "results", tmp_path / "runs")
    assert placed[0].path == tmp_path / "results" / placed_at(records[0])
    (board,) = build_boards(card, records, against="rope", examples=ExampleFiles(None, tmp_path / "results", []))
    assert next(row for row in board.rows_in_detail() if row.name == "goat").cells["512"].interval is not None


def test_a_damaged_own_file_does_not_hide_the_published_one(card, records, answers, tmp_path):
    (tmp_path / "results").mkdir()
    submit([record.run_id for record in records], tmp_path / "results", tmp_path / "runs")
    (tmp_path / "runs" / records[0].run_id / EXAMPLES).write_bytes(b"torn")
    files = ExampleFiles(tmp_path / "runs", tmp_path / "results", warnings := [])
    (board,) = build_boards(card, records, against="rope", examples=files)
    assert next(row for row in board.rows_in_detail() if row.name == "goat").cells["512"].interval is not None
    assert len(warnings) == 1


@pytest.mark.parametrize("break_it", ["missing", "changed", "none stored", "other examples"])
def test_a_seed_without_scores_means_no_interval(card, make_record, records, tmp_path, break_it):
    """An interval over two of three seeds would not be that of the cell."""
    path = tmp_path / "runs" / records[0].run_id / EXAMPLES
    says = None
    if break_it == "missing":
        path.unlink()
        says = "is missing"
    elif break_it == "changed":
        path.write_bytes(path.read_bytes()[:-1] + b"\1")
        says = "sha256 differ"
    elif break_it == "none stored":
        records[0] = records[0].model_copy(update={"examples": None})
    else:
        other = make_record("goat", 0, {"raw": {(512, 28): 0.5}}, run=90)
        info, _ = write_examples(path.parent, [Examples("top1", TOP, np.arange(N - 2) % 2 == 0)])
        records[0] = RunRecord.model_validate(other.model_dump() | {"run_id": records[0].run_id, "examples": info.model_dump()})
    (board,) = build_boards(card, records, against="rope", examples=ExampleFiles(tmp_path / "runs", None, warnings := []))
    assert next(row for row in board.rows_in_detail() if row.name == "goat").cells["512"].interval is None
    assert [says in warning for warning in warnings] == ([True] if says else [])


@pytest.mark.parametrize(("form", "is_read"), [(Format.CSV, True), (Format.JSON, True), (Format.MD, False), (Format.TERMINAL, False)])
def test_only_formats_for_programs_read_the_scores_behind_a_single_row(tmp_path, capsys, form, is_read):
    """Nothing stands beside it, so that the notes compare nothing. What cannot be read is named, whoever asked for it."""
    folder = tmp_path / "genome_nll@v1" / "embedded" / "goat"
    folder.mkdir(parents=True)
    for record in (RESULTS / folder.relative_to(tmp_path)).glob("*.json"):  # without the files beside them
        shutil.copy(record, folder)
    print_boards(Asked(("genome_nll",)), Places(None, str(tmp_path)), form)
    out, err = capsys.readouterr()
    assert "goat" in out and err.count("per-example scores is missing") == (1 if is_read else 0)
