"""Named faults, each put into the real code by a patch, and the named test that catches it.

A fault is caught when the very check that its test runs passes on sound code and fails on the broken one.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace

import pytest
import test_goat
import test_invariants
import test_layer
import test_sink_scalar
import torch
from torch.nn import functional as F

from goatbench.attention import cache
from goatbench.attention.inner.softmax import Softmax
from goatbench.attention.kernels import Auto, fold, sdpa
from goatbench.attention.log_prior import LogPrior
from goatbench.attention.mask import BoundMask
from goatbench.attention.positions import Positions
from goatbench.attention.priors import fourier
from goatbench.attention.rotary import Rotary
from goatbench.models import GoatViT


def ignore_the_prior(patch: pytest.MonkeyPatch) -> None:
    attend = Softmax.forward
    patch.setattr(Softmax, "forward", lambda self, x, q, k, v, prior, *rest: attend(self, x, q, k, v, LogPrior(), *rest))


def swap_the_axes(patch: pytest.MonkeyPatch) -> None:
    grid = Positions.grid

    def swapped(*arguments):
        positions = grid(*arguments)
        return replace(positions, coords=positions.coords.flip(-1))

    patch.setattr(Positions, "grid", staticmethod(swapped))


def align_causality_top_left(patch: pytest.MonkeyPatch) -> None:
    """SDPA's own is_causal for every causal call, as if queries and keys began at the same token."""
    patch.setattr(BoundMask, "is_square_causal", property(lambda self: self.mask.causal))


def detach_the_lse(patch: pytest.MonkeyPatch) -> None:
    """The flash kernel's lse as it comes, without gradient."""

    def naive(q, k, v, sink_rows, mask, empty, causal, scale):
        out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal, attn_mask=mask, scale=scale)
        joined = torch.logaddexp(lse, sink_rows)
        return out * torch.exp(lse - joined)[..., None], joined

    patch.setattr(sdpa, "flash_with_lse", naive)


def leave_the_sink_absolute(patch: pytest.MonkeyPatch) -> None:
    """Key side slope * j without the row term -slope * i."""
    patch.setattr(sdpa, "row_offset", lambda problem: None)


def carry_recency_in_one_lane(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fourier, "integer_lanes", lambda position: torch.stack((torch.zeros_like(position), position), dim=-1))


