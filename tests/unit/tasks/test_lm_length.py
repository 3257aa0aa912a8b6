"""lm_length: what a record says of how its numbers were made."""

from __future__ import annotations

from pathlib import Path

from goatbench.compose import compose
from goatbench.records.grouping import group_records
from goatbench.records.record import RunRecord
from goatbench.tasks.lm_length import LM_LENGTH, NON_OVERLAPPING, SAME_TARGET, _conditions, _ways_to_stream

RESULTS = Path(__file__).resolve().parents[3] / "results"


def test_the_stride_is_what_is_scored_of_each_window():
    """Streams and windows score the last bytes of each block, as same_target does: their stride was recorded as the context."""
    wanted = ["evaluation.streaming=true", "evaluation.streaming_grid=true", "evaluation.num_targets=16"]
    spec = compose(["task=lm_length", "scale=smoke", "attention=alibi", *wanted]).spec
    ways = [protocol for protocol, *_ in _ways_to_stream(spec)]
    assert len(ways) == 4
    assert {_conditions(spec, protocol, 128)["stride"] for protocol in (SAME_TARGET, *ways)} == {16}
    assert _conditions(spec, NON_OVERLAPPING, 128)["stride"] == 128


def test_records_that_say_another_stride_stay_on_the_board():
    path = next((RESULTS / "lm_length@v1" / "embedded" / "alibi").glob("*.json"))
    old = RunRecord.model_validate_json(path.read_text())
    worded = [m.model_copy(update={"conditions": {**m.conditions, "stride": 64}}) for m in old.measurements]
    new = old.model_copy(update={"measurements": worded, "run_id": old.run_id[:-1] + "x", "seed": 99})
    metric = LM_LENGTH.card.metric("bits_per_byte")
    assert len(group_records(LM_LENGTH.card, metric, [old], ())) == len(group_records(LM_LENGTH.card, metric, [old, new], ()))
