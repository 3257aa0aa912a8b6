"""data.packing reaches the module that trains: whether a document of a window sees the one before it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from domain_runs import spec_of

from goatbench.metrics.likelihood import token_nll
from goatbench.registry import tasks


@pytest.mark.parametrize(("packing", "is_apart"), [("documents", True), ("concat", False)])
def test_another_document_of_the_window_changes_the_loss_or_not(monkeypatch, packing, is_apart):
    spec = spec_of("text", f"data.packing={packing}")
    task, trained = tasks.get("lm_length"), []
    monkeypatch.setattr("goatbench.training.fit.fit", lambda module, *_, **__: trained.append(module))
    torch.manual_seed(0)
    net = task.model(spec)
    bos = task.data(spec).tokenizer.bos
    task.train(spec, net, SimpleNamespace(steps_per_epoch=1, tokenizer=SimpleNamespace(bos=bos)), None, {})
    (module,) = trained
    window = torch.randint(97, 123, (1, 33))
    window[0, [0, 16]] = bos
    other = window.clone()
    other[0, 5] = 33
    losses = []
    for tokens in (window, other):
        logits, targets = module._predictions(tokens)
        losses.append(token_nll(logits, targets, spec.model.num_scored)[0][0])
    assert torch.equal(*(nll[16:] for nll in losses)) is is_apart  # targets after the second BOS
    assert not torch.equal(*(nll[5:15] for nll in losses))
