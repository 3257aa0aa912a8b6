"""execute(spec) -> RunRecord: the one place where task, data, model, training and record are put together.

Order of things: a `started` marker on disk, model, data, checkpoint (found by its training hash, or trained), measurement,
one record written once. Whatever goes wrong in between becomes a record with a status and a reason; what the user can put
right (UsageError) leaves no record, but a mechanism that the task refuses as it comes does.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import rank_decision, rank_failures
from .errors import PreemptedError, RankError, RefusedError, UsageError
from .interruption import plain_stop
from .records.canonical import digest
from .records.environment import describe_environment, package_version
from .records.examples import write_examples
from .records.record import CodeInfo, Cost, ErrorInfo, ModelInfo, PluginInfo, RowRef, RunRecord, Status, TaskRef
from .records.source import TRAINING_PARTS, card_hash, code_info, module_hash, source_hash
from .records.store import RunFolder, new_run_id
from .registry import DATA_SOURCES, OWN, attentions, inner_attentions, tasks
from .spec import RunSpec
from .weights import trained

if TYPE_CHECKING:
    from .compose import Composed
    from .elsewhere import Key


def job_key(spec: RunSpec) -> Key:
    """What must agree for a finished run to stand for this one; needs no torch and touches no images."""
    task = tasks.get(spec.task.name)
    return spec.config_hash, task.card.version, task.fingerprint(spec), _code(spec)[0].source_hash


def _code(spec: RunSpec) -> tuple[CodeInfo, list[PluginInfo]]:
    """Our code and whatever foreign code the run takes part of; its source hash covers both, so that a changed plug-in is new code."""
    code, plugins = code_info(), plugins_of(spec)
    if plugins:
        code = code.model_copy(update={"source_hash": _with_plugins(code.source_hash, plugins)})
    return code, plugins


def plugins_of(spec: RunSpec) -> list[PluginInfo]:
    """The names of this run that others provide."""
    found = []
    names = [(attentions, name) for name in spec.attention.schemes] + [(inner_attentions, spec.attention.inner)]
    names += [(tasks, spec.task.name), (DATA_SOURCES[spec.domain], spec.data.name)]
    for registry, name in names:
        if name in registry and registry.provider(name) != OWN:
            module, provider = registry.target(name).partition(":")[0], registry.provider(name)
            label = f"{registry.kind.replace(' ', '_')}/{name}"
            found.append(PluginInfo(name=label, provider=provider, version=package_version(provider), source_hash=module_hash(module)))
    return found


def _with_plugins(own: str, plugins: list[PluginInfo]) -> str:
    return digest([own, *sorted(plugin.source_hash for plugin in plugins)]) if plugins else own


def execute(composed: Composed, run_id: str | None = None, sweep_id: str | None = None) -> RunRecord | None:
    """Runs one specification to its end and returns the record that now lies in `runs_dir`.

    Raises UsageError for what the user can put right; then no run folder remains. Raises RefusedError, a kind of it, when the task and
    the mechanism as it comes do not go together: that is a result, and leaves a record. Raises PreemptedError when SIGUSR1 ended it; then
    the folder remains without a record, and the same run id goes on. Every other failure is a record.
    Of several processes (Lightning starts the command once per rank) only the first keeps a folder and a record; the others
    take part in training and evaluation and return None.
    """
    spec = composed.spec
    run_id = run_id or (os.environ.get(rank_failures.RUN_ID) if rank() > 0 else None)
    is_one_of_several = spec.trainer.devices * spec.trainer.num_nodes > 1
    if run_id is None and is_one_of_several and _is_started_with_the_others(spec):
        raise UsageError("processes that start together need one run id: give each the same --run-id, as 20260131t120000-0123abcd-45ef67")
    task = tasks.get(spec.task.name)
    code, plugins = _code(spec)
    record: dict[str, Any] = dict(
        run_id=run_id or new_run_id(spec.config_hash),
        sweep_id=sweep_id,
        task=TaskRef(name=task.card.name, version=task.card.version, card_hash=card_hash(task.card)),
        scale=spec.scale,
        domain=spec.domain,
        row=RowRef(attention=spec.attention.name, variant=composed.variant),
        seed=spec.seed,
        config=spec.recorded,
        config_hash=spec.config_hash,
        overrides=composed.overrides,
        code=code,
        plugins=plugins,
        started_at=_now(),
    )
    if rank() > 0:
        _take_part(spec, task, record)
        return None
    folder = RunFolder(Path(spec.runs_dir), record["run_id"])
    folder.start(
        task=spec.task.name, attention=spec.attention.name, scale=spec.scale, seed=spec.seed,
        config_hash=spec.config_hash, source_hash=code.source_hash,
    )  # fmt: skip
    rank_failures.forget(folder.path)  # of an earlier attempt with this run id
    rank_decision.forget(folder.path)
    status, error = Status.OK, None
    os.environ[rank_failures.RUN_ID] = record["run_id"]
    try:
        with _watch_ranks(folder, record) if is_one_of_several else contextlib.nullcontext():
            _run(spec, task, record, folder.path)
    except PreemptedError:
        rank_decision.forget(folder.path)
        raise
    except RefusedError as refusal:
        folder.finish(RunRecord(**record, status=Status.FAILED, error=_error(refusal), finished_at=_now()))
        raise
    except UsageError:
        shutil.rmtree(folder.path, ignore_errors=True)
        with contextlib.suppress(OSError):
            folder.runs_dir.rmdir()  # if this run made it, it is empty again
        raise
    except (KeyboardInterrupt, SystemExit) as stop:
        said = str(stop) if isinstance(stop, KeyboardInterrupt) else ""  # training says what it keeps
        status, error = Status.INTERRUPTED, ErrorInfo(kind="Interrupted", message=said or "stopped by a signal")
    except Exception as failure:  # the boundary: whatever it is, the record says so
        status, error = _classify(failure), _error(failure)
        if is_one_of_several:
            word = rank_failures.why(folder.path, rank_failures.GRACE_SECONDS)
            status, error = (word.status, word.error) if word else (status, rank_failures.without_a_word(error))
    finally:
        os.environ.pop(rank_failures.RUN_ID, None)
    if status is not Status.OK:
        record |= {"measurements": [], "curves": [], "artifacts": [], "examples": None}
    done = RunRecord(**record, status=status, error=error, finished_at=_now())
    folder.finish(done)
    return done


def _take_part(spec: RunSpec, task: Any, record: dict[str, Any]) -> None:
    """The work of a rank that is not the first. What stops it, the first is told."""
    if _is_started_by_lightning():  # others may outlive the shell that started them
        rank_failures.end_with_parent()
    try:
        _run(spec, task, record, None)
    except (PreemptedError, KeyboardInterrupt, SystemExit):
        raise
    except Exception as failure:
        error, folder = _error(failure), Path(spec.runs_dir) / record["run_id"]
        if isinstance(failure, UsageError) and rank_failures.RUN_ID in os.environ:
            if folder.is_dir():
                time.sleep(rank_failures.GRACE_SECONDS)
            if not folder.is_dir():  # the first one has found the same, said so and removed it
                raise SystemExit(2) from None
        number = rank(spec.trainer.devices)
        rank_failures.say_why(folder, number, rank_failures.Word(status=_classify(failure), error=error))
        raise RankError(f"rank {number}: {error.kind}: {error.message}") from failure


def _watch_ranks(folder: RunFolder, record: dict[str, Any]) -> rank_failures.Watch:
    """Ends this process, the first, with a record of another rank's failure."""

    def end(word: rank_failures.Word) -> None:
        kept = {**record, "measurements": [], "curves": [], "artifacts": []}
        try:
            folder.finish(RunRecord(**kept, status=word.status, error=word.error, finished_at=_now()))
        finally:
            print(f"goatbench: {word.status}: {word.error.message}", file=sys.stderr, flush=True)
            os._exit(1)

    return rank_failures.Watch(folder.path, end)


