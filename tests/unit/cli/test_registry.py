"""Names, lazy imports, clashes."""

import ast
from dataclasses import fields
from importlib import util
from pathlib import Path

import pytest

from goatbench.errors import UsageError
from goatbench.registry import Registries, Registry, _Bound, attentions, image_sources, nearest, tasks, toy_sources


def test_get_imports_only_when_asked():
    registry = Registry("thing", {"path": "pathlib:Path", "broken": "no_such_module:Thing"})
    assert registry.names() == ["path", "broken"]
    assert registry.get("path") is Path
    with pytest.raises(ModuleNotFoundError):
        registry.get("broken")


def test_unknown_name_lists_and_suggests():
    registry = Registry("attention", {"goat": "a:b", "rope_axial": "a:c"})
    with pytest.raises(UsageError) as caught:
        registry.get("gaot")
    assert str(caught.value) == "unknown attention 'gaot'; did you mean 'goat'? known: goat, rope_axial"


def test_a_clash_names_both_providers():
    registry = Registry("attention", {"goat": "a:b"})
    registry.add("mine", "mine:Mine", provider="package-one")
    with pytest.raises(UsageError, match=r"'mine' is provided by both package-one and package-two"):
        registry.add("mine", "other:Mine", provider="package-two")
    with pytest.raises(UsageError, match=r"by both goatbench and package-two"):
        registry.add("goat", "other:Goat", provider="package-two")
    assert registry.target("mine") == "mine:Mine"


def test_a_target_must_name_an_attribute():
    with pytest.raises(UsageError, match="module:attribute"):
        Registry("attention", {}).add("mine", "mine.Mine", provider="p")


def test_a_plugin_is_told_its_own_name():
    registry = Registry("attention", {})
    Registries(*[_Bound(registry, "theirs")] * len(fields(Registries))).attentions.add("mine", "mine:Mine")
    assert registry.provider("mine") == "theirs"


@pytest.mark.parametrize(
    ("name", "known", "guess"),
    [
        ("vit_res51", ["vit_res224", "vit_res512"], "vit_res512"),
        ("rope", ["nope", "rope_axial"], "rope_axial"),
        ("lr", ["seed", "model"], None),
    ],
)
def test_nearest(name, known, guess):
    assert nearest(name, known) == guess


@pytest.mark.parametrize(
    ("registry", "name"), [(registry, name) for registry in (attentions, tasks, image_sources, toy_sources) for name in registry.names()]
)
def test_every_target_exists_in_its_source(registry, name):
    """Read from the source files: no torch is needed to know that a name leads somewhere."""
    module, _, attribute = registry.target(name).partition(":")
    folder, *rest = module.removeprefix("goatbench.").split(".")
    package = util.find_spec(f"goatbench.{folder}")
    place = Path(next(iter(package.submodule_search_locations)))
    source = place.joinpath(*rest).with_suffix(".py")
    tree = ast.parse(source.read_text())
    defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    defined |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    defined |= {alias.asname or alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert attribute in defined, f"{source} defines no {attribute}"
