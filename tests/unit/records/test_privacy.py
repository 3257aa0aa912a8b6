"""No path, host or secret of a machine is in a record: by construction for new ones, by looking for published ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from goatbench.compose import PATH_KEYS, compose
from goatbench.execute import redact
from goatbench.spec import RUN_SPECS

RESULTS = Path(__file__).resolve().parents[3] / "results"
NAMES_A_PLACE = re.compile(r"(^|_)(path|root|folder|dir|file|fasta|lambada|class_map)$")
PRIVATE = re.compile(
    r'"/|[\s:=(](?:/[\w.-]+){2,}|[A-Z]:\\\\|/home/|/root/|/Users/|/tmp/|file://|[\w.]+@[\w-]+\.\w+|(?i:api[_-]?key|passw|secret|bearer )'
)


@pytest.mark.parametrize("domain", sorted(RUN_SPECS))
def test_every_field_that_can_name_a_place_is_left_out_of_records(domain):
    """A new field that takes a path fails here until path_keys names it."""
    fields = RUN_SPECS[domain].model_fields["data"].annotation.model_fields
    assert {name for name in fields if NAMES_A_PLACE.search(name)} == set(RUN_SPECS[domain].path_keys)


def test_overrides_that_name_a_place_are_left_out():
    given = ["task=lm_length", "data=text_files", "data.path=/home/somebody/secret.txt", "runs_dir=/scratch/me", "seed=3"]
    composed = compose(given)
    assert composed.overrides == ["task=lm_length", "data=text_files", "seed=3"]
    assert "secret" not in str(composed.variant) and "secret" not in str(composed.spec.identity)
    assert "runs_dir" in PATH_KEYS


def test_an_error_is_told_without_folders():
    assert redact("cannot read /home/somebody/data/x.fa: denied") == "cannot read <path>/x.fa: denied"


def test_published_records_hold_none():
    paths = sorted(RESULTS.glob("*@v*/**/*.json"))
    found = {path.name: match.group() for path in paths if (match := PRIVATE.search(path.read_text().replace("https://", "")))}
    assert len(paths) > 100 and not found


@pytest.mark.parametrize("text", ['"/data/x"', " (/usr/lib/x.so)", '"C:\\\\\\\\Users"', "me@host.org", "API_KEY=1", "file:///x"])
def test_the_pattern_knows_what_it_looks_for(text):
    assert PRIVATE.search(text)
