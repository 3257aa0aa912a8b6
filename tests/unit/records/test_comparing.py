"""A against B: differences and verdicts worked by hand, what is not alike named, names resolved."""

from __future__ import annotations

import pytest

from goatbench.boards import Places
from goatbench.compare import _difference, compare_lines
from goatbench.errors import UsageError
from goatbench.records.comparing import Side, compare, config_differences, differences, environment_differences, verdict
from goatbench.records.files import record_bytes
from goatbench.records.finding import find_record, find_side, is_run
from goatbench.records.store import RunFolder, placed_at, submit
from goatbench.show_run import load_run

ROPE, CLOSE, FAR = (0.60, 0.62, 0.61), (0.59, 0.60, 0.615), (0.40, 0.41, 0.42)


def side(make_record, name, tops, first_run=0, **changes):
    records = [make_record(name, s, {"raw": {(512, 28): top, (224, 12): 0.7}}, run=first_run + s, **changes) for s, top in enumerate(tops)]
    return Side(name, name, records)


def verdicts(card, a, b, **options):
    lines, apart = compare([card], a, b, **options)
    return [verdict(line, a.row, b.row) for line in lines], apart


def test_a_clear_difference_names_the_better_one(card, make_record):
    """-20, -21, -19 points: p = 8.3e-4 for one headline."""
    far, rope = side(make_record, "far", FAR, 10), side(make_record, "rope", ROPE)
    (line,), apart = compare([card], far, rope)
    assert (line.column, line.is_headline, apart) == ("512", True, [])
    assert line.comparison.difference.mean == pytest.approx(-0.2) and line.comparison.p_adjusted == pytest.approx(8.3e-4, rel=0.01)
    assert verdict(line, "far", "rope") == "rope is better at 3 seeds"
    assert verdicts(card, rope, far)[0] == ["rope is better at 3 seeds"]


def test_too_few_seeds_say_how_many_would_do(card, make_record):
    """-1, -2, +0.5 points: effect .8333 / 1.2583 = 0.66; tables of the paired t test give 20 or 21 pairs for 80 % power."""
    (text,), _ = verdicts(card, side(make_record, "close", CLOSE, 10), side(make_record, "rope", ROPE))
    assert text in ("not distinguishable at 3 seeds: would need about 20", "not distinguishable at 3 seeds: would need about 21")


def test_verdicts_where_no_test_is_possible(card, make_record):
    rope = side(make_record, "rope", ROPE)
    assert verdicts(card, side(make_record, "x", ROPE, 10), rope)[0] == ["equal in each of 3 seeds"]
    assert "one common seed" in verdicts(card, side(make_record, "x", ROPE[:1], 10), rope)[0][0]
    (same,), _ = compare([card], side(make_record, "x", (0.10, 0.12, 0.11), 10), rope)
    assert verdict(same, "x", "rope") == "the same difference in each of 3 seeds: no test is possible" and _difference(same) == "-50.0"
    lonely = Side("x", "x", [make_record("x", 7, {"raw": {(512, 28): 0.5}}, run=20)])
    assert verdicts(card, lonely, rope)[0] == ["no common seed: not compared"]


def test_all_columns_and_two_families_of_p(card, make_record):
    """The headline's p is not paid for by the other columns: 224 is equal in every seed, p = 1."""
    far, rope = side(make_record, "far", FAR, 10), side(make_record, "rope", ROPE)
    lines, _ = compare([card], far, rope, everything=True)
    assert [(line.column, line.is_headline) for line in lines] == [("224", False), ("512", True)]
    assert lines[1].comparison.p_adjusted == pytest.approx(8.3e-4, rel=0.01) and lines[0].comparison.p_adjusted == 1.0


def test_runs_that_are_not_alike_are_not_compared_and_it_is_said_why(card, make_record):
    budget = {"epochs": 12, "steps": 2250, "samples": 72000, "batch_size": 32}
    lines, (apart,) = compare([card], side(make_record, "goat", ROPE), side(make_record, "rope", ROPE, 10, budget=budget))
    assert lines == [] and apart.fields == (("budget.epochs", "6", "12"),)


def test_differences_of_nested_values():
    a, b = {"x": {"y": 1, "z": [1]}, "only": None}, {"x": {"y": 2, "z": [1]}, "new": 3}
    assert list(differences(a, b)) == [("new", None, 3), ("x.y", 1, 2)]


def test_config_and_environment_differences(make_record):
    a = [make_record(config={"attention": {"name": "goat", "lanes": "carve"}, "seed": 0})]
    other = {"attention": {"name": "rope", "lanes": "none"}, "seed": 1}
    b = [make_record("rope", config=other, environment={"cpu": "another", "gpu": None})]
    assert config_differences(a, b) == [("attention.lanes", "carve", "none")]
    assert environment_differences(a, b) == [("cpu", '"a cpu"', '"another"')]
    assert environment_differences(a, a) == []


