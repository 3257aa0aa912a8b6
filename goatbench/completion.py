"""Tab completion of overrides: `task=`, `attention=`, ... and single keys. No torch, no Hydra."""

from __future__ import annotations

import typer

from .config_tree import GROUPS, ConfigTree

KEYS = (*(f"{group}=" for group in GROUPS), "seed=", "kernel=", "retrain=", "runs_dir=")
DATA_KEYS = ("data.path=", "data.root=", "data.fasta=", "data.split_file=", "data.class_map=", "data.tokenizer_file=")
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


def complete_name_or_run(context: typer.Context, incomplete: str) -> list[str]:
    """Names that `show` knows, then own runs."""
    return [*complete_name(incomplete), *_runs(context, incomplete)]


def complete_row_or_run(context: typer.Context, incomplete: str) -> list[str]:
    """Attentions, then own runs."""
    return [*complete_attention(incomplete), *_runs(context, incomplete)]


def complete_data(incomplete: str) -> list[str]:
    return [name for name in ConfigTree.find().options("data") if name.startswith(incomplete)]


def complete_data_key(incomplete: str) -> list[str]:
    """Where data lie; shells complete the file behind the '='."""
    return [key for key in DATA_KEYS if key.startswith(incomplete)]


def complete_run(context: typer.Context, incomplete: str) -> list[str]:
    """Own runs."""
    return _runs(context, incomplete)


def complete_task_name(incomplete: str) -> list[str]:
    return [name for name in ConfigTree.find().options("task") if name.startswith(incomplete)]


def _runs(context: typer.Context, incomplete: str) -> list[str]:
    """Run ids below --runs-dir that begin so; none for an empty word, there may be thousands."""
    from pathlib import Path

    root = Path(context.params.get("runs_dir") or "runs")
    return sorted(path.parent.name for path in root.glob("*/record.json") if path.parent.name.startswith(incomplete)) if incomplete else []


def complete_attention(incomplete: str) -> list[str]:
    """Attentions, for `leaderboard --against` and `compare`."""
    return [name for name in ConfigTree.find().options("attention") if name.startswith(incomplete)]


def complete_job(context: typer.Context, incomplete: str) -> list[str]:
    """Jobs of the suite that `check` runs: tasks, then TASK/ATTENTION."""
    from pathlib import Path

    from .regression.suite import SMOKE, read_suite

    suite = read_suite(Path(context.params.get("suite") or SMOKE))
    return [name for name in (*suite.tasks, *(job.name for job in suite.jobs())) if name.startswith(incomplete)]


def complete_scale(incomplete: str) -> list[str]:
    return [name for name in ConfigTree.find().options("scale") if name.startswith(incomplete)]


def complete_metric(context: typer.Context, incomplete: str) -> list[str]:
    """Metrics of the tasks that stand before the cursor, of all tasks if none does."""
    from .registry import load_plugins, tasks

    load_plugins()
    before = [name.removeprefix("task=") for name in context.params.get("names") or []]
    cards = [tasks.get(name).card for name in before if name in tasks] or [tasks.get(name).card for name in tasks.names()]
    return sorted({metric.name for card in cards for metric in card.metrics if metric.name.startswith(incomplete)})


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
