"""From an earlier schema version of a record to the present one, by pure functions: files are never rewritten.

A field that is new, optional and absent from what is published needs no version. Whatever else changes the schema raises
`SCHEMA_VERSION` and adds a step here, and a record of the version before it under tests/fixtures/records/.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from .record import SCHEMA_VERSION

STEPS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}  # version n -> from a record of version n to one of n + 1


def migrated(raw: dict[str, Any]) -> dict[str, Any]:
    """The record as of the present version, its `schema_version` included; `raw` is left as it was."""
    raw = deepcopy(raw)
    for version in range(raw["schema_version"], SCHEMA_VERSION):
        raw = STEPS[version](raw) | {"schema_version": version + 1}
    return raw
