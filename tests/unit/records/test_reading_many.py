"""What made ten thousand records slow, counted: searches for cycles, buffers of the largest size, the same conditions sorted again."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from goatbench import boards
from goatbench.boards import Asked, Places, print_boards
from goatbench.errors import UsageError
from goatbench.records import files, grouping
from goatbench.records.collection import collection_paused
from goatbench.records.costs import mark_pareto
from goatbench.records.files import read_bounded, record_bytes
from goatbench.records.leaderboard import build_boards


def test_collection_is_paused_while_a_board_is_made_and_goes_on_after(monkeypatch, tmp_path):
    seen = []

    def found(*_):
        seen.append(gc.isenabled())
        raise UsageError("nothing here")

    monkeypatch.setattr(boards, "_records", found)
    for was_enabled in (True, False):
        (gc.enable if was_enabled else gc.disable)()
        try:
            with pytest.raises(UsageError, match="nothing here"):
                print_boards(Asked(), Places(None, str(tmp_path)))
            assert gc.isenabled() is was_enabled
        finally:
            gc.enable()
    assert seen == [False, False]


def test_what_a_paused_function_made_is_gone_before_collection_goes_on():
    """Else the first search after it would visit all of it."""
    gone = []

    class Made:
        def __del__(self):
            gone.append(gc.isenabled())

    @collection_paused()
    def work():
        made = [Made() for _ in range(3)]
        return len(made)

    assert work() == 3 and gone == [False] * 3


def test_a_small_file_takes_a_small_buffer(tmp_path, make_record):
    path = tmp_path / "record.json"
    path.write_bytes(record_bytes(make_record()))
    tracemalloc.start()
    try:
        content = read_bounded(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert content == path.read_bytes() and peak < 20 * len(content) < files.MAX_RECORD_BYTES / 10


def test_a_file_that_grows_while_it_is_read_is_read_whole_or_refused(tmp_path, monkeypatch):
    """The size that was asked for first is too small by then."""
    path = tmp_path / "growing"
    path.write_bytes(b"x" * 1000)

    def earlier(handle, real=files.os.fstat):
        found = list(real(handle))
        found[6] = 10  # st_size
        return files.os.stat_result(found)

    monkeypatch.setattr(files.os, "fstat", earlier)
    assert read_bounded(path, 1000) == b"x" * 1000
    with pytest.raises(UsageError, match="larger than 999 bytes"):
        read_bounded(path, 999)


def test_the_same_conditions_are_sorted_out_once_for_all_records(card, make_record, monkeypatch):
    """Two sizes under two modes: four sets of conditions, however many records have them."""
    modes = {mode: {(224, 12): 0.7, (512, 28): 0.4} for mode in ("raw", "scaled")}
    calls = []
    real = grouping._sorted_out
    monkeypatch.setattr(grouping, "_sorted_out", lambda *arguments: calls.append(1) or real(*arguments))
    (board,) = build_boards(card, [make_record(f"row{i % 20}", i // 20, modes, run=i) for i in range(60)])
    assert len(board.rows) == 40 and len(calls) == 4


def test_the_mark_of_rows_that_are_not_dominated_is_what_pairs_say(card, make_record):
    """Against the definition, pair by pair, over few values so that many tie."""
    numbers = [((7 * i) % 5 / 10, 100.0 + (3 * i) % 4) for i in range(24)]
    cost = {"name": "train_cpu_seconds", "unit": "s", "method": "cpu_time"}
    records = [
        make_record(f"row{i}", 0, {"raw": {(512, 28): top}}, run=i, costs=[cost | {"value": seconds}])
        for i, (top, seconds) in enumerate(numbers)
    ]
    (board,) = build_boards(card, records)
    for row in board.rows:
        top, seconds = numbers[int(row.name[3:])]
        beaten = any((a, b) != (top, seconds) and a >= top and b <= seconds for a, b in numbers)
        assert row.is_pareto is (not beaten), row.name
    assert mark_pareto([], {}) == []
