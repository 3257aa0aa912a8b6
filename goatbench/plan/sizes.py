"""Amounts of memory as a user writes them. No torch."""

from __future__ import annotations

import re

from ..errors import UsageError

UNITS = {"k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def parse_bytes(text: str) -> int:
    """'80GiB', '80GB', '512 MiB', '40g' -> bytes. UsageError for anything else, a bare number too: nobody means 80 bytes."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?i?)b?\s*", text.lower())
    if found and not found[2] and float(found[1]) > 0:
        raise UsageError(f"--memory {text.strip()} has no unit: write {found[1]}GiB (2^30 bytes) or {found[1]}GB (10^9)")
    if not found or found[2] not in UNITS or float(found[1]) <= 0:
        raise UsageError(f"--memory {text!r} is no amount of memory: write 80GiB (2^30 bytes) or 80GB (10^9)")
    return int(float(found[1]) * UNITS[found[2]])
