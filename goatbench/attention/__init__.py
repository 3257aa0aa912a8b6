"""The attention core: position schemes, log-priors, masks, kernels and one layer. Depends on torch alone."""

from .cache import FullCache
from .kernels.problem import Kernel, Problem
from .kernels.select import Auto, get_kernel
from .layer import SelfAttention
from .log_prior import LogPrior
from .mask import Mask
from .positions import Positions
from .scheme import ModelShape, NoPosition, PositionScheme, Role

__all__ = [
    "Auto", "FullCache", "Kernel", "LogPrior", "Mask", "ModelShape", "NoPosition", "PositionScheme", "Positions", "Problem", "Role",
    "SelfAttention", "get_kernel",
]  # fmt: skip
