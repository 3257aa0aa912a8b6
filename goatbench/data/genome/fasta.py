"""FASTA files through pyfaidx: what is wrong with one, said in one line; an index built whole or not at all; letters of a range.

An index that lies beside the FASTA is never read: it may be of another file, and pyfaidx would trust it.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
import warnings
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from ...errors import UsageError
from .contigs import short

if TYPE_CHECKING:
    from pyfaidx import Fasta

_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz*-."
_GZIP, _BZIP2, _ZIP, _ZSTD = b"\x1f\x8b", b"BZh", b"PK\x03\x04", b"\x28\xb5\x2f\xfd"
_UNPACK = {_GZIP: "gunzip -c", _BZIP2: "bunzip2 -c", _ZIP: "unzip -p", _ZSTD: "zstdcat"}
_OLD_MAC = "lines that end in a carriage return alone (old Mac); rewrite it"
_PACKED_SUFFIXES = (".gz", ".bgz", ".bz2", ".zip", ".zst")


def check_regular(path: Path, what: str) -> None:
    """UsageError for a pipe, a device or a socket: they can be read once only, and opening one may wait for ever. what: for the message."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise UsageError(f"{what} {path} is a pipe or a device, not a file on disk; unpack it or write it to a file first, and give that")


def check_readable(path: Path) -> None:
    """UsageError, with the command that helps, unless `path` is a plain file that starts like a FASTA."""
    try:
        check_regular(path, "FASTA")
        with path.open("rb") as file:
            head = file.read(4096)
    except OSError as error:
        raise UsageError(f"FASTA {path}: {error.strerror or error}; give the path of a plain FASTA file") from None
    if not head:
        raise UsageError(f"FASTA {path}: the file is empty; download or unpack it again")
    plain = path.with_suffix("") if path.suffix.lower() in _PACKED_SUFFIXES else path.with_suffix(".plain.fa")
    for magic, command in _UNPACK.items():
        if head.startswith(magic):
            raise UsageError(
                f"FASTA {path} is compressed; unpack it once: {command} {quote(str(path))} > {quote(str(plain))}  and give {plain}"
            )
    if path.suffix.lower() in _PACKED_SUFFIXES:
        raise UsageError(f"FASTA {path} is plain text named like a compressed file; rename it: mv {quote(str(path))} {quote(str(plain))}")
    if head.startswith((b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf")):
        raise UsageError(f"FASTA {path} starts with a byte-order mark; save it as plain ASCII")
    first = next((line for line in head.splitlines() if line.strip() and not line.startswith(b";")), b"")
    if not first.startswith(b">"):
        raise UsageError(f"FASTA {path} does not start with a '>' line (it starts with {first[:20]!r}); is it a FASTA file?")
    if re.search(rb"\r[^\r\n]", head):
        raise UsageError(f"FASTA {path} has {_OLD_MAC}: tr '\\r' '\\n' < {quote(str(path))} > {quote(str(plain))}  and give {plain}")


def build_index(path: Path, index: Path) -> None:
    """Write the .fai of a FASTA to `index`, which must not exist yet. UsageError for a file that cannot be indexed.

    Whoever calls this removes what is left of `index` then.
    """
    from pyfaidx import Faidx, FastaIndexingError

    try:
        Faidx(str(path), indexname=str(index)).close()
    except UnicodeDecodeError:
        raise UsageError(f"FASTA {path} contains bytes that are not text; download or unpack it again") from None
    except OSError as error:
        cause = error.__context__ if isinstance(error.__context__, OSError) else error  # pyfaidx hides the system's own words
        raise UsageError(
            f"FASTA {path}: its index cannot be made in {index.parent} (or {tempfile.gettempdir()}): {cause.strerror or cause}; "
            "make room or set GOATBENCH_CACHE to another folder"
        ) from None
    except (FastaIndexingError, ValueError) as error:
        raise UsageError(_explain(path, str(error))) from None


def _explain(path: Path, message: str) -> str:
    if found := re.search(r"Inconsistent line found in >(\S+) at line ([\d,.]+)", message):
        fixed = path.with_name(f"{path.stem}.fixed.fa")
        return (
            f"FASTA {path}: record '{short(found[1])}' has lines of unequal length (line {found[2].rstrip('.')}); "
            f"rewrite it: seqkit seq -w 60 {quote(str(path))} > {quote(str(fixed))}  and give {fixed}"
        )
    if found := re.search(r'Duplicate key "(.*)"', message):
        return f"FASTA {path}: two records are named '{short(found[1])}'; remove one: seqkit rmdup -n {quote(str(path))}"
    return f"FASTA {path} cannot be indexed: {' '.join(message.split())[:300]}"


def open_fasta(path: Path, index: Path) -> Fasta:
    """The file with an index that is known to be its own: never rebuilt, whatever the times of the two files say."""
    from pyfaidx import Fasta

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Index file .* is older", RuntimeWarning)  # the caller knows better: it compared contents
        return Fasta(str(path), indexname=str(index), as_raw=True, strict_bounds=True, rebuild=False, build_index=False)


_DAMAGED = "; are there bytes in it that are not ASCII letters? Download or unpack it again"


def index_fault(path: Path, fasta: Fasta) -> str | None:
    """What in the index contradicts the file: each record must start after its own '>' line and end where one may end."""
    size, index = os.path.getsize(path), fasta.faidx.index
    if not any(record.rlen for record in index.values()):
        return "no record has a single letter; is it cut off, or do its lines end in a carriage return alone (old Mac)? Make it again"
    with path.open("rb") as file:
        for name, record in index.items():
            last = record.rlen - 1
            end = record.offset + (last // record.lenc * record.lenb + last % record.lenc + 1 if record.rlen else 0)
            if end > size:
                return f"record '{short(name)}' ends beyond the file{_DAMAGED}"
            file.seek(max(0, record.offset - 4096))
            before = file.read(min(4096, record.offset)).rstrip(b"\r\n").rsplit(b"\n", 1)[-1]
            if before.startswith(b">") and before[1:].decode(errors="replace").split()[:1] != [name]:  # pyfaidx: Unicode blanks
                return f"record '{short(name)}' does not follow its name{_DAMAGED}"
            file.seek(end)
            if file.read(1) not in (b"", b"\n", b"\r", b">"):
                return f"record '{short(name)}' does not end where the index says{_DAMAGED}"
    return None


def letters(fasta: Fasta, contig: str, start: int, end: int) -> bytes:
    """The letters of a range, 0-based half-open, in the case of the file."""
    where = f"FASTA {fasta.filename}: record '{short(contig)}'"
    try:
        read = fasta[contig][start:end].encode("ascii")
    except UnicodeError:
        raise UsageError(f"{where} holds bytes that are not ASCII; download or unpack it again") from None
    if len(read) != end - start:
        raise UsageError(
            f"{where} gave {len(read)} letters for {start}-{end}: the file changed while it was read (start again), "
            "or carriage returns stand inside its lines (remove them)"
        )
    return read


def check_letters(path: Path | str, contig: str, odd: bytes, length: int) -> None:
    """UsageError unless a contig can be DNA. odd: all of its bytes that are no DNA code (codes.odd_letters); length: of the contig.

    A byte that is no letter (NUL, blank, digit) is damage or another format. Letters that are no code would silently be read as N: up
    to a tenth of them pass. In proteins about a third are (E F I L P Q), in RNA a quarter (U).
    """
    where = f"FASTA {path}: record '{short(contig)}'"
    if foreign := odd.translate(None, _ALPHABET):
        raise UsageError(
            f"{where} holds {len(foreign):,} bytes that are no letters (the first: {foreign[:1]!r}); is it damaged, or no FASTA file? "
            "Download or unpack it again"
        )
    if len(odd) * 10 > length:
        upper = odd.upper()
        if set(upper) == {ord("U")}:
            raise UsageError(f"{where} is RNA (it has U); make it DNA: seqkit seq --rna2dna {quote(str(path))}")
        raise UsageError(
            f"{where} is no DNA: {len(odd):,} of its {length:,} letters are neither ACGTN nor an IUPAC code "
            f"({' '.join(sorted({chr(letter) for letter in upper})[:8])}); is it a protein file?"
        )
