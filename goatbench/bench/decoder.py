"""`goatbench bench decoder`: a training step and a long evaluation of a decoder, each in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from ..compose import compose
from ..errors import UsageError
from ..progress import Progress
from ..records.environment import describe_environment
from . import arguments as parse
from .record import now, record_bytes, writable, write

if TYPE_CHECKING:
    from ..models.decoder import Decoder
    from ..spec import TextRunSpec

JOBS = ("step", "evaluation")


def main(argv: list[str]) -> int:
    """Measure, print, and with --out write one JSON record. UsageError in one line for what a user can cause."""
    arguments = parse.decoder(argv)
    out, started = writable(arguments.out), now()
    device, precision = arguments.device, "32-true" if arguments.device == "cpu" else "bf16-mixed"
    settings = [f"trainer.num_threads={arguments.threads}", f"trainer.precision={precision}"]
    specs = [_spec(arguments.model, name.strip(), settings) for name in arguments.attention.split(",")]
    lengths = {"step": arguments.step_tokens, "evaluation": arguments.evaluation_tokens}
    jobs = [(spec, job, tokens) for spec in specs for job in JOBS for tokens in lengths[job] if tokens]
    _refuse_absent(device)
    results = []
    print(f"{'attention':18}{'job':12}{'tokens':>8}{'CPU s':>10}{'wall s':>10}{'tokens/s':>10}{'peak MiB':>10}  kernel")
    with Progress("bench decoder", total=len(jobs), unit="process") as bar:
        for spec, job, tokens in jobs:
            result = {"attention": spec.attention.name, "job": job, "tokens": tokens} | _in_fresh_process(spec, job, tokens, device)
            results.append(result)
            print(_line(result))
            bar.advance(1, now=f"{spec.attention.name} {job}")
    if out is not None:
        memory_method = "rss" if device == "cpu" else "cuda_allocator"
        kept = {"model": arguments.model, "batch": 1, "device": device, "precision": precision, "memory_method": memory_method}
        write(out, record_bytes("decoder", started, describe_environment(arguments.threads), settings=kept, results=results))
    return 0


def measure(spec: TextRunSpec, job: str, tokens: int, device: str) -> dict[str, Any]:
    """In this process: seconds, bytes, parameters, and the kernel that ran. On a CPU once, on a GPU again when all is warm."""
    import torch

    from ..attention.kernels.select import Recording
    from ..training import memory
    from ..training.step_cost import TrainingStep

    torch.manual_seed(spec.seed)
    step = TrainingStep(spec, tokens if job == "step" else spec.model.seq_len, 1, torch.device(device))
    used: set[str] = set()
    found: dict[str, Any] = {}

    def run() -> None:
        net = step.build()
        for layer in net.attention_layers:
            layer.kernel = Recording(layer.kernel, used)
        found["parameters"] = sum(p.numel() for p in net.parameters())
        if job == "step":
            step.prepare(net)
        else:
            found["nll_nats"] = _evaluate(net, tokens, device)
        if device == "cuda":
            torch.cuda.synchronize()

    if device == "cuda":
        run()
        memory.start(step.device)
    wall, cpu = time.perf_counter(), time.process_time()
    rise = memory.resident_rise(run) if device == "cpu" else run()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    peak = memory.peak(step.device).num_bytes if rise is None else rise
    costs = {"cpu_seconds": cpu, "wall_seconds": wall, "tokens_per_second": tokens / wall, "peak_bytes": peak}
    return found | costs | {"kernel": "+".join(sorted(used))}


def _evaluate(net: Decoder, tokens: int, device: str) -> float:
    import torch

    from ..training.evaluate_lm import evaluate_lm

    window = torch.randint(net.num_scored, (1, tokens + 1))
    result = evaluate_lm(net, [(window, torch.zeros(1, dtype=torch.int64))], num_scored=net.num_scored, num_windows=1, device=device)
    return result.nll_nats


def _spec(model: str, attention: str, settings: list[str]) -> TextRunSpec:
    any_vocabulary = ["data.tokenizer=file", "data.tokenizer_file=unread"]  # tokens are random numbers: no tokenizer is opened
    return compose(["task=lm_length", "scale=embedded", f"model={model}", f"attention={attention}", *settings, *any_vocabulary]).spec


def _refuse_absent(device: str) -> None:
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise UsageError("--device cuda: torch sees no CUDA device here; nothing was measured")


def _in_fresh_process(spec: TextRunSpec, job: str, tokens: int, device: str) -> dict[str, Any]:
    command = [sys.executable, "-P", "-m", "goatbench.bench.decoder", job, str(tokens), device]
    done = subprocess.run(command, input=spec.model_dump_json(), capture_output=True, text=True)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode} (out of memory?)"]
        raise UsageError(f"{spec.attention.name}, {job} of {tokens} tokens: {last[0]}")
    return json.loads(done.stdout.splitlines()[-1])


def _line(result: dict[str, Any]) -> str:
    seconds = f"{result['cpu_seconds']:10.1f}{result['wall_seconds']:10.1f}{result['tokens_per_second']:10.0f}"
    numbers = f"{seconds}{result['peak_bytes'] / 2**20:10.0f}"
    return f"{result['attention']:18}{result['job']:12}{result['tokens']:>8}{numbers}  {result['kernel']}"


def child(arguments: list[str]) -> None:
    import torch

    from ..registry import load_plugins
    from ..spec import RUN_SPECS

    load_plugins()
    values = json.load(sys.stdin)
    spec = RUN_SPECS[values["domain"]].model_validate_json(json.dumps(values))
    torch.set_num_threads(spec.trainer.num_threads)
    print(json.dumps(measure(spec, arguments[0], int(arguments[1]), arguments[2])))


if __name__ == "__main__":
    child(sys.argv[1:])
