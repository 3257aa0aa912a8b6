"""A package outside the tree adds an attention and its YAML by entry points: it is listed, composes, and shows in doctor.

The package is made in a temporary folder with the .dist-info that pip would write, and found through PYTHONPATH.
"""

import json
import os
import subprocess
import sys
import textwrap

import pytest

ATTENTION = """
from goatbench.attention.scheme import NoPosition


class Nothing(NoPosition):
    '''No position, from outside.'''
"""
REGISTER = """
def register(registries):
    registries.attentions.add("outside_nope", "outside.attention:Nothing")
"""
YAML = """\
# goatbench run attention=outside_nope
# A control from outside the tree. Expected: what nope has.
name: outside_nope
axes: [2]
lanes: carve
options: {}
options_1d: {}
options_2d: {}
tuned: {}
"""


def make_package(folder, name="outside", register=REGISTER, attention="outside_nope", entry=None):
    package = folder / name
    (package / "configs" / "attention").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "plugin.py").write_text(textwrap.dedent(register))
    (package / "attention.py").write_text(ATTENTION)
    (package / "configs" / "__init__.py").write_text("")
    (package / "configs" / "attention" / f"{attention}.yaml").write_text(YAML.replace("outside_nope", attention))
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[goatbench.plugins]\n{name} = {entry or f'{name}.plugin:register'}\n\n[goatbench.configs]\n{name} = {name}.configs\n"
    )


def goatbench(folder, *arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "goatbench", *arguments],
        env={**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1", **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize("entry", ["outside.plugin:register", "outside.plugin"], ids=["callable", "module"])
def test_an_attention_from_outside_is_listed_and_composes(tmp_path, entry):
    make_package(tmp_path, entry=entry)
    listed = goatbench(tmp_path, "list", "attentions").stdout
    assert "outside_nope" in listed and "(from outside)" in listed
    composed = goatbench(tmp_path, "run", "--cfg", "job", "attention=outside_nope")
    assert composed.returncode == 0 and "name: outside_nope" in composed.stdout
    assert "No position, from outside." in goatbench(tmp_path, "show", "outside_nope").stdout


def test_it_gets_a_row(tmp_path):
    """The whole way at the smallest scale: a run, and its row on the board."""
    make_package(tmp_path)
    small = ("data.num_train=128", "data.num_validation=64", "data.num_test=64")
    ran = goatbench(tmp_path, "run", "attention=outside_nope", "scale=smoke", *small)
    assert ran.returncode == 0, ran.stderr
    board = goatbench(tmp_path, "leaderboard", "task=vit_res512", "--scale", "smoke")
    assert board.returncode == 0 and "outside_nope" in board.stdout


@pytest.mark.slow  # four processes; `make test-long`
def test_changed_plugin_code_is_new_code(tmp_path):
    """No weights of the old code are reused, no job is skipped, and the record says whose code it was."""
    make_package(tmp_path)
    small = ("data.num_train=128", "data.num_validation=64", "data.num_test=64", "attention=outside_nope", "scale=smoke", "task=vit_res224")

    def newest():
        return json.loads(max(tmp_path.glob("runs/2*/record.json")).read_text())

    assert "trained in this run" in goatbench(tmp_path, "run", *small).stdout
    first = newest()
    (plugin,) = first["plugins"]
    assert (plugin["name"], plugin["provider"], plugin["version"]) == ("attention/outside_nope", "outside", "1.0")
    assert "same training hash" in goatbench(tmp_path, "run", *small).stdout
    again = goatbench(tmp_path, "run", "-m", *small)
    assert "skipped 1 of 1" in again.stdout + again.stderr
    with open(tmp_path / "outside" / "attention.py", "a") as code:
        code.write("\n\nCHANGED = True\n")
    assert "trained in this run" in goatbench(tmp_path, "run", *small).stdout
    second = newest()
    assert second["code"]["source_hash"] != first["code"]["source_hash"]
    assert second["plugins"][0]["source_hash"] != plugin["source_hash"]
    assert second["training"]["training_hash"] != first["training"]["training_hash"]


def test_plugins_can_be_switched_off(tmp_path):
    """None of its code runs, and doctor says that it is off."""
    make_package(tmp_path, register="import pathlib\npathlib.Path('imported').touch()\n" + REGISTER)
    marker, off = tmp_path / "imported", {"GOATBENCH_NO_PLUGINS": "1"}
    refused = goatbench(tmp_path, "run", "--cfg", "job", "attention=outside_nope", **off)
    assert refused.returncode == 2 and "unknown attention 'outside_nope'" in refused.stderr
    doctor = findings(tmp_path, **off)
    assert not marker.exists() and "switched off" in doctor and "outside" not in doctor
    assert goatbench(tmp_path, "run", "--cfg", "job", "attention=outside_nope").returncode == 0 and marker.exists()


def test_a_broken_plugin_is_named_and_keeps_nothing_else_from_working(tmp_path):
    make_package(tmp_path, register="raise RuntimeError('half installed')")
    refused = goatbench(tmp_path, "run", "--cfg", "job", "attention=outside_nope")
    assert refused.returncode == 2 and refused.stderr.count("\n") == 1
    assert "plug-in outside (outside) failed to load: RuntimeError: half installed" in refused.stderr
    assert goatbench(tmp_path, "run", "--cfg", "job", "attention=nope").returncode == 0


def test_two_providers_of_one_name_are_named(tmp_path):
    make_package(tmp_path)
    clash = REGISTER.replace("outside.attention", "second.attention")
    make_package(tmp_path, name="second", register=clash, attention="second_nope")
    refused = goatbench(tmp_path, "list")
    assert refused.returncode == 2
    assert "attention 'outside_nope' is provided by both outside and second" in refused.stderr


def test_two_files_of_one_name_are_named(tmp_path):
    make_package(tmp_path, register="def register(registries): pass", attention="goat")
    refused = goatbench(tmp_path, "run", "--cfg", "job")
    assert refused.returncode == 2
    assert "attention=goat is provided by both goatbench and outside" in refused.stderr


def findings(folder, **environment):
    """What doctor says of plug-ins."""
    script = "from goatbench.doctor import check_plugins\nfor f in check_plugins(): print(f.level, f.text)"
    environment = {**os.environ, "PYTHONPATH": str(folder), **environment}
    return subprocess.run([sys.executable, "-c", script], env=environment, cwd=folder, capture_output=True, text=True, timeout=60).stdout


def test_doctor_lists_plugins(tmp_path):
    make_package(tmp_path)
    found = findings(tmp_path)
    assert "ok outside = outside.plugin:register (from outside)" in found
    assert "ok outside = configs of outside.configs (from outside)" in found
