"""Canonical JSON and its digest: the one way this project names a value by a hash."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def canonical_json(value: Any) -> str:
    """Sorted keys, no white space, no NaN: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(value: Any) -> str:
    """sha256 of the canonical JSON, 16 hex digits."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:16]
