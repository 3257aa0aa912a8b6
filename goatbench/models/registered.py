"""The names that `timm.create_model` knows once `goatbench.models` is imported.

Widths are those of DeiT; class token, token pooling and LayerScale 1e-5 those of timm's `vit_*_patch16_rope_224`, the
published rivals. Every mechanism comes from the same names: `create_model("goatvit_small_patch16_224", position="rope_mixed")`,
with the options and lanes that the suite's `configs/attention/<name>.yaml` gives it, unless `options` or `lanes` are passed.
"""

from __future__ import annotations

from importlib import resources
from typing import Any

import yaml
from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from timm.models import build_model_with_cfg, generate_default_cfgs, register_model

from .vit import GoatViT


def _cfg() -> dict[str, Any]:
    return dict(
        url="",
        num_classes=1000,
        input_size=(3, 224, 224),
        pool_size=None,
        fixed_input_size=False,
        crop_pct=1.0,
        test_input_size=(3, 512, 512),
        test_crop_pct=1.0,
        interpolation="bicubic",
        mean=IMAGENET_DEFAULT_MEAN,
        std=IMAGENET_DEFAULT_STD,
        first_conv="patch_embed.proj",
        classifier="head",
        license="apache-2.0",
    )


default_cfgs = generate_default_cfgs({f"goatvit_{size}_patch16_224": _cfg() for size in ("tiny", "small", "base")})


def _create(variant: str, pretrained: bool, **kwargs: Any) -> GoatViT:
    defaults = dict(patch_size=16, depth=12, init_values=1e-5)
    position = kwargs.pop("position", "goat")
    defaults.update(suite_defaults(position) if isinstance(position, str) else {"position": position})
    feature_cfg = dict(out_indices=kwargs.pop("out_indices", 3), feature_cls="getter")
    return build_model_with_cfg(GoatViT, variant, pretrained, feature_cfg=feature_cfg, **{**defaults, **kwargs})


def suite_defaults(attention: str) -> dict[str, Any]:
    """Position scheme, options (2D), lanes, gate and inner attention of a mechanism's config in this suite; for a name without one (a
    plug-in's, or a sum such as rope_axial+sink_scalar) the scheme alone."""
    file = resources.files("goatbench.configs").joinpath("attention", f"{attention}.yaml")
    if not file.is_file():
        return {"position": attention}
    config = yaml.safe_load(file.read_text(encoding="utf-8"))
    return {
        "position": config.get("position", attention),
        "options": {**config["options"], **config["options_2d"]},
        "lanes": config["lanes"],
        "gate": config.get("gate", "none"),
        "inner": config.get("inner", "softmax"),
        "inner_options": config.get("inner_options", {}),
    }


@register_model
def goatvit_tiny_patch16_224(pretrained: bool = False, **kwargs: Any) -> GoatViT:
    """192 wide, 3 heads of 64."""
    return _create("goatvit_tiny_patch16_224", pretrained, **{"embed_dim": 192, "num_heads": 3, **kwargs})


@register_model
def goatvit_small_patch16_224(pretrained: bool = False, **kwargs: Any) -> GoatViT:
    """384 wide, 6 heads of 64."""
    return _create("goatvit_small_patch16_224", pretrained, **{"embed_dim": 384, "num_heads": 6, **kwargs})


@register_model
def goatvit_base_patch16_224(pretrained: bool = False, **kwargs: Any) -> GoatViT:
    """768 wide, 12 heads of 64."""
    return _create("goatvit_base_patch16_224", pretrained, **{"embed_dim": 768, "num_heads": 12, **kwargs})
