"""No path, host or secret of a machine is in a record: by construction for new ones, by looking for published ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import goatbench.configs
from goatbench.compose import PATH_KEYS, compose
from goatbench.errors import UsageError
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


SECRET = "sk-0123456789"
READS = [  # what takes a secret or a path along
    "evaluation.preset=${oc.env:A_SECRET}",
    "evaluation.preset=${oc.env:NOT_SET}",
    "evaluation.preset='a${oc.env:A_SECRET}'",
    "evaluation.preset='${oc.${oc.decode:env}:A_SECRET}'",
    "evaluation.preset=${data.path}",
    "evaluation.preset=${oc.select:runs_dir}",
    "+attention.options.extra=${oc.env:A_SECRET}",
    "trainer.strategy=${oc.env:A_SECRET}",
]


@pytest.fixture
def paths_of_the_environment(monkeypatch):
    monkeypatch.setenv("A_SECRET", SECRET)
    run = ["task=lm_length", "attention=alibi", "data=text_files"]
    return [*run, "data.path='${oc.env:A_SECRET}/text'", "data.lambada=${data.path}/test", "runs_dir=${oc.env:A_SECRET}"]


def test_a_path_comes_from_the_environment_and_is_left_out(paths_of_the_environment):
    composed = compose(paths_of_the_environment)
    data = composed.spec.data
    assert (data.path, data.lambada, composed.spec.runs_dir) == (f"{SECRET}/text", f"{SECRET}/text/test", SECRET)
    assert SECRET not in f"{composed.variant}{composed.spec.identity}"
    assert composed.overrides == paths_of_the_environment[:3]


def assert_refused(overrides, config_dir=None):
    with pytest.raises(UsageError) as caught:
        compose(overrides, config_dir)
    assert SECRET not in str(caught.value) and "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("line", READS)
def test_nothing_but_a_path_comes_from_the_environment(line, paths_of_the_environment):
    said = assert_refused([*paths_of_the_environment, line])
    assert ("env" not in line) or "only paths (runs_dir and those of data, such as data.root) may be read from there" in said


@pytest.mark.parametrize("line", READS[:6])
def test_nor_in_somebodys_yaml(line, paths_of_the_environment, tmp_path):
    (tmp_path / "evaluation").mkdir()
    text = (Path(goatbench.configs.__path__[0]) / "evaluation" / "text_embedded.yaml").read_text()
    value = line.partition("=")[2]
    (tmp_path / "evaluation" / "theirs.yaml").write_text(text.replace("preset: text_embedded", f"preset: {value}"))
    assert_refused([*paths_of_the_environment, "evaluation=theirs"], str(tmp_path))


def test_an_error_is_told_without_folders():
    assert redact("cannot read /home/somebody/data/x.fa: denied") == "cannot read <path>/x.fa: denied"


def test_published_records_hold_none():
    paths = sorted(RESULTS.glob("*@v*/**/*.json"))
    found = {path.name: match.group() for path in paths if (match := PRIVATE.search(path.read_text().replace("https://", "")))}
    assert len(paths) > 100 and not found


@pytest.mark.parametrize("text", ['"/data/x"', " (/usr/lib/x.so)", '"C:\\\\\\\\Users"', "me@host.org", "API_KEY=1", "file:///x"])
def test_the_pattern_knows_what_it_looks_for(text):
    assert PRIVATE.search(text)