def test_what_a_name_stands_for(tmp_path, make_record):
    runs, results = tmp_path / "runs", tmp_path / "results"
    own, published = make_record("goat", run=1), make_record("rope", run=2)
    RunFolder(runs, own.run_id).finish(own)
    (results / placed_at(published)).parent.mkdir(parents=True)
    (results / placed_at(published)).write_bytes(record_bytes(published))
    known = [own, published]
    assert find_side("goat", known, runs, results).records == [own]
    assert find_side(own.run_id, known, runs, results).row == "goat" and find_side(published.run_id, known, runs, results).row == "rope"
    assert find_record(own.run_id, runs, results) == runs / own.run_id / "record.json"
    assert find_side(str(runs), known, runs, results).records == [own] == find_side(str(runs / own.run_id), known, runs, results).records
    assert find_side(str((results / placed_at(published)).parent), known, runs, results).records == [published]
    with pytest.raises(UsageError, match="did you mean 'goat'"):
        find_side("gaot", known, runs, results)
    with pytest.raises(UsageError, match="no finished run"):
        find_side("20260102t030409-0123abcd-ffffff", known, runs, results)
    assert find_record(published.run_id[:15], runs, results) == results / placed_at(published)
    other = make_record("alibi", run=3)
    RunFolder(runs, other.run_id).finish(other)
    with pytest.raises(UsageError, match=f"3 run ids begin with {own.run_id[:14]}: {own.run_id}, {published.run_id}, {other.run_id}$"):
        find_record(own.run_id[:14], runs, results)
    with pytest.raises(UsageError, match="runs of 2 rows \\(alibi, goat\\)"):
        find_side(str(runs), known, runs, results)
    assert is_run(own.run_id) and is_run(own.run_id[:12]) and is_run(str(runs)) and not is_run("goat")


def test_a_row_s_name_stands_for_its_runs_and_not_for_its_variants(make_record):
    """Ablations of training are other runs; a variant of evaluation is measured by the runs that it is a variant of."""
    plain, other = make_record("goat", run=1), make_record("rope", run=4)
    lanes, both = ({"attention": "goat", "variant": variant} for variant in ({"lanes": "carve"}, {"lanes": "carve", "base": 5}))
    carved, rebased = make_record(run=2, row=lanes), make_record(run=3, row=both)
    find = lambda name: find_side(name, [plain, carved, rebased, other], None, "nowhere").records
    assert find("goat") == [plain] == find("goat[coords=scaled]")
    assert find("goat[lanes=carve]") == [carved] == find("goat[lanes=carve,coords=scaled]")
    assert find("goat[base=5,lanes=carve]") == [rebased]
    with pytest.raises(UsageError, match=r"no results of 'goat'; .*rows with results: goat\[lanes=carve\]; or name"):
        find_side("goat", [carved, other], None, "nowhere")


def test_variants_are_in_no_line_of_a_comparison(tmp_path, card, make_record, monkeypatch):
    """Neither in the count of runs nor in what else differs; A has an ablation on another machine, with another configuration."""
    configured = lambda name, spectral, seed: {"attention": {"name": name, "options": {"spectral": spectral}}, "seed": seed}
    records = []
    for seed, (a, b) in enumerate(zip(CLOSE, ROPE, strict=True)):
        top = lambda value: {"raw": {(512, 28): value}}
        records.append(make_record("goat", seed, top(a), run=seed, config=configured("goat", True, seed)))
        records.append(make_record("rope", seed, top(b), run=10 + seed, config=configured("rope", True, seed)))
        ablation = {"attention": "goat", "variant": {"attention.options.spectral": False}}
        changed = {"config": configured("goat", False, seed), "environment": {"cpu": "another"}}
        records.append(make_record(seed=seed, scores=top(a), run=20 + seed, row=ablation, **changed))
    for record in records:
        RunFolder(tmp_path / "runs", record.run_id).finish(record)
    monkeypatch.setattr("goatbench.compare.tasks", Tasks(card))
    (tmp_path / "results").mkdir()
    lines = compare_lines("goat", "rope", Places(str(tmp_path / "runs"), str(tmp_path / "results")), None, None, False)
    assert lines[:2] == ["A: goat, 3 runs", "B: rope, 3 runs"]
    assert lines[-2:] == ["configuration, newest runs: equal apart from the names", "environment: equal"]


class Tasks:
    """A registry of one task."""

    def __init__(self, card):
        self.card = card

    def names(self):
        return [self.card.name]

    def get(self, name):
        return self


@pytest.mark.parametrize("content", ['{"run_id": ', '{"run_id": "x"}', None])
def test_a_broken_record_that_is_named_is_said_to_be_broken(tmp_path, monkeypatch, content):
    """By its folder, also one of another name than a run id and without a slash, and a symbolic link to nowhere is no missing file."""
    monkeypatch.chdir(tmp_path)
    for name in ("20260102t030405-0123abcd-00000a", "my_run"):
        (tmp_path / name).mkdir()
        path = tmp_path / name / "record.json"
        path.symlink_to("nowhere") if content is None else path.write_text(content)
        said = "symbolic link" if content is None else "is broken, not .*; restore the file from a copy, or remove"
        assert is_run(name)
        with pytest.raises(UsageError, match=said):
            load_run(name, Places(None, str(tmp_path)))
        with pytest.raises(UsageError, match=said):
            find_side(name, [], None, tmp_path)
        with pytest.raises(UsageError, match=said):
            submit([name], tmp_path)


def test_one_and_the_same_is_not_compared(tmp_path, make_record):
    """By name, and where a run and its folder are two names of it; variants of one attention are not the same."""
    runs, results = tmp_path / "runs", tmp_path / "results"
    results.mkdir()
    own = make_record("goat", run=1)
    RunFolder(runs, own.run_id).finish(own)
    places = Places(str(runs), str(results))
    for a, b in (("goat", "goat"), (own.run_id, str(runs / own.run_id)), (own.run_id, "goat")):
        with pytest.raises(UsageError, match="are the same, goat") as caught:
            compare_lines(a, b, places, None, None, False)
        assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="no results of 'gaot'"):
        compare_lines("gaot", "gaot", places, None, None, False)
    with pytest.raises(UsageError, match="no task in common"):
        compare_lines("goat", "goat[lanes=append]", places, None, None, False)
