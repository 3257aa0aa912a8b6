"""What goes wrong at the command line, in one line on standard error."""

from __future__ import annotations

import re
import sys
from typing import Any

from .registry import nearest

ELSEWHERE = {  # options that other verbs have
    ("run", "--runs-dir"): "write runs_dir=PATH",
    ("run", "--task"): "write task=NAME",
    ("run", "--scale"): "write scale=NAME",
    ("plan", "-m"): "plan takes a sweep as it stands",
}


def usage_error(error: Any) -> int:
    """One line for what typer found; bare `goatbench` has printed its help already."""
    message = error.format_message().replace(": Value error, ", ": ")  # the enum's own words behind the parser's
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "goatbench"
    if type(error).__name__ == "NoArgsIsHelpError":
        print(message)
        return 0
    verb, _, option = path.rpartition(" ")[2], *message.partition("No such option: ")[1:]
    cure = ELSEWHERE.get((verb, option.split(" ")[0].rstrip(".")))
    return complain(f"{_with_nearest(message)} ({cure or f'{path} --help shows an example'})", 2)


def _with_nearest(message: str) -> str:
    """... 'atentions' is not one of 'tasks', 'attentions'. -> and which one was probably meant."""
    word, _, choices = message.partition(" is not one of ")
    guess = nearest(word.rpartition(": ")[2].strip("'"), re.findall(r"'([^']*)'", choices))
    return f"{message} Did you mean '{guess}'?" if guess else message


def complain(message: str, code: int) -> int:
    print(f"goatbench: {one_line(message)}", file=sys.stderr)
    return code


def one_line(text: str) -> str:
    """Printable, on one line: an argument may hold anything, and must neither drive the terminal nor break its encoding."""
    return " ".join("".join(character if character.isprintable() else " " for character in text).split())
