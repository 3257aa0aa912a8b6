"""Names of human chromosomes: chr20, 20, NC_000020.11 and CM000682.2 are one. Accessions also say which assembly they are of."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...errors import UsageError
from ...registry import nearest

CHROMOSOMES = (*map(str, range(1, 23)), "X", "Y", "M")

# Versions of the RefSeq records NC_000001 .. NC_000024 in each assembly (NCBI assembly reports GCF_000001405.40 and .25)
_REFSEQ_VERSIONS = {
    "GRCh38": (11, 12, 12, 12, 10, 12, 14, 11, 12, 11, 10, 12, 11, 9, 10, 10, 11, 10, 10, 11, 9, 11, 11, 10),
    "GRCh37": (10, 11, 11, 11, 9, 11, 13, 10, 11, 10, 9, 11, 10, 8, 9, 9, 10, 9, 9, 10, 8, 10, 10, 9),
}
_GENBANK_CHR1 = 663  # CM000663 is chromosome 1, CM000686 is Y; version .1 is GRCh37, .2 GRCh38
_T2T_REFSEQ_CHR1 = 60925  # NC_060925.1 .. NC_060948.1: T2T-CHM13v2.0 chromosomes 1 .. 22, X, Y


def _accessions() -> dict[str, tuple[str, str]]:
    table = {"NC_012920.1": ("M", ""), "J01415.2": ("M", "")}  # the revised Cambridge sequence: in GRCh37 and GRCh38 alike
    for index, chromosome in enumerate(CHROMOSOMES[:24]):
        for version, (assembly, versions) in enumerate(reversed(_REFSEQ_VERSIONS.items()), 1):
            table[f"NC_{index + 1:06d}.{versions[index]}"] = chromosome, assembly
            table[f"CM{_GENBANK_CHR1 + index:06d}.{version}"] = chromosome, assembly
        table[f"NC_{_T2T_REFSEQ_CHR1 + index:06d}.1"] = chromosome, "T2T-CHM13v2"
    return table


ACCESSIONS = _accessions()


def short(name: str) -> str:
    """At most 60 letters of a name, for messages; none that would break the line."""
    cut = name if len(name) <= 60 else f"{name[:58]}.."
    return cut if cut.isprintable() else ascii(cut)[1:-1]


def identify(name: str) -> tuple[str, str] | None:
    """(chromosome "1" .. "22", "X", "Y", "M"; assembly or "") that a contig name stands for; None if it is no such name."""
    if name in ACCESSIONS:
        return ACCESSIONS[name]
    bare = re.sub(r"^chr", "", name, flags=re.IGNORECASE).upper()
    bare = "M" if bare == "MT" else bare
    return (bare, "") if bare in CHROMOSOMES else None


def canonical(name: str) -> str:
    """chr20 for every name of chromosome 20; other names as they are."""
    found = identify(name)
    return f"chr{found[0]}" if found else name


def resolve(wanted: str, available: Iterable[str], where: str) -> str:
    """The one of the available names that `wanted` means: itself, or another name of the same chromosome.

    Accessions of two assemblies never stand for each other. UsageError, with the nearest name, if there is none or several.
    """
    available = list(available)
    if wanted in available:
        return wanted
    target = identify(wanted)
    same = [name for name in available if target and _same(target, identify(name))]
    if len(same) == 1:
        return same[0]
    if same:
        raise UsageError(f"{where}: contig '{short(wanted)}' could be {' or '.join(map(short, same))}; name one of them")
    guess = nearest(wanted, available)
    hint = f"; did you mean '{short(guess)}'?" if guess else ""
    shown = ", ".join(map(short, available[:6])) + (", .." if len(available) > 6 else "")
    raise UsageError(f"{where}: no contig '{short(wanted)}'{hint}; it has {len(available)}: {shown}")


def _same(wanted: tuple[str, str], found: tuple[str, str] | None) -> bool:
    return found is not None and wanted[0] == found[0] and (wanted[1] == found[1] or "" in (wanted[1], found[1]))
