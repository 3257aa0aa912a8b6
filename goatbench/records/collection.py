"""Reading thousands of records without Python's search for cycles, which they do not have. Light to import."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def collection_paused() -> Iterator[None]:
    """Around a function, as a decorator: what it made is gone when collection goes on.

    Each search visits every object that is alive, so with the number of records it takes longer than reading them.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