def _error(failure: Exception) -> ErrorInfo:
    return ErrorInfo(kind=type(failure).__name__, message=redact(str(failure)))


def rank(devices: int = 1) -> int:
    """This process's place among those of the run, from the launcher's environment (torchrun, Slurm, Lightning); 0 if alone.

    devices: processes on a machine, for Lightning, which numbers machines and the processes of each. Which is the first needs none.
    """
    if int(os.environ.get("SLURM_NTASKS", "1")) > 1:
        return int(os.environ.get("SLURM_PROCID", "0"))
    if "RANK" in os.environ:
        return int(os.environ["RANK"])
    return int(os.environ.get("NODE_RANK", "0")) * devices + int(os.environ.get("LOCAL_RANK", "0"))


def _is_started_with_the_others(spec: RunSpec) -> bool:
    """By torchrun, by Slurm, or by hand on each machine; not by Lightning, which starts the others from the first."""
    return spec.trainer.num_nodes > 1 or "RANK" in os.environ or int(os.environ.get("SLURM_NTASKS", "1")) > 1


def _is_started_by_lightning() -> bool:
    """From the first process of its machine; torchrun, which counts local ranks too, sets RANK beside."""
    return os.environ.get("LOCAL_RANK", "0") != "0" and "RANK" not in os.environ


