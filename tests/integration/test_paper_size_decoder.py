"""The 124 M parameters of the paper on a CPU: a step at 2,048 tokens, an evaluation at 32,768, GOAT and RoPE. 25 CPU-minutes, 6 GB."""

import json
import math

import pytest

from goatbench.bench.decoder import main

MIB = 2**20


@pytest.mark.slow
def test_step_and_long_evaluation_of_125m_parameters(tmp_path):
    out = tmp_path / "decoder.json"
    assert main(["--attention", "goat,rope", "--out", str(out)]) == 0
    results = {(r["attention"], r["job"]): r for r in json.loads(out.read_text())["results"]}
    assert len(results) == 4
    for (_, job), result in results.items():
        parameters, tokens = result["parameters"], result["tokens"]
        assert 120e6 < parameters < 128e6 and result["kernel"] == "sdpa-flash"
        if job == "step":
            assert tokens == 2048 and 16 * parameters < result["peak_bytes"] < 8192 * MIB  # weights, gradients, two moments
        else:
            # linear in the length: a few activations of 4 * 768 floats a token; one head's dense map alone would be 4 GiB
            assert tokens == 32_768 and 4 * parameters < result["peak_bytes"] < 4 * parameters + 8 * tokens * 4 * 768 * 4
            assert abs(result["nll_nats"] - math.log(50_256)) < 0.3  # untrained, random tokens of GPT-2's vocabulary
    for job in ("step", "evaluation"):
        assert results["goat", job]["peak_bytes"] < 1.2 * results["rope", job]["peak_bytes"]
