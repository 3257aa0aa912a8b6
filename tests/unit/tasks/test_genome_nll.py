"""The warning of genome_nll: a number that is better than human DNA allows."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from goatbench.tasks.genome_nll import Part, _too_good


@pytest.mark.parametrize(
    ("bits", "context", "warns"), [(1.59, 512, True), (1.59, 1024, True), (1.6, 512, False), (1.9, 512, False), (1.5, 1025, False)]
)
def test_below_what_compressors_reach_it_warns_up_to_a_context_of_1024(bits, context, warns):
    whole = Part("test", bits * math.log(2) * 100 * (1 + 1e-12), 100, None, None, None, None)
    found = _too_good(SimpleNamespace(model=SimpleNamespace(seq_len=context)), whole)
    assert len(found) == warns and all(f"{bits:.3f} bits per base at a context of {context}" in line for line in found)
