"""Options that several verbs share, and what all of them refuse before any import that takes long."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from .config_tree import GROUPS, ConfigTree
from .errors import UsageError
from .registry import broken_plugins, load_plugins

ConfigDir = Annotated[str | None, typer.Option(metavar="DIR", help="A folder with YAML of your own, with the groups of configs/.")]
RunsDir = Annotated[str, typer.Option(metavar="DIR", help="Where runs lie.")]
ResultsDir = Annotated[str | None, typer.Option(metavar="DIR", help="Published results; default: those of this installation.")]


def check_given_once(lines: list[str]) -> None:
    """UsageError if a command line gives a key twice: which of them counts would be a matter of order."""
    given: dict[str, str] = {}
    for line in lines:
        key = line.partition("=")[0].strip().lstrip("+")
        if key in given:
            raise UsageError(f"{key} is given twice, as {given[key]} and {line}: keep one (goatbench run -m {key}=A,B runs both)")
        given[key] = line


def check_names(lines: list[str], config_dir: str | None) -> None:
    """UsageError for a plain task=NAME, attention=NAME, ... that is nowhere: seconds before Hydra and the specification would say so."""
    tree = ConfigTree.find(config_dir)
    for key, _, name in (line.partition("=") for line in lines):
        if key in GROUPS and re.fullmatch(r"[A-Za-z]\w*", name) and name not in ("null", "true", "false"):
            try:
                tree.check(key, name)
            except UsageError as error:
                load_plugins()
                raise UsageError(f"{error}{broken_plugins()}") from None
