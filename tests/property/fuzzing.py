"""For tests that feed damaged input: what may be raised, where may be written, and JSON that was changed at random places."""

from __future__ import annotations

import copy
import os
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from goatbench import complaints
from goatbench.errors import UsageError

TIMES_SLOW = 5  # 2,000 examples in all in CI, 10,000 in the long run
NUMBERS = st.integers() | st.floats() | st.sampled_from([10**400, -(2**63), 1e308, -0.0, True])
TEXTS = st.text(max_size=20) | st.sampled_from(["", "../../x", "/etc/passwd", "=1+1", "\x1b[2J", "\ud800", "a\nb", "x" * 5000])
VALUES = st.recursive(
    st.none() | NUMBERS | TEXTS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=6
)
CHANGES = st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from(["set", "delete", "add"]), TEXTS, VALUES), min_size=1, max_size=4)


COUNTS: list[int] = []  # of every test that is marked with `examples`


def examples(number):
    """So many in CI, and five times as many in the long run."""
    COUNTS.append(number)
    return pytest.mark.parametrize("number", [number, pytest.param(TIMES_SLOW * number, marks=pytest.mark.slow)])


def fuzz(number):
    """hypothesis without a database on disk, without a clock, and without the long search for a smallest example."""
    return settings(
        max_examples=number, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck), report_multiple_bugs=False,
    )  # fmt: skip


def changed(tree, changes):
    """A copy of a JSON tree with values set, deleted or added at the places that the numbers point to."""
    tree = copy.deepcopy(tree)
    for number, how, name, value in changes:
        places = list(_places(tree))
        if not places:
            return value
        holder, key = places[number % len(places)]
        if how == "delete":
            del holder[key]
        elif how == "add" and isinstance(holder, dict):
            holder[name] = value
        else:
            holder[key] = value
    return tree


def _places(tree):
    for key in tree if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ():
        yield tree, key
        yield from _places(tree[key])


def damaged(content, changes):
    """Bytes with some of them replaced, cut off or repeated. changes: (place, how, bytes)."""
    for place, how, other in changes:
        at = place % (len(content) + 1)
        after = {"replace": at + len(other), "insert": at, "cut": len(content)}[how]
        content = content[:at] + other + content[after:]
    return content


BYTE_CHANGES = st.lists(
    st.tuples(st.integers(0, 10**6), st.sampled_from(["replace", "insert", "cut"]), st.binary(max_size=8)), min_size=1, max_size=4
)


@contextmanager
def only_one_line():
    """A UsageError with words is an answer (the command line prints it on one line); any other exception fails the test."""
    try:
        yield
    except UsageError as error:
        line = complaints.one_line(str(error))
        assert line and line.isprintable()


_WATCH: dict = {"root": None, "strays": []}


TWO_PATHS = ("os.rename", "os.link", "os.symlink")


def _hook(event, arguments):
    root = _WATCH["root"]
    if root is None:
        return
    if event == "open":
        path, _, flags = arguments
        paths = [path] if isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) else []
    elif event in TWO_PATHS:
        paths = arguments[:2]
    else:
        paths = arguments[:1] if event in ("os.mkdir", "os.remove", "os.rmdir") else []
    for path in paths:
        if isinstance(path, str | bytes | os.PathLike):
            name = os.path.abspath(os.fsdecode(path))
            is_ours = f"{name}/".startswith((f"{root}/", "/dev/", "/proc/self/"))
            if not is_ours and not {"__pycache__", ".hypothesis"} & set(name.split("/")):
                _WATCH["strays"].append(f"{event} {name}")


sys.addaudithook(_hook)


@contextmanager
def nothing_written_outside(root: Path):
    """Python's own audit events tell of every file that is opened for writing, made, moved or removed."""
    before, strays = dict(_WATCH), []
    _WATCH.update(root=os.path.realpath(root), strays=strays)
    try:
        yield
    finally:
        _WATCH.update(before)
    assert not strays, strays
