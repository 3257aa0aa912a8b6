"""No path, host or secret of a machine is in a record: by construction for new ones, by looking for published ones."""

from __future__ import annotations

import contextlib
import copy
import json
import re
from functools import reduce
from pathlib import Path

import pytest
from pydantic import ValidationError

import goatbench.configs
from goatbench.compose import compose
from goatbench.errors import UsageError
from goatbench.execute import redact
from goatbench.explain import known_keys
from goatbench.overrides import is_of_this_machine
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
    places = ["data.path=/home/somebody/secret.txt", "runs_dir=/scratch/me", "launch.setup=['. /home/me/env']"]
    composed = compose(["task=lm_length", "data=text_files", *places, "seed=3"])
    assert composed.overrides == ["task=lm_length", "data=text_files", "seed=3"]
    assert "secret" not in str(composed.variant) and "secret" not in str(composed.spec.identity)


PLACE = "/home/somebody/secret"
HOLDERS = (PLACE, [PLACE], {"a": PLACE}, {PLACE: 1.0}, {"a": {PLACE: 1.0}}, {"a": [{"b": PLACE}]})  # what a field may be


@pytest.mark.parametrize("domain", sorted(RUN_SPECS))
def test_no_field_takes_a_path_into_a_record(domain):
    """Whatever field it is tried in: refused, or left out of what a record holds, its hash and its overrides too."""
    task = {"vision": "vit_res224", "genome": "genome_nll", "text": "lm_length", "toy": "needle", "stories": "babilong"}[domain]
    plain = compose([f"task={task}", "scale=smoke"]).spec.model_dump(mode="json")
    left_out, keys = set(), known_keys(RUN_SPECS[domain])
    assert len(keys) > 60
    for key in keys:
        for holder in HOLDERS:
            values = copy.deepcopy(plain)
            *parents, name = key.split(".")
            inside = reduce(lambda found, part: found.get(part) or {}, parents, values)
            inside[name] = holder
            with contextlib.suppress(ValidationError):
                spec = RUN_SPECS[domain].model_validate_json(json.dumps(values), strict=True)
                assert "somebody" not in f"{spec.recorded}{spec.identity}", (key, holder)
                left_out |= {key} if "somebody" in spec.model_dump_json() else set()
    assert "runs_dir" in left_out and all(is_of_this_machine(key) for key in left_out)
    assert {f"data.{key}" for key in RUN_SPECS[domain].path_keys} - {"data.split_file", "data.tokenizer_file"} <= left_out  # need a partner


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
