"""Memory and speed of one training step of a decoder, phase by phase, in a process of its own.

    python -m goatbench.training.step_cost 4096 1 allocations < spec.json      prints one JSON object

Every method runs the same: `prepare` builds model and optimizer and takes one step, so that the optimizer's state and the features
of the positions stand; then forward with loss, backward, optimizer (clipping, AdamW, gradients dropped), and a forward pass
without gradient. Methods: those of `memory`, and `estimate`, which counts live storages of fake tensors.
"""

from __future__ import annotations

import contextlib
import json
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from ..attention.kernels.select import get_kernel
from ..metrics.token_nll import token_nll
from ..models import build_decoder, kernels_used
from ..models.flops import training_flops_per_token
from ..spec import RUN_SPECS, GenomeRunSpec
from .live_storages import LiveStorages, fake_copy
from .memory import Level, allocation_levels, cuda_levels, is_out_of_memory, resident_rise
from .optim import make_optimizer

METHODS = ("cuda_allocator", "allocations", "rss", "estimate")
PHASES = ("forward", "backward", "optimizer")
MIN_TIMED_STEPS, MAX_TIMED_STEPS, TIMED_SECONDS = 3, 20, 1.0


class TrainingStep:
    """The phases of one step on random tokens [batch, length + 1]; the model is built for training at this length."""

    def __init__(self, spec: GenomeRunSpec, length: int, batch: int, device: torch.device) -> None:
        self.spec, self.length, self.batch, self.device = spec, length, batch, device

    def build(self) -> nn.Module:
        spec = self.spec
        torch.manual_seed(spec.seed)
        net = build_decoder(spec.model.model_copy(update={"seq_len": self.length}), spec.attention, get_kernel(spec.kernel))
        net.set_grad_checkpointing(spec.trainer.checkpoint_activations)
        if spec.trainer.precision == "bf16-true":
            net = net.to(torch.bfloat16)
        return net.to(self.device)

    def prepare(self, net: nn.Module | None = None) -> None:
        self.set_up(self.build() if net is None else net)
        self.tokens = torch.randint(self.spec.model.num_scored, (self.batch, self.length + 1), device=self.device)
        self.whole()

    def set_up(self, net: nn.Module) -> None:
        self.net = net
        self.optimizer = make_optimizer(net, self.spec.training, self.spec.learning_rate)

    def forward(self) -> None:
        with self.autocast():
            nll, is_scored = token_nll(self.net(self.tokens[:, :-1]), self.tokens[:, 1:], self.spec.model.num_scored)
            self.loss = nll.sum() / is_scored.sum().clamp_min(1)

    def backward(self) -> None:
        self.loss.backward()
        self.loss = None

    def optimize(self) -> None:
        if self.spec.training.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.net.parameters(), self.spec.training.clip_norm, foreach=True)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def inference(self) -> None:
        with torch.no_grad(), self.autocast():
            self.net(self.tokens[:, :-1])

    def whole(self) -> None:
        self.forward()
        self.backward()
        self.optimize()

    @property
    def phases(self) -> dict[str, Callable[[], None]]:
        return {"forward": self.forward, "backward": self.backward, "optimizer": self.optimize, "inference": self.inference}

    def autocast(self) -> contextlib.AbstractContextManager:
        if self.spec.trainer.precision == "bf16-mixed":
            return torch.autocast(self.device.type, torch.bfloat16)
        return contextlib.nullcontext()


def measure_step(spec: GenomeRunSpec, length: int, batch: int, method: str) -> dict[str, Any]:
    """Bytes of one step and, where something is computed, tokens a second; a value that the method cannot give is None.

    peak: most bytes held at one time, what stands between steps included. state: what stands between steps (parameters, state of
    the optimizer, features of the positions, tokens). saved: what the forward pass leaves for the backward pass. forward, backward,
    optimizer, inference: the most in that phase. From saved on, all are above the state.
    """
    if method not in METHODS:
        raise ValueError(f"method {method!r} is unknown: one of {', '.join(METHODS)}")
    device = torch.device("cuda" if method == "cuda_allocator" else "cpu")
    step = TrainingStep(spec, length, batch, device)
    phases = {"prepare": step.prepare, **step.phases}
    if method == "rss":
        found: dict[str, Any] = {"peak": resident_rise(step.prepare)}
    elif method == "estimate":
        found = _bytes(fake_levels(step, step.build()))
    else:
        found = _bytes(allocation_levels(phases) if method == "allocations" else cuda_levels(phases, device))
        seconds, timed = _seconds(step.whole, device)
        found |= {"tokens_per_second": batch * length / seconds, "timed_steps": timed}
    return found | {"flops_per_token": training_flops_per_token(step.net, length)}


