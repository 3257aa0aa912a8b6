"""Names of rows for a narrow table: shorter, and still told apart."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

OPTION = re.compile(r",(?=[\w.]+=)")  # a value may hold commas: [2,3]


def shortened(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """(names in their order, 'goat[query_kernel=3]' for 'goat[attention.inner_options.query_kernel=3]'; the options that were left out
    because every name has them). An option keeps as many parts of its own name as no other option ends with; the names stay as they
    are where they would not be told apart."""
    parts = [_parts(name) for name in names]
    shared = [option for option in (parts[0][1] if parts else []) if all(option in options for _, options in parts)]
    own = [(row, [option.partition("=") for option in options if option not in shared]) for row, options in parts]
    brief = _brief({key for _, options in own for key, _, _ in options})
    short = [_name(row, (f"{brief[key]}{equals}{value}" for key, equals, value in options)) for row, options in own]
    return (short, shared) if len(set(short)) == len(set(names)) else (list(names), [])


def cut_in_the_middle(text: str, limit: int) -> str:
    """Of at most `limit` characters: names of rows begin and end with what tells them apart."""
    half = (limit - 1) // 2
    return text if len(text) <= limit else f"{text[: limit - 1 - half]}…{text[len(text) - half :]}"


def _parts(name: str) -> tuple[str, list[str]]:
    """'goat[a=1,b=[2,3]]' -> goat and its options."""
    row, bracket, inside = name.partition("[")
    return (row, OPTION.split(inside.removesuffix("]"))) if bracket else (name, [])


def _name(row: str, options: Iterable[str]) -> str:
    inside = ",".join(options)
    return f"{row}[{inside}]" if inside else row


def _brief(keys: set[str]) -> dict[str, str]:
    """Each dotted key by its shortest end that no other key has: itself, if another one goes on before it."""
    ends = {key: [key.split(".", count)[-1] for count in range(key.count("."), -1, -1)] for key in keys}
    return {key: next((e for e in ends[key] if sum(e in others for others in ends.values()) == 1), key) for key in keys}
