"""Boards against a row, costs that cannot be compared, rows that are not dominated: worked by hand."""

from __future__ import annotations

import json

import pytest

from goatbench.records.board import to_text
from goatbench.records.formats import to_json
from goatbench.records.grouping import environment_of, hardware_class
from goatbench.records.leaderboard import build_boards


def series(make_record, attention, tops, first_run=0, **changes):
    return [make_record(attention, s, {"raw": {(512, 28): top}}, run=first_run + s, **changes) for s, top in enumerate(tops)]


def row(board, name):
    return next(row for row in board.rows if row.name == name)


@pytest.fixture
def made(make_record):
    records = series(make_record, "rope", (0.60, 0.62, 0.61)) + series(make_record, "close", (0.59, 0.60, 0.615), 10)
    records += series(make_record, "far", (0.40, 0.41, 0.42), 20)
    records.append(make_record("one", 0, {"raw": {(512, 28): 0.5}}, run=30))
    return [*records, make_record("none", 7, {"raw": {(512, 28): 0.5}}, run=31)]


def test_cells_are_paired_differences_with_interval_and_adjusted_p(card, made):
    """close - rope: -1, -2, +0.5 points, mean -0.833, sd 1.2583, half width 4.3027 * 1.2583 / sqrt(3) = 3.126, p = 0.37.
    far - rope: -20, -21, -19, half width 4.3027 / sqrt(3) = 2.484, p = 8.3e-4, the smaller of two: times 2."""
    (board,) = build_boards(card, made, against="rope")
    assert row(board, "rope").is_baseline and row(board, "rope").cells["512"].text == "61.0±1.0"
    close, far = row(board, "close").cells["512"], row(board, "far").cells["512"]
    assert close.text == "-0.8 [-4.0,+2.3] p=0.37" and far.text == "-20.0 [-22.5,-17.5] p=0.0017"
    assert close.difference.mean == pytest.approx(-0.025 / 3) and close.difference.half_width == pytest.approx(0.03126, abs=1e-5)
    assert board.title == "toy_ladder@v2 · embedded · top1, minus rope (%) ↑" and board.facts["against"] == "rope"


def test_missing_pairs_are_shown_as_such(card, made):
    (board,) = build_boards(card, made, against="rope")
    assert row(board, "one").cells["512"].text == "-10.0 (1 pair)"
    assert row(board, "none").cells["512"].text == "no pair"
    assert "no pair: no common seed with rope: none" in board.notes


def test_the_same_difference_in_every_seed_has_no_interval(card, made, make_record):
    """Not one of width zero: not printed, and not in what a program reads."""
    same = series(make_record, "same", (0.10, 0.12, 0.11), 40)
    (board,) = build_boards(card, [*made, *same], against="rope")
    assert row(board, "same").cells["512"].text == "-50.0 no test"
    (read,) = [found for found in json.loads(to_json([board]))["boards"][0]["rows"] if found["row"] == "same"]
    cell = read["cells"]["512"]
    assert cell["difference"] == pytest.approx(-0.5) and not [key for key in cell if "half" in key or "interval" in key or key == "p_holm"]
    assert "no test: the same difference in every seed: same" in board.notes


def test_a_board_without_the_baseline_is_left_out(card, made, make_record):
    other = make_record("goat", run=40, scale="paper")
    assert len(build_boards(card, [*made, other])) == 2
    assert [board.facts["scale"] for board in build_boards(card, [*made, other], against="rope")] == ["embedded"]


def test_rows_that_are_not_dominated_are_marked(card, make_record):
    """Means and costs: best 60 at 300 s, thrifty 50 at 100 s, dominated 45 at 200 s, control 70 at 50 s does not count."""
    rows = {"best": (0.6, 300.0), "thrifty": (0.5, 100.0), "dominated": (0.45, 200.0), "nope": (0.7, 50.0)}
    records = [
        make_record(name, 0, {"raw": {(512, 28): top}}, run=i, costs=[cost(seconds)])
        for i, (name, (top, seconds)) in enumerate(rows.items())
    ]
    (board,) = build_boards(card, records)
    assert {r.name: r.is_pareto for r in board.rows} == {"best": True, "thrifty": True, "dominated": False, "nope": None}
    assert row(board, "best").cells["cost"].text == "◆ 300" and row(board, "dominated").cells["cost"].text == "200"


