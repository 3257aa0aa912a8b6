"""Golden records on disk, and what an update does to them."""

import json

import pytest
from made_up_check import ELSEWHERE, GATED, HERE, NLL, TOP1, measured

from goatbench.errors import UsageError
from goatbench.regression.golden import Golden, read_golden, write_golden
from goatbench.regression.updating import updated


def update(golden, new, where=HERE, reason="because"):
    plain = measured(cost=1.0)
    measured_now = {"t/plain": plain, "t/a": new}
    return updated(golden, measured_now, dict.fromkeys(measured_now, "t/plain"), dict.fromkeys(measured_now, GATED), (0, 1), where, reason)


def test_written_and_read_again(tmp_path, golden):
    path = tmp_path / "mine.golden.json"
    assert read_golden(path) == Golden()
    written = Golden(jobs={"t/a": golden})
    write_golden(path, written)
    assert read_golden(path) == written
    assert json.loads(path.read_text())["jobs"]["t/a"]["scores"][HERE]["top1 nominal=512"] == {"0": 0.5, "1": 0.52}
    assert max(map(len, path.read_text().splitlines())) < 200  # a line a cell


def test_a_damaged_file_is_one_line(tmp_path):
    path = tmp_path / "mine.golden.json"
    for text in ("{", '{"jobs": {"t/a": {"identity": 3}}}', '{"extra": 1}'):
        path.write_text(text)
        with pytest.raises(UsageError, match=r"mine\.golden\.json holds no golden records") as caught:
            read_golden(path)
        assert "\n" not in str(caught.value)


def test_a_first_record(golden):
    more = {"nll_nats nominal=512": NLL, "top1 nominal=512": {**TOP1, 2: 0.6}}
    new = update(Golden(), measured(scores=more))
    job = new.jobs["t/a"]
    assert job.scores == {HERE: {"nll_nats nominal=512": NLL, "top1 nominal=512": TOP1}}  # other metrics: the seeds of a check
    assert job.cost_ratios == (1.2, 1.2) and new.jobs["t/plain"].cost_ratios == ()
    assert new.history[-1].reason == "because" and new.history[-1].changes == ("t/plain: new", "t/a: new")


def test_every_change_is_told_old_and_new(golden):
    before = update(Golden(), measured())
    after = update(before, measured(score=1.1, cost=2.4), reason="a new initialisation")
    (entry,) = after.history[1:]
    assert entry.reason == "a new initialisation" and entry.machine == HERE
    assert entry.changes == (
        "t/a nll_nats nominal=512: 2.01 -> 2.211 (+10 %)",
        "t/a cost over the baseline's: 1.2 -> 2.4 (+1e+02 %)",
    )
    assert update(after, measured(score=1.1, cost=2.4)).history[-1].changes == ()


def test_another_machine_is_added_and_goes_when_the_numbers_move():
    both = update(update(Golden(), measured()), measured(), where=ELSEWHERE)
    assert set(both.jobs["t/a"].scores) == {HERE, ELSEWHERE} and f"t/a: new machine {ELSEWHERE}" in both.history[-1].changes
    same = update(both, measured())
    assert set(same.jobs["t/a"].scores) == {HERE, ELSEWHERE}
    moved = update(both, measured(score=1.001))
    assert set(moved.jobs["t/a"].scores) == {HERE}
    assert f"t/a: machine {ELSEWHERE} dropped, its numbers are of before" in moved.history[-1].changes


def test_seeds_are_pooled_over_machines():
    both = update(update(Golden(), measured()), measured(score=1.01), where=ELSEWHERE).jobs["t/a"]
    assert both.pooled("nll_nats nominal=512") == pytest.approx([2.00 * 1.005, 2.02 * 1.005])
