"""The decoder benchmark on the smallest model: runs, writes what it prints, refuses what it cannot measure."""

import json

import pytest

from goatbench.bench.decoder import main
from goatbench.errors import UsageError

SMALL = ["--model", "decoder_text_nano", "--attention", "rope", "--step-tokens", "64", "--evaluation-tokens", "256"]


@pytest.mark.slow  # two processes that import torch; `make test-long`
def test_step_and_evaluation_in_fresh_processes(tmp_path, capsys):
    out = tmp_path / "record.json"
    assert main([*SMALL, "--out", str(out)]) == 0
    record = json.loads(out.read_text())
    step, evaluation = record["results"]
    assert (step["job"], step["tokens"], evaluation["job"], evaluation["tokens"]) == ("step", 64, "evaluation", 256)
    # embedding and head 257 x 32 each, head bias 257, q k v o 32 x 32 with o's bias, MLP 2 x 32 x 128, three norms of 32
    assert step["parameters"] == evaluation["parameters"] == 2 * 257 * 32 + 257 + 4 * 32 * 32 + 32 + 2 * 32 * 128 + 3 * 32
    assert 5 < evaluation["nll_nats"] < 6 and step["peak_bytes"] > 16 * step["parameters"]  # ln 256 = 5.5, untrained
    assert step["kernel"] == evaluation["kernel"] == "sdpa-flash"
    assert "peak MiB" in capsys.readouterr().out and record["settings"]["memory_method"] == "rss"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--attention", "ropee"], "rope"),
        (["--model", "decoder_text_nan"], "decoder_text_nano"),
        (["--step-tokens", "-1"], "0 or more"),
        (["--step-tokens", "x"], "--help"),
        (["--step-tokens", "64,-1"], "0 or more"),
        ([*SMALL, "--device", "cuda"], "no CUDA device"),
        (["--out", "no/such/folder/record.json"], "no folder"),
    ],
)
def test_mistakes_are_one_line(arguments, says):
    with pytest.raises(UsageError, match=says):
        main(arguments)


def test_a_mechanism_that_ends_says_so():
    with pytest.raises(UsageError, match="beyond the training length"):
        main([*SMALL[:2], "--attention", "learned_absolute", "--step-tokens", "0", "--evaluation-tokens", "65"])