def cost(seconds):
    return {"name": "train_cpu_seconds", "value": seconds, "unit": "s", "method": "cpu_time"}


def test_costs_of_different_hardware_stand_in_columns_of_their_own(card, make_record):
    """By hand: mix has 202 s here and 203 s there; the class of more rows comes first, of equally many the first by name."""
    there = {"environment": {"cpu": "another cpu", "threads": 4}}
    records = [make_record("goat", 0), make_record("rope", 0, run=1, **there)]
    records += [make_record("mix", 0, run=2), make_record("mix", 1, run=3, **there)]
    (board,) = build_boards(card, records)
    costs = {r.name: {key: cell.text for key, cell in r.cells.items() if key.startswith("cost")} for r in board.rows}
    assert costs == {"goat": {"cost_A": "200"}, "rope": {"cost_B": "201"}, "mix": {"cost_A": "202 (1)", "cost_B": "203 (1)"}}
    assert [column.head for column in board.columns if column.key.startswith("cost")] == ["CPU-s A", "CPU-s B"]
    assert {r.is_pareto for r in board.rows} == {None} and "◆" not in to_text(board, 160)
    (note,) = [note for note in board.notes if note.startswith("costs of different hardware")]
    assert note.endswith("CPU-s A: a cpu, cpu_time; CPU-s B: another cpu, 4 threads, cpu_time")


def of_processes(devices, num_nodes=1, gpu=None, visible=0):
    """Changes of a record: environment and configuration of a run on so many devices, as records had them before they named them."""
    environment = {"cpu": "a cpu", "threads": 1, "gpu": gpu, "gpu_count": visible}
    return {"environment": environment, "config": {"trainer": {"devices": devices, "num_nodes": num_nodes}}}


def test_a_run_of_two_processes_costs_another_kind_of_seconds_than_one_of_one(card, make_record):
    """Each of two processes does half the work, and only the first one's seconds are counted."""
    alone, shared = make_record("goat", **of_processes(1)), make_record("rope", run=1, **of_processes(1, num_nodes=2))
    (board,) = build_boards(card, [alone, shared])
    (note,) = [note for note in board.notes if note.startswith("costs of different hardware")]
    assert note.endswith("CPU-s A: a cpu, 1 thread, 2 processes, cpu_time; CPU-s B: a cpu, 1 thread, cpu_time")
    assert {r.is_pareto for r in board.rows} == {None}


@pytest.mark.parametrize(
    ("changes", "named", "expected"),
    [
        (of_processes(1), None, "a cpu, 1 thread"),
        (of_processes(2, 2), None, "a cpu, 1 thread, 4 processes"),
        (of_processes(1, gpu="H200", visible=8), None, "1 x H200"),  # seen is not used
        (of_processes(4, gpu="H200", visible=8), None, "4 x H200"),
        (of_processes(1, gpu="H200", visible=1), 2, "2 x H200"),  # as a newer record names it
        ({"environment": {"cpu": "a cpu"}}, None, "a cpu"),
        ({"environment": {}, "config": {"trainer": {"devices": "many", "num_nodes": -1}}}, "many", "unknown processor"),
    ],
)
def test_the_kind_of_hardware_counts_what_the_run_used(make_record, changes, named, expected):
    record = make_record(**changes)
    if named is not None:
        record = record.model_copy(update={"environment": record.environment | {"devices": named}})
    assert hardware_class(environment_of(record)) == expected


def wall(seconds):
    return {"name": "train_wall_seconds", "value": seconds, "unit": "s", "method": "wall clock"}


def test_training_on_gpus_costs_the_time_that_it_held_them(card, make_record):
    """100 s of two GPUs are 200, whatever the host's processor did meanwhile: busy with 900 CPU-s it is still the cheaper one."""
    two = [make_record("goat", costs=[cost(900.0), wall(100.0)], **of_processes(2, gpu="H200", visible=8))]
    two += [make_record("rope", run=1, costs=[cost(50.0), wall(150.0)], **of_processes(2, gpu="H200", visible=8))]
    (board,) = build_boards(card, two)
    assert [column.head for column in board.columns if column.key == "cost"] == ["GPU-s"]
    assert [(r.name, r.cells["cost"].text) for r in board.rows] == [("goat", "◆ 200"), ("rope", "300")]


