"""`goatbench bench decoder`: one training step and one long evaluation of a decoder on a CPU, each in a process of its own."""

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
from ..records.files import create_exclusive
from ..records.source import code_info
from . import arguments as parse
from .attention import now, writable

if TYPE_CHECKING:
    from ..models.decoder import Decoder
    from ..spec import TextRunSpec

SCHEMA_VERSION = 1
JOBS = ("step", "evaluation")


def main(argv: list[str]) -> int:
    """Measure, print, and with --out write one JSON record. UsageError in one line for what a user can cause."""
    arguments = parse.decoder(argv)
    out, started = writable(arguments.out), now()
    specs = [_spec(arguments.model, name.strip(), arguments.threads) for name in arguments.attention.split(",")]
    lengths = {"step": arguments.step_tokens, "evaluation": arguments.evaluation_tokens}
    jobs = [(spec, job, lengths[job]) for spec in specs for job in JOBS if lengths[job]]
    results = []
    print(f"{'attention':18}{'job':12}{'tokens':>8}{'CPU s':>10}{'wall s':>10}{'peak MiB':>10}  kernel")
    with Progress("bench decoder", total=len(jobs), unit="process") as bar:
        for spec, job, tokens in jobs:
            result = {"attention": spec.attention.name, "job": job, "tokens": tokens} | _in_fresh_process(spec, job, tokens)
            results.append(result)
            print(_line(result))
            bar.advance(1, now=f"{spec.attention.name} {job}")
    if out is not None:
        record = {
            "schema_version": SCHEMA_VERSION,
            "bench": "decoder",
            "started_at": started,
            "finished_at": now(),
            "code": code_info().model_dump(),
            "environment": describe_environment(threads=arguments.threads),
            "settings": {"model": arguments.model, "batch": 1, "dtype": "float32", "memory_method": "rss"},
            "results": results,
        }
        create_exclusive(out, json.dumps(record, indent=1, sort_keys=True, allow_nan=False).encode() + b"\n")
        print(f"\nrecord: {arguments.out}")
    return 0


def measure(spec: TextRunSpec, job: str, tokens: int) -> dict[str, Any]:
    """In this process, once: seconds, bytes, parameters, and the kernel that ran."""
    import torch

    from ..attention.kernels.select import Recording
    from ..training.memory import resident_rise
    from ..training.step_cost import TrainingStep

    torch.manual_seed(spec.seed)
    step = TrainingStep(spec, tokens if job == "step" else spec.model.seq_len, 1, torch.device("cpu"))
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
            found["nll_nats"] = _evaluate(net, tokens)

    wall, cpu = time.perf_counter(), time.process_time()
    peak = resident_rise(run)
    seconds = {"cpu_seconds": time.process_time() - cpu, "wall_seconds": time.perf_counter() - wall}
    return found | seconds | {"peak_bytes": peak, "kernel": "+".join(sorted(used))}


def _evaluate(net: Decoder, tokens: int) -> float:
    import torch

    from ..training.evaluate_lm import evaluate_lm

    window = torch.randint(net.num_scored, (1, tokens + 1))
    result = evaluate_lm(net, [(window, torch.zeros(1, dtype=torch.int64))], num_scored=net.num_scored, num_windows=1, device="cpu")
    return result.nll_nats


def _spec(model: str, attention: str, threads: int) -> TextRunSpec:
    overrides = ["task=lm_length", "scale=embedded", f"model={model}", f"attention={attention}", f"trainer.num_threads={threads}"]
    any_vocabulary = ["data.tokenizer=file", "data.tokenizer_file=unread"]  # tokens are random numbers: no tokenizer is opened
    return compose(overrides + any_vocabulary).spec


def _in_fresh_process(spec: TextRunSpec, job: str, tokens: int) -> dict[str, Any]:
    command = [sys.executable, "-P", "-m", "goatbench.bench.decoder", job, str(tokens)]
    done = subprocess.run(command, input=spec.model_dump_json(), capture_output=True, text=True)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode} (out of memory?)"]
        raise UsageError(f"{spec.attention.name}, {job} of {tokens} tokens: {last[0]}")
    return json.loads(done.stdout.splitlines()[-1])


def _line(result: dict[str, Any]) -> str:
    numbers = f"{result['cpu_seconds']:10.1f}{result['wall_seconds']:10.1f}{result['peak_bytes'] / 2**20:10.0f}"
    return f"{result['attention']:18}{result['job']:12}{result['tokens']:>8}{numbers}  {result['kernel']}"


def child(arguments: list[str]) -> None:
    import torch

    from ..registry import load_plugins
    from ..spec import RUN_SPECS

    load_plugins()
    values = json.load(sys.stdin)
    spec = RUN_SPECS[values["domain"]].model_validate_json(json.dumps(values))
    torch.set_num_threads(spec.trainer.num_threads)
    print(json.dumps(measure(spec, arguments[0], int(arguments[1]))))


if __name__ == "__main__":
    child(sys.argv[1:])
