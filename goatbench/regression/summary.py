"""What a check says: to a person at the terminal, as Markdown under a pull request, as JUnit XML for a CI system."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from xml.etree import ElementTree

from ..progress import duration
from ..records.files import one_line
from .comparing import Finding, Kind, is_regression

KINDS: tuple[Kind, ...] = ("exact", "spread", "cost")
SIGNS = {"ok": "ok", "better": "BETTER", "notice": "notice", "regression": "REGRESSION"}
MAX_DETAILS = 20  # of one finding; the rest is counted


@dataclass(frozen=True, slots=True)
class Outcome:
    """All findings of a check, where it ran and how long it took."""

    suite: str
    findings: tuple[Finding, ...]
    machine: str
    seconds: float

    @property
    def is_regression(self) -> bool:
        return is_regression(list(self.findings))

    @property
    def headline(self) -> str:
        """'check smoke: REGRESSION: 2 of 24 comparisons of 11 jobs failed, 1,204 numbers, 1 min 42 s (torch 2.14, AVX512, AMD)'."""
        name = f"check {self.suite}"
        failed = sum(one.verdict == "regression" for one in self.findings)
        numbers = sum(one.count for one in self.findings)
        jobs = len({one.job for one in self.findings})
        where = f"{duration(self.seconds)} ({self.machine})"
        if failed:
            return f"{name}: REGRESSION: {failed} of {len(self.findings)} comparisons of {jobs} jobs failed, {numbers:,} numbers, {where}"
        if not numbers:
            return f"{name}: REGRESSION: nothing was compared, {where}"
        notices = sum(one.verdict in ("notice", "better") for one in self.findings)
        said = f", {notices} to look at" if notices else ""
        return f"{name}: ok: {len(self.findings)} comparisons of {jobs} jobs{said}, {numbers:,} numbers, {where}"


def terminal_lines(outcome: Outcome) -> list[str]:
    """A line a finding, details under those that are not ok, the headline last."""
    names = max((len(one.job) for one in outcome.findings), default=0)
    kinds = max((len(one.kind) for one in outcome.findings), default=0)
    lines = []
    for one in outcome.findings:
        lines.append(one_line(f"{SIGNS[one.verdict]:10}  {one.job:{names}}  {one.kind:{kinds}}  {one.text}", 400).rstrip())
        lines += [one_line(f"            {line}", 400) for line in _details(one)]
    return [*lines, outcome.headline]


def markdown(outcome: Outcome) -> str:
    """A table with a row a job, and a list of what is not ok."""
    lines = [f"### {_cell(outcome.headline)}", "", "| job | exact | spread of seeds | cost |", "|---|---|---|---|"]
    for job in dict.fromkeys(one.job for one in outcome.findings):
        found = {one.kind: one for one in outcome.findings if one.job == job}
        other = next((one for kind, one in found.items() if kind not in KINDS), None)
        cells = [_short(found[kind]) if kind in found else "" for kind in KINDS]
        if other is not None:
            cells[0] = f"**{other.kind}**: {_cell(other.text)}"
        lines.append(f"| {_cell(job)} | {' | '.join(cells)} |")
    unusual = [one for one in outcome.findings if one.verdict != "ok"]
    lines += [""] if unusual else []
    for one in unusual:
        lines.append(f"- {SIGNS[one.verdict]} **{_cell(one.job)}** {one.kind}: {_cell(one.text)}")
        lines += [f"  - {_cell(line)}" for line in _details(one)]
    return "\n".join(lines) + "\n"


def junit(outcome: Outcome) -> str:
    """One test case a finding; a notice is a skipped one. If nothing was compared, one case that says so fails."""
    findings = list(outcome.findings)
    if outcome.is_regression and all(one.verdict != "regression" for one in findings):
        findings.append(Finding(outcome.suite, "run", "regression", "nothing was compared"))
    failed, skipped = (str(sum(one.verdict == verdict for one in findings)) for verdict in ("regression", "notice"))
    attributes = {"name": "goatbench check", "tests": str(len(findings)), "failures": failed, "errors": "0", "skipped": skipped}
    suite = ElementTree.Element("testsuite", attributes | {"time": f"{outcome.seconds:.1f}"})
    for one in findings:
        case = ElementTree.SubElement(suite, "testcase", {"classname": f"goatbench.check.{outcome.suite}", "name": f"{one.job} {one.kind}"})
        text = "\n".join(one_line(line, 400) for line in (one.text, *one.details))
        if one.verdict == "regression":
            ElementTree.SubElement(case, "failure", {"message": one_line(one.text, 400)}).text = text
        elif one.verdict == "notice":
            ElementTree.SubElement(case, "skipped", {"message": one_line(one.text, 400)})
        else:
            ElementTree.SubElement(case, "system-out").text = text
    root = ElementTree.Element("testsuites")
    root.append(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _details(finding: Finding) -> list[str]:
    rest = len(finding.details) - MAX_DETAILS
    return [*finding.details[:MAX_DETAILS], *([f"... and {rest} more"] if rest > 0 else [])]


def _short(finding: Finding) -> str:
    if finding.verdict == "ok":
        return _cell(finding.text)
    return f"**{SIGNS[finding.verdict]}**: {_cell(finding.text)}" if finding.verdict == "regression" else SIGNS[finding.verdict]


def _cell(text: str) -> str:
    """Text that cannot end a table cell, open a tag or start a link."""
    clean = escape(one_line(text, 400), quote=False)
    for character in "\\|`*_[]":
        clean = clean.replace(character, f"\\{character}")
    return clean
