"""A board as curves: the numbers of its cells, at the place that the column heads name."""

from __future__ import annotations

import pytest

from goatbench.errors import UsageError
from goatbench.plots.boards import fewer, plot_board
from goatbench.records.board import Board, Cell, Column, Row
from goatbench.records.statistics import summarise

COLUMNS = (Column("1", "512 (1)"), Column("16", "8192 (16)↓"), Column("seeds", "seeds"), Column("params", "params"))
NOTES = ("bits in bits, lower is better; columns: context (multiple); sorted by 8192",)


def cell(*values: float) -> Cell:
    return Cell("shown", summarise(list(values)))


def board(*rows: Row, title: str = "genome_length@v1 · embedded · bits_per_base (bits) ↓") -> Board:
    return Board(title, COLUMNS, rows, NOTES)


def test_lines_are_means_over_seeds_at_their_lengths():
    goat = Row("goat", {"1": cell(1.9, 1.92), "16": cell(1.88, 1.90), "seeds": Cell("2")})
    yardstick = Row("markov", {"1": cell(1.85), "16": cell(1.85)}, is_reference=True)
    (axes,) = plot_board(board(goat, yardstick)).axes
    line = next(line for line in axes.lines if line.get_gid() == "curve-0")
    assert line.get_xdata().tolist() == [512, 8192] and line.get_ydata() == pytest.approx([1.91, 1.89])
    assert any(set(dashed.get_ydata()) == {1.85} for dashed in axes.lines if dashed is not line)
    band = axes.collections[0].get_paths()[0].vertices
    assert band[:, 1].min() == pytest.approx(1.89 - 0.0141421, abs=1e-6)
    assert axes.get_xlabel() == "context (multiple)" and "bits_per_base" in axes.get_ylabel()


def test_fractions_shown_in_percent_are_drawn_in_percent():
    row = Row("goat", {"1": cell(0.5), "16": cell(0.25)})
    (axes,) = plot_board(board(row, title="vit@v1 · embedded · top1 (%) ↑")).axes
    assert axes.lines[0].get_ydata() == pytest.approx([50, 25])


def test_a_board_of_names_has_no_curve():
    columns = (Column("test", "test↓"), Column("seeds", "seeds"))
    named = Board("genome_nll@v1 · embedded · bits (bits) ↓", columns, (Row("goat", {"test": cell(1.9), "seeds": Cell("1")}),), NOTES)
    with pytest.raises(UsageError, match="no lengths or resolutions"):
        plot_board(named)


def test_a_crowded_board_is_drawn_without_its_variants():
    names = ["goat", *(f"goat[v={i}]" for i in range(15))]
    rows = [Row(name, {"1": cell(2.0), "16": cell(1.9)}, is_plain="[" not in name) for name in names]
    (axes,) = plot_board(board(*rows)).axes
    assert [line.get_gid() for line in axes.lines if (line.get_gid() or "").startswith("curve-")] == ["curve-0"]
    assert "variants left out" in axes.get_title(loc="left") + axes.get_title()


def test_where_plain_rows_are_many_those_of_one_seed_are_left_out_too():
    seeds = lambda n: summarise([2.0] * n)
    rows = [Row(f"r{i}", {"1": Cell("", seeds(1 + i % 2)), "16": Cell("", seeds(1 + i % 2))}) for i in range(15)]
    drawn = fewer(board(*rows))
    assert [row.name for row in drawn.rows] == [f"r{i}" for i in range(1, 15, 2)]
    assert "variants and rows of one seed left out" in drawn.title
    assert fewer(board(*rows[:14])).rows == tuple(rows[:14])
