"""Boards: numbers worked by hand, bytes as committed, nothing mixed that must not be, nothing that failed left out."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import textwrap
import time

import pytest
from rich.console import Console

from goatbench.errors import UsageError
from goatbench.records.board import markdown, print_board, to_text
from goatbench.records.leaderboard import build_boards
from goatbench.records.record import Learned, TaskCard
from goatbench.records.store import RunFolder, iter_records

LADDER = ((224, 12), (288, 14), (320, 16), (384, 20), (448, 24), (512, 28))


def cells(base: float, top: float) -> dict:
    return {(224, 12): base, (512, 28): top}


def series(make_record, attention, tops, *, first_run=0, base=0.7, coords="raw", **changes):
    """One finished run a seed with these headline values."""
    return [
        make_record(attention, seed, {coords: cells(base, top)}, run=first_run + seed, **changes) for seed, top in enumerate(tops)
    ]


def only(boards):
    assert len(boards) == 1, [board.title for board in boards]
    return boards[0]


def row(board, name):
    return next(row for row in board.rows if row.name == name)


def test_a_cell_is_mean_and_standard_deviation_over_seeds(card, make_record):
    """0.40, 0.41, 0.45: mean 42, deviations -2, -1, 3, sd sqrt(14 / 2) = 2.6 points."""
    board = only(build_boards(card, series(make_record, "goat", (0.40, 0.41, 0.45))))
    cell = row(board, "goat").cells["512"]
    assert cell.text == "42.0±2.6" and cell.summary.n == 3
    assert cell.summary.mean == pytest.approx(0.42) and cell.summary.sd == pytest.approx(0.07**0.5 / 10)
    assert row(board, "goat").cells["224"].text == "70.0±0.0"
    assert [column.head for column in board.columns] == ["12 (224)", "28 (512)↑", "seeds", "params", "CPU-s"]


def test_another_split_than_the_card_s_is_a_board_of_its_own(card, make_record):
    pinned = card.model_copy(update={"primary_conditions": card.primary_conditions | {"split": "test"}})
    records = [make_record("goat", seed, {"raw": cells(0.7, 0.4)}, run=seed) for seed in (0, 1)]
    on = lambda record, split: record.model_copy(
        update={"measurements": [m.model_copy(update={"conditions": m.conditions | {"split": split}}) for m in record.measurements]}
    )
    boards = build_boards(pinned, [on(records[0], "test"), on(records[1], "validation")])
    assert [len(row(board, "goat").cells) for board in boards] and len(boards) == 2
    assert any("condition.split = validation" in note for board in boards for note in board.notes)


def test_a_metric_of_one_column_is_sorted_by_that_column(card, make_record):
    records = [
        make_record(name, seed, {"raw": {(224, 12): base + seed / 100}}, run=10 * i + seed)
        for i, (name, base) in enumerate((("goat", 0.5), ("rope", 0.7)))
        for seed in (0, 1)
    ]
    board = only(build_boards(card, records))  # the card's headline is 512
    assert [row.name for row in board.rows] == ["rope", "goat"] and board.columns[0].head == "12 (224)↑"


def test_a_metric_without_a_better_end_is_sorted_and_ranks_nobody(card, make_record):
    """Three seeds each, far apart: any other metric would rank them."""
    first, *others = card.metrics
    description = card.model_copy(update={"metrics": (first.model_copy(update={"direction": "none"}), *others)})
    records = series(make_record, "rope", (0.2, 0.21, 0.22)) + series(make_record, "goat", (0.5, 0.52, 0.51), first_run=3)
    board = only(build_boards(description, records))
    assert [(row.name, row.rank) for row in board.rows] == [("goat", ""), ("rope", "")]
    assert board.title.endswith("top1 (%) ↕") and board.columns[1].head == "28 (512)↕"
    assert any(note.startswith("top1 in percent, neither end is better") and note.endswith("sorted by 28 (512)") for note in board.notes)
    assert "a description, no score: rows are sorted, not ranked" in board.notes
    assert not any("distinguishable" in note or "nothing is ranked" in note for note in board.notes)
    ranked = only(build_boards(card, records))
    assert [(row.name, row.rank) for row in ranked.rows] == [("goat", "1"), ("rope", "2")]


def test_one_seed_is_marked_and_not_ranked(card, make_record):
    board = only(build_boards(card, series(make_record, "goat", (0.4,))))
    assert row(board, "goat").cells["512"].text == "40.0±?" and row(board, "goat").rank == ""
    assert any(note.startswith("±?: one seed") for note in board.notes)
    assert any("nothing is ranked" in note for note in board.notes)


def test_rows_are_sorted_in_the_metric_s_direction(card, make_record):
    scores = [("goat", 0.5, 2.0), ("rope", 0.6, 3.0), ("alibi", 0.4, 1.0)]
    records = [
        make_record(name, 0, {"raw": cells(0.7, top)}, nll={"raw": cells(1.0, nll)}, run=i) for i, (name, top, nll) in enumerate(scores)
    ]
    assert [r.name for r in only(build_boards(card, records)).rows] == ["rope", "goat", "alibi"]
    by_nll = only(build_boards(card, records, metric="nll_nats"))
    assert [r.name for r in by_nll.rows] == ["alibi", "goat", "rope"]
    assert by_nll.title == "toy_ladder@v2 · embedded · nll_nats (nats) ↓" and row(by_nll, "rope").cells["512"].text == "3.00±?"
    with pytest.raises(UsageError, match="top1, nll_nats"):
        build_boards(card, records, metric="top5")


def test_evaluation_variants_are_rows_and_not_ranked(card, make_record):
    records = [make_record("goat", s, {"raw": cells(0.7, 0.4 + s / 100), "scaled": cells(0.7, 0.6 + s / 50)}, run=s) for s in range(3)]
    records += series(make_record, "learned_absolute", (0.50, 0.52, 0.51), first_run=10, coords="resampled")
    board = only(build_boards(card, records))
    assert [(r.name, r.rank, r.is_plain) for r in board.rows] == [
        ("goat[coords=scaled]", "", False),
        ("learned_absolute", "1", True),
        ("goat", "2", True),
    ]


def test_a_board_says_what_its_plain_rows_are_measured_under(card, make_record):
    """Only where other values of that condition are rows beside them."""
    records = [make_record("goat", scores={"raw": cells(0.7, 0.4), "scaled": cells(0.7, 0.6)})]
    records.append(make_record("learned_absolute", run=1, scores={"resampled": cells(0.7, 0.5)}))
    said = "rows without coords in brackets: coords raw or resampled; sorted by"
    assert said in only(build_boards(card, records)).notes[0]
    assert "in brackets" not in only(build_boards(card, records[1:])).notes[0]


def test_training_variants_are_rows_of_their_own(card, make_record):
    records = [make_record(), make_record(run=1, row={"attention": "goat", "variant": {"lanes": "append", "freqs": [2, 3]}})]
    assert {r.name for r in only(build_boards(card, records)).rows} == {"goat", "goat[freqs=[2,3],lanes=append]"}


def test_controls_are_marked_and_left_out_of_ranks(card, make_record):
    records = series(make_record, "nope", (0.80, 0.81, 0.82), coords="none") + series(make_record, "goat", (0.4, 0.42, 0.41), first_run=10)
    board = only(build_boards(card, records))
    assert [(r.name, r.rank) for r in board.rows] == [("nope", ""), ("goat", "1")]
    assert "nope (control)" in to_text(board)
    assert any(note.startswith("not distinguishable from goat, the best plain row: none") for note in board.notes)


def test_places_and_the_significance_note(card, make_record):
    """By hand, differences to the best row in points: close -1, -2, +0.5 (mean -5/6), far -20, -21, -19 (mean -20, sd 1,
    t = 20 sqrt(3) with two degrees, p = 1 - t / sqrt(2 + t^2) = 8.3e-4, times 2 = 1.7e-3); far to close -19, -19, -19.5 (p = 7.6e-5)."""
    best = (0.60, 0.62, 0.61)
    records = series(make_record, "best", best)
    records += series(make_record, "close", (0.59, 0.60, 0.615), first_run=10)
    records += series(make_record, "far", (0.40, 0.41, 0.42), first_run=20)
    board = only(build_boards(card, records))
    assert {r.name: r.rank for r in board.rows} == {"best": "1-2", "close": "1-2", "far": "3"}
    notes = "\n".join(board.notes)
    assert "not distinguishable from best, the best plain row: close (-0.8, p = 0.37)" in notes
    assert "different from best: far (-20.0, p = 0.0017)" in notes
    assert "with 3 seeds the 95 % interval of a paired difference is 2.48 times its sd" in notes  # 4.3027 / sqrt(3)


def test_rows_without_common_seeds_are_named_as_untested(card, make_record):
    records = [*series(make_record, "goat", (0.4, 0.42)), make_record("rope", 7, {"raw": cells(0.7, 0.3)}, run=9)]
    assert any("not tested against goat (fewer than two common seeds): rope" in note for note in only(build_boards(card, records)).notes)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"task": {"name": "toy_ladder", "version": 1, "card_hash": "0123456789abcdef"}}, "version"),
        ({"scale": "paper"}, "scale"),
        ({"data": {"name": "toys", "fingerprint": "0badc0de", "counts": {"test": 1}, "source": "real"}}, "data"),
        ({"protocol": {"crop_pct": 0.9, "interpolation": "bicubic"}}, "protocol.crop_pct"),
        ({"protocol": {"crop_pct": 1.0, "interpolation": "bicubic", "antialias": True}}, "protocol.antialias"),
        ({"budget": {"epochs": 12, "steps": 2250, "samples": 72000, "batch_size": 32}}, "budget.epochs"),
    ],
)
def test_what_must_not_be_mixed_is_split_and_said(card, make_record, changes, field):
    boards = build_boards(card, [make_record("goat"), make_record("rope", run=1), make_record("goat", run=2, **changes)])
    assert sorted([r.name for r in board.rows] for board in boards) == [["goat"], ["goat", "rope"]]
    for index, board in enumerate(boards, 1):
        assert board.notes[0].startswith(f"board {index} of 2: runs that differ in {field} are not compared. Here: {field} = ")


def test_another_unit_is_another_board_that_names_it(card, make_record):
    """Nats of BPE tokens are no nats of bases, whatever their number: not in a row beside them, not in their mean."""

    def per_token(record):
        units = {"nats": "nats/token", "fraction": "percent"}
        return record.model_copy(update={"measurements": [m.model_copy(update={"unit": units[m.unit]}) for m in record.measurements]})

    nll = {"raw": {(512, 28): 1.31}}
    strange = [per_token(make_record(name, run=i, nll={"raw": {(512, 28): 4.31}})) for i, name in enumerate(("goat", "rope"), 1)]
    ours, theirs = build_boards(card, [make_record("goat", nll=nll)], strange, metric="nll_nats")
    assert [row(board, "goat").cells["512"].text for board in (ours, theirs)] == ["1.31±?", "4.31±?"]
    assert "(nats) ↓" in ours.title and "(nats/token) ↓" in theirs.title and theirs.facts["unit"] == "nats/token"
    assert ours.notes[0] == "board 1 of 2: runs that differ in unit are not compared. Here: unit = nats"
    percent = only(build_boards(card, strange))
    assert row(percent, "goat").cells["512"].text == "0.4±?" and "(percent) ↑" in percent.title  # as it is, not times 100


def test_another_split_of_the_data_is_another_board(card, make_record):
    test = make_record()
    measured = [m.model_copy(update={"conditions": m.conditions | {"split": "validation"}}) for m in test.measurements]
    validation = make_record(run=1).model_copy(update={"measurements": measured})
    assert [len(board.rows) for board in build_boards(card, [test, validation])] == [1, 1]


def test_a_record_without_a_row_condition_is_of_the_plain_row(card, make_record):
    """As records are that were made before a task had the variant: they meet later ones of other seeds, and variants stand beside."""
    scaled = card.model_copy(update={"row_conditions": ("coords", "rope_scaling")})
    earlier, later = make_record("rope", 0), make_record("rope", 1, run=1)
    yarn = [m.model_copy(update={"conditions": m.conditions | {"rope_scaling": "yarn"}}) for m in later.measurements]
    later = later.model_copy(update={"measurements": [*later.measurements, *yarn]})
    board = only(build_boards(scaled, [earlier, later, make_record("alibi", 0, run=2)]))
    assert {r.name: r.cells["seeds"].text for r in board.rows} == {"alibi": "1", "rope": "2", "rope[rope_scaling=yarn]": "1"}
    assert {r.name: r.is_plain for r in board.rows} == {"alibi": True, "rope": True, "rope[rope_scaling=yarn]": False}


def test_protocol_fields_of_a_row_do_not_split(card, make_record):
    tuned = card.model_copy(update={"protocol_per_row": ("tuned",)})
    protocols = {"goat": {"crop_pct": 1.0, "tuned": True, "coords": "raw"}, "rope": {"crop_pct": 1.0, "tuned": False, "coords": "none"}}
    records = [make_record(name, run=i, protocol=protocol) for i, (name, protocol) in enumerate(protocols.items())]
    assert len(build_boards(tuned, records)) == 1 and len(build_boards(card, records)) == 2


def test_the_newest_finished_run_of_a_seed_counts(card, make_record):
    old, new = make_record(scores={"raw": cells(0.7, 0.4)}, run=1), make_record(scores={"raw": cells(0.7, 0.5)}, run=2)
    failed = make_record(run=3, status="failed", error={"kind": "ValueError", "message": "later and broken"})
    for order in ([old, new, failed], [failed, new, old]):
        board = only(build_boards(card, order))
        assert row(board, "goat").cells["512"].text == "50.0±?"
        assert "2 runs superseded by a newer finished one of the same row and seed" in board.notes


def test_local_runs_are_marked_and_a_submitted_run_counts_once(card, make_record):
    submitted, local = series(make_record, "goat", (0.4, 0.42)), series(make_record, "rope", (0.3, 0.32), first_run=10)
    board = only(build_boards(card, submitted, [*local, *submitted]))
    assert [(r.label, r.cells["seeds"].text) for r in board.rows] == [("goat", "2"), ("rope*", "2")]
    assert any(note.startswith("*: with runs of this machine") for note in board.notes)
    assert not any("superseded" in note for note in board.notes)


def test_failed_runs_are_rows_with_a_reason(card, make_record):
    """Even a run that died before it knew its data, protocol or budget."""
    died = {"status": "oom", "error": {"kind": "MemoryError", "message": "16 GiB wanted"}}
    records = [make_record("goat"), make_record("cope", run=1, model=None, data=None, budget=None, protocol={}, **died)]
    records.append(make_record("goat", 1, run=2, **died))
    board = only(build_boards(card, records))
    assert [(r.name, r.cells["512"].text) for r in board.rows] == [("goat", "40.0±?"), ("cope", "oom")]
    assert "failed: cope seed 0: oom: MemoryError: 16 GiB wanted" in board.notes
    assert "failed: goat seed 1: oom: MemoryError: 16 GiB wanted" in board.notes
    lonely = only(build_boards(card, records[1:2]))
    assert [r.name for r in lonely.rows] == ["cope"] and "oom" in to_text(lonely)


def test_a_missing_value_shows_its_reason(card, make_record):
    records = [make_record("learned", s, {"resampled": cells(0.7, "beyond its table")}, run=s) for s in range(2)]
    records.append(make_record("learned", 2, {"resampled": cells(0.8, 0.3)}, run=2))
    board = only(build_boards(card, records[:2]))
    assert row(board, "learned").cells["512"].text == "n/a" and "n/a: learned at 512: beyond its table" in board.notes
    assert row(only(build_boards(card, records)), "learned").cells["512"].text == "30.0±? (1)"


def test_runs_that_name_the_sweep_of_their_learning_rate_stand_beside_older_ones(card, make_record):
    training = make_record().training.model_dump()
    older = make_record("rope", run=1, training=training | {"learning_rate_source": "tuned"})
    board = only(build_boards(card, [make_record(), older]))
    assert board.notes[-1].endswith("; learning rate tuned") and not any(column.key == "lr" for column in board.columns)


def test_kernel_and_learning_rate_get_columns_only_where_they_differ(card, make_record):
    model = make_record().model.model_dump()
    other = make_record("rope", run=1, model=model | {"kernel_train": "sdpa-math", "params_total": 500_000})
    board = only(build_boards(card, [make_record(), other]))
    assert [column.key for column in board.columns] == ["224", "512", "seeds", "params", "cost", "kernel"]
    assert row(board, "rope").cells["kernel"].text == "sdpa-math/sdpa" and row(board, "rope").cells["params"].text == "0.500M"
    assert any("parameter counts differ by 11.1 %" in note for note in board.notes)
    assert "learning rate tuned" in board.notes


def test_boards_do_not_depend_on_the_order_of_records(card, make_record):
    records = series(make_record, "goat", (0.4, 0.42, 0.41)) + series(make_record, "rope", (0.3, 0.32, 0.34), first_run=10)
    assert [markdown(b) for b in build_boards(card, records)] == [markdown(b) for b in build_boards(card, records[::-1])]


GOLDEN = """\
**toy\\_ladder@v2 · embedded · top1 (%) ↑**

