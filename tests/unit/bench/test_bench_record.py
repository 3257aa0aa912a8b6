"""The head that the records of all benchmarks share."""

import json

import pytest

from goatbench.bench import record

HEAD = {"schema_version", "bench", "started_at", "finished_at", "code", "environment"}


def test_a_record_is_the_head_and_the_benchmarks_own_values(tmp_path, capsys):
    started = record.now()
    out = tmp_path / "record.json"
    record.write(out, record.record_bytes("mine", started, {"threads": 1}, settings={"batch": 2}, results=[]))
    kept = json.loads(out.read_text())
    assert set(kept) == HEAD | {"settings", "results"} and kept["schema_version"] == 1
    assert (kept["bench"], kept["environment"], kept["settings"]) == ("mine", {"threads": 1}, {"batch": 2})
    assert kept["started_at"] == started <= kept["finished_at"] and len(kept["code"]["source_hash"]) == 16
    assert capsys.readouterr().out == f"\nrecord: {out}\n"


def test_a_record_is_strict_json():
    with pytest.raises(ValueError, match="not JSON compliant"):
        record.record_bytes("mine", record.now(), {}, results=[float("nan")])
