"""The hash of the sources, and the state of the checkout they came from, each against a tree made for the test."""

from __future__ import annotations

import hashlib
import inspect
import shutil
import subprocess
from pathlib import Path

import pytest

import goatbench
from goatbench.metrics.token_nll import token_nll
from goatbench.records import source
from goatbench.records.source import TRAINING_PARTS, card_hash, code_info, hash_files, source_files, source_hash
from goatbench.registry import tasks
from goatbench.training.causal_lm import CausalLM
from goatbench.training.classifier import Classifier

GIT = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main", "-c", "commit.gpgsign=false"]


@pytest.fixture
def tree(tmp_path):
    """An editable layout: goatbench/ and tasks/ side by side."""
    for name in ("goatbench/__init__.py", "goatbench/data/a.py", "goatbench/models/b.py", "tasks/t.py", "configs/c.yaml", "README.md"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {name}\n")
    return tmp_path


def git(tree: Path, *arguments: str) -> str:
    return subprocess.run([*GIT, *arguments], cwd=tree, capture_output=True, text=True, check=True).stdout.strip()


def hash_of(tree: Path, parts=None) -> str:
    return hash_files(source_files(tree / "goatbench", tree / "tasks", parts))


def test_the_hash_is_sha256_over_names_and_contents(tree):
    names = {"data/a.py": "# goatbench/data/a.py\n", "models/b.py": "# goatbench/models/b.py\n"}
    lines = "".join(f"{name}\0{hashlib.sha256(text.encode()).hexdigest()}\n" for name, text in names.items())
    assert hash_of(tree, ("models", "data")) == hashlib.sha256(lines.encode()).hexdigest()[:16]


def test_a_wheel_has_the_hash_of_the_checkout(tree):
    before = hash_of(tree)
    for folder in ("tasks", "configs"):
        shutil.copytree(tree / folder, tree / "goatbench" / folder)
    (tree / "goatbench" / "results").mkdir()
    (tree / "goatbench" / "results" / "__init__.py").write_text("")
    assert hash_files(source_files(tree / "goatbench", tree / "goatbench" / "tasks", None)) == before


def test_what_changes_the_hash_and_what_does_not(tree):
    before, training = hash_of(tree), hash_of(tree, ("data", "models"))
    (tree / "README.md").write_text("new")
    (tree / "goatbench" / "data" / "a.py").write_bytes(b"# goatbench/data/a.py\r\n")
    assert (hash_of(tree), hash_of(tree, ("data", "models"))) == (before, training)
    (tree / "tasks" / "t.py").write_text("changed = 1\n")
    assert hash_of(tree) != before and hash_of(tree, ("data", "models")) == training
    (tree / "goatbench" / "data" / "a.py").write_text("changed = 1\n")
    assert hash_of(tree, ("data", "models")) != training
    with pytest.raises(ValueError, match="no sub-package 'nothing'"):
        hash_of(tree, ("nothing",))


def test_moving_code_between_files_changes_the_hash(tree):
    before = hash_of(tree)
    (tree / "goatbench" / "data" / "a.py").rename(tree / "goatbench" / "data" / "z.py")
    assert hash_of(tree) != before


def test_this_package_has_a_hash_for_training_and_one_for_everything():
    assert source_hash(TRAINING_PARTS) != source_hash() == source_hash()
    assert code_info().version == goatbench.__version__ and code_info().source_hash == source_hash()


def test_the_loss_and_every_task_s_training_are_code_that_changes_weights():
    place = lambda thing: Path(inspect.getfile(thing)).resolve()
    package, folder = Path(goatbench.__file__).resolve().parent, place(type(tasks.get("lm_length"))).parent
    hashed = {path.resolve() for path in source_files(package, folder, TRAINING_PARTS).values()}
    trained = {type(task).train for name in tasks.names() if (task := tasks.get(name)).trains}
    assert {place(one) for one in (token_nll, CausalLM, Classifier, *trained)} <= hashed


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_commit_and_dirty_flag_of_the_own_tree_only(tree, tmp_path_factory, monkeypatch):
    assert source._git_state(tree) == (None, None)
    git(tree, "init")
    assert source._git_state(tree) == (None, None)  # nothing committed, nothing tracked
    git(tree, "add", ".")
    git(tree, "commit", "-qm", "all")
    commit = git(tree, "rev-parse", "HEAD")
    assert source._git_state(tree) == (commit, False)
    (tree / "README.md").write_text("changed")
    (tree / "new.txt").write_text("untracked")
    assert source._git_state(tree) == (commit, False)
    (tree / "tasks" / "new.py").write_text("untracked = 1")
    assert source._git_state(tree) == (commit, True)
    (tree / "tasks" / "new.py").unlink()
    (tree / "goatbench" / "data" / "a.py").write_text("changed = 1")
    assert source._git_state(tree) == (commit, True)
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    git(elsewhere, "init")
    monkeypatch.setenv("GIT_DIR", str(elsewhere / ".git"))  # as inside a hook of another repository
    assert source._git_state(tree) == (commit, True)


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_somebody_else_s_repository_around_an_installation_is_not_ours(tmp_path):
    site = tmp_path / "venv" / "site-packages"
    (site / "goatbench").mkdir(parents=True)
    (site / "goatbench" / "__init__.py").write_text("")
    git(tmp_path, "init")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "theirs")
    assert source._git_state(site) == (None, None)


def test_without_git_the_state_is_unknown(tree, monkeypatch):
    (tree / ".git").mkdir()
    monkeypatch.setenv("PATH", str(tree))
    assert source._git_state(tree) == (None, None)


def test_the_card_s_hash_follows_what_can_move_a_score(card):
    assert card_hash(card) == card_hash(card.model_copy(update={"summary": "other words", "expected_time": {"embedded": "an hour"}}))
    of_bytes = tuple(metric.model_copy(update={"counted": "bytes"}) for metric in card.metrics)
    assert card_hash(card) == card_hash(card.model_copy(update={"metrics": of_bytes}))
    for change in ({"version": 3}, {"primary_conditions": {"nominal": 224}}, {"protocol": "another"}, {"metrics": card.metrics[:1]}):
        assert card_hash(card) != card_hash(card.model_copy(update=change))
