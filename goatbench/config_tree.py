"""The YAML files that a run can choose from: ours, those of plug-in packages, those of `--config-dir`. No Hydra here.

A plug-in's entry point in the group `goatbench.configs` names a package of YAML with the same groups as ours
(task/, attention/, model/, ...). Listing, completion and error messages read names from here, so they answer at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from importlib import util
from pathlib import Path
from typing import Any

from .errors import UsageError
from .registry import CONFIG_GROUP, OWN, nearest, plugin_entry_points, provider_of, unknown

GROUPS = {  # and what one of its names is
    "task": "a task", "attention": "an attention", "scale": "a scale", "recipe": "a recipe", "model": "a model", "data": "a data set",
    "evaluation": "an evaluation preset", "trainer": "a trainer", "launch": "a launcher",
}  # fmt: skip


@dataclass(frozen=True)
class Root:
    """One folder of YAML: where it is, who provides it, and how Hydra calls it."""

    path: Path
    provider: str
    search_path: str


class ConfigTree:
    """All YAML files by group and name. Two roots that have the same file raise UsageError: no file silently hides another."""

    def __init__(self, roots: list[Root]) -> None:
        self.roots = roots

    @classmethod
    def find(cls, config_dir: str | None = None) -> ConfigTree:
        """Our files, then those of installed plug-ins, then those of config_dir."""
        roots = [Root(_package_path("goatbench.configs"), OWN, "pkg://goatbench.configs")]
        for point in plugin_entry_points(CONFIG_GROUP):
            roots.append(Root(_package_path(point.value, provider_of(point)), provider_of(point), f"pkg://{point.value}"))
        if config_dir is not None:
            path = Path(config_dir).resolve()
            if not path.is_dir():
                raise UsageError(f"--config-dir {config_dir} is not a folder")
            roots.append(Root(path, "--config-dir", f"file://{path}"))
        return cls(roots)

    @cached_property
    def _files(self) -> dict[tuple[str, str], tuple[Path, Root]]:
        found: dict[tuple[str, str], tuple[Path, Root]] = {}
        for root in self.roots:
            for group in GROUPS:
                for path in sorted((root.path / group).rglob("*.yaml")):
                    key = group, path.relative_to(root.path / group).with_suffix("").as_posix()
                    if key in found:
                        raise UsageError(f"{group}={key[1]} is provided by both {found[key][1].provider} and {root.provider}; rename one")
                    found[key] = path, root
        return found

    def options(self, group: str) -> list[str]:
        """The names to choose from in a group. A scale is a folder with one file a domain (or more: `setting_of`)."""
        names = [name for in_group, name in self._files if in_group == group]
        return list(dict.fromkeys(name.partition("/")[0] for name in names)) if group == "scale" else names

    def setting_of(self, task: str) -> str:
        """The file of a scale's folder that a task takes: that of its domain, unless the task's file names another."""
        values = self.read("task", task)
        return values.get("setting") or values.get("domain", "")

    def settings(self, scale: str) -> list[str]:
        """The files of a scale: one a domain, and those that tasks name."""
        return [name.partition("/")[2] for group, name in self._files if group == "scale" and name.startswith(scale + "/")]

    def scale_choice(self, scale: str, setting: str, group: str) -> str | None:
        """What a scale's file takes of a group."""
        entries = self._defaults("scale", f"{scale}/{setting}")
        return next((entry[f"/{group}"] for entry in entries if f"/{group}" in entry), None)

    def _defaults(self, group: str, name: str) -> list[dict[str, Any]]:
        """The choices that a file makes."""
        entries = self.read(group, name).get("defaults")
        return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []

    def model_of_recipe(self, recipe: str) -> str | None:
        """The model that a recipe's file chooses."""
        return next(
            (entry["override /model"] for entry in self._defaults("recipe", recipe) if "override /model" in entry), None
        )

    def models_with(self, values: dict[str, Any], width: int, depth: int) -> list[str]:
        """The models whose files hold these values; first those whose weights, about width^2 * depth, are as many as here."""
        found = {name: read for name in self.options("model") if values.items() <= (read := self.read("model", name)).items()}
        distance = lambda read: abs(math.log(read["embed_dim"] ** 2 * read["depth"] / (width**2 * depth)))
        return sorted(found, key=lambda name: distance(found[name]))

    def check(self, group: str, name: str) -> None:
        """UsageError if the group has no such choice, with the groups that do have it or the nearest name."""
        if name not in self.options(group):
            others = [f"{noun}: {other}={name}" for other, noun in GROUPS.items() if name in self.options(other)]
            raise UsageError(unknown(group, name, self.options(group), f"{name} is {' and '.join(others)}" if others else ""))

    def read(self, group: str, name: str) -> dict[str, Any]:
        """The values as they stand in the file, nothing composed. UsageError without such a file: another one may name it."""
        if (group, str(name)) not in self._files:
            self.check(group, str(name))
        return _load(self._files[group, str(name)][0])

    def defaults(self) -> dict[str, str]:
        """The choices of run.yaml: group -> name. A group that is optional has none."""
        root = _load(self.roots[0].path / "run.yaml")
        return {group: name for entry in root["defaults"] if isinstance(entry, dict) for group, name in entry.items() if name}

    def comment(self, group: str, name: str) -> list[str]:
        """The comment a file opens with: its command, the expected time, the expected result and its source."""
        lines = []
        for line in self._files[group, name][0].read_text(encoding="utf-8", errors="replace").splitlines():
            if not line.startswith("#"):
                break
            if not line.startswith("# @package"):
                lines.append(line.lstrip("# "))
        return lines

    def provider(self, group: str, name: str) -> str:
        return self._files[group, name][1].provider

    def attentions_for(self, num_axes: int) -> list[str]:
        """The attentions that are defined for this number of axes."""
        return [name for name in self.options("attention") if num_axes in self.read("attention", name).get("axes", [1, 2])]

    def schemes_of(self, attention: str) -> list[str]:
        """Registry names of the position schemes that a row takes: its own name, unless its file says otherwise."""
        return (self.read("attention", attention).get("position") or attention).split("+")

    def nearest_attention(self, name: str, num_axes: int) -> str | None:
        """What to take in place of `name` for this number of axes: its family's plain row or nearest one. None if there is no such."""
        fitting, family = self.attentions_for(num_axes), name.partition("_")[0]
        if family in fitting:
            return family
        return nearest(name, [other for other in fitting if other.partition("_")[0] == family], cutoff=0)


def _load(path: Path) -> dict[str, Any]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C one is ten times faster, and not everywhere
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), Loader=loader)
    except yaml.YAMLError as error:
        where = f"line {mark.line + 1}: " if (mark := getattr(error, "problem_mark", None)) else ""
        raise UsageError(f"{path} is not valid YAML: {where}{str(error).splitlines()[0]}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 (byte {error.start}): a YAML file is text; save it again as UTF-8") from None
    if not isinstance(values, dict):
        raise UsageError(f"{path} holds {'nothing' if values is None else f'a {type(values).__name__}'}; write 'key: value' lines")
    return values


def _package_path(package: str, provider: str = OWN) -> Path:
    """The folder of a package, without running it where it is a top-level one."""
    try:
        spec = util.find_spec(package)
    except ImportError:
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise UsageError(f"config package '{package}' of {provider} cannot be found; reinstall it, or set GOATBENCH_NO_PLUGINS=1")
    return Path(next(iter(spec.submodule_search_locations)))
