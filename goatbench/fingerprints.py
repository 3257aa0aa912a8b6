"""What each task's scores rest on, one hash a file: a change that can move a score without a new version of the task is noticed.

    python -m goatbench.fingerprints                     after a version was bumped, or a task added
    python -m goatbench.fingerprints --accept REASON     after a change that cannot move a score

A task rests on its card, on the code of its module and of what that imports of tasks/, data/, metrics/ and training/, on the YAML of
the task and of its scales, and on the embedded data of its domain. Code counts without comments, docstrings and formatting, YAML by
its values. Mechanisms and models are no part of a task: `goatbench check` watches those. No torch here.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .config_tree import ConfigTree
from .records.canonical import digest
from .records.files import replace_atomic
from .records.source import card_hash
from .registry import DATA_SOURCES, OWN, tasks, text_sources

FILE = Path(__file__).with_name("fingerprints.json")
COMMAND = "python -m goatbench.fingerprints"
PARTS = ("tasks", "data", "metrics", "training")
# what a run costs, not what it scores
COST_ONLY = {f"goatbench.training.{name}" for name in ("memory", "live_storages", "step_cost", "waiting")}
SCALES = ("embedded", "paper")  # smoke has no published scores
EMBEDDED = {  # domain -> files of the package
    "vision": ("data/embedded/fashion_mnist.xz", "data/embedded/fashion_mnist.json"),
    "genome": ("data/genome/embedded/genome.packed", "data/genome/embedded/manifest.json", "data/genome/embedded/split.tsv"),
    "text": ("data/text/embedded/sotu.xz", "data/text/embedded/manifest.json"),
    "stories": ("data/text/embedded/sotu.xz", "data/text/embedded/manifest.json"),
    "toy": (),
}
ROOT = Path(__file__).resolve().parent

Fingerprints = dict[str, Any]  # {"files": path -> hash, "tasks": name -> {"version", "card", "paths", "files"}, "accepted": [reason]}


def compute() -> Fingerprints:
    """Those of this tree. A task's `files` is one hash over its paths and their hashes."""
    hashes: dict[str, str] = {}
    found = {}
    for name in tasks.names():
        if tasks.provider(name) == OWN:
            card, mine = tasks.get(name).card, hashes_of(name)
            hashes |= mine
            found[name] = {"version": card.version, "card": card_hash(card), "paths": sorted(mine), "files": digest(sorted(mine.items()))}
    return {"files": dict(sorted(hashes.items())), "tasks": found}


def hashes_of(task: str) -> dict[str, str]:
    """Path inside the package ('tasks/genome_nll.py', 'configs/task/needle.yaml') -> hash, for all that the task's scores rest on."""
    domain = tasks.get(task).card.domain
    registries = [DATA_SOURCES[domain], *([text_sources] if domain == "stories" else [])]  # lazy names, which no import shows
    targets = [tasks.target(task)]
    targets += [registry.target(name) for registry in registries for name in registry.names() if registry.provider(name) == OWN]
    modules = {module for target in targets for module in closure(target.partition(":")[0])}
    hashes = {_path(module): _module_hash(module) for module in modules}
    hashes |= {f"configs/{group}/{name}.yaml": digest(values) for (group, name), values in _configs(task).items()}
    return hashes | {path: _data_hash(path) for path in EMBEDDED[domain]}


def unexplained(written: Fingerprints, now: Fingerprints) -> list[str]:
    """One line a task that changed while its version did not, or whose version went back."""
    lines = []
    for name, new in now["tasks"].items():
        old = written["tasks"].get(name)
        if old is None or old["version"] < new["version"]:
            continue
        if old["version"] > new["version"]:
            lines.append(f"task {name}: version {new['version']} follows version {old['version']}: versions only grow")
        elif changed := _changed(old, new, written["files"], now["files"]):
            more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
            place = _path(tasks.target(name).partition(":")[0])
            lines.append(
                f"task {name}: its code changed but its version did not ({', '.join(changed[:3])}{more}): bump the version in {place} "
                f"and run `{COMMAND}` or, if the change cannot move a score, run `{COMMAND} --accept REASON`"
            )
    return lines


def outdated(written: Fingerprints, now: Fingerprints) -> list[str]:
    """One line a task that is new, has a new version, or is gone, and whose fingerprint was not written since."""
    lines = []
    for name in dict.fromkeys([*now["tasks"], *written["tasks"]]):
        old, new = written["tasks"].get(name), now["tasks"].get(name)
        if new is None:
            lines.append(f"task {name}: it is gone, its fingerprint is not: run `{COMMAND}`")
        elif old is None or old["version"] < new["version"]:
            lines.append(f"task {name}: version {new['version']} has no fingerprint yet: run `{COMMAND}`")
    return lines


def _changed(old: dict[str, Any], new: dict[str, Any], before: dict[str, str], after: dict[str, str]) -> list[str]:
    """'card' and the paths that are other ones, or have another hash."""
    paths = [path for path in sorted({*old["paths"], *new["paths"]}) if path not in new["paths"] or before.get(path) != after.get(path)]
    return (["card"] if old["card"] != new["card"] else []) + paths


