"""A path of the data that leads nowhere is refused by every verb that composes a run, in the same words, before anything is read."""

import pytest

from goatbench import cli
from goatbench.compose import Composer
from goatbench.errors import UsageError
from goatbench.spec import RUN_SPECS

COMPOSER = Composer()
TASKS = {"vision": "vit_res512", "genome": "genome_nll", "text": "lm_length", "stories": "babilong"}  # toys have no files
NEEDS = {"split_file": ["data.split=file"], "tokenizer_file": ["data.tokenizer=file"]}
PATHS = [(domain, key) for domain, spec in RUN_SPECS.items() for key in spec.path_keys]
MISSING = "data.path=no/such: there is no such file or folder"


def of_task(domain, *overrides):
    return [f"task={TASKS[domain]}", "attention=nope", "scale=smoke", *overrides]


@pytest.mark.parametrize(("domain", "key"), PATHS)
def test_every_path_of_every_domain_is_looked_for(domain, key, tmp_path):
    given = of_task(domain, *NEEDS.get(key, []))
    with pytest.raises(UsageError, match=rf"data\.{key}=no/such: there is no such file or folder"):
        COMPOSER.compose([*given, f"data.{key}=no/such"]).check_paths()
    COMPOSER.compose([*given, f"data.{key}={tmp_path}"]).check_paths()  # what is there, its reader judges


VERBS = [
    ["run", *of_task("text")],
    ["run", "-m", *of_task("text")],
    ["run", "--dry-run", *of_task("text")],
    ["run", "--dry-run", "launch=slurm", *of_task("text")],
    ["data", "check", "text_files"],
    ["data", "prepare", "text_files"],
]


@pytest.mark.parametrize("arguments", VERBS, ids=" ".join)
def test_every_verb_that_composes_a_run_refuses_it(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        cli.main([*arguments, "data.path=no/such"])
    out, err = capsys.readouterr()
    hint = "" if arguments[0] == "data" else "; it is read as text_embedded unless data=NAME says otherwise"
    assert (ended.value.code, out, err) == (2, "", f"goatbench: {MISSING}{hint}\n")
    assert list(tmp_path.iterdir()) == []


def test_a_plan_needs_no_data(tmp_path, monkeypatch, capsys):
    """A run of a cluster is planned on another machine."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        cli.main(["plan", *of_task("text"), "data=text_files", "data.path=no/such", "data.num_train=512"])
    assert ended.value.code == 0 and "total" not in capsys.readouterr().err


def test_a_tokenizer_without_a_file_is_composed_for_a_plan_and_refused_by_a_run(tmp_path):
    """The sizes of a model stand in its configuration; it is the run that reads a file."""
    plan = COMPOSER.compose(["task=lm_length", "scale=paper", "recipe=goat_c4"])
    assert (plan.spec.data.tokenizer, plan.spec.data.tokenizer_file, plan.spec.model.vocab_size) == ("gpt2", None, 50257)
    with pytest.raises(UsageError, match=r"data\.tokenizer=gpt2 needs data\.tokenizer_file=PATH, a folder with GPT-2's two files"):
        plan.check_paths()
    COMPOSER.compose(["task=lm_length", "scale=paper", "recipe=goat_c4", f"data.tokenizer_file={tmp_path}"]).check_paths()
    with pytest.raises(UsageError, match=r"data\.tokenizer_file is read with data\.tokenizer=gpt2 or =file only"):
        COMPOSER.compose(["task=lm_length", f"data.tokenizer_file={tmp_path}"])


def test_a_job_of_a_sweep_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    with pytest.raises(SystemExit):
        cli.main(["run", "-m", *of_task("text"), "data=text_files", "data.path='there','no/such'"])
    assert f"{MISSING} (job: " in capsys.readouterr().err


def test_a_home_folder_is_found(tmp_path, monkeypatch):
    """The readers of text and DNA expand '~'."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "text").mkdir()
    COMPOSER.compose(of_task("text", "data=text_files", "data.path=~/text")).check_paths()


def test_the_resolved_configuration_is_printed_all_the_same(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["run", "--cfg", "job", *of_task("text"), "data.path=no/such"])
    assert ended.value.code == 0 and "path: no/such" in capsys.readouterr().out
