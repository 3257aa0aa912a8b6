"""What `list` and `show` print: names, one line each, and the whole story of one name. No torch, no Hydra."""

from __future__ import annotations

import ast
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable
from importlib import util
from pathlib import Path
from typing import Any

from .capabilities import EXPLAINED, FACTS, joined, read_capabilities
from .config_tree import ConfigTree
from .errors import UsageError
from .registry import OWN, attentions, broken_plugins, inner_attentions, load_plugins, nearest, tasks

LIST_WIDTH = 110
SECTIONS = {
    "tasks": "task",
    "attentions": "attention",
    "models": "model",
    "scales": "scale",
    "recipes": "recipe",
    "data": "data",
    "evaluations": "evaluation",
    "trainers": "trainer",
    "launchers": "launch",
}

SCALES = {
    "smoke": "seconds, for CI: does everything run? Its scores mean nothing",
    "embedded": "the default: minutes on one CPU core, real data that ship inside the package",
    "paper": "full data sets on GPUs, several nodes: ImageNet-1k, a whole genome, C4",
}


def list_lines(sections: Iterable[str], config_dir: str | None = None) -> list[str]:
    """The names of these sections, each with one line of explanation and its provider if that is not goatbench."""
    load_plugins()
    tree = ConfigTree.find(config_dir)
    lines: list[str] = []
    for section in sections:
        group = SECTIONS[section]
        lines += ["", f"{section} ({group}=NAME)"] if lines else [f"{section} ({group}=NAME)"]
        if group == "attention":
            lines += _attention_table(tree)
            continue
        names = tree.options(group)
        width = max((len(name) for name in names), default=0)
        lines += [f"  {name:{width}}  {_one_line(tree, group, name)}" for name in names]
    return lines


def fitted(lines: Iterable[str], width: int | None) -> list[str]:
    """Lines of at most `width` characters (None: as they are): what does not fit goes on below, further in than its beginning."""
    if width is None:
        return list(lines)
    wrapped = (textwrap.wrap(line, max(20, width), subsequent_indent=" " * 6) or [""] for line in lines)
    return [part.rstrip() for parts in wrapped for part in parts]


def terminal_width() -> int | None:
    """Of the terminal that is written to, or COLUMNS; None where neither says one."""
    return shutil.get_terminal_size().columns if os.environ.get("COLUMNS") or sys.stdout.isatty() else None


def show_lines(name: str, config_dir: str | None = None) -> list[str]:
    """Everything there is to say about one task, attention, scale, model, data set, evaluation preset or trainer."""
    load_plugins()
    tree = ConfigTree.find(config_dir)
    group, _, bare = name.rpartition("=")
    found = [other for other in SECTIONS.values() if bare in tree.options(other) and group in ("", other)]
    if not found:
        known = [option for other in SECTIONS.values() for option in tree.options(other)]
        guess = nearest(bare, known)
        hint = f"; did you mean '{guess}'?" if guess else ""
        raise UsageError(f"nothing is called '{name}'{hint} (goatbench list prints all names){broken_plugins()}")
    if found[0] == "task":
        return _task_lines(tree, bare)
    if found[0] == "attention":
        return _attention_lines(tree, bare)
    files = [f"{bare}/{domain}" for domain in tree.settings(bare)] if found[0] == "scale" else [bare]
    lines: list[str] = []
    for file in files:
        lines += [f"{found[0]} {file}", *_indent(tree.comment(found[0], file)), *_values(tree.read(found[0], file))]
    return lines


def _one_line(tree: ConfigTree, group: str, name: str) -> str:
    if group == "scale":
        domains = tree.settings(name)
        text, provider = tree.comment(group, f"{name}/{domains[0]}"), tree.provider(group, f"{name}/{domains[0]}")
        line = SCALES.get(name) or f"[{', '.join(domains)}] {_about(text)}"
    else:
        provider = tree.provider(group, name)
        line = _about(tree.comment(group, name))
        if group == "task" and name in tasks:
            line = tasks.get(name).card.summary
    return line if provider == "goatbench" else f"{line} (from {provider})"


