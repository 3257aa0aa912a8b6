"""GOAT-ViT: timm's pre-norm `Eva` blocks around our attention core; every position mechanism runs in this one class.

How positions travel: timm hands whatever `self.rope.get_embed` returns to every block as `rope=`, in `forward_features` and in
`forward_intermediates`, with gradient checkpointing and after a deepcopy. Our rope-like module returns `Positions`, so each
attention layer is told height, width and prefix count of the very batch that it sees; nothing is inferred from token counts.

B batch, H x W patches, C embed_dim, K = num_prefix_tokens + H * W tokens.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from timm.models.eva import Eva
from torch import Tensor, nn

from ..attention.inner.softmax import InnerAttention, Softmax
from ..attention.kernels.problem import Kernel
from ..attention.layer import Gate, SelfAttention
from ..attention.mask import Mask
from ..attention.positions import Positions
from ..attention.scheme import ModelShape, PositionScheme
from .backbone import Backbone, check_heads, inner_class, own_generator, scheme_factory
from .grid import GridPositions, as_pair, check_image, check_size

COORDINATE_MODES = ("raw", "scaled")


class GoatViT(Backbone, Eva):
    """A ViT of any input size whose positions come from one `PositionScheme`.

    position:   class (or function) that builds the scheme from a `ModelShape` and `options`; a string is looked up in
                `goatbench.registry.attentions`.
    options:    keyword arguments of the scheme.
    lanes:      'carve' (the prior's lanes are taken out of head_dim) or 'append' (they widen queries and keys).
    kernel:     attention kernel; the default chooses by the problem. gate: of attention's output, see `SelfAttention`.
    inner:      class of the inner attention, or its name in `goatbench.registry.inner_attentions`; inner_options go to its constructor.
    img_size:   training size in pixels, int or (height, width); defines `train_grid`. Any other size that is a multiple of
                patch_size is accepted at any time. position_size: the size whose grid the scheme is made for; None: img_size.
    global_pool, use_fc_norm: timm's meaning; pooling defaults to 'token' with a class token and to 'avg' without one.
    init_values: initial LayerScale, None for none. head_init_scale: 1, not timm's 0.001, with which a short training is still busy
                growing its head (embedded scale, 4 epochs: 50 against 63 % top-1). The other arguments are timm's.

    There is no absolute embedding and no rotary module of timm's. The scheme is built once, and block N holds
    `scheme.for_layer(N)` as `blocks.N.attn.scheme`; what they share (an embedding table) is one object under all these names.
    `embed` is asked of the first block's scheme, so that no copy of the scheme with idle parameters stays in the model.

    Initialisation: every module draws from a generator of its own, seeded by (one draw from the global generator, the module's
    name). So equal seeds give equal weights to all modules of equal shape whatever the scheme, and building a model moves
    the global generator by one draw.
    """

    def __init__(
        self,
        position: str | Callable[..., PositionScheme],
        options: dict[str, Any] | None = None,
        lanes: str = "carve",
        kernel: Kernel | None = None,
        *,
        img_size: int | tuple[int, int] = 224,
        position_size: int | tuple[int, int] | None = None,
        patch_size: int | tuple[int, int] = 16,
        in_chans: int = 3,
        num_classes: int = 1000,
        global_pool: str | None = None,
        embed_dim: int = 768,
        depth: int = 12,
        num_heads: int = 12,
        mlp_ratio: float = 4.0,
        qkv_bias: bool = True,
        init_values: float | None = None,
        class_token: bool = True,
        num_reg_tokens: int = 0,
        drop_rate: float = 0.0,
        pos_drop_rate: float = 0.0,
        patch_drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        use_fc_norm: bool | None = None,
        head_init_scale: float = 1.0,
        gate: Gate = "none",
        inner: str | type[InnerAttention] = Softmax,
        inner_options: dict[str, Any] | None = None,
    ) -> None:
        check_heads(lanes, embed_dim, num_heads)
        check_size(as_pair(img_size), as_pair(patch_size))
        global_pool = global_pool if global_pool is not None else "token" if class_token else "avg"
        if global_pool == "token" and not class_token:
            raise ValueError("global_pool='token' reads the class token: set class_token=True or global_pool='avg'")
        seed = int(torch.randint(2**62, ()))
        with torch.random.fork_rng(devices=[]):
            super().__init__(
                img_size=img_size,
                patch_size=patch_size,
                in_chans=in_chans,
                num_classes=num_classes,
                global_pool=global_pool,
                embed_dim=embed_dim,
                depth=depth,
                num_heads=num_heads,
                mlp_ratio=mlp_ratio,
                init_values=init_values,
                class_token=class_token,
                num_reg_tokens=num_reg_tokens,
                drop_rate=drop_rate,
                pos_drop_rate=pos_drop_rate,
                patch_drop_rate=patch_drop_rate,
                drop_path_rate=drop_path_rate,
                use_fc_norm=use_fc_norm,
                head_init_scale=head_init_scale,
                use_abs_pos_emb=False,
                use_rot_pos_emb=False,
                dynamic_img_size=True,
            )
            self.patch_embed.register_forward_pre_hook(check_image)
            self.rope = GridPositions(self.patch_embed.grid_size, self.num_prefix_tokens)
            self.lanes = lanes
            build = partial(inner_class(inner), **(inner_options or {}))
            made_for = self.rope.train_grid if position_size is None else self._grid_of(as_pair(position_size))
            self._install_attention(position, options or {}, made_for, kernel, num_heads, qkv_bias, gate, build)
            self._draw_weights(seed)

    def _install_attention(
        self,
        position: str | Callable[..., PositionScheme],
        options: dict[str, Any],
        grid: tuple[int, int],
        kernel: Kernel | None,
        num_heads: int,
        qkv_bias: bool,
        gate: Gate,
        inner: partial[InnerAttention],
    ) -> None:
        """Build the scheme once from the model's shape and put our attention into every block."""
        shape = ModelShape(
            num_axes=2,
            causal=False,
            embed_dim=self.embed_dim,
            depth=len(self.blocks),
            num_heads=num_heads,
            num_kv_heads=num_heads,
            head_dim=self.embed_dim // num_heads,
            train_extent=grid,
            num_prefix=self.num_prefix_tokens,
        )
        scheme = scheme_factory(position, self.lanes)(inner.func.scheme_shape(shape), **options)
        for index, block in enumerate(self.blocks):
            block.attn = VitAttention(shape, scheme.for_layer(index), kernel, self.lanes, qkv_bias, inner, index, gate)

    def _grid_of(self, size: tuple[int, int]) -> tuple[int, int]:
        check_size(size, self.patch_embed.patch_size)
        return size[0] // self.patch_embed.patch_size[0], size[1] // self.patch_embed.patch_size[1]

    # Initialisation ------------------------------------------------------------------------------------------------

    def init_weights(self, needs_reset: bool = True) -> None:
        """Draw all weights anew: Linear from a normal of std .02, biases zero, residual outputs divided by sqrt(2 * layer)
        and the head scaled as in `Eva`, convolutions by their own default, schemes by their own `reset_parameters`."""
        if self.rope is None:
            return  # called by Eva's constructor, before our attention stands in the blocks
        self._draw_weights(int(torch.randint(2**62, ())))

    def _draw_weights(self, seed: int) -> None:
        for name, module in self.modules_to_draw():
            with own_generator(seed, name):
                if isinstance(module, nn.Linear):
                    nn.init.trunc_normal_(module.weight, std=0.02)
                    if module.bias is not None:
                        nn.init.zeros_(module.bias)
                elif hasattr(module, "reset_parameters"):
                    module.reset_parameters()
        for name in ("cls_token", "reg_token"):
            if getattr(self, name) is not None:
                with own_generator(seed, name):
                    nn.init.trunc_normal_(getattr(self, name), std=0.02)
        self.fix_init_weight()
        if self.head_init_scale and isinstance(self.head, nn.Linear):
            with torch.no_grad():
                self.head.weight.mul_(self.head_init_scale)

    # Optimiser groups ----------------------------------------------------------------------------------------------

    @torch.jit.ignore
    def no_weight_decay(self) -> set[str]:
        """Prefix tokens and every parameter of a position scheme (many are matrices, which timm would decay)."""
        return {"cls_token", "reg_token"} | self.position_parameter_names()

    @torch.jit.ignore
    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Layer-decay groups: what acts before the first block, or belongs to several blocks at once, is stem."""
        names: dict[int, list[str]] = {}
        for name, parameter in self.named_parameters(remove_duplicate=False):
            names.setdefault(id(parameter), []).append(name)
        shared = [re.escape(name) for aliases in names.values() if len(aliases) > 1 for name in aliases]
        return dict(
            stem="^(?:" + "|".join(["cls_token", "reg_token", r"patch_embed\..*", *shared]) + ")$",
            blocks=[(r"^blocks\.(\d+)", None), (r"^norm\.", (99999,))],
        )

    # Positions -----------------------------------------------------------------------------------------------------

    def set_coordinates(self, mode: str) -> None:
        """'raw': coordinates count patches. 'scaled': at evaluation each axis is multiplied by train_grid / grid, so that
        offsets stay inside the trained range. Holds for every scheme, as it acts before any of them."""
        if mode not in COORDINATE_MODES:
            raise ValueError(f"coordinate mode {mode!r} is unknown; one of {', '.join(COORDINATE_MODES)}")
        self.rope.mode = mode

    @contextmanager
    def coordinates(self, mode: str) -> Iterator[GoatViT]:
        """`set_coordinates` for the length of a with-block."""
        before = self.rope.mode
        self.set_coordinates(mode)
        try:
            yield self
        finally:
            self.rope.mode = before

    def set_input_size(self, img_size: int | tuple[int, int] | None = None, patch_size: int | tuple[int, int] | None = None) -> None:
        """timm's static resize: records the nominal size (and resamples the patch kernel). The training grid stays, and
        forward goes on accepting any multiple of the patch size."""
        patch = self.patch_embed.patch_size if patch_size is None else as_pair(patch_size)
        check_size(self.patch_embed.img_size if img_size is None else as_pair(img_size), patch)
        super().set_input_size(None if img_size is None else as_pair(img_size), patch_size)

    def _pos_embed(self, x: Tensor) -> tuple[Tensor, Positions]:
        """[B, H, W, C] patches -> tokens [B, K, C] behind the prefix, with the scheme's embedding, and their Positions."""
        batch, height, width, _ = x.shape
        positions = self.rope.get_embed((height, width), device=x.device)
        prefix = [token.expand(batch, -1, -1) for token in (self.cls_token, self.reg_token) if token is not None]
        x = torch.cat([*prefix, x.flatten(1, 2)], dim=1)
        x = self.pos_drop(self.position.embed(x, positions))
        if self.patch_drop is not None:
            x, kept = self.patch_drop(x)
            if kept is not None:  # [B, kept patches], counted without the prefix
                prefix_index = torch.arange(self.num_prefix_tokens, device=x.device).expand(batch, -1)
                positions = positions.gather(torch.cat((prefix_index, kept + self.num_prefix_tokens), dim=1))
        return x, positions


class VitAttention(SelfAttention):
    """`SelfAttention` under timm's attention contract: `rope` is the `Positions` of the tokens."""

    def forward(self, x: Tensor, rope: Positions, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        """[B, K, C] -> [B, K, C]."""
        if attn_mask is not None:
            raise ValueError("attn_mask is not supported: a GoatViT attends over all tokens (is_causal=True is supported)")
        return super().forward(x, rope, Mask(causal=is_causal))
