"""Short names of rows: what all have goes, what is not needed to tell options apart goes, and no two rows become one."""

from __future__ import annotations

import pytest

from goatbench.records.board import Board, Cell, Column, Row, markdown, to_text
from goatbench.records.labels import cut_in_the_middle, shortened

LONG = "attention.inner_options.query_kernel=3,attention.options.base=1000000.0,training.epochs=4,training.weight_decay"


@pytest.mark.parametrize(
    ("names", "short", "shared"),
    [
        (["goat", "goat[attention.inner_options.query_kernel=3]"], ["goat", "goat[query_kernel=3]"], []),
        (["goat[training.epochs=4]", "rope[training.epochs=4,coords=scaled]"], ["goat", "rope[coords=scaled]"], ["training.epochs=4"]),
        (["goat[a.options.base=1,a.options_2d.base=1]", "goat"], ["goat[options.base=1,options_2d.base=1]", "goat"], []),
        (["goat[base=1]", "goat[a.base=1]", "goat"], ["goat[base=1]", "goat[a.base=1]", "goat"], []),  # told apart by nothing else
        (["goat[task.multiples=[1,16],x.a=b,c]", "goat"], ["goat[multiples=[1,16],a=b,c]", "goat"], []),
        (["goat[a=1,b=1]", "goat[b=1,a=1]"], ["goat[a=1,b=1]", "goat[b=1,a=1]"], []),  # would both be goat
        ([], [], []),
    ],
)
def test_names_are_short_and_told_apart(names, short, shared):
    assert shortened(names) == (short, shared)


@pytest.mark.parametrize(("limit", "text"), [(10, "0123456789"), (9, "0123…6789"), (8, "0123…789"), (1, "…")])
def test_a_cut_keeps_both_ends(limit, text):
    assert cut_in_the_middle("0123456789", limit) == text and len(text) == limit


def board(*names: str) -> Board:
    cells = {"32": Cell("45.3±0.2")}
    return Board("a board", (Column("32", "32 (1)", is_score=True),), tuple(Row(name, cells, rank="1-2", is_local=True) for name in names))


def test_rows_with_several_overrides_are_told_apart_at_any_width():
    names = [f"mta[{LONG}={value},training.warmup_fraction=0.1]" for value in (0.1, 0.2)]
    for width in (60, 80, 160):
        lines = to_text(board(*names), width).splitlines()
        assert max(map(len, lines)) <= width
        rows = [line for line in lines if "45.3" in line]
        assert len(rows) == 2 and any(line.startswith("all rows: attention.inner_options.query_kernel=3,") for line in lines)
        assert "mta[weight_decay=0.1]*" in rows[0] and "mta[weight_decay=0.2]*" in rows[1]
    assert all(name in to_text(board(*names), 200) for name in names)  # what fits is left alone


def test_a_file_keeps_the_whole_name():
    names = [f"mta[{LONG}={'1' * 40}]", f"mta[{LONG}={'1' * 39}2]"]
    assert all(f"{name.replace('[', chr(92) + '[')}\\* |" in markdown(board(*names)) for name in names)


def test_a_yardstick_shares_no_option():
    reference = Row("markov-6", {"32": Cell("1.9")}, is_reference=True)
    plain = board("rope[training.epochs=4]", f"goat[training.epochs=4,attention.options.base={'1' * 60}]")
    text = to_text(Board(plain.title, plain.columns, (*plain.rows, reference)), 60)
    assert "\nall rows: training.epochs=4\n" in text and "     markov-6 (reference)" in text and "1-2  rope* " in text


@pytest.mark.parametrize(("middle", "last", "is_cut"), [("22", "34", True), ("23", "44", False)])
def test_a_name_is_cut_where_it_is_still_told_apart(middle, last, is_cut):
    """120 characters are left of a name that does not fit: both its ends."""
    names = [f"goat[x={'1' * 100}{a}{'1' * 100}{b}]" for a, b in zip(middle, last, strict=True)]
    assert to_text(board(*names), 80).count("…") == (2 if is_cut else 0)
