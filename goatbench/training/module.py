"""What every training has in common: one optimizer recipe, one schedule, and an eye on the loss."""

from __future__ import annotations

from typing import ClassVar, Literal

import lightning
import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

from ..spec import TrainingSpec
from .optim import make_optimizer, make_schedule

FINITE_CHECK_INTERVAL = 50  # steps between two looks at the loss on an accelerator, where each look waits for the device


class TrainingModule(lightning.LightningModule):
    """Trains `net` by `training` (optimizer, schedule, clipping); subclasses define the steps, and what selects an epoch.

    learning_rate: the peak; total_steps: optimizer steps of the whole training, for the schedule.
    Batches are tuples that end with the sample ids, int64 [B].
    selection_direction: whether the largest or the smallest `selection_value` marks the best epoch; selected_on says what it is.
    """

    selection_direction: ClassVar[Literal["max", "min"]]
    selected_on: ClassVar[str]

    def __init__(self, net: nn.Module, training: TrainingSpec, learning_rate: float, total_steps: int) -> None:
        super().__init__()
        self.net = net
        self.recipe = training  # `training` is nn.Module's own flag
        self.learning_rate = learning_rate
        self.total_steps = total_steps
        self._first_bad_step: Tensor | None = None

    @property
    def selection_value(self) -> float:
        """The number of the latest validation, over all ranks, by which epochs are compared."""
        raise NotImplementedError

    def configure_model(self) -> None:
        """Lightning calls this before training; only fsdp2 has a mesh of devices, and shards the net over it."""
        if self.device_mesh is not None:
            shard(self.net, self.device_mesh["data_parallel"])

    def compile_net(self) -> None:
        """What training calls of the net goes through torch.compile from now on."""
        self.net.compile()

    def whole_weights(self) -> dict[str, Tensor]:
        """A copy of the net's state on the CPU; of a sharded net on the first rank, and nothing on the others."""
        if self.device_mesh is None:
            return {name: tensor.detach().to("cpu", copy=True) for name, tensor in self.net.state_dict().items()}
        return get_model_state_dict(self.net, options=StateDictOptions(full_state_dict=True, cpu_offload=True))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.net(inputs)

    def check_finite(self, loss: Tensor) -> None:
        """FloatingPointError with the step of a loss that is not finite (on an accelerator at most 50 steps later)."""
        step = self.global_step
        if loss.device.type == "cpu":
            if not torch.isfinite(loss):
                raise FloatingPointError(f"the training loss became {loss.item()} in step {step}")
            return
        if self._first_bad_step is None:
            self._first_bad_step = torch.full((), -1, dtype=torch.int64, device=loss.device)
        is_new = ~torch.isfinite(loss) & (self._first_bad_step < 0)
        self._first_bad_step = torch.where(is_new, step, self._first_bad_step)
        if step % FINITE_CHECK_INTERVAL == 0 or step + 1 == self.total_steps:
            bad = int(self._first_bad_step)
            if bad >= 0:
                raise FloatingPointError(f"the training loss was no longer finite in step {bad}")

    def configure_gradient_clipping(self, optimizer: torch.optim.Optimizer, *args: object, **kwargs: object) -> None:
        # by hand: Lightning refuses to clip for a fused optimizer under mixed precision, and loops over the parameters
        if self.recipe.clip_norm is not None:
            parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            nn.utils.clip_grad_norm_(parameters, self.recipe.clip_norm, foreach=True)

    def configure_optimizers(self) -> dict:
        optimizer = make_optimizer(self.net, self.recipe, self.learning_rate)
        schedule = make_schedule(optimizer, self.recipe, self.total_steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def shard(net: nn.Module, mesh: DeviceMesh) -> None:
    """FSDP2: parameters, gradients and optimizer states spread over the mesh, block by block; in one piece where blocks share any."""
    owned = [id(parameter) for block in net.blocks for parameter in block.parameters()]
    if len(owned) == len(set(owned)):
        for block in net.blocks:
            fully_shard(block, mesh=mesh)
    fully_shard(net, mesh=mesh)
    if hasattr(net, "hidden"):
        register_fsdp_forward_method(net, "hidden")  # training calls it in place of forward
