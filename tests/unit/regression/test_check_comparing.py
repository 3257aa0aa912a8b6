"""The gate's own test: equal runs pass, a drop of 10 % and a slowdown of 2 are caught, and nothing compared is a failure."""

import math
from statistics import fmean

import pytest
from made_up_check import ELSEWHERE, GATED, HERE, NLL, RATIOS, TOP1, measured

from goatbench.registry import OWN, tasks
from goatbench.regression.comparing import SLOWDOWN, Finding, compare_job, cost_limit, is_regression, relative_change, slow_jobs, tolerance
from goatbench.regression.golden import read_golden
from goatbench.regression.suite import SMOKE, golden_path, read_suite


def verdicts(findings):
    return {one.kind: one.verdict for one in findings}


def test_equal_runs_pass(golden, baseline):
    findings = compare_job("t/a", golden, measured(), baseline, GATED, HERE)
    assert verdicts(findings) == {"exact": "ok", "spread": "ok", "cost": "ok"}
    assert [one.count for one in findings] == [4, 1, 1] and not is_regression(findings)


@pytest.mark.parametrize("where", [HERE, ELSEWHERE])
def test_a_score_that_is_10_percent_worse_is_caught_on_any_machine(golden, baseline, where):
    findings = compare_job("t/a", golden, measured(score=1.1), baseline, GATED, where)
    assert verdicts(findings) == {"exact": "regression" if where == HERE else "notice", "spread": "regression", "cost": "ok"}
    (worse,) = [one for one in findings if one.kind == "spread"]
    assert "2 over 8 seeds then, 2.211 now" in worse.details[0] and is_regression(findings)


def test_10_percent_better_is_told_and_passes_where_the_machine_is_unknown(golden, baseline):
    findings = compare_job("t/a", golden, measured(score=0.9), baseline, GATED, ELSEWHERE)
    assert verdicts(findings) == {"exact": "notice", "spread": "better", "cost": "ok"} and not is_regression(findings)


def test_direction_decides_what_worse_is(golden, baseline):
    upward = golden.model_copy(update={"directions": {**golden.directions, "nll_nats nominal=512": "higher"}})
    for score, verdict in ((1.1, "better"), (0.9, "regression")):
        assert verdicts(compare_job("t/a", upward, measured(score=score), baseline, GATED, ELSEWHERE))["spread"] == verdict
    neither = golden.model_copy(update={"directions": {**golden.directions, "nll_nats nominal=512": "none"}})
    for score in (1.1, 0.9):
        assert verdicts(compare_job("t/a", neither, measured(score=score), baseline, GATED, ELSEWHERE))["spread"] == "regression"


def test_twice_as_slow_is_caught_on_any_machine(golden, baseline):
    for speed in (0.1, 1.0, 10.0):  # of the machine: both rows alike
        slow = baseline.model_copy(update={"costs": (1.0 * speed,)})
        findings = compare_job("t/a", golden, measured(cost=2 * 1.2 * speed), slow, GATED, HERE)
        assert verdicts(findings) == {"exact": "ok", "spread": "ok", "cost": "regression"}
        assert slow_jobs({"t/a": findings}) == ["t/a"]
        fine = compare_job("t/a", golden, measured(cost=1.2 * speed), slow, GATED, HERE)
        assert verdicts(fine)["cost"] == "ok" and slow_jobs({"t/a": fine}) == []


def test_one_slow_run_of_two_alarms_nobody(golden, baseline):
    noisy = measured(costs=(1.2, 12.0))
    assert verdicts(compare_job("t/a", golden, noisy, baseline, GATED, HERE))["cost"] == "ok"


def test_the_smallest_change_is_seen_where_the_machine_is_known(golden, baseline):
    moved = measured(scores={"nll_nats nominal=512": {0: NLL[0] * (1 + 2e-6), 1: NLL[1]}, "top1 nominal=512": TOP1})
    exact = compare_job("t/a", golden, moved, baseline, GATED, HERE)[0]
    assert exact.verdict == "regression" and exact.text.startswith("1 of 4 scores moved, by up to 2.0e-06")
    rounded = measured(scores={"nll_nats nominal=512": {0: NLL[0] * (1 + 5e-7), 1: NLL[1]}, "top1 nominal=512": TOP1})
    assert compare_job("t/a", golden, rounded, baseline, GATED, HERE)[0].verdict == "ok"