def _attention_table(tree: ConfigTree) -> list[str]:
    """A line a row: axes, what its small model answered (unknown for rows of others), and what it is, cut to the terminal's width."""
    known = read_capabilities()
    rows = [("", "", *FACTS)]
    for name in tree.options("attention"):
        axes = " ".join(f"{count}D" for count in tree.read("attention", name).get("axes", [1, 2]))
        rows.append((name, f"[{axes:5}]", *joined(known.get(name, {}) if tree.provider("attention", name) == OWN else {})))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(["", *(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True))]) for row in rows]
    for i, (name, *_) in enumerate(rows[1:], start=1):
        provider = tree.provider("attention", name)
        origin = "" if provider == OWN else f" (from {provider})"
        room = LIST_WIDTH - len(lines[i]) - len(origin) - 2
        lines[i] += "  " + textwrap.shorten(_about(tree.comment("attention", name)), max(20, room), placeholder=" ...") + origin
    return [line.rstrip() for line in lines] + [f"  {line}" for line in EXPLAINED]


def _about(comment: list[str]) -> str:
    """The first line of a file's comment that is not the command."""
    return next((line for line in comment if not line.startswith("goatbench ")), "")


def _task_lines(tree: ConfigTree, name: str) -> list[str]:
    card, comment = tasks.get(name).card, tree.comment("task", name)
    metric = card.metric(card.primary_metric)
    conditions = ", ".join(f"{key} {value}" for key, value in card.primary_conditions.items())
    lines = [f"task {card.name}, version {card.version} ({card.domain})", *_wrap("what", card.summary), *_wrap("protocol", card.protocol)]
    lines += _wrap("headline", f"{metric.name} at {conditions}, {metric.reading}")
    for one in card.metrics:
        levels = one.chance if isinstance(one.chance, dict) else {} if one.chance is None else {"": one.chance}
        chance = " ".join(["chance", *(f"{level:g} {scale}".strip() for scale, level in levels.items())]) if levels else "no chance level"
        chance += "".join(f" where {name} = {value}" for name, value in one.chance_where.items())
        shown = ", shown in percent" if one.percent else ""
        lines += _wrap("metric", f"{one.name}: {one.unit}{shown}, {one.reading}, {chance}")
    for scale, text in card.expected_time.items():
        lines += _wrap("time", f"{scale}: {text}")
    lines += [line for text in comment if text.startswith("Expected") for line in _wrap("expected", text)]
    return [*lines, *_wrap("source", card.source), *_wrap("run", f"goatbench run task={name}")]


def _attention_lines(tree: ConfigTree, name: str) -> list[str]:
    targets = [attentions.target(scheme) for scheme in tree.schemes_of(name)]
    inner = tree.read("attention", name).get("inner")
    targets += [inner_attentions.target(inner)] if inner in inner_attentions else []
    values = {key: value for key, value in tree.read("attention", name).items() if key != "name"}
    return [
        f"attention {name} (from {tree.provider('attention', name)}, {' + '.join(targets)})",
        *_indent(tree.comment("attention", name)),
        *_values(values),
        *_capability_lines(tree, name),
        *(line for target in targets for line in _indent(_class_docstring(target).splitlines())),
    ]


def _capability_lines(tree: ConfigTree, name: str) -> list[str]:
    known = read_capabilities().get(name, {}) if tree.provider("attention", name) == OWN else {}
    return [line for axes, facts in known.items() for line in _wrap(axes, ", ".join(f"{key} {value}" for key, value in facts.items()))]


def _class_docstring(target: str) -> str:
    """The docstring of "module:Class", read from the source: importing it would import torch."""
    module, _, name = target.partition(":")
    top, *rest = module.split(".")
    found = util.find_spec(top)
    for place in (found.submodule_search_locations if found else None) or []:
        for path in (Path(place, *rest).with_suffix(".py"), Path(place, *rest, "__init__.py")):
            if path.is_file():
                classes = [node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.ClassDef)]
                return next((ast.get_docstring(node) or "" for node in classes if node.name == name), "")
    return ""


def _wrap(label: str, text: str) -> list[str]:
    return textwrap.wrap(text, width=100, initial_indent=f"  {label:<9} ", subsequent_indent=" " * 12)


def _indent(lines: Iterable[str]) -> list[str]:
    return [f"  {line}".rstrip() for line in lines]


def _values(values: dict[str, Any]) -> list[str]:
    import yaml

    values = {key: value for key, value in values.items() if key != "defaults"}
    return _indent(yaml.safe_dump(values, sort_keys=False, default_flow_style=None).splitlines())
