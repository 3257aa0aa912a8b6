"""Submission: one place for each record, nothing outside it, nothing that a stranger could not trust."""

from __future__ import annotations

import hashlib
import json
import os
import re

import pytest

from goatbench.cli import main
from goatbench.errors import UsageError
from goatbench.records import layout
from goatbench.records.files import record_bytes
from goatbench.records.store import RunFolder, iter_records, placed_at, submit
from goatbench.records.submission import record_file


@pytest.fixture
def runs(tmp_path):
    return tmp_path / "runs"


@pytest.fixture
def results(tmp_path):
    (tmp_path / "results").mkdir()
    return tmp_path / "results"


def finished(runs, record):
    RunFolder(runs, record.run_id).finish(record)
    return record


def test_a_run_goes_to_its_place_by_id_folder_or_file(runs, results, make_record):
    records = [finished(runs, make_record(run=i, seed=i)) for i in range(3)]
    ways = [records[0].run_id, runs / records[1].run_id, runs / records[2].run_id / "record.json"]
    placed = submit(ways, results, runs)
    expected = [results / "toy_ladder@v2" / "embedded" / "goat" / f"{record.run_id}.json" for record in records]
    assert [p.path for p in placed] == expected and not any(p.already for p in placed)
    assert [path.read_bytes() for path in expected] == [record_bytes(record) for record in records]
    warnings: list[str] = []
    assert list(iter_records(results, warnings)) == records and warnings == []


def test_the_same_record_twice_is_there_already(runs, results, make_record):
    record = finished(runs, make_record())
    submit([record.run_id], results, runs)
    again = submit([record.run_id, runs / record.run_id], results, runs)
    assert [p.already for p in again] == [True]


@pytest.mark.parametrize("place", ['"seed": 0', '"a": [', '"nominal": 224'])
def test_a_doubled_key_is_refused(results, tmp_path, make_record, place):
    """At the top, in the free-form configuration, in a measurement's conditions: two readers could take two records from it."""
    text = record_bytes(make_record()).decode()
    assert place in text
    key = place.partition(":")[0]
    (tmp_path / "doubled.json").write_text(text.replace(place, f"{key}: 1, {place}", 1))
    with pytest.raises(UsageError, match=f"the key '{key[1:-1]}' stands twice") as caught:
        submit([tmp_path / "doubled.json"], results)
    assert "\n" not in str(caught.value) and not list(results.iterdir())


def test_another_record_with_the_same_run_id_is_refused(runs, results, tmp_path, make_record):
    record = finished(runs, make_record())
    (path,) = (p.path for p in submit([record.run_id], results, runs))
    before = path.read_bytes()
    (tmp_path / "other.json").write_bytes(record_bytes(make_record(seed=5)))
    with pytest.raises(UsageError, match="never overwritten"):
        submit([tmp_path / "other.json"], results, runs)
    with pytest.raises(UsageError, match="never overwritten"):
        submit([record.run_id, tmp_path / "other.json"], results, runs)
    assert path.read_bytes() == before


def test_a_variant_has_a_folder_of_its_own(make_record):
    """The slug is the attention and the first digits of sha256 over canonical JSON of attention and variant."""
    variant = {"row": {"attention": "goat", "variant": {"lanes": "append"}}}
    digits = hashlib.sha256(b'["goat",{"lanes":"append"}]').hexdigest()[:8]
    assert placed_at(make_record(**variant)).parts[2] == f"goat-{digits}"
    long = make_record(row={"attention": "g" * 64, "variant": {"lanes": "append"}})
    assert len(placed_at(long).parts[2]) <= 64


def test_failed_runs_are_placed_too(runs, results, make_record):
    record = finished(runs, make_record(status="oom", error={"kind": "MemoryError", "message": "too big"}, model=None, data=None))
    assert submit([record.run_id], results, runs)[0].path.is_file()


def test_uncommitted_code_is_refused_unless_allowed(runs, results, make_record):
    code = {"version": "0.1.0", "commit": "c0ffee", "dirty": True, "source_hash": "abcdef0123456789"}
    record = finished(runs, make_record(code=code))
    with pytest.raises(UsageError, match="--allow-dirty"):
        submit([record.run_id], results, runs)
    assert submit([record.run_id], results, runs, allow_dirty=True)[0].path.is_file()


@pytest.mark.parametrize(
    "changes",
    [
        {"config": {"data": {"root": "/home/somebody/data"}}},
        {"overrides": ["data.root=/srv/images/imagenet"]},
        {"notes": ["could not open '/tmp/x/y.png'"]},
        {"config": {"a": [{"/Users/me/x": 1}]}},
        {"config": {"root": r"C:\images"}},
        {"config": {"root": "~/images"}},
    ],
)
def test_absolute_paths_are_refused(runs, results, make_record, changes):
    record = finished(runs, make_record(**changes))
    with pytest.raises(UsageError, match="absolute path"):
        submit([record.run_id], results, runs)
    assert not list(results.iterdir())


