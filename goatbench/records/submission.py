"""From a run to the published results: validate, refuse what a stranger could not trust, place once."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import UsageError
from .examples import contradictions, examples_beside, read_examples
from .files import CURE, create_exclusive, one_line, parse_record, read_bounded, read_record, record_bytes, refuse_doubled_keys
from .layout import RECORD, placed_at
from .record import RUN_ID_PATTERN, RunRecord, Status

LAST = "last"  # for a run id: the run that ended last
# an absolute path of two or more parts, or a drive letter, at the start of a string or after white space or an opening sign
_ABSOLUTE_PATH = re.compile(r"(?:^|[\s'\"=(\[,:])((?:/[\w.@+~-]+){2,}|~/[\w.-]+|[A-Za-z]:\\[\w.-]+)")


@dataclass(frozen=True, slots=True)
class Placed:
    """path: where the record lies now; already: an identical one lay there before."""

    path: Path
    record: RunRecord
    already: bool


def submit(
    runs: Sequence[str | Path], results_root: Path | str, runs_dir: Path | str = "runs", *, allow_dirty: bool = False,
    verify: Callable[[RunRecord], None] | None = None,
) -> list[Placed]:
    """Place the records of these runs (folders, run ids within runs_dir, or record files) under the results folder.

    All are checked before the first is placed. Failed runs are placed like others: they are rows with a reason. A file of per-example
    scores goes along under the record's name. UsageError in one line: not a record, a doubled key, uncommitted changes in the code,
    absolute paths inside, per-example scores that are not those of the record, whatever `verify` raises, another record with that run
    id, an unsafe place.
    """
    if not runs:
        raise UsageError("nothing to submit: name a run id, a run folder or a record file")
    root = Path(results_root).resolve()
    if not root.exists():
        raise UsageError(f"the results folder {root} does not exist: create it, or choose another with --results-dir DIR")
    if not root.is_dir() or not os.access(root, os.W_OK):
        raise UsageError(f"the results folder {root} is not a writable folder: choose one with --results-dir DIR")
    checked: dict[Path, RunRecord] = {}
    examples: dict[Path, bytes] = {}
    for run in runs:
        source = record_file(run, Path(runs_dir))
        content = read_bounded(source)
        record = parse_record(content, str(source), CURE)
        refuse_doubled_keys(content, str(source))
        _check_trust(record, source, allow_dirty)
        if verify is not None:
            verify(record)
        target = root / placed_at(record)
        _check_place(target, root)
        if checked.setdefault(target, record) != record or (target.exists() and read_record(target) != record):
            raise UsageError(f"another record with the run id {record.run_id} is there already: {target} is never overwritten")
        _refuse_stripped(record, source)
        if record.examples is not None:
            examples[target] = _checked_examples(record, source)
            _check_place(target.with_suffix(".npz"), root)
    return [_place(target, root, record, examples.get(target)) for target, record in checked.items()]


def record_file(run: str | Path, runs_dir: Path) -> Path:
    """The record of a run id in runs_dir or of its latest run ("last"), of a run folder, or the record file itself. UsageError if it
    is none of them."""
    if str(run) == LAST:
        finished = [path for path in runs_dir.glob(f"*/{RECORD}") if re.fullmatch(RUN_ID_PATTERN, path.parent.name)]
        if not finished:
            raise UsageError(f"no finished run in {runs_dir}: name the right --runs-dir, or start one with goatbench run")
        return max(finished, key=lambda path: (path.stat().st_mtime_ns, path.parent.name))  # jobs of a sweep have ids of one second
    if re.fullmatch(RUN_ID_PATTERN, str(run)) and not Path(run).exists():
        path = runs_dir / run / RECORD
        if not os.path.lexists(path):
            raise UsageError(f"no finished run {run} in {runs_dir}: name its folder, or the right --runs-dir")
        return path
    path = Path(run)
    if path.is_dir():
        if not os.path.lexists(path / RECORD):
            raise UsageError(one_line(f"{path} holds no {RECORD}: the run is not finished, or this is not a run folder"))
        return path / RECORD
    if not os.path.lexists(path):
        raise UsageError(one_line(f"{run} is neither a run id in {runs_dir} nor a run folder nor a record file"))
    return path


def _check_trust(record: RunRecord, source: Path, allow_dirty: bool) -> None:
    if record.code.dirty and not allow_dirty:
        raise UsageError(
            f"run {record.run_id} was made with uncommitted changes in the code, so nobody can make it again: "
            "commit and run again, or submit with --allow-dirty"
        )
    for field, text in _strings(record.model_dump(mode="json")):
        if match := _ABSOLUTE_PATH.search(text):
            raise UsageError(
                one_line(f"{source} names an absolute path in {field}: {match.group(1)!r}; published records hold none: use a relative one")
            )


def _refuse_stripped(record: RunRecord, source: Path) -> None:
    """A finished run writes its file of per-example scores and names it in the record: a file alone means that the record was edited."""
    path = examples_beside(source)
    if record.status is Status.OK and record.examples is None and os.path.lexists(path):
        raise UsageError(
            one_line(f"run {record.run_id} does not name {path}, the per-example scores beside it: submit the record as it was")
        )


def _checked_examples(record: RunRecord, source: Path) -> bytes:
    """The file of per-example scores beside the record's source, if it is what the record says and agrees with its measurements."""
    path = examples_beside(source)
    if not os.path.lexists(path):
        raise UsageError(one_line(f"run {record.run_id} names a file of per-example scores, but {path} is missing: submit its run folder"))
    content, loaded = read_examples(record, path)
    for problem in contradictions(record, loaded):
        raise UsageError(one_line(f"run {record.run_id} contradicts itself: {problem}"))
    return content


def _strings(value, field: str = "record"):
    if isinstance(value, str):
        yield field, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield f"{field} (a key)", key
            yield from _strings(item, f"{field}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _strings(item, f"{field}.{index}")


def _check_place(target: Path, root: Path) -> None:
    """The target stays inside root and no part of the way is a symbolic link or a file."""
    step = root
    for part in target.relative_to(root).parts:
        step = step / part
        if step.is_symlink():
            raise UsageError(f"{step} is a symbolic link: results are placed in real folders only")
    if not target.parent.resolve().is_relative_to(root):
        raise UsageError(f"{target} lies outside the results folder {root}")


def _place(target: Path, root: Path, record: RunRecord, examples: bytes | None) -> Placed:
    """Writes the record anew, not the bytes of its file. Its per-example scores go first: a record that is there has all it names."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _check_place(target, root)
        if examples is not None:
            _place_examples(target.with_suffix(".npz"), examples)
        create_exclusive(target, record_bytes(record))
        return Placed(target, record, already=False)
    except FileExistsError as error:
        if target.is_file() and read_record(target) == record:
            return Placed(target, record, already=True)
        raise UsageError(f"cannot place {target}: {error.filename or target} is in the way") from None
    except OSError as error:
        raise UsageError(f"cannot place {target}: {error.strerror}") from None


def _place_examples(path: Path, content: bytes) -> None:
    try:
        create_exclusive(path, content)
    except FileExistsError:  # of a submission that was cut short, or of the same record
        if read_bounded(path, len(content)) != content:
            raise
