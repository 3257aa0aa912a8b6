"""The stored scores of single examples are those behind the measurements: each array's mean is a measurement of the same run."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from goatbench.compose import compose
from goatbench.records.canonical import canonical_json
from goatbench.records.examples import ROUNDING, weighted_mean, write_examples
from goatbench.registry import tasks
from goatbench.tasks.vit_resolution import _examples

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


def test_an_image_far_beyond_half_precision_ends_no_run(tmp_path):
    """Kept in single precision then: clipped, the scores would not have the measured mean."""
    for worst, dtype in ((65_504.0, "float16"), (70_000.0, "float32")):
        nll = np.array([0.5, worst, 1.5])
        scores = _examples(SimpleNamespace(correct=np.packbits([True, False, True]).tobytes(), n=3, image_nll_nats=nll), {"nominal": 224})
        info, left_out = write_examples(tmp_path, scores)
        assert [array.dtype for array in info.arrays] == ["bool", dtype] and not left_out
        assert weighted_mean(scores[1].scores, None) == pytest.approx(nll.mean(), rel=ROUNDING[dtype])