def pad_v_by_half(patch: pytest.MonkeyPatch) -> None:
    """The output is right all the same: SDPA takes the slow math path for unequal widths, and says nothing."""
    patch.setattr(fold, "F", SimpleNamespace(pad=lambda t, widths: F.pad(t, (widths[0], widths[1] // 2))))


def shift_the_bos(patch: pytest.MonkeyPatch) -> None:
    prior = fourier.Goat.prior
    shifted = lambda positions: replace(positions, order=positions.order - 1)
    patch.setattr(fourier.Goat, "prior", lambda self, queries, keys, state=None: prior(self, queries, shifted(keys), state))


def mispair_the_heads(patch: pytest.MonkeyPatch) -> None:
    """Query head h reads key head h mod G, not h // (H / G)."""

    def tiled(q, k, v, enable_gqa=False, **options):
        k, v = (t.repeat(1, q.shape[1] // t.shape[1], 1, 1) for t in (k, v))
        return F.scaled_dot_product_attention(q, k, v, **options)

    patch.setattr(sdpa, "F", SimpleNamespace(scaled_dot_product_attention=tiled, pad=F.pad))


def rotate_the_prefix(patch: pytest.MonkeyPatch) -> None:
    rotate = Rotary.rotate
    as_patches = lambda positions: replace(positions, is_prefix=torch.zeros_like(positions.is_prefix))
    patch.setattr(Rotary, "rotate", lambda self, x, positions, role: rotate(self, x, as_patches(positions), role))


def decay_the_prior(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GoatViT, "position_parameter_names", lambda self: set())


def fill_the_cache_with_inference_tensors(patch: pytest.MonkeyPatch) -> None:
    """The cache's buffers are made in whatever mode the caller is in."""

    def append(self, t):
        with torch.no_grad():
            self._reserve(t)
            self._store.narrow(self.axis, self.length, t.shape[self.axis]).copy_(t)
            self.length += t.shape[self.axis]
            return self.content()

    patch.setattr(cache._Buffer, "append", append)


def keep_features_of_inference_mode(patch: pytest.MonkeyPatch) -> None:
    """Features of positions kept for the next call in whatever mode they were made."""

    def remember(self, key, make):
        if key not in self.known:
            self.known[key] = make()
        return self.known[key]

    patch.setattr(Positions, "remember", remember)


@dataclass(frozen=True)
class Fault:
    """break_it puts the fault in; check is what caught_by runs for one of its cases; error: how it fails."""

    break_it: Callable[[pytest.MonkeyPatch], None]
    caught_by: Callable
    check: partial
    error: type[Exception] = AssertionError
    match: str | None = None


FAULTS = {
    "prior ignored": Fault(
        ignore_the_prior,
        test_invariants.test_every_parameter_moves_the_output_and_its_gradient_arrives,
        partial(test_invariants.check_parameters_matter, "goat", "line", True),
        match="is not used",
    ),
    "axes swapped": Fault(
        swap_the_axes,
        test_goat.test_prior_is_the_closed_form,
        partial(test_goat.test_prior_is_the_closed_form, "2D with CLS"),
    ),
    "top-left causality with a cache": Fault(
        align_causality_top_left,
        test_invariants.test_decoding_in_any_chunks_equals_one_pass,
        partial(test_invariants.check_decoding, "goat", 37, [5, 1, 1, 20]),
    ),
    "detached lse": Fault(
        detach_the_lse,
        test_sink_scalar.test_sink_is_an_extra_softmax_column,
        partial(test_sink_scalar.test_sink_is_an_extra_softmax_column, True, Auto()),
    ),
    "absolute sink with a slope": Fault(
        leave_the_sink_absolute,
        test_sink_scalar.test_sink_beside_a_recency_slope,
        partial(test_sink_scalar.test_sink_beside_a_recency_slope, Auto()),
    ),
    "staircase lane": Fault(
        carry_recency_in_one_lane,
        test_goat.test_recency_in_bf16_is_at_the_floor_of_its_content,
        partial(test_goat.test_recency_in_bf16_is_at_the_floor_of_its_content, 0.47),
    ),
    "half of v unpadded": Fault(
        pad_v_by_half,
        test_layer.test_queries_keys_and_values_reach_the_kernel_at_one_width,
        partial(test_layer.check_one_width_and_the_flash_kernel, "goat", "append"),
    ),
    "bos shifted": Fault(
        shift_the_bos,
        test_goat.test_prior_is_the_closed_form,
        partial(test_goat.test_prior_is_the_closed_form, "1D causal"),
    ),
    "GQA heads mispaired": Fault(
        mispair_the_heads,
        test_layer.test_layer_is_its_definition,
        partial(test_layer.test_layer_is_its_definition, "goat", "carve"),
    ),
    "prefix rotated": Fault(
        rotate_the_prefix,
        test_invariants.test_coordinates_of_prefix_tokens_are_ignored,
        partial(test_invariants.check_prefix_coordinates_are_ignored, "rope_axial"),
    ),
    "prior in weight decay": Fault(
        decay_the_prior,
        test_invariants.test_no_position_parameter_is_decayed,
        partial(test_invariants.check_no_position_parameter_is_decayed, "goat"),
    ),
    "cache filled under inference_mode": Fault(
        fill_the_cache_with_inference_tensors,
        test_invariants.test_nothing_from_inference_mode_is_reused_in_training,
        partial(test_invariants.check_training_after_inference, "goat", "line"),
        RuntimeError,
        "[Ii]nference",
    ),
    "features cached under inference_mode": Fault(
        keep_features_of_inference_mode,
        test_invariants.test_nothing_from_inference_mode_is_reused_in_training,
        partial(test_invariants.check_training_after_inference, "goat", "line"),
        RuntimeError,
        "[Ii]nference",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_named_test_catches_the_fault(name, monkeypatch):
    fault = FAULTS[name]
    fault.check()
    fault.break_it(monkeypatch)
    with pytest.raises(fault.error, match=fault.match):
        fault.check()


@pytest.mark.parametrize("name", FAULTS)
def test_the_check_is_what_the_named_test_runs(name):
    fault = FAULTS[name]
    function = fault.caught_by
    assert function.__name__.startswith("test_")
    body = function.hypothesis.inner_test if hasattr(function, "hypothesis") else function
    assert fault.check.func is function or fault.check.func.__name__ in body.__code__.co_names