| rank | row | 12 (224) | 28 (512)↑ | seeds | params | CPU-s |
|---|---|---:|---:|---:|---:|---:|
|  | goat\\[coords=scaled] | 70.0±? | 55.0±? | 1 | 0.450M | ◆ 200 |
|  | goat | 70.0±? | 40.0±? | 1 | 0.450M | 200 |
|  | cope\\* | - | timeout | - | - | - |

<details><summary>what is significant, n, data, budget, protocol</summary>

- top1 in percent, higher is better; chance is 10.0; n = 4,000 examples a cell; columns: resolution (nominal); \
rows without coords in brackets: coords raw; sorted by 28 (512)
- ±?: one seed, its spread is unknown and the row is not ranked on it
- no plain row that may be ranked has two seeds: nothing can be said about significance, and nothing is ranked
- \\*: with runs of this machine that are not submitted
- ◆: no other ranked row or variant is both better and cheaper to train (means; their spread is not counted)
- all rows: data toys (real; 4,000 test, 12,000 train; fingerprint feedbeef); budget batch\\_size 32, epochs 6, samples 72000, \
steps 2250; protocol crop\\_pct 1.0, interpolation bicubic; condition split test
- kernel sdpa; learning rate tuned
- failed: cope seed 0: timeout: TimeoutError: a\\|b &lt;b> \\`c\\` \\[2J

</details>
"""


def test_markdown_bytes_with_a_stranger_s_text_made_harmless(card, make_record):
    goat = make_record(scores={"raw": cells(0.7, 0.4), "scaled": cells(0.7, 0.55)})
    cope = make_record("cope", run=1, status="timeout", error={"kind": "TimeoutError", "message": "a|b <b> `c`\x1b[2J"})
    text = markdown(only(build_boards(card, [goat], [cope])))
    assert text == GOLDEN.replace("\\_", "_")


TERMINAL = """\
toy_ladder@v2 · embedded · top1 (%) ↑
rank row              12 (224) 14 (288) 16 (320) 20 (384) 24 (448) 28 (512)↑
────────────────────────────────────────────────────────────────────────────
     learned_absolute 71.0±1.4 61.0±1.4 51.0±1.4 41.0±1.4 31.0±1.4  21.0±1.4
     [coords=scaled]
1    learned_absolute 70.0±1.4 60.0±1.4 50.0±1.4 40.0±1.4 30.0±1.4  20.0±1.4
rank row              seeds params CPU-s
────────────────────────────────────────
     learned_absolute     2 0.450M ◆ 200
     [coords=scaled]
1    learned_absolute     2 0.450M   200
"""


def test_six_resolutions_fit_eighty_columns(card, make_record):
    """Seeds 1 point around the mean: sd sqrt(2)."""
    records = []
    for seed, shift in enumerate((-0.01, 0.01)):
        raw, scaled = ({pair: base - i / 10 + shift for i, pair in enumerate(LADDER)} for base in (0.7, 0.71))
        records.append(make_record("learned_absolute", seed, {"raw": raw, "scaled": scaled}, run=seed))
    text = to_text(only(build_boards(card, records)), width=80)
    assert max(map(len, text.splitlines())) <= 80
    assert text.startswith(TERMINAL)
    console = Console(file=io.StringIO(), width=200, color_system=None)
    print_board(only(build_boards(card, records)), console)
    assert console.file.getvalue().count("rank row") == 1  # a wide terminal needs one table


def test_no_terminal_code_of_a_stranger_reaches_the_terminal(card, make_record):
    record = make_record(row={"attention": "goat", "variant": {"x\x1b[31m": "[bold]\n\r\x07"}})
    for text in (to_text(only(build_boards(card, [record]))), markdown(only(build_boards(card, [record])))):
        assert all(character.isprintable() for line in text.split("\n") for character in line)
    assert "[bold]" in to_text(only(build_boards(card, [record])), width=200)  # shown, not obeyed


def test_no_records_no_board(card, make_record):
    assert build_boards(card, [], []) == []
    assert build_boards(card.model_copy(update={"name": "another"}), [make_record()]) == []


def with_yardstick(record, name, value):
    """The record with a reference measured beside each top1."""
    extra = [m.model_copy(update={"value": value, "conditions": {**m.conditions, "reference": name}}) for m in record.measurements]
    return record.model_copy(update={"measurements": [*record.measurements, *extra]})


def test_a_yardstick_is_one_row_at_its_place_and_never_ranked(card, make_record):
    runs = [
        with_yardstick(make_record(attention, seed, {"raw": {(224, 12): 0.7, (512, 28): score + seed / 100}}, run=run), "markov-2", 0.5)
        for run, (attention, seed, score) in enumerate([("goat", 0, 0.6), ("goat", 1, 0.6), ("rope", 0, 0.4), ("rope", 1, 0.4)])
    ]
    board = only(build_boards(card, runs))
    assert [row.label for row in board.rows] == ["goat", "markov-2 (reference)", "rope"]
    yardstick = board.rows[1]
    assert yardstick.rank == "" and yardstick.cells["512"].text == "50.0" and "seeds" not in yardstick.cells
    assert [row.rank for row in board.rows if not row.is_reference] == ["1-2", "1-2"]  # 20 points apart in both seeds: no test
    assert any(note.startswith("reference:") for note in board.notes)
    alone = only(build_boards(card, [with_yardstick(make_record(), "markov-2", 0.5), make_record(seed=1, run=1)]))
    assert len(alone.rows) == 2  # a yardstick does not split the board


def test_a_thousand_records_in_under_a_second(tmp_path, card, make_record):
    """Reading, grouping, testing and printing. A record holds six sizes, two modes and two metrics. A loaded machine slows processor
    time too, so the second is 10 times what plain json.loads takes for the same files (0.1 s on an idle core), measured in turn. 200 rows
    are 19,900 pairs to test."""
    ladder = {pair: 0.7 - i / 10 for i, pair in enumerate(LADDER)}
    modes = {"raw": ladder, "scaled": ladder}
    made = make_record(scores=modes, nll=modes).model_dump(mode="json")
    for i in range(1000):
        run_id = f"20260102t030400-0123abcd-{i:06x}"
        measured = [m | {"value": m["value"] + (i * 7919 % 101) / 5000} for m in made["measurements"]]
        changed = made | {"run_id": run_id, "row": {"attention": f"attention{i // 5}"}, "seed": i % 5, "measurements": measured}
        (tmp_path / run_id).mkdir()
        (tmp_path / run_id / "record.json").write_text(json.dumps(changed))
    paths = sorted(tmp_path.glob("*/record.json"))
    ratios = []
    for _ in range(5):  # other processes can only make it slower
        yardstick = cpu_seconds(lambda: [json.loads(path.read_bytes()) for path in paths])
        warnings: list[str] = []

        def show(warnings=warnings):
            board = only(build_boards(card, iter_records(tmp_path, warnings)))
            assert len(to_text(board, 80)) > 400 * 76 and len(board.rows) == 400

        ratios.append(cpu_seconds(show) / yardstick)
        assert not warnings
        if ratios[-1] < 10:
            break
    assert min(ratios) < 10


def cpu_seconds(work) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def test_reading_and_printing_a_board_imports_no_torch(tmp_path, card, make_record):
    record = make_record()
    RunFolder(tmp_path, record.run_id).finish(record)
    (tmp_path / "card.json").write_text(card.model_dump_json())
    program = """
        import sys
        from goatbench.records import board, environment, leaderboard, source, store
        from goatbench.records.record import TaskCard
        card = TaskCard.model_validate_json(open(sys.argv[1]).read())
        environment.describe_environment(threads=1)
        source.code_info()
        warnings = []
        boards = leaderboard.build_boards(card, store.iter_records(sys.argv[2], warnings))
        print(board.to_text(boards[0]))
        print(sorted(name for name in ("torch", "lightning", "timm", "hydra", "matplotlib", "numpy") if name in sys.modules))
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path / "card.json"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "goat" in done.stdout and done.stdout.strip().splitlines()[-1] == "[]"


def test_a_card_needs_none_of_the_optional_fields(make_record):
    card = TaskCard(
        name="toy_ladder", version=2, domain="vision", summary="s", protocol="p", source="s", expected_time={},
        metrics=({"name": "top1", "unit": "fraction", "direction": "higher"},),
        primary_metric="top1", primary_conditions={"nominal": 512}, column_condition="nominal",
    )  # fmt: skip
    boards = build_boards(card, [make_record()])  # coords, resolution and split are ordinary conditions now: each value a board
    assert [board.columns[0].head for board in boards] and len(boards) == 2


def test_whether_a_row_has_learned_is_read_off_its_plain_conditions(card, make_record):
    """0.45 at 512 is too little, whatever a variant of evaluation or a yardstick of the same run has there."""
    learned = card.model_copy(update={"learned": Learned(metric="top1", value=512, at_least=0.5)})
    scores = {"raw": {(512, 28): 0.45}, "scaled": {(512, 28): 0.9}}
    low, high = make_record("goat", 0, scores), make_record("rope", 0, {"raw": {(512, 28): 0.55}}, run=1)
    chance = low.measurements[0].model_copy(update={"value": 0.9, "conditions": {**low.measurements[0].conditions, "reference": "chance"}})
    low = low.model_copy(update={"measurements": [*low.measurements, chance]})
    rows = {found.name: found for found in only(build_boards(learned, [low, high])).rows}
    assert rows["goat"].is_unlearned and rows["goat[coords=scaled]"].is_unlearned and not rows["rope"].is_unlearned


def test_outcomes_with_two_modes_are_shown_seed_by_seed(card, make_record):
    """0.99, 0.02, 0.98 have a mean that no seed comes near."""
    card = card.model_copy(update={"per_seed": True})
    board = only(build_boards(card, series(make_record, "goat", (0.99, 0.02, 0.98))))
    assert [column.head for column in board.columns][2] == "seed by seed"
    assert row(board, "goat").cells["by_seed"].text == "99.0 2.0 98.0"
