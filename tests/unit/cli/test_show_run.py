"""`show RUN`: all there is in a record, the command that repeats it, and what a repetition changed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from goatbench.boards import Places
from goatbench.compose import compose
from goatbench.errors import UsageError
from goatbench.records.record import RunRecord
from goatbench.show_run import load_run, reproduction_lines, run_lines

RESULTS = Path(__file__).resolve().parents[3] / "results"
RUN = "20261130t100746-0d61a9b3-daf159"  # genome_nll, goat, seed 2
PLACES = Places(None, str(RESULTS))


@pytest.fixture(scope="module")
def record():
    return load_run(RUN, PLACES)[1]


def test_everything_of_a_record_is_there(record):
    text = "\n".join(run_lines(*load_run(RUN, PLACES)))
    for part in ("genome_nll@v1, scale embedded, seed 2", "1.8935±0.0011", "379133", "a7419d7a903b8407", "process CPU time", "AMD EPYC"):
        assert part in text
    assert "training.epochs = 4" in text and "sources 7273efea" in text


def test_the_sweep_behind_a_tuned_learning_rate_is_named(record):
    source = "tuned: results/genome_tuning@v1"
    newer = record.model_copy(update={"training": record.training.model_copy(update={"learning_rate_source": source})})
    assert f"learning rate {record.training.learning_rate:g} ({source})" in "\n".join(run_lines(Path("x.json"), newer))


def test_the_command_composes_the_very_same_run(record):
    """The configuration's hash is that of the record, though the command is built from its overrides alone."""
    (command,) = re.findall(r"^  goatbench run (.*)$", "\n".join(run_lines(*load_run(RUN, PLACES))), flags=re.M)
    composed = compose(shlex.split(command))
    assert composed.spec.config_hash == record.config_hash and composed.spec.retrain
    assert command == "task=genome_nll attention=goat scale=embedded seed=2 retrain=true"


def test_an_equal_repetition_is_equal(record):
    lines, is_equal = reproduction_lines(record, record)
    assert is_equal and lines[1:] == [f"{len(record.measurements)} of {len(record.measurements)} measurements are equal"]


def test_each_difference_is_named_with_its_size(record):
    first, *others = record.measurements
    moved = first.model_copy(update={"value": first.value + 2 * first.stderr})
    elsewhere = {"environment": {**record.environment, "torch": "2.99"}, "config": {**record.config, "x": 1}}
    changed = record.model_copy(update={"measurements": [moved, *others[1:]], **elsewhere})
    lines, is_equal = reproduction_lines(record, changed)
    text = "\n".join(lines)
    assert not is_equal and f"{len(others) - 1} of {len(others) + 1} measurements are equal" in text
    assert re.search(rf"differs: {first.metric} at .*2 standard errors", text) and "not measured now" in text
    assert "changed since: environment.torch: 2.14.1 then, 2.99 now" in text and "config.x" in text


def test_a_detail_of_the_column_that_is_worded_otherwise_is_no_difference():
    """The stride of streams was recorded as the context, in runs that must still be repeated as they are."""
    path = next((RESULTS / "lm_length@v1" / "embedded" / "alibi").glob("*.json"))
    record = load_run(str(path), PLACES)[1]
    worded = [m.model_copy(update={"conditions": {**m.conditions, "stride": 1}}) for m in record.measurements]
    assert reproduction_lines(record, record.model_copy(update={"measurements": worded}))[1]
    elsewhere = [m.model_copy(update={"conditions": {**m.conditions, "context": 1}}) for m in record.measurements]
    assert not reproduction_lines(record, record.model_copy(update={"measurements": elsewhere}))[1]


def test_unknown_runs_are_one_line():
    with pytest.raises(UsageError, match="no finished run 20261129t202833-0d61a9b3-ffffff"):
        load_run("20261129t202833-0d61a9b3-ffffff", PLACES)


def test_bytes_are_told_in_mib(record):
    memory = {"name": "train_peak_memory_bytes", "value": 1234.5 * 2**20, "unit": "bytes", "method": "rss", "conditions": {"length": 64}}
    seconds = {"name": "train_wall_seconds", "value": 2.5, "unit": "s", "method": "wall clock"}
    changed = RunRecord.model_validate({**record.model_dump(), "costs": [memory, seconds]})
    lines = [" ".join(line.split()) for line in run_lines(Path("record.json"), changed)]
    assert "train_peak_memory_bytes 1,234.5 MiB (rss) at length 64" in lines and "train_wall_seconds 2.5 s (wall clock)" in lines
