"""From a run's specification to a model, and what a record says about that model."""

from __future__ import annotations

from typing import Any

from ..attention.kernels.problem import Kernel
from ..attention.kernels.select import Recording, get_kernel
from ..attention.scheme import check_options
from ..registry import inner_attentions
from ..spec import AttentionSpec, DecoderSpec, VitSpec
from .backbone import Backbone, scheme_factory
from .decoder import Decoder
from .vit import GoatViT


def build_vit(spec: VitSpec, attention: AttentionSpec, kernel: Kernel | str = "auto") -> GoatViT:
    """The ViT of `spec` with the mechanism of `attention` (`options`, and `options_2d` on top of them); kernel: one, or its name."""
    return GoatViT(
        *_mechanism(attention, attention.options_2d, kernel),
        img_size=spec.image_size,
        position_size=spec.position_size,
        patch_size=spec.patch_size,
        in_chans=spec.in_chans,
        num_classes=spec.num_classes,
        embed_dim=spec.embed_dim,
        depth=spec.depth,
        num_heads=spec.num_heads,
        mlp_ratio=spec.mlp_ratio,
        drop_path_rate=spec.drop_path,
        class_token=spec.class_token,
        num_reg_tokens=spec.num_reg_tokens,
        init_values=spec.init_values,
        gate=attention.gate,
        **_inner(attention),
    )


def build_decoder(spec: DecoderSpec, attention: AttentionSpec, kernel: Kernel | str = "auto", family: type[Decoder] = Decoder) -> Decoder:
    """The causal decoder of `spec` with the mechanism of `attention` (`options`, and `options_1d` on top of them). family: its class."""
    return family(
        *_mechanism(attention, attention.options_1d, kernel),
        vocab_size=spec.vocab_size,
        num_scored=spec.num_scored,
        seq_len=spec.seq_len,
        embed_dim=spec.embed_dim,
        depth=spec.depth,
        num_heads=spec.num_heads,
        num_kv_heads=spec.num_kv_heads,
        mlp_ratio=spec.mlp_ratio,
        tie_embeddings=spec.tie_embeddings,
        weight_std=spec.weight_std,
        embedding_std=spec.embedding_std,
        gate=attention.gate,
        **_inner(attention),
    )


def _mechanism(attention: AttentionSpec, by_axes: dict[str, Any], kernel: Kernel | str) -> tuple[Any, dict[str, Any], str, Kernel]:
    """What every model takes first: factory of the scheme, its options (checked), lane mode, kernel."""
    factory = scheme_factory(attention.position or attention.name, attention.lanes)
    options = {**attention.options, **by_axes}
    check_options(factory, options)
    return factory, options, attention.lanes, get_kernel(kernel) if isinstance(kernel, str) else kernel


def _inner(attention: AttentionSpec) -> dict[str, Any]:
    """The inner attention of the mechanism and its options (checked), as arguments of a model."""
    inner = inner_attentions.get(attention.inner)
    check_options(inner, attention.inner_options, "attention.inner_options")
    return {"inner": inner, "inner_options": attention.inner_options}


def model_info(net: Backbone) -> dict[str, Any]:
    """The numbers of `records.ModelInfo`; params_prior counts parameters inside position schemes. Shared ones count once."""
    prior = net.position_parameter_names()
    attention = net.attention_layers[0]
    num_lanes = attention.scheme.num_lanes
    total = sum(p.numel() for p in net.parameters())
    extra = sum(layer.scheme.published_extra_parameters() for layer in net.attention_layers)
    return dict(
        notes=[f"the published code has {total + extra:,} parameters for the same function, ours {total:,}"] if extra else [],
        params_total=total,
        params_trainable=sum(p.numel() for p in net.parameters() if p.requires_grad),
        params_prior=sum(p.numel() for name, p in net.named_parameters() if name in prior),
        head_dim=attention.shape.head_dim,
        content_dim=attention.head_layout.content_dim,
        num_lanes=num_lanes,
        lanes=net.lanes if num_lanes else "none",
    )


def kernels_used(net: Backbone, *inputs: Any) -> str:
    """What computes attention for `inputs` (images [B, C, H, W]; token ids [B, K], positions, mask): 'sdpa-flash'; several joined by '+'.

    Runs one forward pass in the caller's gradient mode, as kernels may choose another backend where a backward will follow:
    call it with gradients for training, under `torch.inference_mode()` for evaluation. The net's kernels are put back.
    """
    layers = net.attention_layers
    kernels = [layer.kernel for layer in layers]
    used: set[str] = set()
    try:
        for layer, kernel in zip(layers, kernels, strict=True):
            layer.kernel = Recording(kernel, used)
        net(*inputs)
    finally:
        for layer, kernel in zip(layers, kernels, strict=True):
            layer.kernel = kernel
    return "+".join(sorted(used))
