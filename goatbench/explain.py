"""One line for what Hydra or pydantic refuse, with the nearest key."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from .records.record import NAME_PATTERN
from .registry import nearest, unknown

KEY_CUTOFF = 0.7  # among a hundred keys, some are half like any word
OPEN_KEYS = (
    "attention.options", "attention.options_1d", "attention.options_2d", "attention.inner_options", "attention.tuned", "evaluation.pixels",
)  # fmt: skip


def known_keys(model: type[BaseModel], prefix: str = "") -> list[str]:
    """Every dotted key that a run of this kind has, from the pydantic models."""
    keys = []
    for name, field in model.model_fields.items():
        keys.append(prefix + name)
        for part in (field.annotation, *get_args(field.annotation)):  # X | None, too
            if isinstance(part, type) and issubclass(part, BaseModel):
                keys += known_keys(part, f"{prefix}{name}.")
    return [key for key in keys if key != "domain"]


def explain_hydra(message: str, overrides: list[str], values_at: Callable[[str], Iterable[Any]], keys: list[str]) -> str:
    """One line from Hydra's message about an override that does not fit."""
    first = message.splitlines()[0]
    if first.startswith("Could not override"):
        key = first.split("'")[1]
        parent, _, last = key.rpartition(".")
        if parent in OPEN_KEYS:
            given = next(line for line in overrides if line.startswith(key))
            known = [str(name) for name in values_at(parent)]
            guess = nearest(last, known, KEY_CUTOFF)
            hint = f"; did you mean '{guess}'?" if guess else ";"
            # which options a mechanism takes, its class alone knows, and that needs torch: no advice that could fail later
            add = "" if "options" in parent else f"; to add it write '+{given}'"
            beside = {name: list(values_at(name)) for name in (f"{parent}_1d", f"{parent}_2d") if name in OPEN_KEYS}
            others = "".join(f"; {name} has: {', '.join(map(str, found))}" for name, found in beside.items() if found)
            return f"{parent} has no '{last}'{hint} it has: {', '.join(known) or 'nothing'}{others}{add}"
        return _unknown_key(key, keys)
    return first


def explain(error: ValidationError, keys: list[str]) -> str:
    """One line for the first thing that pydantic found, and how many more there are."""
    found = error.errors(include_url=False)
    first = found[0]
    key = ".".join(str(part) for part in first["loc"] if not _is_union_tag(part))
    more = f" (and {len(found) - 1} more)" if len({entry["loc"][:2] for entry in found}) > 1 else ""
    if first["type"] == "extra_forbidden":
        return _unknown_key(key, keys) + more
    if first["type"] == "missing":
        return f"{key} is missing{more}"
    if first["type"] == "value_error":
        return f"{key + ': ' if key else ''}{first['ctx']['error']}{more}"
    said = first["msg"].removeprefix("Input ")
    also = [entry["msg"].removeprefix("Input ") for entry in found[1:] if entry["loc"][:2] == first["loc"][:2]]
    expected = " or ".join(dict.fromkeys([said, *also]))
    if first["type"] == "literal_error" and isinstance(first["input"], str):
        allowed = first["ctx"]["expected"].replace(" or ", ", ").replace("'", "").split(", ")
        return unknown(key, first["input"], allowed) + more
    if first["type"] == "string_pattern_mismatch" and first["ctx"]["pattern"] == NAME_PATTERN:
        expected = "a name, of small letters, digits, '.', '_' and '-', at most 64"
    return f"{key}={json.dumps(first['input'])}: {expected}{more}"


def _unknown_key(key: str, keys: list[str]) -> str:
    """One line about a key that does not exist, with the nearest one: by its last part first ('epochs' -> training.epochs)."""
    parent, _, last = key.rpartition(".")
    if parent in keys:
        children = [known.rpartition(".")[2] for known in keys if known.rpartition(".")[0] == parent]
        guess = nearest(last, children, KEY_CUTOFF)
        hint = f"; did you mean '{parent}.{guess}'?" if guess else ";"
        return f"unknown key '{key}'{hint} {parent} has: {', '.join(children)}"
    if key == "domain":
        return "domain belongs to the task and cannot be set; choose with task=NAME"
    by_last = {known.rpartition(".")[2]: known for known in sorted(keys, key=lambda known: -known.count("."))}  # the outermost wins
    alike = [known for known in keys if known.rpartition(".")[2] == last]
    guess = (nearest(key, alike, KEY_CUTOFF) if parent else None) or by_last.get(last) or nearest(key, keys, KEY_CUTOFF)
    guess = guess or by_last.get(nearest(last, by_last, KEY_CUTOFF) or "")
    hint = f"; did you mean '{guess}'?" if guess else ""
    return f"unknown key '{key}'{hint} (goatbench run --cfg job prints all keys)"


def _is_union_tag(part: int | str) -> bool:
    """pydantic puts the member of a union into the location: 'float', "literal['tuned']"."""
    return isinstance(part, str) and (part == "constrained-float" or part.startswith("literal["))
