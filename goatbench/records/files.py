"""Files that are whole or absent: exclusive atomic creation, and strict reading of records that somebody else wrote."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO

from pydantic import ValidationError

from ..errors import UsageError
from .migrations import migrated
from .record import SCHEMA_VERSION, RunRecord

MAX_RECORD_BYTES = 8 * 2**20
CURE = "; restore the file from a copy, or remove its folder and run it again"  # for a broken record that the user has named
ADVICE = "nothing was left there: make room or choose another folder"
_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS}
_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


def record_bytes(record: RunRecord) -> bytes:
    """Strict JSON (no NaN), keys sorted, so that two writers of one record write the same bytes."""
    try:
        text = json.dumps(record.model_dump(), indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False)
    except ValueError as error:  # config is free-form: a NaN in it passes the model (and mode="json" would make it null)
        raise UsageError(f"record {record.run_id} is not strict JSON: {error}; store null and a reason instead") from None
    return text.encode(errors="replace") + b"\n"  # half a surrogate pair (an undecodable file name in an error) is no reason to lose a run


def create_exclusive(path: Path, content: bytes) -> None:
    """Create `path` with this content, durably, or leave nothing: never overwrites, never half-written.

    FileExistsError if the path exists; UsageError in one line if the disk is full or the folder is not writable.
    """
    with replacing(path, _link) as file:
        file.write(content)


def replace_atomic(path: Path, content: bytes) -> None:
    """Like `create_exclusive`, but takes the place of what is there."""
    with replacing(path) as file:
        file.write(content)


def lock(file: IO, *, wait: bool = True) -> bool:
    """Lock the open file against every other process; False if one has it and wait is not set.

    The lock falls when the file is closed here and in every process that has inherited it, however they end. Some clusters' file
    systems have no locks: there, nothing is locked.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True


def write_output(path: Path | str, text: str, option: str = "--out") -> None:
    """Put `text` at the place a user named with `option`: whole or not at all, over a regular file only. UsageError in one line."""
    refuse_output(path, option)
    replace_atomic(Path(path), text.encode("utf-8", errors="replace"))


def refuse_output(path: Path | str, option: str = "--out") -> None:
    """UsageError in one line if no file can be written there, as far as that can be known before the work."""
    path = Path(path)
    refuse_missing_folder(path, option)
    try:
        there = os.lstat(path)
    except FileNotFoundError:
        there = None
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
    if there is not None and not stat.S_ISREG(there.st_mode):
        kind = "a symbolic link" if stat.S_ISLNK(there.st_mode) else "a folder" if stat.S_ISDIR(there.st_mode) else "no regular file"
        raise UsageError(f"{option} {path} is {kind} and is not overwritten: name a new or a regular file")


def refuse_missing_folder(path: Path, option: str) -> None:
    if not path.parent.is_dir():
        there = f"{path.parent} is no folder" if os.path.lexists(path.parent) else f"the folder {path.parent} does not exist"
        raise UsageError(f"{option} {path}: {there}; make it first, or name another file")


@contextmanager
def replacing(
    path: Path, move: Callable[[str, Path], None] | None = None, *, prefix: str | None = None, advice: str = ADVICE
) -> Iterator[BinaryIO]:
    """A temporary file in the folder of `path`, at `file.name`, that is moved there, durably, when the block ends well, and else vanishes.

    move: os.replace unless given; a FileExistsError is its own. Any other OSError becomes a UsageError in one line that ends with `advice`.
    """
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(prefix=prefix or f".{path.name}.", suffix=".tmp", dir=path.parent)
        with open(temporary, "wb", opener=lambda *_: handle) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        (move or os.replace)(temporary, path)
        _sync_folder(path.parent)
    except FileExistsError:
        raise
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}; {advice}") from None
    finally:
        if temporary is not None and os.path.lexists(temporary):
            with contextlib.suppress(OSError):  # a disk that has become read-only has said so already
                os.unlink(temporary)


def _link(temporary: str, path: Path) -> None:
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))  # a file system without hard links: claim, then move over
        os.replace(temporary, path)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems cannot sync a folder
            raise
    finally:
        os.close(handle)


def read_bounded(path: Path, limit: int = MAX_RECORD_BYTES) -> bytes:
    """Content of a regular file of at most `limit` bytes; no symbolic link, pipe or device. UsageError otherwise."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        reason = "is a symbolic link, which is not followed" if error.errno == errno.ELOOP else error.strerror
        raise UsageError(f"cannot read {path}: {reason}") from None
    there = os.fstat(handle)
    if not stat.S_ISREG(there.st_mode):
        os.close(handle)
        raise UsageError(f"cannot read {path}: not a regular file")
    with os.fdopen(handle, "rb") as file:
        content = file.read(min(there.st_size, limit) + 1)  # a buffer for `limit` bytes would cost more than the reading
        if len(content) > there.st_size:  # it has grown since
            content += file.read(limit + 1 - len(content))
    if len(content) > limit:
        raise UsageError(f"cannot read {path}: larger than {limit} bytes")
    return content


def read_record(path: Path | str, cure: str = "") -> RunRecord:
    """The validated record of a file. UsageError in one line that names the file and the field, and ends with `cure` if it is broken."""
    path = Path(path)
    return parse_record(read_bounded(path), str(path), cure)


def parse_record(content: bytes, name: str, cure: str = "") -> RunRecord:
    """The validated record in these bytes, of this schema version or an earlier one; `name` stands in the error, `cure` at its end.

    Of a key that is doubled the last one counts, as for most readers; see `refuse_doubled_keys`.
    """
    try:
        record = _validated(content, name)
        json.dumps([record.config, record.row.variant], allow_nan=False)  # free-form: there the model lets NaN and 1e999 pass
        return record
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "the record"
        more = f" ({error.error_count() - 1} more)" if error.error_count() > 1 else ""
        raise UsageError(one_line(f"{name} is broken, not a record: {field}: {first['msg']}{more}") + cure) from None
    except ValueError as error:
        raise UsageError(one_line(f"{name} is broken, not strict JSON: {error}") + cure) from None


def _validated(content: bytes, name: str) -> RunRecord:
    try:
        return RunRecord.model_validate_json(content, strict=True)
    except ValidationError as error:
        if not any(problem["loc"] == ("schema_version",) for problem in error.errors(include_url=False)):
            raise
        raw = json.loads(content)
        version = raw.get("schema_version")
        if type(version) is int and version > SCHEMA_VERSION:
            newer = f"{name} is a record of schema_version {version}; this goatbench reads up to {SCHEMA_VERSION}: update it"
            raise UsageError(one_line(newer)) from None
        if type(version) is not int or version < 1:
            raise
        return RunRecord.model_validate_json(json.dumps(migrated(raw)), strict=True)


def refuse_doubled_keys(content: bytes, name: str) -> None:
    """UsageError if an object in this JSON has a key twice: two readers could take two records from it."""

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        keys = dict(pairs)
        if len(keys) < len(pairs):
            seen: set[str] = set()
            doubled = next(key for key, _ in pairs if key in seen or seen.add(key))
            raise UsageError(one_line(f"{name} is not strict JSON: the key {doubled!r} stands twice in one object"))
        return keys

    json.loads(content, object_pairs_hook=once)


def one_line(text: str, limit: int = 300) -> str:
    """Printable characters only (a stranger's text must not drive the terminal), one line, cut at `limit`."""
    clean = text if text.isprintable() else "".join(character if character.isprintable() else " " for character in text)
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"
