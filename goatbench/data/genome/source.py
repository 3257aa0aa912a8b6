"""A FASTA file as the source of a genome. Only the main process opens it; the run reads the codes that are made from it once."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from pathlib import Path

from ...errors import UsageError
from ...progress import Progress
from .. import cache_files
from . import cache, fasta
from .contigs import resolve, short
from .genome import ContigFile, Genome, Origin

LONG_BASES, LONG_BYTES = 50_000_000, 500_000_000  # from here on progress is shown


class GenomeSource:
    """`fasta` is indexed, and contigs are encoded when a genome is first asked for; both stay in the cache folder (cache_files.cache_root).

    The FASTA's own folder may be read-only. `lengths`: contig -> bases, in the order of the file. `notices`: what was found
    damaged or changed and made again, one line each; they go to standard error too. If FASTA.origins.json lies beside the file
    (contig -> assembly, chromosome, offset, length), its contigs are slices of those chromosomes.
    UsageError in one line for a file that cannot be used and for a cache folder that cannot be written.
    """

    def __init__(self, fasta_path: Path | str, cache_dir: Path | None = None) -> None:
        self.path = Path(os.path.expanduser(fasta_path))
        self.notices: list[str] = []
        fasta.check_readable(self.path)
        place = f"{self.path.stem[:40]}-{hashlib.sha256(str(self.path.resolve()).encode()).hexdigest()[:12]}"
        self._home = cache_files.make_folder(cache_files.cache_root(cache_dir) / "genome" / place)
        with cache_files.locked(self._home):
            self._stamp = cache_files.stamp(self.path)
            self._folder = cache_files.make_folder(self._home / self._stamp)
            self.index = self._folder / "index.fai"
            self.lengths = self._known_lengths() or self._new_index()
        self.origins = read_origins(self.path)

    def genome(self, contigs: Iterable[str]) -> Genome:
        """The named contigs, encoded now if they are not yet. UsageError, with the nearest name, for one that is not there."""
        names = list(dict.fromkeys(resolve(contig, self.lengths, str(self.path)) for contig in contigs))
        found = {name: cache.read_contig(self._folder, name) for name in names}
        if missing := [name for name in names if found[name] is None]:
            with cache_files.locked(self._home):
                found |= self._encode(missing)
        return Genome(found, str(self.path), {name: self.origins[name] for name in names if name in self.origins})

    def _known_lengths(self) -> dict[str, int] | None:
        """From the index in the cache, if it is whole and of this very file."""
        previous = cache_files.read_json(self._home / "current.json")
        if previous and previous.get("stamp") != self._stamp:
            self._say(f"{self.path} has changed since it was last read: it is read anew")
        mark = cache_files.read_json(self._folder / "index.json")
        try:
            if mark and mark.get("sha256") == hashlib.sha256(self.index.read_bytes()).hexdigest():
                lengths = mark["lengths"]
                if all(type(length) is int and length >= 0 for length in lengths.values()) and lengths:
                    return lengths
        except (OSError, KeyError, AttributeError):
            pass
        if mark or self.index.exists():
            self._say(f"the index of {self.path} in the cache is damaged or unfinished: it is made again")
        return None

    def _new_index(self) -> dict[str, int]:
        """As _build_index; nothing of it stays if that fails."""
        cache_files.remove_unfinished(self._folder)
        mark = self._folder / "index.json"
        cache_files.remove(mark)
        try:
            return self._build_index()
        except BaseException:
            cache_files.remove_unfinished(self._folder)
            cache_files.remove(mark, self.index)
            with suppress(OSError):  # codes of other contigs lie there
                self._folder.rmdir()
            raise

    def _build_index(self) -> dict[str, int]:
        if self.path.stat().st_size > LONG_BYTES:
            print(f"indexing {self.path}: about a minute for 3 GB, once", file=sys.stderr, flush=True)
        unfinished = self._folder / f"{cache_files.TEMPORARY}index"
        fasta.build_index(self.path, unfinished)
        with cache_files.written(self.index) as file:
            file.write(unfinished.read_bytes())
        unfinished.unlink()
        self._check_unchanged()
        with fasta.open_fasta(self.path, self.index) as opened:
            if fault := fasta.index_fault(self.path, opened):
                raise UsageError(f"FASTA {self.path}: {fault}")
            lengths = {name: record.rlen for name, record in opened.faidx.index.items()}
        self._check_unchanged()
        sha256 = hashlib.sha256(self.index.read_bytes()).hexdigest()
        cache_files.write_json(self._folder / "index.json", {"format": cache_files.FORMAT_VERSION, "sha256": sha256, "lengths": lengths})
        current = {"format": cache_files.FORMAT_VERSION, "stamp": self._stamp, "path": str(self.path)}
        cache_files.write_json(self._home / "current.json", current)
        return lengths

    def _encode(self, names: list[str]) -> dict[str, ContigFile]:
        """Under the lock: what another process finished in the meantime is taken as it is."""
        found = {name: cache.read_contig(self._folder, name) for name in names}
        missing = [name for name in names if found[name] is None]
        if not missing:
            return found
        self._check_unchanged()
        cache_files.remove_unfinished(self._folder)
        for name in missing:
            if any(path.exists() for path in cache.paths_of(self._folder, name)):
                self._say(f"the codes of {short(name)} in the cache are damaged or unfinished: they are made again")
        total = sum(self.lengths[name] for name in missing)
        shown = Progress(f"encoding {self.path.name}", total, "base") if total > LONG_BASES else nullcontext()
        with fasta.open_fasta(self.path, self.index) as opened, shown as bar:
            for name in missing:
                found[name] = cache.encode_contig(self._folder, opened, name, bar.advance if bar else lambda count: None)
        if cache_files.stamp(self.path) != self._stamp:
            for name in missing:
                cache.paths_of(self._folder, name)[1].unlink()
        self._check_unchanged()
        return found

    def _check_unchanged(self) -> None:
        if cache_files.stamp(self.path) != self._stamp:
            raise UsageError(f"FASTA {self.path} changed while it was read; start again")

    def _say(self, notice: str) -> None:
        self.notices.append(notice)
        print(f"goatbench: note: {notice}", file=sys.stderr, flush=True)


def read_origins(path: Path) -> dict[str, Origin]:
    """contig -> Origin from FASTA.origins.json; {} if there is none."""
    beside = path.with_name(f"{path.name}.origins.json")
    if not beside.exists():
        return {}
    wanted = 'wanted {"CONTIG": {"assembly": TEXT or null, "chromosome": TEXT, "offset": NUMBER, "length": NUMBER or null}, ...}'
    try:
        fasta.check_regular(beside, "file")
        content = json.loads(beside.read_bytes())
    except OSError as error:
        raise UsageError(f"{beside}: {error.strerror}; make it readable or remove it") from None
    except (ValueError, RecursionError):
        raise UsageError(f"{beside} is no JSON; {wanted}, or remove it") from None
    if not isinstance(content, dict):
        raise UsageError(f"{beside} is no JSON object; {wanted}, or remove it")
    for name, row in content.items():
        if not _is_origin(row):
            raise UsageError(f"{beside}: the entry '{short(name)}' is not as it should be; {wanted}, or remove it")
    return {name: Origin(**row) for name, row in content.items()}


def _is_origin(row: object) -> bool:
    """Whether a value from JSON holds the arguments of Origin."""
    if not isinstance(row, dict) or not {"assembly", "chromosome"} <= set(row) <= {"assembly", "chromosome", "offset", "length"}:
        return False
    texts = isinstance(row["chromosome"], str) and isinstance(row["assembly"], str | None)
    offset, length = row.get("offset", 0), row.get("length")
    return texts and type(offset) is int and offset >= 0 and (length is None or (type(length) is int and length > 0))
