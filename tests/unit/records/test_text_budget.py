"""The default text runs cost no more than they promise: a fresh clone trains each in two CPU-minutes at most."""

from __future__ import annotations

from pathlib import Path

import pytest

from goatbench.records.files import read_record

RESULTS = Path(__file__).resolve().parents[3] / "results"


@pytest.mark.parametrize("task", ["lm_length@v1", "needle@v1", "passkey@v1"])
def test_training_takes_at_most_two_cpu_minutes(task):
    """Records with the task's own budget: no override of training or data."""
    seconds = {}
    for path in (RESULTS / task / "embedded").glob("*/*.json"):
        record = read_record(path)
        if not any(name.startswith(("training.", "data.", "model.", "trainer.")) for name in record.row.variant):
            seconds[record.run_id] = [cost.value for cost in record.costs if cost.name == "train_cpu_seconds"]
    assert len(seconds) >= 27 and all(len(found) == 1 and 0 < found[0] <= 120 for found in seconds.values()), seconds