def test_an_unknown_machine_is_a_notice_and_no_pass(golden, baseline):
    exact = compare_job("t/a", golden, measured(), baseline, GATED, ELSEWHERE)[0]
    assert (exact.kind, exact.verdict, exact.count) == ("exact", "notice", 0) and ELSEWHERE in exact.text


def test_nothing_compared_is_a_failure(golden):
    assert is_regression([]) and is_regression([Finding("t/a", "exact", "notice", "not compared")])
    assert not is_regression([Finding("t/a", "spread", "ok", "", 1)])
    without = golden.model_copy(update={"directions": {"top1 nominal=512": "higher"}})
    assert verdicts(compare_job("t/a", without, measured(), measured(), GATED, HERE))["spread"] == "regression"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"identity": "c" * 16}, "configuration is not that of the golden record"),
        ({"task_version": 2}, "task version is not that of the golden record (1 then, 2 now)"),
        ({"data_fingerprint": "c" * 16}, "data is not that of the golden record"),
        ({"failure": "seed 0: oom: MemoryError: no"}, "seed 0: oom"),
    ],
)
def test_what_cannot_be_compared_fails(golden, baseline, changes, says):
    (found,) = compare_job("t/a", golden, measured(**changes), baseline, GATED, HERE)
    assert found.verdict == "regression" and says in found.text


def test_a_job_without_golden_record_fails(baseline):
    (found,) = compare_job("t/a", None, measured(), baseline, GATED, HERE)
    assert (found.kind, found.verdict) == ("golden record", "regression")


def test_a_score_that_is_gone_fails_in_both_classes(golden, baseline):
    findings = compare_job("t/a", golden, measured(scores={"top1 nominal=512": TOP1}), baseline, GATED, HERE)
    assert verdicts(findings) == {"exact": "regression", "spread": "regression", "cost": "ok"}


def test_tolerance_is_the_prediction_interval_of_the_seeds():
    """t(0.99, 7 degrees of freedom) = 2.9980 (tables), sd 0.02, mean of 2 new seeds beside 8."""
    assert tolerance(list(NLL.values()), 2) == pytest.approx(2.9980 * 0.02 * math.sqrt(1 / 2 + 1 / 8), rel=1e-4)
    assert tolerance([3.0, 3.0, 3.0], 1) == pytest.approx(3e-6)  # no spread: only rounding


def test_cost_limit_grows_with_the_spread_of_the_golden_ratios():
    assert cost_limit(RATIOS) == SLOWDOWN and cost_limit((1.2,)) == SLOWDOWN
    wide = (1.0, math.exp(0.2), math.exp(-0.2))  # sd of the logs 0.2; t(0.95, 2) = 2.9200
    assert cost_limit(wide) == pytest.approx(math.exp(2.9200 * 0.2 * math.sqrt(4 / 3)), rel=1e-4)


def test_relative_change():
    assert relative_change({"a": {0: 1.0, 1: 2.0}}, {"a": {0: 1.0, 1: 2.1}}) == pytest.approx(0.1 / 2.1)
    assert relative_change({"a": {0: 0.0}}, {"a": {0: 0.0}}) == 0 and relative_change({"a": {0: 1.0}}, {"b": {0: 1.0}}) == math.inf


def test_the_golden_records_that_are_shipped_would_show_both():
    """Each task has a row whose tolerance is below 10 % of its score, none is beyond 20 %; a factor of 2 exceeds each cost's limit."""
    suite, golden = read_suite(), read_golden(golden_path(SMOKE))
    jobs, narrowest = suite.jobs(), {}
    assert [job.name for job in jobs] == list(golden.jobs)
    for job in jobs:
        record = golden.jobs[job.name]
        pools = [record.pooled(cell) for cell in record.directions if cell.partition(" ")[0] in job.metrics]
        share = min(tolerance(pool, len(suite.seeds)) / abs(fmean(pool)) for pool in pools)
        narrowest[job.task] = min(narrowest.get(job.task, 1.0), share)
        assert share < 0.2, job.name
        assert (job.name == job.baseline) == (not record.cost_ratios)
        assert cost_limit(record.cost_ratios) < 2, job.name
    assert max(narrowest.values()) < 0.1, narrowest


def test_every_domain_has_a_job():
    ours = [tasks.get(name).card for name in tasks.names() if tasks.provider(name) == OWN]
    assert {tasks.get(job.task).card.domain for job in read_suite().jobs()} == {card.domain for card in ours}
