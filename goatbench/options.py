"""Options that several verbs share, and what all of them refuse before any import that takes long."""

from __future__ import annotations

from typing import Annotated

import typer

from .errors import UsageError

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