def test_seconds_of_gpus_and_of_cpus_are_never_compared(card, make_record):
    """Nor do a GPU's host seconds stand in for its own where those are not known."""
    unknown = make_record("alibi", run=2, costs=[cost(10.0)], **of_processes(1, gpu="H200"))
    on_gpu = make_record("rope", run=1, costs=[cost(10.0), wall(20.0)], **of_processes(1, gpu="H200"))
    (board,) = build_boards(card, [make_record("goat", costs=[cost(30.0), wall(31.0)]), on_gpu, unknown])
    found = {r.name: {key: cell.text for key, cell in r.cells.items() if key.startswith("cost")} for r in board.rows}
    assert found == {"goat": {"cost_B": "30"}, "rope": {"cost_A": "20"}, "alibi": {}}
    (note,) = [note for note in board.notes if note.startswith("costs of different hardware")]
    assert note.endswith("GPU-s A: 1 x H200, wall clock, times GPUs; CPU-s B: a cpu, cpu_time")
    assert {r.is_pareto for r in board.rows} == {None}


def test_costs_by_different_methods_are_not_compared_either(card, make_record):
    other = [{"name": "train_cpu_seconds", "value": 5.0, "unit": "s", "method": "estimate"}]
    (board,) = build_boards(card, [make_record("goat"), make_record("rope", run=1, costs=other)])
    found = {r.name: [key for key in r.cells if key.startswith("cost")] for r in board.rows}
    assert found == {"goat": ["cost_A"], "rope": ["cost_B"]}


def test_many_kinds_of_hardware_do_not_make_a_hundred_columns(card, make_record):
    records = [make_record(f"row{i}", run=i, environment={"cpu": f"cpu {i}"}) for i in range(9)]
    (board,) = build_boards(card, records)
    assert sum(column.key.startswith("cost") for column in board.columns) == 6
    assert any(note.endswith("; 3 more kinds are in no column") for note in board.notes)


@pytest.mark.parametrize(
    ("unit", "here", "there", "boards"),
    [
        ("tokens/s", {"cpu": "a"}, {"cpu": "b"}, 2),
        ("s", {"cpu": "a", "threads": 1}, {"cpu": "a", "threads": 2}, 2),
        ("MiB", {"cpu": "a"}, {"cpu": "b"}, 1),
        ("MiB", {"cpu": "a", "gpu": "H100"}, {"cpu": "a", "gpu": "H200"}, 2),
        ("fraction", {"cpu": "a"}, {"cpu": "b", "gpu": "H200"}, 1),
    ],
)
def test_a_metric_that_depends_on_the_hardware_never_mixes_it(card, make_record, unit, here, there, boards):
    first, *others = card.metrics
    card = card.model_copy(update={"metrics": (first.model_copy(update={"unit": unit}), *others)})
    found = build_boards(card, [make_record("goat", environment=here), make_record("rope", run=1, environment=there)])
    assert len(found) == boards
    assert boards == 1 or "runs that differ in hardware are not compared" in found[0].notes[0]


def test_memory_by_two_methods_never_shares_a_board(card, make_record):
    headline_rows = {**card.headline_rows, "method": ("alloc", "cuda")}
    card = card.model_copy(update={"row_conditions": ("coords", "method"), "headline_rows": headline_rows})

    def by(record, *methods):
        measured = [m.model_copy(update={"conditions": {**m.conditions, "method": k}}) for k in methods for m in record.measurements]
        return record.model_copy(update={"measurements": measured})

    records = [by(make_record("goat"), "alloc", "estimate"), by(make_record("rope", run=1), "alloc")]
    records.append(by(make_record("rope", run=2), "cuda"))
    boards = build_boards(card, records)
    assert [sorted(r.name for r in board.rows) for board in boards] == [["goat", "goat[method=estimate]", "rope"], ["rope"]]
    assert "runs that differ in condition.method are not compared" in boards[0].notes[0]
