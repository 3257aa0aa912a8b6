"""What made ten thousand records slow, counted: searches for cycles, buffers of the largest size, the same conditions sorted again."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from goatbench import boards
from goatbench.boards import Asked, Places, PlotKind, print_boards
from goatbench.compare import compare_lines
from goatbench.errors import UsageError
from goatbench.records import files, grouping
from goatbench.records.collection import collection_paused
from goatbench.records.costs import mark_pareto
from goatbench.records.files import read_bounded, record_bytes
from goatbench.records.layout import results_root
from goatbench.records.leaderboard import build_boards
from goatbench.records.record import Measurement
from goatbench.report.write import write_report


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


def _unreadable(runs):
    """A cut file, a list, random bytes, a dangling link, a folder, each where a record would lie, in folders that bear any name."""
    for name, content in (("a", b'{"value": 1'), ("b", b"[]"), ("20260102t030405-0123abcd-0123ab", b"\xff\x00\x91" * 99)):
        (runs / name).mkdir(parents=True)
        (runs / name / "record.json").write_bytes(content)
    (runs / "d").mkdir()
    (runs / "d" / "record.json").symlink_to(runs / "gone")
    (runs / "e" / "record.json").mkdir(parents=True)


@pytest.mark.parametrize("names", [(), ("vit_resolution",)])
def test_unreadable_records_are_one_line(names, tmp_path, capsys):
    _unreadable(tmp_path / "runs")
    print_boards(Asked(names, scale="embedded"), Places(str(tmp_path / "runs")))
    (line,) = (line for line in capsys.readouterr().err.splitlines() if "could not be read" in line)
    assert line.startswith("goatbench: skipped: 5 records could not be read: ") and line.endswith("; and 2 more")
    assert line.count(f"{tmp_path}/runs/") == 3


def test_a_record_under_another_name_is_named(tmp_path, capsys):
    (tmp_path / "copy").mkdir()
    published = next((results_root() / "vit_resolution@v1").rglob("*.json"))
    (tmp_path / "copy" / "record.json").write_bytes(published.read_bytes())
    print_boards(Asked(("vit_resolution",)), Places(str(tmp_path)))
    assert f"copy/record.json holds the record of another run, {published.stem}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("places", "says"),
    [(("nothere", None), "--runs-dir nothere: no such folder"), (("file", None), "--runs-dir file: is no folder"),
     ((None, "nothere"), "--results-dir nothere: no such folder"), ((None, "file"), "--results-dir file: is no folder")],
)  # fmt: skip
def test_a_folder_that_was_named_has_to_be_there(places, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    for call in (
        lambda: print_boards(Asked(), Places(*places)),
        lambda: compare_lines("goat", "rope", Places(*places), None, None, False),
        lambda: write_report("page.html", "embedded", *(places if places[0] else ("runs", places[1]))),
    ):
        with pytest.raises(UsageError, match=says):
            call()


def test_the_default_folder_of_runs_comes_with_the_first_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert Places().own() is None
    (tmp_path / "runs").mkdir()
    assert str(Places().own()) == "runs"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"plot": "p", "kind": PlotKind.HEATMAP}, "hold no scores by depth"),
        ({"plot": "nothere/p"}, "--plot nothere/p: the folder nothere does not exist"),
        ({"out": "nothere/x.md"}, "--out nothere/x.md: the folder nothere does not exist"),
        ({"out": "file/x.md"}, "--out file/x.md: file is no folder"),
    ],
)
def test_what_cannot_be_drawn_or_written_is_refused_before_anything_is_printed(options, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=says) as caught:
        print_boards(Asked(("vit_resolution",)), Places(None), **options)
    assert "make room" not in str(caught.value) and capsys.readouterr().out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_conditions_of_a_measurement_keep_their_types():
    """Tried from left to right, a condition must not become the first type that it could be turned into."""
    given = {"text": "1", "truth": True, "count": 1, "share": 1.0, "other": 0.5}
    made = Measurement(metric="top1", value=1.0, unit="fraction", n=1, conditions=given)
    for found in (made, Measurement.model_validate_json(made.model_dump_json())):
        assert [(value, type(value)) for value in found.conditions.values()] == [(value, type(value)) for value in given.values()]
