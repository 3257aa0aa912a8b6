"""The page as text: nothing is fetched, strangers' text stays text, equal records give equal bytes, every figure has a label."""

from __future__ import annotations

import json
import re
import shlex
from html.parser import HTMLParser

import pytest

from goatbench.errors import UsageError
from goatbench.records.repeating import command
from goatbench.records.store import placed_at, record_bytes
from goatbench.report.page import build_page, embedded_json
from goatbench.report.write import write_report
from goatbench.tasks.retrieval import NEEDLE

CARDS = [NEEDLE.card]
HOSTILE = '</script><script>alert(1)</script><img src=http://evil.test/x onerror="alert(2)">&amp;\u2028'


class Tags(HTMLParser):
    """All start tags with their attributes, and the text inside the data element."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.data, self._is_data = "", False
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self._is_data = dict(attributes).get("id") == "data"

    def handle_data(self, data):
        self.data += data if self._is_data else ""

    def handle_endtag(self, tag):
        self._is_data = False

    def named(self, *names: str) -> list[dict[str, str]]:
        return [attributes for tag, attributes in self.tags if tag in names]


def test_nothing_is_fetched(make_rows):
    """Records name a web address (of their data); it stands as text and leads nowhere."""
    page = build_page(CARDS, make_rows({"goat": 0.9, "rope": 0.5}), [], "embedded")
    assert "https://example.org" in page
    for _, attributes in Tags(page).tags:
        for name in ("src", "href", "srcset", "action", "data", "xlink:href"):
            assert attributes.get(name, "#").startswith("#"), attributes
    assert not re.search(r"@import|url\(", page)


def test_text_of_strangers_stays_text(make_record, make_rows):
    records = make_rows({"goat": 0.9, "rope": 0.5})
    row = {"attention": "alibi", "variant": {"x": HOSTILE}}
    records.append(make_record("alibi", 0, row=row, notes=[HOSTILE], overrides=[f"x={HOSTILE}"]))
    tags = Tags(build_page(CARDS, records, [], "embedded"))
    assert len(tags.named("script")) == 2 and not tags.named("img")
    assert not any(name.startswith("on") for _, attributes in tags.tags for name in attributes)
    names = [row["name"] for row in json.loads(tags.data)["boards"][0]["rows"]]
    assert f"alibi[x={HOSTILE}]" in names


def test_json_cannot_end_its_element():
    text = str(embedded_json({"a": HOSTILE}))
    assert not set(text) & set("<>&\u2028") and json.loads(text) == {"a": HOSTILE}


def test_the_numbers_stand_in_the_data_unrounded(make_rows):
    tags = Tags(build_page(CARDS, make_rows({"goat": 0.9, "rope": 0.5}), [], "embedded"))
    (board,) = json.loads(tags.data)["boards"]
    goat = next(row for row in board["rows"] if row["name"] == "goat")
    assert goat["cells"]["16"]["mean"] == pytest.approx((0.9 + 0.911 + 0.892) / 3, abs=1e-12) and goat["cells"]["16"]["n"] == 3
    assert len(goat["runs"]) == 3


def test_equal_records_give_equal_bytes(make_rows):
    records = make_rows({"goat": 0.9, "rope": 0.5, "alibi": 0.51})
    assert build_page(CARDS, records, [], "embedded") == build_page(CARDS, records[::-1], [], "embedded")


def test_the_summary_says_what_the_ranks_say(make_rows):
    page = build_page(CARDS, make_rows({"goat": 0.9, "rope": 0.5, "alibi": 0.5}), [], "embedded")
    summary = page[page.index('class="summary"') : page.index('class="domain"')]
    assert "<h2>Pick goat</h2>" in summary and "goat is best (90.1, 3 seeds); alibi and rope are worse." in summary


def test_every_figure_and_table_has_a_label(make_rows):
    page = build_page(CARDS, make_rows({"goat": 0.9, "rope": 0.5}), [], "embedded")
    tags = Tags(page)
    assert len(tags.named("figure")) == 3  # by length, by cost, by depth
    assert all(figure["aria-label"] for figure in tags.named("figure"))
    images = [svg for svg in tags.named("svg") if svg.get("aria-hidden") != "true"]
    assert len(images) == 2 and all(svg["role"] == "img" and "goat" in svg["aria-label"] for svg in images)
    assert page.count("<figcaption>") == 3 and page.count("<caption>") == 1 + 2  # the board, a panel a row
    assert len({tag["id"] for _, tag in tags.tags if "id" in tag}) == sum("id" in tag for _, tag in tags.tags)


def test_every_link_inside_the_page_leads_somewhere(make_rows):
    tags = Tags(build_page(CARDS, make_rows({"goat": 0.9, "rope": 0.5}), [], "embedded"))
    ids = {tag["id"] for _, tag in tags.tags if "id" in tag}
    assert {link["href"].removeprefix("#") for link in tags.named("a")} <= ids


def test_commands_repeat_a_run_with_every_choice(make_record):
    record = make_record("goat", 2, overrides=["seed=2", "runs_dir=/tmp/x", "task=needle", "attention.options={a: 1}"])
    assert shlex.split(command(record)) == [
        "goatbench", "run", "task=needle", "attention=goat", "scale=embedded", "seed=2", "attention.options={a: 1}",
    ]  # fmt: skip


def write(records, folder):
    for record in records:
        path = folder / placed_at(record)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(record_bytes(record))


def test_the_verb_writes_the_page_and_replaces_it(make_rows, tmp_path):
    write(make_rows({"goat": 0.9}), tmp_path / "results")
    out = tmp_path / "page.html"
    out.write_text("older")
    (tmp_path / "runs").mkdir()
    write_report(str(out), "embedded", str(tmp_path / "runs"), str(tmp_path / "results"))
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "results", "runs"]


@pytest.mark.parametrize(
    ("out", "scale", "words"),
    [
        ("page.txt", "embedded", "ends with .html"),
        ("no/page.html", "embedded", "no folder"),
        ("page.html", "paper", "no results at scale paper yet"),
        ("page.html", "embeded", "did you mean 'embedded'"),
    ],
)
def test_errors_are_one_line(out, scale, words, make_rows, tmp_path):
    write(make_rows({"goat": 0.9}), tmp_path / "results")
    (tmp_path / "runs").mkdir()
    with pytest.raises(UsageError, match=re.escape(words)) as caught:
        write_report(str(tmp_path / out), scale, str(tmp_path / "runs"), str(tmp_path / "results"))
    assert "\n" not in str(caught.value)


def test_the_page_says_how_many_records_it_lacks(make_rows, tmp_path, capsys):
    write(make_rows({"goat": 0.9}), tmp_path / "results")
    for name, text in (("20260102t030405-0123abcd-0000ff", "[]"), ("broken", "{")):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "record.json").write_text(text)
    page = write_report(str(tmp_path / "page.html"), "embedded", str(tmp_path / "runs"), str(tmp_path / "results")).read_text("utf-8")
    assert "· 2 records could not be read and are left out</p>" in page and str(tmp_path) not in page
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("goatbench: skipped: 2 records could not be read: ") and "broken/record.json" in line