def kernels_at(spec: GenomeRunSpec, length: int, batch: int, device: str) -> tuple[str, str]:
    """What computes attention in training and without gradient at this length; ValueError if no kernel can.

    Makes one forward pass of each kind, activations not kept. Fake tensors would not do: asked about them, torch names another
    kernel ('math') than it then runs.
    """
    step = TrainingStep(spec, length, batch, torch.device(device))
    net = step.build()
    net.set_grad_checkpointing(True)
    tokens = torch.zeros(batch, length, dtype=torch.int64, device=step.device)
    with step.autocast():
        train = kernels_used(net, tokens)
        with torch.no_grad():
            return train, kernels_used(net, tokens)


def fake_levels(step: TrainingStep, net: nn.Module) -> dict[str, Level]:
    """Levels of `prepare` and of the step's phases, of a copy of net (step.build()) with fake tensors. ValueError for a mechanism whose
    course depends on the values of tensors."""
    mode = FakeTensorMode()
    net = fake_copy(net, mode)
    try:
        with mode, LiveStorages() as live:
            live.add([*net.parameters(), *net.buffers()])
            return live.levels({"prepare": lambda: step.prepare(net), **step.phases})
    except DataDependentOutputException as error:
        raise ValueError("the mechanism reads values of tensors, which fake tensors do not have") from error


def _bytes(levels: dict[str, Level]) -> dict[str, Any]:
    state = levels["prepare"].end
    above = {name: levels[name].peak - state for name in (*PHASES, "inference")}
    return {"peak": state + max(above[name] for name in PHASES), "state": state, "saved": levels["forward"].end - state, **above}


def _seconds(step: Callable[[], None], device: torch.device) -> tuple[float, int]:
    """(median seconds of a step, steps timed): CPU time on a CPU, wall clock between two synchronisations on a GPU."""
    on_gpu = device.type == "cuda"
    clock = time.perf_counter if on_gpu else time.process_time
    times: list[float] = []
    step()
    while len(times) < MIN_TIMED_STEPS or (sum(times) < TIMED_SECONDS and len(times) < MAX_TIMED_STEPS):
        if on_gpu:
            torch.cuda.synchronize(device)
        start = clock()
        step()
        if on_gpu:
            torch.cuda.synchronize(device)
        times.append(clock() - start)
    return statistics.median(times), len(times)


def measure_in_fresh_process(spec: GenomeRunSpec, length: int, batch: int, method: str) -> dict[str, Any]:
    """What `measure_step` returns, or {'refused': reason} where memory does not suffice or the mechanism objects.

    An estimate uses no memory that another process could have touched: it is made here.
    """
    if method == "estimate":
        return _or_refused(spec, length, batch, method)
    command = [sys.executable, "-P", "-m", "goatbench.training.step_cost", str(length), str(batch), method]
    done = subprocess.run(command, input=spec.model_dump_json(), capture_output=True, text=True)
    if done.returncode == -signal.SIGKILL:
        return {"refused": "out of memory: the system ended the process"}
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        raise RuntimeError(f"measuring a step of {length} tokens by {method} failed: {last[0]}")
    return json.loads(done.stdout.splitlines()[-1])


def main(arguments: list[str]) -> None:
    from ..registry import load_plugins

    load_plugins()
    values = json.load(sys.stdin)
    spec = RUN_SPECS[values["domain"]].model_validate_json(json.dumps(values))
    torch.set_num_threads(spec.trainer.num_threads)
    print(json.dumps(_or_refused(spec, int(arguments[0]), int(arguments[1]), arguments[2])))


def _or_refused(spec: GenomeRunSpec, length: int, batch: int, method: str) -> dict[str, Any]:
    try:
        return measure_step(spec, length, batch, method)
    except ValueError as error:  # a mechanism or a kernel that objects
        return {"refused": str(error)}
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        return {"refused": "out of memory"}


if __name__ == "__main__":
    main(sys.argv[1:])
