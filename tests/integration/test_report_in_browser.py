"""The committed results as a page in a headless Chromium: it renders, sorts by mouse and keyboard, fits a phone, complains of nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from chromium import Chromium, find

from goatbench.report.write import write_report

pytestmark = pytest.mark.skipif(find() is None, reason="no Chromium on this machine (Debian's package: chromium)")

CELLS = "[...document.querySelectorAll('table.sortable')[0].querySelectorAll('td.headline')]"
KEYS = f"{CELLS}.map(cell => cell.dataset.key).filter(key => key).map(Number)"
HEADLINE = "table.sortable th.headline"
SORT = f"document.querySelector('{HEADLINE}').getAttribute('aria-sort')"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    (folder / "runs").mkdir()
    return write_report(str(folder / "report.html"), "embedded", str(folder / "runs"), None)


@pytest.fixture(scope="module")
def browser():
    browser = Chromium()
    yield browser
    browser.close()


def test_it_is_small(page):
    """About 3 kB a record, of more than 1,800."""
    assert page.stat().st_size < 4_000 * sum(1 for _ in (Path(__file__).parents[2] / "results").glob("*@v*/*/*/*.json"))


def test_it_renders_and_sorts(page, browser):
    browser.open(page, 1280)
    assert browser.value("document.querySelectorAll('figure svg, figure .heat').length") >= 5
    assert browser.value("[...document.querySelectorAll('figure svg[role=img]')].every(s => s.getBoundingClientRect().height > 150)")
    browser.click(f"{HEADLINE} button")
    keys = browser.value(KEYS)
    assert browser.value(SORT) == "ascending" and len(keys) > 3 and keys == sorted(keys)
    browser.press("Enter", 13, "\r")  # the button has the focus now
    keys = browser.value(KEYS)
    assert browser.value(SORT) == "descending" and keys == sorted(keys, reverse=True)
    assert browser.value("document.querySelectorAll('[aria-sort=ascending], [aria-sort=descending]').length") == 1
    browser.press("Tab", 9)
    browser.press(" ", 32, " ")
    assert browser.value(SORT) == "none"
    assert browser.value("document.getElementById('sorted').textContent").endswith("ascending")
    assert browser.problems == []


def test_a_row_leads_to_its_runs(page, browser):
    browser.open(page, 1280)
    browser.click("table.sortable th[scope=row] a")
    target = "document.querySelector(decodeURIComponent(location.hash))"
    browser.value("new Promise(done => setTimeout(done, 300))")
    assert browser.value(f"{target}.open && {target}.parentElement.open")
    assert browser.value(f"{target}.querySelector('pre').textContent").startswith("goatbench run task=")
    assert browser.problems == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_in_light_and_dark(page, browser, scheme):
    browser.open(page, 390, 844, scheme)
    browser.value("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert browser.value("[document.documentElement.scrollWidth, innerWidth]") == [390, 390]
    channels = browser.value("getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).map(Number)")
    assert max(channels) < 60 if scheme == "dark" else min(channels) > 230
    assert browser.problems == []
