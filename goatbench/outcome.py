"""What `goatbench run` prints at its end: one small table with uncertainties, where the weights came from, and the record's path."""

from __future__ import annotations

from pathlib import Path

from .records.record import Measurement, Metric, RunRecord, TaskCard

BESIDE_YARDSTICKS = ("accuracy",)  # as well as the headline metric: 30 % of next bases right is little, or much, by what counting reaches


def outcome_lines(record: RunRecord, card: TaskCard, path: Path) -> list[str]:
    """Rows: metrics under each evaluation variant; columns: the card's column condition. Plain text, fits 80 columns."""
    lines: list[str] = []
    columns = list(dict.fromkeys(_column(m, card) for m in record.measurements))
    variants = list(dict.fromkeys(_variant(m, card) for m in record.measurements))
    references = {_variant(m, card) for m in record.measurements if "reference" in m.conditions}
    cells = {(m.metric, _variant(m, card), _column(m, card)): m for m in record.measurements}
    header = [card.column_label or card.column_condition, *columns]
    rows = []
    for metric in card.metrics:
        known = {_variant(m, card) for m in record.measurements if m.metric == metric.name and m.value is not None}
        yardsticks = references if metric.name == card.primary_metric else references & known if metric.name in BESIDE_YARDSTICKS else ()
        for variant in [v for v in variants if v not in references or v in yardsticks]:
            label = f"{metric.name}{' %' if metric.percent else ''} {metric.arrow} {variant}".strip()
            rows.append([label, *(_cell(cells.get((metric.name, variant, c)), metric) for c in columns)])
    widths = [max(len(row[n]) for row in [header, *rows]) for n in range(len(header))]
    for row in [header, *rows]:
        numbers = [text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join([row[0].ljust(widths[0]), *numbers]))
    counts = sorted({m.n for m in record.measurements})
    measured = f"n = {', '.join(f'{n:,}' for n in counts if n)} examples of one seed"
    has_errors = any(m.stderr is not None for m in record.measurements)
    lines.append(f"±: standard error over {measured}; other seeds are not covered" if has_errors else measured)
    if (training := record.training) is not None:
        reused = f"weights of run {training.from_run} (same training hash; retrain=true trains anew)"
        weights = reused if training.reused else "trained in this run"
        rate = f"learning rate {training.learning_rate:g} ({training.learning_rate_source})"
        lines.append(f"{weights}; {rate}; epoch {training.selected_epoch}")
    lines += [f"note: {note}" for note in record.notes]
    if record.artifacts:
        lines.append(f"files in {path.parent}: {', '.join(record.artifacts)}")
    if (scores := record.examples) is not None:
        lines.append(f"scores of single examples: {len(scores.arrays)} arrays, {scores.num_bytes / 1000:.0f} kB, beside the record")
    lines.append(f"record: {path}")
    return lines


def _column(measurement: Measurement, card: TaskCard) -> str:
    conditions = measurement.conditions
    value, nominal = conditions.get(card.column_label or card.column_condition), conditions.get(card.column_condition, "-")
    return str(nominal) if value is None or value == nominal else f"{value} ({nominal})"


def _variant(measurement: Measurement, card: TaskCard) -> str:
    values = {name: measurement.conditions[name] for name in (*card.row_conditions, "reference") if name in measurement.conditions}
    return " ".join(value if isinstance(value, str) else f"{name}={value}" for name, value in values.items())


def _cell(measurement: Measurement | None, metric: Metric) -> str:
    if measurement is None or measurement.value is None:
        return "n/a"
    text = metric.text(measurement.value)
    return text if measurement.stderr is None else f"{text}±{metric.text(measurement.stderr)}"