def test_what_only_looks_like_a_path_is_not_refused(runs, results, make_record):
    notes = ["see https://example.org/a/b", "images/s and bits/base", "results/vit_tuning@v1/goat", "1/sqrt(d)", "n/a", "a / b"]
    record = finished(runs, make_record(notes=notes))
    assert submit([record.run_id], results, runs)


def test_nothing_is_placed_if_one_of_them_is_bad(runs, results, make_record):
    good = finished(runs, make_record(run=1))
    bad = RunFolder(runs, make_record(run=2).run_id)
    (bad.path / "record.json").write_text("{}")
    with pytest.raises(UsageError, match="not a record"):
        submit([good.run_id, bad.run_id], results, runs)
    assert not list(results.iterdir())


@pytest.mark.parametrize("level", [0, 1, 2])
def test_symbolic_links_on_the_way_are_refused(runs, results, tmp_path, make_record, level):
    record = finished(runs, make_record())
    outside = tmp_path / "outside"
    outside.mkdir()
    link = results.joinpath(*placed_at(record).parts[: level + 1])
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(outside)
    with pytest.raises(UsageError, match="symbolic link"):
        submit([record.run_id], results, runs)
    assert not list(outside.iterdir())


def test_a_dangling_link_at_the_target_is_not_written_through(runs, results, tmp_path, make_record):
    record = finished(runs, make_record())
    target = results / placed_at(record)
    target.parent.mkdir(parents=True)
    target.symlink_to(tmp_path / "stolen.json")
    with pytest.raises(UsageError, match="symbolic link"):
        submit([record.run_id], results, runs)
    assert not (tmp_path / "stolen.json").exists()


def test_a_linked_record_is_not_followed(runs, results, tmp_path, make_record):
    folder = RunFolder(runs, make_record().run_id)
    (tmp_path / "secret.json").write_bytes(record_bytes(make_record()))
    (folder.path / "record.json").symlink_to(tmp_path / "secret.json")
    with pytest.raises(UsageError, match="symbolic link"):
        submit([folder.run_id], results, runs)


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        ("20260102t030405-0123abcd-00000f", "no finished run"),
        ("../../etc/passwd", "neither a run id"),
        ("a\nb", "neither a run id"),
        (".", "holds no record.json"),
    ],
)
def test_what_is_no_run_is_refused_in_one_line(runs, results, run, expected, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=re.escape(expected)) as caught:
        submit([run], results, runs)
    assert "\n" not in str(caught.value)


def test_a_missing_results_folder_names_the_option(runs, tmp_path, make_record):
    record = finished(runs, make_record())
    with pytest.raises(UsageError, match="--results-dir"):
        submit([record.run_id], tmp_path / "absent", runs)
    with pytest.raises(UsageError, match="nothing to submit"):
        submit([], tmp_path, runs)


def test_the_default_place_is_said_and_is_a_checkout_only(runs, results, make_record, monkeypatch, capsys):
    record = finished(runs, make_record())
    monkeypatch.setattr(layout, "results_root", lambda: results)
    monkeypatch.setattr("goatbench.verify.verify", lambda record: None)

    def submitted(*options):
        with pytest.raises(SystemExit) as ended:
            main(["submit", record.run_id, "--runs-dir", str(runs), *options])
        return ended.value.code, "".join(capsys.readouterr()).strip()

    code, said = submitted()
    assert code == 2 and said.endswith("name a folder with --results-dir DIR, or use a checkout") and not list(results.iterdir())
    (results.parent / "pyproject.toml").touch()
    path = results / placed_at(record)
    where = "these are the results of this checkout: commit them, or choose another folder with --results-dir DIR"
    assert submitted() == (0, f"{path}\n{where}") and submitted() == (0, f"{path} (was there already)\n{where}")
    assert submitted("--results-dir", str(runs)) == (0, str(runs / placed_at(record)))


def test_a_record_in_the_wrong_folder_is_a_warning(results, make_record):
    record = make_record()
    wrong = results / "toy_ladder@v1" / "embedded" / "goat" / f"{record.run_id}.json"
    wrong.parent.mkdir(parents=True)
    wrong.write_bytes(record_bytes(record))
    (results / "reported").mkdir()
    (results / "reported" / "x.json").write_text(json.dumps({"not": "a record"}))
    warnings: list[str] = []
    assert list(iter_records(results, warnings)) == []
    assert len(warnings) == 1 and "toy_ladder@v2/embedded/goat" in warnings[0]


def test_the_last_run_is_the_one_that_ended_last(tmp_path):
    """Jobs of a sweep are named in one second, in an order that says nothing."""
    first, second = (tmp_path / f"20260131t120000-{name}-000000" / "record.json" for name in ("ffffffff", "00000000"))
    for path, seconds in ((first, 100), (second, 200)):
        path.parent.mkdir()
        path.write_text("{}")
        os.utime(path, (seconds, seconds))
    assert record_file("last", tmp_path) == second
