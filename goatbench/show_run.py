"""What `show RUN` prints: everything a record says, the command that repeats the run, and with --repro whether repeating it agrees."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .boards import Places
from .errors import UsageError
from .outcome import outcome_lines
from .records.canonical import canonical_json
from .records.comparing import differences
from .records.files import CURE, one_line, read_record
from .records.finding import find_record
from .records.grouping import environment_of, row_name
from .records.layout import RECORD
from .records.record import Cost, Measurement, RunRecord, Status
from .records.repeating import command, overrides_of
from .records.store import new_run_id
from .registry import load_plugins, tasks

RETRAIN = "retrain=true"


def load_run(name: str, places: Places) -> tuple[Path, RunRecord]:
    """The record of a run id (own, then published), run folder or record file. UsageError in one line if there is none or it is broken."""
    path = find_record(name, places.runs_dir, places.root())
    return path, read_record(path, CURE)


def run_lines(path: Path, record: RunRecord) -> list[str]:
    """Everything about the run, section by section."""
    load_plugins()
    lines = [f"run {record.run_id}: {record.status}"]
    lines += [f"  task       {record.task.name}@v{record.task.version}, scale {record.scale}, seed {record.seed}"]
    lines += [f"  row        {row_name(record)}", f"  time       {record.started_at} to {record.finished_at or 'unknown'}"]
    lines += [f"  error      {record.error.kind}: {record.error.message}"] if record.error else []
    lines += ["", "result", *(f"  {line}" for line in _result(record, path)), *_curves(record), *_costs(record)]
    for title, section in (
        ("model", record.model), ("data", record.data), ("budget", record.budget), ("training", record.training), ("code", record.code),
        ("protocol", record.protocol), ("environment", record.environment),
    ):  # fmt: skip
        values = section if isinstance(section, dict) else section.model_dump(mode="json") if section is not None else {}
        lines += ["", title, *(f"  {key:<22} {_plain(value)}" for key, value in values.items())] if values else []
    for plugin in record.plugins:
        lines += ["", f"plug-in {plugin.name} of {plugin.provider} {plugin.version or ''}, sources {plugin.source_hash}"]
    lines += ["", f"configuration (hash {record.config_hash})", *(f"  {key} = {_plain(value)}" for key, value in _flat(record.config))]
    return [one_line(line, 600).rstrip() for line in [*lines, "", *repeat_lines(record)]]


def repeat_lines(record: RunRecord) -> list[str]:
    """The command that repeats the run, and what has to be as it was for the same numbers."""
    lines = ["repeat it", f"  {command(record, RETRAIN)}"]
    commit = record.code.commit
    dirty = " with uncommitted changes: not exactly repeatable" if record.code.dirty else ""
    at = f"at commit {commit[:12] if commit else 'unknown'}{dirty}, sources {record.code.source_hash[:8]}"
    lines.append(f"  {at}; weights are trained anew")
    if record.scale == "paper" or any(line.startswith("data=") for line in record.overrides):
        lines.append("  paths are not in a record: if its data were files of yours, add them (data.root=..., data.fasta=...)")
    return lines


def repeat(record: RunRecord, runs_dir: str, config_dir: str | None = None) -> RunRecord:
    """Runs it again as a child of this installation, below runs_dir. UsageError if it left no record, or has none to compare with."""
    if record.status is Status.INTERRUPTED:
        raise UsageError(f"run {record.run_id} was interrupted: there is nothing to compare a repetition with")
    run_id = new_run_id(record.config_hash)
    config = ["--config-dir", config_dir] if config_dir else []
    words = [sys.executable, "-P", "-m", "goatbench", "run", *config, "--run-id", run_id]
    words += [*overrides_of(record), RETRAIN, f"runs_dir={runs_dir}"]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False)
    path = Path(runs_dir) / run_id / RECORD
    if not path.exists():
        raise UsageError(f"the run {run_id} left no record (exit code {done.returncode}): see above")
    return read_record(path)


def reproduction_lines(old: RunRecord, new: RunRecord) -> tuple[list[str], bool]:
    """(measurement by measurement: equal or by how much not, and what else changed; whether everything is equal)."""
    lines = [f"repeated as {new.run_id}: {new.status}"]
    if new.status is not Status.OK:
        lines.append(f"  {new.error.kind}: {new.error.message}" if new.error else "  no reason given")
    details = tasks.get(old.task.name).card.column_details if old.task.name in tasks else ()
    before, after = ({_key(m, details): m for m in record.measurements} for record in (old, new))
    equal = 0
    for key in dict.fromkeys([*before, *after]):
        a, b = before.get(key), after.get(key)
        if a is not None and b is not None and (a.value, a.n) == (b.value, b.n):
            equal += 1
        else:
            lines.append(f"  differs: {key[0]} {_where(a or b)}: {_value(a)} then, {_value(b)} now{_change(a, b)}")
    total = len(before.keys() | after.keys())
    lines.append(f"{equal} of {total} measurements are equal")
    changes = [*differences(old.config, new.config, "config"), *differences(environment_of(old), environment_of(new), "environment")]
    changes += differences(old.code.source_hash, new.code.source_hash, "code.source_hash")
    changes += differences(old.data and old.data.fingerprint, new.data and new.data.fingerprint, "data.fingerprint")
    lines += [f"  changed since: {key}: {_plain(a)} then, {_plain(b)} now" for key, a, b in changes]
    return [one_line(line, 600) for line in lines], equal == total and new.status is old.status


def _result(record: RunRecord, path: Path) -> list[str]:
    if record.status is Status.OK and record.task.name in tasks:
        card = tasks.get(record.task.name).card
        if card.version == record.task.version:
            return outcome_lines(record, card, path)
    listed = [f"{m.metric} {_where(m)}: {_value(m)} {m.unit}" for m in record.measurements]
    return [*listed, *(f"note: {note}" for note in record.notes), f"record: {path}"]


def _curves(record: RunRecord) -> list[str]:
    lines = [f"  {c.name} ({c.unit}) along {c.x_name}: {len(c.x)} points{_conditions(c.conditions)}, n = {c.n:,}" for c in record.curves]
    return ["", "curves", *lines] if lines else []


def _costs(record: RunRecord) -> list[str]:
    lines = [f"  {c.name:<26} {_amount(c)} ({c.method}){_conditions(c.conditions)}" for c in record.costs]
    return ["", "costs", *lines] if lines else []


def _amount(cost: Cost) -> str:
    """With its unit; bytes are told in MiB."""
    return f"{cost.value / 2**20:,.1f} MiB" if cost.unit == "bytes" else f"{cost.value:,.6g} {cost.unit}"


def _flat(values: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(values, dict) and values:
        for key, value in sorted(values.items()):
            yield from _flat(value, f"{prefix}.{key}" if prefix else key)
    else:
        yield prefix, values


def _key(measurement: Measurement, details: tuple[str, ...]) -> tuple[str, str]:
    """details: conditions that the column decides, which a later version of the task may word otherwise."""
    return measurement.metric, canonical_json({key: value for key, value in measurement.conditions.items() if key not in details})


def _where(measurement: Measurement | None) -> str:
    return _conditions(measurement.conditions).strip() if measurement is not None else ""


def _conditions(conditions: dict[str, Any]) -> str:
    return f" at {', '.join(f'{key} {value}' for key, value in conditions.items())}" if conditions else ""


def _value(measurement: Measurement | None) -> str:
    if measurement is None:
        return "not measured"
    return f"n/a ({measurement.reason})" if measurement.value is None else f"{measurement.value:.9g}"


def _change(a: Measurement | None, b: Measurement | None) -> str:
    if a is None or b is None or a.value is None or b.value is None:
        return ""
    change = b.value - a.value
    errors = f", {abs(change) / a.stderr:.2g} standard errors" if a.stderr else ""
    return f" ({change:+.3g}{errors})" if a.n == b.n else f" ({change:+.3g}, n {a.n:,} then, {b.n:,} now)"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else canonical_json(value)
