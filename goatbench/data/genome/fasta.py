"""FASTA files through pyfaidx: what is wrong with one, said in one line; an index built whole or not at all; letters of a range.

An index that lies beside the FASTA is never read: it may be of another file, and pyfaidx would trust it.
"""

from __future__ import annotations

import os
import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import UsageError

if TYPE_CHECKING:
    from pyfaidx import Fasta

_GZIP, _BZIP2, _ZIP, _ZSTD = b"\x1f\x8b", b"BZh", b"PK\x03\x04", b"\x28\xb5\x2f\xfd"
_UNPACK = {_GZIP: "gunzip -c", _BZIP2: "bunzip2 -c", _ZIP: "unzip -p", _ZSTD: "zstdcat"}
_PACKED_SUFFIXES = (".gz", ".bgz", ".bz2", ".zip", ".zst")


def check_readable(path: Path) -> None:
    """UsageError, with the command that helps, unless `path` is a plain file that starts like a FASTA."""
    try:
        with path.open("rb") as file:
            head = file.read(4096)
    except OSError as error:
        raise UsageError(f"FASTA {path}: {error.strerror or error}; give the path of a plain FASTA file") from None
    if not head:
        raise UsageError(f"FASTA {path}: the file is empty; download or unpack it again")
    plain = path.with_suffix("") if path.suffix.lower() in _PACKED_SUFFIXES else path.with_suffix(".plain.fa")
    for magic, command in _UNPACK.items():
        if head.startswith(magic):
            raise UsageError(f"FASTA {path} is compressed; unpack it once: {command} {path} > {plain}  and give {plain}")
    if path.suffix.lower() in _PACKED_SUFFIXES:
        raise UsageError(f"FASTA {path} is plain text named like a compressed file; rename it: mv {path} {plain}")
    if head.startswith((b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf")):
        raise UsageError(f"FASTA {path} starts with a byte-order mark; save it as plain ASCII")
    first = next((line for line in head.splitlines() if line.strip() and not line.startswith(b";")), b"")
    if not first.startswith(b">"):
        raise UsageError(f"FASTA {path} does not start with a '>' line (it starts with {first[:20]!r}); is it a FASTA file?")


def build_index(path: Path, index: Path) -> None:
    """Write the .fai of a FASTA to `index`, which must not exist yet. UsageError for a file that cannot be indexed."""
    from pyfaidx import Faidx, FastaIndexingError

    try:
        Faidx(str(path), indexname=str(index)).close()
    except UnicodeDecodeError:
        raise UsageError(f"FASTA {path} contains bytes that are not text; download or unpack it again") from None
    except (FastaIndexingError, ValueError) as error:
        raise UsageError(_explain(path, str(error))) from None


def _explain(path: Path, message: str) -> str:
    if found := re.search(r"Inconsistent line found in >(\S+) at line ([\d,.]+)", message):
        fixed = path.with_name(f"{path.stem}.fixed.fa")
        return (
            f"FASTA {path}: record '{found[1]}' has lines of unequal length (line {found[2].rstrip('.')}); "
            f"rewrite it: seqkit seq -w 60 {path} > {fixed}  and give {fixed}"
        )
    if found := re.search(r'Duplicate key "(.*)"', message):
        return f"FASTA {path}: two records are named '{found[1]}'; remove one: seqkit rmdup -n {path}"
    return f"FASTA {path} cannot be indexed: {message}"


def open_fasta(path: Path, index: Path) -> Fasta:
    """The file with an index that is known to be its own: never rebuilt, whatever the times of the two files say."""
    from pyfaidx import Fasta

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Index file .* is older", RuntimeWarning)  # the caller knows better: it compared contents
        return Fasta(str(path), indexname=str(index), as_raw=True, strict_bounds=True, rebuild=False, build_index=False)


def index_fault(path: Path, fasta: Fasta) -> str | None:
    """What in the index contradicts the file: each record must start after its own '>' line and end where one may end."""
    size = os.path.getsize(path)
    with path.open("rb") as file:
        for name, record in fasta.faidx.index.items():
            last = record.rlen - 1
            end = record.offset + (last // record.lenc * record.lenb + last % record.lenc + 1 if record.rlen else 0)
            if end > size:
                return f"record '{name}' ends beyond the file"
            file.seek(max(0, record.offset - 4096))
            before = file.read(min(4096, record.offset)).rstrip(b"\r\n").rsplit(b"\n", 1)[-1]
            if before.startswith(b">") and before[1:].split()[:1] != [name.encode()]:
                return f"record '{name}' does not follow its name"
            file.seek(end)
            if file.read(1) not in (b"", b"\n", b"\r", b">"):
                return f"record '{name}' does not end where the index says"
    return None


def letters(fasta: Fasta, contig: str, start: int, end: int) -> bytes:
    """The letters of a range, 0-based half-open, in the case of the file."""
    text = fasta[contig][start:end]
    if len(text) != end - start:
        raise UsageError(f"FASTA {fasta.filename}: {contig} gave {len(text)} letters for {start}-{end}; the file changed while it was read")
    return text.encode()
