"""Names, lazy imports, clashes."""

import ast
from dataclasses import fields
from importlib import util
from pathlib import Path

import pytest

from goatbench.config_tree import ConfigTree
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


TYPOS = [
    ("task", "neelde", "needle"),
    ("task", "vit_res51", "vit_res512"),
    ("task", "vitres512", "vit_res512"),
    ("task", "vit_384", "vit_res384"),
    ("task", "lm_len", "lm_length"),
    ("task", "multineedle", "multi_needle"),
    ("task", "passkeys", "passkey"),
    ("task", "resolution", "vit_resolution"),
    ("attention", "gaot", "goat"),
    ("attention", "nop", "nope"),
    ("attention", "aliby", "alibi"),
    ("attention", "alibi2d", "alibi_2d"),
    ("attention", "rope_mix", "rope_mixed"),
    ("attention", "ropemixed", "rope_mixed"),
    ("attention", "goat-reference", "goat_reference"),
    ("attention", "lokohere", "lookhere"),
    ("attention", "t6", "t5"),
    ("attention", "t5_large", "t5"),
    ("scale", "embeded", "embedded"),
    ("scale", "smok", "smoke"),
    ("data", "shakespere", "shakespeare"),
    ("data", "imagenet", "imagenet_folder"),
    ("trainer", "gpus", "gpu"),
]
FAR_FETCHED = [
    ("task", "nope"),
    ("task", "rope"),
    ("task", "smoke"),
    ("task", "perplexity"),
    ("task", "copyright"),
    ("attention", "post"),
    ("attention", "rotary"),
    ("attention", "transformer"),
    ("attention", "foxtrot"),
    ("scale", "needle"),
    ("scale", "tiny"),
    ("model", "vit_tiny"),
    ("trainer", "cuda"),
]


@pytest.mark.parametrize(("group", "name", "guess"), [*TYPOS, *((group, name, None) for group, name in FAR_FETCHED)])
def test_a_typo_is_answered_with_the_name_and_a_stranger_with_none(group, name, guess):
    assert nearest(name, ConfigTree.find().options(group)) == guess


@pytest.mark.parametrize(
    ("group", "name", "says"),
    [
        ("task", "nope", "unknown task 'nope'; nope is an attention: attention=nope; known: "),
        ("attention", "copy", "unknown attention 'copy'; copy is a task: task=copy; known: "),  # not cope, which is nearest
        ("scale", "stories", "'stories'; stories is a data set: data=stories and an evaluation preset: evaluation=stories; known: "),
        ("trainer", "slurm", "unknown trainer 'slurm'; slurm is a launcher: launch=slurm; known: "),
    ],
)
def test_a_name_of_another_kind_is_called_by_it(group, name, says):
    with pytest.raises(UsageError) as caught:
        ConfigTree.find().check(group, name)
    assert says in str(caught.value) and "did you mean" not in str(caught.value)


def test_only_the_family_of_an_attention_stands_for_it():
    """cope is spelled as it should be: nope, which looks like it, is another mechanism."""
    tree = ConfigTree.find()
    assert tree.nearest_attention("cope", 2) is None
    assert tree.nearest_attention("rope_sink_scalar", 2) == "rope_axial"


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
