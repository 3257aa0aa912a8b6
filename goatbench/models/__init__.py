"""Models around the attention core. Importing this package registers the `goatvit_*` names with timm."""

from . import registered as registered
from .build import build_decoder, build_vit, kernels_used, model_info
from .decoder import Decoder
from .vit import GoatViT

__all__ = ["Decoder", "GoatViT", "build_decoder", "build_vit", "kernels_used", "model_info"]
