"""What a check prints, as Markdown and as JUnit: everything is there, and a stranger's text stays text."""

from xml.etree import ElementTree

from goatbench.regression.comparing import Finding
from goatbench.regression.summary import Outcome, junit, markdown, terminal_lines

FINDINGS = (
    Finding("needle/nope", "exact", "ok", "40 scores equal", 40),
    Finding("needle/nope", "spread", "ok", "1 within 3 %", 1),
    Finding("needle/goat", "exact", "notice", "not compared: no golden scores of this machine"),
    Finding("needle/goat", "spread", "regression", "1 of 1 scores worse", 1, ("nll_nats: 2 then, 3 now",)),
    Finding("needle/rope", "run", "regression", "seed 0: failed: ValueError: <b>|x|\x1b[31m"),
)
OUTCOME = Outcome("smoke", FINDINGS, "torch 2.14, AVX512, AMD", 83.0)


def test_terminal():
    lines = terminal_lines(OUTCOME)
    assert lines[0] == "ok          needle/nope  exact   40 scores equal"
    assert lines[4] == "            nll_nats: 2 then, 3 now" and "\x1b" not in "".join(lines)
    assert lines[-1] == "check smoke: REGRESSION: 2 of 5 comparisons of 3 jobs failed, 42 numbers, 1 min 23 s (torch 2.14, AVX512, AMD)"


def test_headlines():
    ok = Outcome("smoke", FINDINGS[:3], "here", 4.0)
    assert ok.headline == "check smoke: ok: 3 comparisons of 2 jobs, 1 to look at, 41 numbers, 4 s (here)"
    assert Outcome("smoke", FINDINGS[2:3], "here", 4.0).headline == "check smoke: REGRESSION: nothing was compared, 4 s (here)"


def test_markdown_is_one_table_and_a_list():
    text = markdown(OUTCOME)
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len(table) == 5 and all(line.replace("\\|", "").count("|") == 5 for line in table)
    assert table[2] == "| needle/nope | 40 scores equal | 1 within 3 % |  |"
    assert "- REGRESSION **needle/goat** spread: 1 of 1 scores worse\n  - nll\\_nats: 2 then, 3 now" in text
    assert "<b>" not in text and "\x1b" not in text


def test_junit_counts_failures_and_skips():
    suite = ElementTree.fromstring(junit(OUTCOME)).find("testsuite")
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped"), suite.get("time")) == ("5", "2", "1", "83.0")
    cases = {case.get("name"): case for case in suite.findall("testcase")}
    assert cases["needle/goat spread"].find("failure").text.splitlines() == ["1 of 1 scores worse", "nll_nats: 2 then, 3 now"]
    assert cases["needle/goat exact"].find("skipped") is not None and cases["needle/nope exact"].find("failure") is None
    assert "<b>|x|" in cases["needle/rope run"].find("failure").get("message")


def test_junit_of_nothing_fails():
    suite = ElementTree.fromstring(junit(Outcome("smoke", (), "here", 1.0))).find("testsuite")
    assert (suite.get("tests"), suite.get("failures")) == ("1", "1")
