"""Tab completion of overrides: `task=`, `attention=`, ... and single keys. No torch, no Hydra."""

from __future__ import annotations

from .config_tree import GROUPS, ConfigTree

SINGLE = ("seed=", "kernel=", "retrain=", "runs_dir=")
KERNELS = ("auto", "reference", "sdpa", "flash", "flex")


def complete_override(args: list[str], incomplete: str) -> list[str]:
    """Candidates for the word under the cursor.

    bash breaks words at '=', so `task=vi` arrives as ['task', '='] and 'vi', and only the part behind '=' is to be returned;
    other shells hand over the whole word.
    """
    if incomplete == "=" and args:
        return _values(args[-1], "")
    if len(args) >= 2 and args[-1] == "=":
        return _values(args[-2], incomplete)
    key, equals, value = incomplete.partition("=")
    if equals:
        return [f"{key}={name}" for name in _values(key, value)]
    return [word for word in (*(f"{group}=" for group in GROUPS), *SINGLE) if word.startswith(incomplete)]


def complete_task(args: list[str], incomplete: str) -> list[str]:
    """Task names for `leaderboard`, plain or behind `task=`."""
    if incomplete.startswith(("task", "=")) or (args and args[-1] == "="):
        return complete_override(args, incomplete)
    return [name for name in ConfigTree.find().options("task") if name.startswith(incomplete)]


def complete_name(incomplete: str) -> list[str]:
    """Names that `show` knows."""
    tree = ConfigTree.find()
    return [name for group in GROUPS for name in tree.options(group) if name.startswith(incomplete)]


def _values(key: str, start: str) -> list[str]:
    """Names of a group that begin with `start`; in a sweep (`a,b`) the last one is completed."""
    before, comma, last = start.rpartition(",")
    if key in GROUPS:
        names = ConfigTree.find().options(key)
    else:
        names = {"kernel": list(KERNELS), "retrain": ["true", "false"]}.get(key, [])
    return [f"{before}{comma}{name}" for name in names if name.startswith(last)]
