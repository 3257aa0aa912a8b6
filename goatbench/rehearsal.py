"""Every row on every task for real, at scale smoke, in one process: what `goatbench.matrix` says runs is trained, measured, recorded.

    python -m goatbench.rehearsal [ROW ...] [--out FILE]      into runs/rehearsal; stopped, the same command goes on

By hand: all of it takes about half an hour of one core. Exit code 1 if an outcome is not that of the matrix.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

import torch

from .bench.record import now, record_bytes, writable, write
from .compose import Composed
from .elsewhere import finished_run
from .errors import UsageError
from .execute import execute, job_key
from .matrix import OK, SCALE, UNDEFINED, Pairs
from .progress import Progress
from .records.environment import describe_environment
from .records.record import Status

RUNS_DIR = "runs/rehearsal"


def outcome(pairs: Pairs, row: str, task: str) -> str:
    """'ok' or, in one line, why not: of a run with this code that lies in RUNS_DIR, or of one that is made now."""
    spec = pairs.spec(row, task).model_copy(update={"runs_dir": RUNS_DIR})
    record = finished_run(RUNS_DIR, job_key(spec))
    if record is None:
        overrides = [f"task={task}", f"attention={row}", f"scale={SCALE}"]
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):  # a bar a run
            try:
                record = execute(Composed(spec, {}, overrides, {}))
            except UsageError as refusal:
                return str(refusal)
    assert record is not None
    return OK if record.status is Status.OK else f"{record.ending}: {record.error.message if record.error else ''}"


def differences(pairs: Pairs, rows: Sequence[str]) -> Iterator[str]:
    """A line for each pair whose run does not end as the matrix says."""
    defined = [(row, task) for row, task in product(rows, pairs.tasks) if pairs.outcome(row, task) != UNDEFINED]
    with Progress("rehearsal", len(defined), "run") as progress:
        for row, task in defined:
            said, found = pairs.outcome(row, task), outcome(pairs, row, task)
            if found != (OK if said.partition(" ")[0] == OK else said):
                yield f"{row} on {task}: {found} (the matrix: {said})"
            progress.advance(1)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m goatbench.rehearsal", description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", metavar="ROW", help="rows of `goatbench list attentions`; default: all")
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write a record: how many pairs, and what ends otherwise")
    asked = parser.parse_args(arguments)
    try:
        return rehearse(asked.rows, writable(asked.out))
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def rehearse(asked: Sequence[str], out: Path | None) -> int:
    pairs, started = Pairs(), now()
    for row in asked:
        pairs.composer.tree.check("attention", row)
    rows = asked or pairs.rows
    found = []
    for line in differences(pairs, rows):
        print(line, flush=True)
        found.append(line)
    if out is not None:
        said = [pairs.outcome(*pair).partition(" ")[0] for pair in product(rows, pairs.tasks)]
        counts = {"rows": len(rows), "tasks": len(pairs.tasks), "ok": said.count(OK), "not defined": said.count(UNDEFINED)}
        counts["refused"] = len(said) - counts["ok"] - counts["not defined"]
        environment = describe_environment(torch.get_num_threads())
        write(out, record_bytes("rehearsal", started, environment, matrix=counts, differences=found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