@plain_stop()
def _run(spec: RunSpec, task: Any, record: dict[str, Any], folder: Path | None) -> None:
    """Fills `record` step by step, so that a failure keeps what was known before it. folder: for files, None on other ranks."""
    import torch

    if spec.trainer.accelerator == "gpu" and not torch.cuda.is_available():
        raise UsageError("trainer.accelerator=gpu, but torch finds no CUDA device; use trainer=cpu, or look at goatbench doctor")
    torch.set_num_threads(spec.trainer.num_threads)
    gpus = torch.cuda.device_count() if spec.trainer.accelerator != "cpu" and torch.cuda.is_available() else 0
    gpu_name = torch.cuda.get_device_name(0) if gpus else None
    record["environment"] = describe_environment(spec.trainer.num_threads, gpu_name, gpus)
    record["environment"] |= {"precision": spec.trainer.precision, "devices": spec.trainer.devices * spec.trainer.num_nodes}
    torch.manual_seed(spec.seed)
    try:  # a model that cannot be built, or a kernel that objects, before any data is touched
        net = task.model(spec)
        record["model"] = ModelInfo(name=spec.model.name, **task.model_info(spec, net))
    except ValueError as error:
        theirs = ("attention.", "model.", "kernel")  # chosen by the user, who can choose otherwise
        chosen = any(key.startswith(theirs) for key in record["row"].variant)
        raise (UsageError if chosen else RefusedError)(str(error)) from error
    data = task.data(spec)
    record["data"] = data.info
    record["protocol"] = task.protocol(spec)
    if hasattr(task, "check"):
        task.check(spec, data)  # what the data cannot give is known before training, not after
    costs = []
    if task.trains:
        training_hash = spec.training_hash(data.training_fingerprint, _with_plugins(source_hash(TRAINING_PARTS), record["plugins"]))
        costs = trained(spec, task, net, data, record, training_hash, rank(spec.trainer.devices))
    start = time.process_time()
    outcome = task.measure(spec, net, data, folder)
    costs += [*outcome.costs, Cost(name="eval_cpu_seconds", value=time.process_time() - start, unit="s", method="process CPU time, rank 0")]
    record |= {"measurements": outcome.measurements, "costs": costs, "curves": outcome.curves, "artifacts": outcome.artifacts}
    record["notes"] = [*outcome.notes, *record.get("notes", [])]
    if folder is not None and outcome.examples:
        record["examples"], left_out = write_examples(folder, outcome.examples)
        if left_out:
            record["notes"].append(f"per-example scores too large to store, left out: {', '.join(left_out)}")


def _classify(failure: Exception) -> Status:
    from .training.fit import TimeLimitError
    from .training.memory import is_out_of_memory

    if isinstance(failure, MemoryError) or (isinstance(failure, RuntimeError) and is_out_of_memory(failure)):
        return Status.OOM
    return Status.TIMEOUT if isinstance(failure, TimeLimitError) else Status.FAILED


def redact(message: str, limit: int = 500) -> str:
    """An error message without absolute paths (they name users and machines), on one line, cut to `limit` characters."""
    message = re.sub(r"(?<![\w.])(?:/[\w.@+~-]+){2,}", lambda m: "<path>/" + m.group().rsplit("/", 1)[-1], message)
    message = " ".join(message.split())
    return message if len(message) <= limit else message[: limit - 3] + "..."


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
