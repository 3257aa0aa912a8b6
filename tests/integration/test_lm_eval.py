"""lm-evaluation-harness asks an exported decoder: its numbers are those of our own tasks. Nothing is faked; needs the extra lm-eval."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

pytest.importorskip("lm_eval", reason="extra lm-eval is not installed")
pytest.importorskip("lm_eval.evaluator", reason="lm_eval's own dependencies are not installed")

from lm_eval.api.instance import Instance
from lm_eval.api.registry import get_model

import goatbench.integrations.lm_eval  # noqa: F401 (registers the class)
from goatbench.compose import compose
from goatbench.data.text.passages import PassageWindows, as_tokens
from goatbench.data.text.tokenizers import BYTES
from goatbench.errors import UsageError
from goatbench.execute import execute
from goatbench.export import export
from goatbench.models import build_decoder
from goatbench.models.exported import write_exported
from goatbench.registry import tasks
from goatbench.training.checkpoint import load_checkpoint
from goatbench.training.evaluate_lm import evaluate_lm
from goatbench.weights import CHECKPOINTS, WEIGHTS

LENGTH = 32
TEXT = "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness."
PASSAGES = [("he gave the book to his old", " friend"), ("and then they all went", " home"), (TEXT[:-13], " foolishness.")]


@pytest.fixture(scope="module", params=["goat", "rope"])
def model(request, tmp_path_factory):
    """(net, the harness's view of it), a tiny decoder whose weights are anything but flat."""
    small = [f"model.seq_len={LENGTH}", "evaluation.num_targets=8"]
    spec = compose(["task=lm_length", "scale=smoke", f"attention={request.param}", *small]).spec
    torch.manual_seed(0)
    net = build_decoder(spec.model, spec.attention).eval()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    folder = tmp_path_factory.mktemp("exported") / request.param
    arguments = spec.model.model_dump(mode="json", exclude={"kind", "name"}) | {
        "position": request.param, "options": {**spec.attention.options, **spec.attention.options_1d}, "lanes": spec.attention.lanes,
    }  # fmt: skip
    write_exported(folder, net.state_dict(), {"model_args": arguments, "goatbench": {"model_class": "Decoder", "tokenizer": "bytes"}})
    return net, get_model("goatbench")(path=str(folder), batch_size=2)


def ask(kind, *arguments):
    return [Instance(request_type=kind, doc={}, arguments=one, idx=number) for number, one in enumerate(arguments)]


def ours(net, samples):
    return evaluate_lm(net, [tuple(map(torch.stack, zip(*samples, strict=True)))], num_scored=256, num_windows=len(samples), device="cpu")


def test_last_words_are_those_of_our_lambada(model):
    """Sum of the word's nats, and whether all of it is the most likely; passages longer than a window are cut in front."""
    net, served = model
    tokens = [as_tokens(BYTES, (context.encode(), word.encode()), LENGTH) for context, word in PASSAGES]
    windows = PassageWindows(tokens, BYTES.bos)
    result = ours(net, [(t, torch.tensor(i), m) for t, i, m in (windows[n] for n in range(len(windows)))])
    found = served.loglikelihood(ask("loglikelihood", *PASSAGES))
    np.testing.assert_allclose([nats for nats, _ in found], -result.window_masked_nll, rtol=1e-5)
    assert [greedy for _, greedy in found] == (result.window_masked_correct == result.window_masked_count).tolist()


def test_rolling_is_our_perplexity_of_windows_without_overlap(model):
    net, served = model
    text = TEXT[: 3 * LENGTH]
    ids = torch.from_numpy(BYTES.encode(text).astype(np.int64)).view(3, LENGTH)
    samples = [(torch.cat([torch.tensor([BYTES.bos]), row]), torch.tensor(number)) for number, row in enumerate(ids)]
    (found,) = served.loglikelihood_rolling(ask("loglikelihood_rolling", (text,)))
    assert found == pytest.approx(-ours(net, samples).window_nll.sum(), rel=1e-5)


def test_the_rest_of_a_text_is_read_in_a_full_window(model):
    """40 bytes in windows of 32: the last 8 are scored under the 24 before them."""
    net, served = model
    text = TEXT[:40]
    (found,) = served.loglikelihood_rolling(ask("loglikelihood_rolling", (text,)))
    with torch.inference_mode():
        total = 0.0
        for start, count in ((0, 32), (8, 8)):
            window = torch.from_numpy(BYTES.encode(text[start : start + 32]).astype(np.int64))
            logits = net(torch.cat([torch.tensor([BYTES.bos]), window[:-1]])[None])[0].double().log_softmax(-1)
            total += float(logits[torch.arange(32), window][-count:].sum())
    assert found == pytest.approx(total, rel=1e-5)


def test_generation_is_greedy_and_ends_at_a_stop(model):
    net, served = model
    prompt, drawn = [BYTES.bos, *b"It was"], []
    with torch.inference_mode():
        for _ in range(6):
            drawn.append(int(net(torch.tensor([prompt + drawn]))[0, -1, :256].argmax()))
    text = BYTES.decode(drawn).decode(errors="replace")
    asked = [("It was", {"max_gen_toks": 6, "until": until}) for until in ([], [text[3]])]
    whole, cut = served.generate_until(ask("generate_until", *asked))
    assert whole == text and cut == text[: text.index(text[3])]


def test_an_exported_run_is_served_as_its_own_checkpoint(tmp_path):
    """From training to the harness through `export`: with a gate and a mixing of heads, which both must arrive."""
    asked = ["task=lm_length", "scale=smoke", "attention=talking_heads", "attention.gate=headwise", "task.multiples=[1]"]
    composed = compose([*asked, f"runs_dir={tmp_path}"])
    record = execute(composed)
    assert record.status == "ok", record.error
    export(record.run_id, str(tmp_path / "out"), str(tmp_path))
    net = tasks.get("lm_length").model(composed.spec)
    load_checkpoint(tmp_path / CHECKPOINTS / record.training.training_hash / WEIGHTS, net)
    served = get_model("goatbench")(path=str(tmp_path / "out"))
    tokens = [as_tokens(BYTES, (context.encode(), word.encode()), served.max_length) for context, word in PASSAGES]
    windows = PassageWindows(tokens, BYTES.bos)
    result = ours(net.eval(), [(t, torch.tensor(i), m) for t, i, m in (windows[n] for n in range(len(windows)))])
    found = served.loglikelihood(ask("loglikelihood", *PASSAGES))
    np.testing.assert_allclose([nats for nats, _ in found], -result.window_masked_nll, rtol=1e-5)


def test_the_harness_evaluates_a_task_of_local_files(model, tmp_path):
    """Its own evaluator, data reader and metrics on three lines of jsonl; no network."""
    import lm_eval
    from lm_eval.tasks import TaskManager

    _, served = model
    (tmp_path / "words.jsonl").write_text("".join(json.dumps({"context": c, "word": w}) + "\n" for c, w in PASSAGES))
    task = {
        "task": "last_words", "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(tmp_path / "words.jsonl")}},
        "output_type": "loglikelihood", "test_split": "test", "doc_to_text": "{{context}}", "doc_to_target": "{{word}}",
        "target_delimiter": "",
        "metric_list": [{"metric": "perplexity", "aggregation": "perplexity", "higher_is_better": False}],
    }  # fmt: skip
    found = lm_eval.simple_evaluate(model=served, tasks=[task], task_manager=TaskManager(include_defaults=False), bootstrap_iters=0)
    nats = np.mean([nats for nats, _ in served.loglikelihood(ask("loglikelihood", *PASSAGES))])
    assert found["results"]["last_words"]["perplexity,none"] == pytest.approx(np.exp(-nats), rel=1e-6)


def test_a_model_of_dna_is_refused(tmp_path):
    arguments = {"vocab_size": 5, "num_scored": 4, "seq_len": 8, "embed_dim": 16, "depth": 1, "num_heads": 1, "position": "nope"}
    from goatbench.models.decoder import Decoder

    config = {"model_args": arguments, "goatbench": {"model_class": "Decoder", "tokenizer": None}}
    write_exported(tmp_path / "dna", Decoder(**arguments).state_dict(), config)
    with pytest.raises(UsageError, match="was not trained on text"):
        get_model("goatbench")(path=str(tmp_path / "dna"))
