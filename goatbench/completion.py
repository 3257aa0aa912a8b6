"""Tab completion of overrides: `task=`, `attention=`, ... and single keys. No torch, no Hydra."""

from __future__ import annotations

import typer

from .config_tree import GROUPS, ConfigTree

KEYS = (*(f"{group}=" for group in GROUPS), "seed=", "kernel=", "retrain=", "runs_dir=")
KERNELS = ("auto", "reference", "sdpa", "flash", "flex")


def complete_override(context: typer.Context, incomplete: str) -> list[str]:
    """What typer calls for the overrides of `run`; the words before the cursor are the argument's value so far."""
    return candidates(list(context.params.get("overrides") or []), incomplete)


def complete_task(context: typer.Context, incomplete: str) -> list[str]:
    """Task names for `leaderboard`, plain or behind `task=`."""
    before = list(context.params.get("names") or [])
    if incomplete.startswith(("task=", "=")) or (before and before[-1] in ("task", "=")):
        return candidates(before, incomplete)
    return [name for name in ("task=", *ConfigTree.find().options("task")) if name.startswith(incomplete)]


def complete_name(incomplete: str) -> list[str]:
    """Names that `show` knows."""
    tree = ConfigTree.find()
    return [name for group in GROUPS for name in tree.options(group) if name.startswith(incomplete)]


def complete_scale(incomplete: str) -> list[str]:
    """Names of scales."""
    return [name for name in ConfigTree.find().options("scale") if name.startswith(incomplete)]


def candidates(args: list[str], incomplete: str) -> list[str]:
    """Candidates for the override under the cursor.

    bash breaks words at '=', so `task=vi` arrives as ['task', '='] and 'vi', and only the part behind '=' is to be returned;
    other shells hand over the whole word.
    """
    if incomplete in ("", "=") and args and f"{args[-1]}=" in KEYS:  # typer turns a lone '=' into ''
        return _values(args[-1], "")
    if len(args) >= 2 and args[-1] == "=":
        return _values(args[-2], incomplete)
    key, equals, value = incomplete.partition("=")
    if equals:
        return [f"{key}={name}" for name in _values(key, value)]
    return [word for word in KEYS if word.startswith(incomplete)]


def _values(key: str, start: str) -> list[str]:
    """Names of a group that begin with `start`; in a sweep (`a,b`) the last one is completed."""
    before, comma, last = start.rpartition(",")
    if key in GROUPS:
        names = ConfigTree.find().options(key)
    else:
        names = {"kernel": list(KERNELS), "retrain": ["true", "false"]}.get(key, [])
    return [f"{before}{comma}{name}" for name in names if name.startswith(last)]