@cache
def closure(module: str) -> frozenset[str]:
    """The module and all of PARTS that it imports, directly or through others, at the top or inside a function."""
    found: set[str] = set()
    waiting = [module]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting += _imports(one)
    return frozenset(found)


@cache
def _imports(module: str) -> tuple[str, ...]:
    """Modules of PARTS that this one's statements name; imports for type checkers do not count."""
    file = _file(module)
    package = module.split(".") if file.name == "__init__.py" else module.split(".")[:-1]
    named: list[str] = []
    for node in _running(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            named += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            named += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return tuple(name for name in dict.fromkeys(named) if _counts(name) and _file(name).is_file())


def _running(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below, but for those under `if TYPE_CHECKING:`."""
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING"):
            yield child
            yield from _running(child)


def _counts(module: str) -> bool:
    parts = module.split(".")
    return parts[0] == "goatbench" and len(parts) > 1 and parts[1] in PARTS and module not in COST_ONLY


def _file(module: str) -> Path:
    """The file of one of our modules, whether or not there is one; tasks/ lies elsewhere in an editable install."""
    below = module.split(".")[1:]
    if below[0] == "tasks":
        spec = find_spec("goatbench.tasks")
        assert spec is not None and spec.submodule_search_locations
        place = Path(next(iter(spec.submodule_search_locations))).joinpath(*below[1:])
    else:
        place = ROOT.joinpath(*below)
    return place / "__init__.py" if place.is_dir() else place.with_name(f"{place.name}.py")


def _path(module: str) -> str:
    """'tasks/needle.py', 'data/text/__init__.py'."""
    inside = module.removeprefix("goatbench.").replace(".", "/")
    return f"{inside}/__init__.py" if _file(module).name == "__init__.py" else f"{inside}.py"


@cache
def _module_hash(module: str) -> str:
    return code_hash(_file(module).read_text(encoding="utf-8"))


@cache
def _data_hash(path: str) -> str:
    return hashlib.sha256((ROOT / path).read_bytes()).hexdigest()[:16]


def code_hash(source: str) -> str:
    """Of what the code does: comments, docstrings, formatting and the Python version that reads it make no difference."""
    parts: list[str] = []
    _dump(ast.parse(source), parts)
    return hashlib.sha256("".join(parts).encode()).hexdigest()[:16]


def _dump(node: Any, parts: list[str]) -> None:
    """Type names and fields in order. Fields that are empty are left out: newer Pythons have more of them."""
    if isinstance(node, ast.AST):
        parts.append(f"({type(node).__name__}")
        for name, value in ast.iter_fields(node):
            if name == "body" and isinstance(value, list):
                value = [part for part in value if not _is_docstring(part)]
            if value is not None and value != []:
                parts.append(f" {name}=")
                _dump(value, parts)
        parts.append(")")
    elif isinstance(node, list):
        for item in node:
            _dump(item, parts)
            parts.append(",")
    else:
        parts.append(repr(node))


def _is_docstring(statement: ast.stmt) -> bool:
    """A string that stands alone does nothing, wherever it stands."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant) and isinstance(statement.value.value, str)


@cache
def _tree() -> ConfigTree:
    return ConfigTree.find()


def _configs(task: str) -> dict[tuple[str, str], dict[str, Any]]:
    """(group, name) -> values of the task's own file, its file of each scale, and all that these take by their defaults."""
    tree = _tree()
    setting = tree.setting_of(task)
    waiting = [("task", task), *(("scale", f"{scale}/{setting}") for scale in SCALES if setting in tree.settings(scale))]
    found: dict[tuple[str, str], dict[str, Any]] = {}
    while waiting:
        group, name = waiting.pop()
        found[group, name] = values = tree.read(group, name)
        for entry in values.get("defaults", []):
            if isinstance(entry, dict):
                waiting += [(key.removeprefix("/"), chosen) for key, chosen in entry.items() if key != "/trainer"]  # the machine
            elif entry != "_self_":
                waiting.append((group, entry))
    return found


def read() -> Fingerprints:
    """Those that were written; none before the first time."""
    return json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {"files": {}, "tasks": {}, "accepted": []}


def write(now: Fingerprints, accepted: list[str]) -> None:
    replace_atomic(FILE, (json.dumps(now | {"accepted": accepted}, indent=1) + "\n").encode())


def main(arguments: list[str] | None = None) -> int:
    """Exit code 1, one line a task and nothing written if a task changed without a version or a reason."""
    parser = argparse.ArgumentParser(prog=COMMAND, description="Update goatbench/fingerprints.json.")
    parser.add_argument("--accept", metavar="REASON", help="why the changes cannot move a score; kept in the file")
    reason = parser.parse_args(arguments).accept
    if reason is not None and not reason.strip():
        parser.error("--accept needs a reason in words")
    written, now = read(), compute()
    found = unexplained(written, now)
    if found and reason is None:
        print("\n".join(found))
        return 1
    write(now, [*written["accepted"], *([reason.strip()] if reason else [])])
    print(f"fingerprints of {len(now['tasks'])} tasks written to {FILE.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
