"""Exact evaluation of a causal model: every number by hand, window by window. Several processes: tests/integration."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from attention_cases import INNER, LINES, MODEL, OPTIONS, POSITION, WRITTEN_OUT
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from goatbench.models import Decoder
from goatbench.registry import tasks
from goatbench.training import evaluate_lm as module
from goatbench.training.evaluate_lm import evaluate_lm
from goatbench.training.ranks import EvaluationError

N, L = 11, 24


def make_net(name: str = "goat") -> Decoder:
    torch.manual_seed(0)
    sizes = dict(vocab_size=5, num_scored=4, seq_len=L, embed_dim=32, depth=2, num_heads=2 if name in INNER else 1)
    net = Decoder(POSITION.get(name, name), OPTIONS.get(name), **sizes, **MODEL.get(name, {}))
    with torch.no_grad():
        net.head.weight.mul_(20)
        net.head.bias[4] = -1  # N has real mass
    return net


def windows(length: int = L + 1) -> tuple[torch.Tensor, torch.Tensor]:
    """tokens [N, length] with some N (4), and a mask of their targets."""
    seeded = torch.Generator().manual_seed(1)
    tokens = torch.randint(5, (N, length), generator=seeded)
    return tokens, torch.rand(N, length - 1, generator=seeded) < 0.4


def batches(size: int, with_mask: bool = True, length: int = L + 1) -> list[tuple[torch.Tensor, ...]]:
    tokens, mask = windows(length)
    parts = (tokens, 100 + torch.arange(N), *((mask,) if with_mask else ()))
    return list(zip(*(part.split(size) for part in parts), strict=True))


def run(net: nn.Module, data, n: int = N, **options):
    return evaluate_lm(net, data, num_scored=4, num_windows=n, device="cpu", **options)


def by_hand(net: Decoder, last: int = L) -> dict[str, np.ndarray]:
    """[N, last] float64 arrays: nll (NaN where not scored), right, mass on N; one window at a time, one softmax over five tokens."""
    tokens, _ = windows()
    with torch.no_grad():
        probabilities = torch.cat([net.eval()(row[None, :-1]) for row in tokens]).double().softmax(-1).numpy()[:, -last:]
    targets = tokens[:, 1:].numpy()[:, -last:]
    chosen = np.take_along_axis(probabilities, targets[..., None], -1)[..., 0]
    scored = targets < 4
    return {"nll": np.where(scored, -np.log(chosen), np.nan), "right": scored & (probabilities.argmax(-1) == targets),
            "put": probabilities.argmax(-1), "mass": np.where(scored, probabilities[..., 4], 0)}  # fmt: skip


@pytest.mark.parametrize("last", [None, 1, 7, L])
@pytest.mark.parametrize("size", [1, 4, N])
def test_every_sum_by_hand(size, last):
    net = make_net()
    expected, num_positions = by_hand(net, last or L), last or L
    mask = windows()[1].numpy()[:, -num_positions:]
    result = run(net.train(), batches(size), last=last)
    nll, scored = expected["nll"], ~np.isnan(expected["nll"])
    assert 0 < scored.sum() < scored.size and net.training
    np.testing.assert_allclose(result.window_nll, np.nansum(nll, 1), rtol=1e-5)
    assert result.window_count.tolist() == scored.sum(1).tolist() and result.window_ids.tolist() == list(range(100, 100 + N))
    assert result.window_correct.tolist() == expected["right"].sum(1).tolist() and result.count == scored.sum()
    np.testing.assert_allclose(result.position_nll, np.nansum(nll, 0), rtol=1e-5)
    assert result.position_correct.tolist() == expected["right"].sum(0).tolist()
    assert result.position_count.tolist() == scored.sum(0).tolist()
    assert result.nll_nats == pytest.approx(np.nanmean(nll), rel=1e-5)
    assert result.masked_nll_total == pytest.approx(np.nansum(nll[mask]), rel=1e-5) and result.masked_count == (scored & mask).sum()
    np.testing.assert_allclose(result.window_masked_nll, np.nansum(np.where(mask, nll, 0), 1), rtol=1e-5)
    assert result.window_masked_count.tolist() == (scored & mask).sum(1).tolist()
    assert result.window_masked_correct.tolist() == (expected["right"] & mask).sum(1).tolist()
    places = [np.flatnonzero(row)[-1] if row.any() else num_positions - 1 for row in scored & mask]
    assert result.window_last_prediction.tolist() == [row[place] for row, place in zip(expected["put"], places, strict=True)]
    assert result.unscored_mass_total == pytest.approx(expected["mass"].sum(), rel=1e-5)
    assert (result.context, result.first_context, result.batch_size) == (L, L - num_positions + 1, size)
    assert result.tokens_per_second > 0 and result.peak_memory_bytes > 2**20 and result.peak_memory_method == "rss_since_start"


def test_chunks_of_positions_change_nothing_and_bound_the_logits(monkeypatch):
    net, sizes = make_net(), []
    whole = run(net, batches(4))
    net.head.register_forward_hook(lambda _, __, logits: sizes.append(logits.numel()))
    monkeypatch.setattr(module, "CHUNK_LOGITS", 4 * 5 * 7)
    chunked = run(net, batches(4))
    assert max(sizes) == 4 * 5 * 7 and len(sizes) == 4 + 4 + 3  # 7 7 7 3; the last batch of 3 windows takes 9 positions: 9 9 6
    np.testing.assert_allclose(chunked.window_nll, whole.window_nll, rtol=1e-6)
    np.testing.assert_allclose(chunked.position_nll, whole.position_nll, rtol=1e-6)
    assert chunked.window_correct.tolist() == whole.window_correct.tolist()


def test_only_the_last_positions_reach_the_head():
    net, shapes = make_net(), []
    net.head.register_forward_hook(lambda _, args, __: shapes.append(tuple(args[0].shape)))
    run(net, batches(N), last=5)
    assert shapes == [(N, 5, 32)]


class Largest(TorchDispatchMode):
    """The most elements that any tensor had."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for t in torch.utils._pytree.tree_leaves(out):
            if isinstance(t, torch.Tensor):
                self.numel = max(self.numel, t.untyped_storage().size() // t.element_size())
        return out


DENSE = {"t5", "kerple_log", "kerple_power", "fire", "bam"}  # an elementwise bias goes to SDPA as a mask, length x length


@pytest.mark.parametrize("name", [name for name in LINES if name not in WRITTEN_OUT | DENSE | {"learned_absolute"}])
def test_memory_is_linear_in_the_length(name):
    """Nothing as large as length x length exists, whatever the mechanism: 512 and 1,024 bases, width 32."""
    net, seen = make_net(name), []
    for length in (512, 1024):
        tokens = torch.randint(4, (1, length + 1), generator=torch.Generator().manual_seed(0))
        with Largest() as largest:
            run(net, [(tokens, torch.arange(1))], 1)
        seen.append(largest.numel)
    before = net.position.num_prefix_tokens
    assert seen == [4 * 32 * (512 + before), 4 * 32 * (1024 + before)]  # the hidden units of the MLP are the largest


def test_the_card_of_lm_length_names_the_rows_whose_memory_is_quadratic():
    named = tasks.get("lm_length").card.protocol.partition("a map of length x length: ")[2]
    assert set(named.rstrip(".").split(", ")) == WRITTEN_OUT | DENSE


def test_order_of_arrival_does_not_matter_and_without_a_mask_there_is_no_masked_number():
    net = make_net()
    forward, backward = run(net, batches(1, with_mask=False)), run(net, batches(1, with_mask=False)[::-1])
    assert forward.window_nll.tolist() == backward.window_nll.tolist()
    assert forward.masked_nll_total is None and forward.masked_count is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:-1], "8 windows evaluated, 8 distinct: each of the 11"),
        (lambda data: [*data, data[0]], "15 windows evaluated, 11 distinct"),
        (lambda data: [*data[:-1], tuple(part[:3] for part in data[0])], "11 windows evaluated, 8 distinct"),
        (lambda data: [*data[:-1], batches(4, length=L)[-1]], "two window lengths in one evaluation: contexts 24 and 23, from window 108"),
        (lambda data: [(torch.full_like(t, 4), *rest) for t, *rest in data], "none of the targets of 11 windows is scored"),
    ],
)
def test_what_was_not_measured_once_raises(change, message):
    with pytest.raises(EvaluationError, match=message):
        run(make_net(), change(batches(4)))


