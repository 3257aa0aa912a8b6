"""Options that several verbs share."""

from __future__ import annotations

from typing import Annotated

import typer

ConfigDir = Annotated[str | None, typer.Option(metavar="DIR", help="A folder with YAML of your own, with the groups of configs/.")]
RunsDir = Annotated[str, typer.Option(metavar="DIR", help="Where runs lie.")]
ResultsDir = Annotated[str | None, typer.Option(metavar="DIR", help="Published results; default: those of this installation.")]
