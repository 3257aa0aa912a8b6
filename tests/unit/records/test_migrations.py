"""Records of every schema version are read for ever: one real file of each, steps that are pure, newer versions named as such."""

from __future__ import annotations

import json
from copy import deepcopy
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from goatbench.errors import UsageError
from goatbench.records import files, migrations
from goatbench.records.files import parse_record, read_record
from goatbench.records.record import SCHEMA_VERSION

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "records"
RESULTS = Path(__file__).resolve().parents[3] / "results"


def luck_is_seed(raw):
    return {key: value for key, value in raw.items() if key != "luck"} | {"seed": raw["luck"]}


def test_there_is_a_fixture_of_every_version_and_a_step_from_every_earlier_one():
    assert [path.stem for path in sorted(FIXTURES.iterdir())] == [f"v{version}" for version in range(1, SCHEMA_VERSION + 1)]
    assert sorted(migrations.STEPS) == list(range(1, SCHEMA_VERSION))


def test_the_first_version_reads_as_it_was_published():
    """A run of November 2026; the numbers as they stand in its file."""
    record = read_record(FIXTURES / "v1.json")
    assert json.loads((FIXTURES / "v1.json").read_text())["schema_version"] == 1
    assert (record.run_id, record.row.attention, record.seed) == ("20261129t165509-92894899-117156", "alibi_2d", 0)
    assert record.row.variant == {"training.epochs": 2, "training.learning_rate": 0.002}
    top1 = record.measurements[0]
    assert (top1.metric, top1.value, top1.n, top1.conditions["nominal"]) == ("top1", 0.414000004529953, 2000, 224)
    assert (record.costs[0].name, record.costs[0].value) == ("train_cpu_seconds", 68.918976582)
    assert record.schema_version == SCHEMA_VERSION and record.examples is None and record.curves == []


def test_steps_are_applied_in_order_and_leave_their_input_alone(monkeypatch):
    """Two made-up versions before the present one: the first called the seed 'luck', the second had no 'notes'."""
    old = json.loads((FIXTURES / "v1.json").read_text())
    present = SCHEMA_VERSION + 2
    old |= {"luck": old.pop("seed")}
    old.pop("notes")
    monkeypatch.setattr(migrations, "SCHEMA_VERSION", present)
    monkeypatch.setattr(
        migrations, "STEPS", {SCHEMA_VERSION: luck_is_seed, SCHEMA_VERSION + 1: lambda raw: {**raw, "notes": ["old"]}}
    )
    before = deepcopy(old)
    new = migrations.migrated(old)
    assert old == before
    assert "luck" not in new and (new["seed"], new["notes"], new["schema_version"]) == (0, ["old"], present)


def test_an_earlier_version_is_migrated_when_read(monkeypatch):
    """As if the present version were 2 and version 1 had called the seed 'luck'."""
    content = (FIXTURES / "v1.json").read_bytes().replace(b'"schema_version": 1', b'"schema_version": 1, "luck": 4')
    refused = json.loads(content) | {"schema_version": 0}
    with pytest.raises(UsageError, match="schema_version"):
        parse_record(json.dumps(refused).encode(), "a file")

    monkeypatch.setattr(migrations, "SCHEMA_VERSION", 2)
    monkeypatch.setattr(migrations, "STEPS", {1: luck_is_seed})
    monkeypatch.setattr(files, "SCHEMA_VERSION", 2)
    monkeypatch.setattr(files, "RunRecord", SimpleNamespace(model_validate_json=partial(_as_version_two, files.RunRecord)))
    assert parse_record(content, "a file").seed == 4


def _as_version_two(model, text, **options):
    """The model as it would be if its version were 2."""
    raw = json.loads(text)
    raw["schema_version"] = {1: 99, 2: 1}[raw["schema_version"]]
    return model.model_validate_json(json.dumps(raw), **options)


def test_a_newer_version_says_what_to_do():
    raw = json.loads((FIXTURES / "v1.json").read_text()) | {"schema_version": SCHEMA_VERSION + 1, "more": 1}
    with pytest.raises(UsageError, match=f"schema_version {SCHEMA_VERSION + 1}.*update it"):
        parse_record(json.dumps(raw).encode(), "a file")


def test_published_records_have_each_key_once():
    """No two readers can take two records from one file. Boards are read without this check: it would take a third of their time."""
    paths = sorted(RESULTS.glob("*@v*/**/*.json"))
    assert len(paths) > 200
    for path in paths:
        files.refuse_doubled_keys(path.read_bytes(), str(path))
