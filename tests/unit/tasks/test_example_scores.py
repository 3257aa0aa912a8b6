"""The stored scores of single examples are those behind the measurements: each array's mean is a measurement of the same run."""

from __future__ import annotations

import math

import pytest

from goatbench.compose import compose
from goatbench.records.canonical import canonical_json
from goatbench.records.examples import ROUNDING, weighted_mean
from goatbench.registry import tasks

STORED = {"needle": "exact_match", "lm_length": "bits_per_byte", "genome_length": "bits_per_base", "genome_nll": "bits_per_base"}


@pytest.mark.parametrize("name", STORED)
def test_means_of_an_untrained_model_are_its_measurements(name):
    composed = compose([f"task={name}", "attention=alibi", "scale=smoke"])
    spec = (composed[0] if isinstance(composed, list) else composed).spec
    task = tasks.get(name)
    outcome = task.measure(spec, task.model(spec).eval(), task.data(spec), None)
    measured = {(m.metric, canonical_json(m.conditions)): m for m in outcome.measurements}
    headline = task.card.primary_conditions.items()
    assert any(headline <= one.conditions.items() for one in outcome.examples)
    for one in outcome.examples:
        measurement = measured[one.metric, canonical_json(one.conditions)]
        mean = weighted_mean(one.scores, one.weights)
        assert one.metric == STORED[name] and len(one.scores) > 1
        assert math.isclose(mean, measurement.value, rel_tol=ROUNDING[one.scores.dtype.name], abs_tol=1e-7), one.conditions
