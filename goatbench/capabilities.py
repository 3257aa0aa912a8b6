"""What each row can do, as its own small model answered: read from capabilities.json. No torch.

`python -m goatbench.matrix` asks the models and writes the file, `list` and `show` read it, a test asks again.
"""

from __future__ import annotations

import json
from pathlib import Path

FILE = Path(__file__).with_name("capabilities.json")
FACTS = ("kernel", "streams", "memory")
EXPLAINED = (
    "kernel: what computes attention in training on a CPU (written-out, reference: every logit is held)",
    "streams: through a cache of constant size, in chunks or as single tokens; memory: of training, by length",
)
Facts = dict[str, str]


def read_capabilities() -> dict[str, dict[str, Facts]]:
    """Row -> axes ('1D', '2D') -> fact -> answer. Rows of plug-ins are not in it."""
    return json.loads(FILE.read_text(encoding="utf-8"))


def as_json(rows: dict[str, dict[str, Facts]]) -> str:
    """One line a row, so that a new row is one line of a diff."""
    return "{\n" + ",\n".join(f"  {json.dumps(name)}: {json.dumps(by_axes)}" for name, by_axes in rows.items()) + "\n}\n"


def joined(by_axes: dict[str, Facts]) -> list[str]:
    """The answer to each of FACTS, '-' where there is none; 'one/other' where it depends on the number of axes."""
    answers = [dict.fromkeys(facts[name] for facts in by_axes.values() if name in facts) for name in FACTS]
    return ["/".join(found) or "-" for found in answers]