@pytest.mark.parametrize("last", [0, 25])
def test_more_targets_than_there_are_raise(last):
    with pytest.raises(ValueError, match=f"last = {last} targets of windows with 24 input tokens: allowed are 1 to 24"):
        run(make_net(), batches(4), last=last)


def test_values_that_are_not_finite_raise_with_their_window():
    net = make_net()
    net.head.register_forward_hook(lambda _, args, logits: logits + torch.where(args[0][..., :1] == marker, torch.nan, 0))
    marker = net.eval().hidden(windows()[0][6:7, :-1])[0, 9, 0]
    with pytest.raises(EvaluationError, match="not finite at context 24: first in window 106"):
        run(net, batches(1))


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("CPUAllocator: can't allocate memory")])
def test_out_of_memory_halves_the_batch_and_starts_again(error):
    net = make_net()
    expected = run(net, batches(N))

    def hungry(_, args):
        if len(args[0]) > 3:
            raise error

    net.token_embedding.register_forward_pre_hook(hungry)
    result = run(net, batches(N))
    assert result.batch_size == 2  # 11, 5, 2
    np.testing.assert_allclose(result.window_nll, expected.window_nll, rtol=1e-6)


def test_a_bfloat16_model_and_autocast_are_scored_in_float32():
    expected = run(make_net(), batches(4)).nll_nats
    for result in (run(make_net().bfloat16(), batches(4)), run(make_net(), batches(4), autocast_dtype=torch.bfloat16)):
        assert result.nll_nats == pytest.approx(expected, rel=2e-2) and result.nll_nats != expected


def test_progress_counts_windows(capsys):
    run(make_net(), batches(4), progress_label="nll at 24")
    assert "nll at 24: 11/11 windows" in capsys.readouterr().err
