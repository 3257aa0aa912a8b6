"""From a run's specification to a model, and what a record says about that model."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..attention.kernels.problem import Kernel
from ..attention.kernels.select import Recording, get_kernel
from ..attention.scheme import check_options
from ..registry import attentions
from ..spec import AttentionSpec, VitSpec
from .vit import GoatViT


def build_vit(spec: VitSpec, attention: AttentionSpec, kernel: Kernel | str = "auto") -> GoatViT:
    """The ViT of `spec` with the mechanism of `attention` (`options`, and `options_2d` on top of them); kernel: one, or its name."""
    factory, options = attentions.get(attention.name), {**attention.options, **attention.options_2d}
    check_options(factory, options)
    return GoatViT(
        factory,
        options,
        attention.lanes,
        get_kernel(kernel) if isinstance(kernel, str) else kernel,
        img_size=spec.image_size,
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
    )


def model_info(net: GoatViT) -> dict[str, Any]:
    """The numbers of `records.ModelInfo`; params_prior counts parameters inside position schemes. Shared ones count once."""
    prior = net.position_parameter_names()
    attention = net.blocks[0].attn
    num_lanes = attention.scheme.num_lanes
    total = sum(p.numel() for p in net.parameters())
    extra = sum(block.attn.scheme.published_extra_parameters() for block in net.blocks)
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


def kernels_used(net: GoatViT, images: Tensor) -> str:
    """What computes attention for `images` [B, C, H, W]: 'sdpa-flash'; several joined by '+'.

    Runs one forward pass in the caller's gradient mode, as kernels may choose another backend where a backward will follow:
    call it with gradients for training, under `torch.inference_mode()` for evaluation. The net's kernels are put back.
    """
    layers = [block.attn for block in net.blocks]
    kernels = [layer.kernel for layer in layers]
    used: set[str] = set()
    try:
        for layer, kernel in zip(layers, kernels, strict=True):
            layer.kernel = Recording(kernel, used)
        net(images)
    finally:
        for layer, kernel in zip(layers, kernels, strict=True):
            layer.kernel = kernel
    return "+".join(sorted(used))
