"""`goatbench list` in a narrow terminal: every line fits, no word is lost."""

from __future__ import annotations

import pytest

from goatbench import cli
from goatbench.listing import SECTIONS, fitted, list_lines


def test_a_long_line_goes_on_further_in():
    assert fitted(["  name   one two three four", "", "short"], 20) == ["  name   one two", "      three four", "", "short"]
    assert fitted(["  name   one two three four"], None) == ["  name   one two three four"]


@pytest.mark.parametrize("width", [60, 100])
def test_every_line_fits_the_terminal_and_no_word_is_lost(width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    with pytest.raises(SystemExit):
        cli.main(["list"])
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= width
    assert "".join(printed.split()) == "".join("".join(list_lines(SECTIONS)).split())
