"""Learning rates in configs/attention stand on committed sweeps: the rate named is the best of as many as its comment says."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[3]
COUNTS = {"three": 3, "four": 4, "five": 5}
LINE = re.compile(r"embedded: (\S+) +# results/(\w+_tuning)@v1, half budget, (\w+) values")
NO_WORSE = {"top1": 0.0, "bits_per_byte": 0.0, "bits_per_base": 0.0, "nll_nats": 1e-3}  # of the task's metric, in its unit


def sweeps() -> dict[tuple[str, str], dict[float, tuple[float, str]]]:
    """(task, attention) -> rate -> (loss, metric), of runs at half budget that set nothing but the rate."""
    found: dict[tuple[str, str], dict[float, tuple[float, str]]] = defaultdict(dict)
    for path in ROOT.glob("results/*_tuning@v1/embedded/*/*.json"):
        record = json.loads(path.read_text())
        changed = {line.lstrip("+").partition("=")[0] for line in record["overrides"]}
        if changed - {"task", "attention", "seed", "training.learning_rate", "training.epochs", "data.num_train", "scale"}:
            continue
        metrics = [m for m in record["measurements"] if m["metric"] in NO_WORSE and m["value"] is not None]
        worst = -metrics[0]["value"] if metrics[0]["metric"] == "top1" else metrics[0]["value"]
        found[record["task"]["name"], record["row"]["attention"]][record["training"]["learning_rate"]] = (worst, metrics[0]["metric"])
    return found


def test_a_tuned_rate_is_the_best_of_its_sweep():
    found, lines = sweeps(), 0
    for path in sorted((ROOT / "configs" / "attention").glob("*.yaml")):
        for rate, task, count in LINE.findall(path.read_text()):
            lines += 1
            losses = found[task, path.stem]
            assert len(losses) >= COUNTS[count], (path.stem, task, sorted(losses))
            best, metric = min(losses.values())
            assert losses[float(rate)][0] <= best + NO_WORSE[metric], (path.stem, task, losses)
    assert lines > 80
