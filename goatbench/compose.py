"""Overrides -> a validated, frozen RunSpec, through Hydra's compose API. Whatever is wrong is one line with the nearest name."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, get_args

from pydantic import ValidationError

from .config_tree import GROUPS, ConfigTree
from .errors import UsageError
from .explain import explain, explain_hydra, known_keys
from .overrides import PATH_KEYS, is_of_this_machine, literal_path, parse, resolved
from .registry import attentions, broken_plugins, load_plugins, tasks
from .spec import DOMAIN_AXES, RUN_SPECS, RunSpec
from .spec.domains import VocabularyError

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

PIXELS, NO_TEXT = "evaluation.pixels", "''"
TOKENIZER_FILES = {"gpt2": "a folder with GPT-2's two files", "file": "a tokenizer.json"}
NEVER_VARIANT = {"task", "attention", "scale", "seed", "retrain", "launch", *PATH_KEYS}


@dataclass(frozen=True)
class Composed:
    """One run, ready to be executed.

    variant:   what sets it apart from the same task, scale and attention without overrides: dotted key -> value. The seed,
               the machine (trainer, but for its precision), kernel=auto, runs_dir and retrain never count.
    overrides: as given, without those that name a path or say where the processes start.
    sources:   'group/choice' -> who provides the file, for the choices that do not come with goatbench.
    """

    spec: RunSpec
    variant: dict[str, Any]
    overrides: list[str]
    sources: dict[str, str]

    def check_paths(self) -> None:
        """UsageError if there is nothing where the data are said to be, or no place is given for a tokenizer that needs one; what is
        wrong with what is there, its reader says. A plan needs none of it."""
        if (tokenizer := getattr(self.spec.data, "tokenizer", "bytes")) != "bytes" and self.spec.data.tokenizer_file is None:
            raise UsageError(f"data.tokenizer={tokenizer} needs data.tokenizer_file=PATH, {TOKENIZER_FILES[tokenizer]}")
        for key in self.spec.path_keys:
            path = getattr(self.spec.data, key)
            if path is not None and not os.path.lexists(os.path.expanduser(path)):
                is_chosen = key != self.spec.path_keys[0] or any(line.startswith("data=") for line in self.overrides)
                hint = "" if is_chosen else f"; it is read as {self.spec.data.name} unless data=NAME says otherwise"
                raise UsageError(f"data.{key}={path}: there is no such file or folder{hint}")


def compose(overrides: list[str], config_dir: str | None = None) -> Composed:
    """The run that the overrides describe. UsageError (one line) for anything that the user can get wrong."""
    return Composer(config_dir).compose(overrides)


def split_sweep(overrides: list[str], config_dir: str | None = None) -> list[list[str]]:
    """One list of overrides per job: the product over `a,b`, `range(...)`, `choice(...)`, `glob(...)`, the last one fastest."""
    return Composer(config_dir).split_sweep(overrides)


class Composer:
    """compose for many runs: the file tree is read once, and what overrides are compared with is composed once."""

    def __init__(self, config_dir: str | None = None) -> None:
        load_plugins()
        self.tree = ConfigTree.find(config_dir)
        self._plain: dict[tuple[str, str, str], dict[str, Any]] = {}

    def compose(self, overrides: list[str]) -> Composed:
        overrides = [literal_path(line) for line in overrides]
        parsed = [parse(line) for line in overrides]
        choices = self._choices(parsed)
        given = zip(overrides, parsed, strict=True)
        domain = self.tree.read("task", choices["task"]).get("domain")
        try:
            spec = self._spec(choices, [_settable(line, one, domain) for line, one in given if one.key_or_group != "scale"])
        except UsageError as error:
            if "recipe" not in choices:
                raise
            opening = self.tree.comment("recipe", choices["recipe"])
            raise UsageError(f"{error}; a recipe is for one kind of run: {opening[0]}" if opening else str(error)) from None
        named = choices["task"], choices["attention"], spec.scale
        if {one.key_or_group for one in parsed} <= NEVER_VARIANT:
            self._plain.setdefault(named, spec.identity)
        if named not in self._plain:
            plain = [f"task={named[0]}", f"attention={named[1]}"]
            self._plain[named] = self._spec(self._choices([parse(line) for line in (*plain, f"scale={named[2]}")]), plain).identity
        public = [line for line, one in zip(overrides, parsed, strict=True) if not is_of_this_machine(one.key_or_group)]
        files = {**choices, "scale": f"{spec.scale}/{self.tree.setting_of(choices['task'])}"}
        providers = {f"{group}/{choice}": self.tree.provider(group, choice) for group, choice in files.items()}
        foreign = {name: provider for name, provider in providers.items() if provider != "goatbench"}
        return Composed(spec, _differences(self._plain[named], spec.identity), public, foreign)

    def split_sweep(self, overrides: list[str]) -> list[list[str]]:
        axes = self._axes_of_tasks(overrides)
        return [list(job) for job in product(*(self._alternatives(line, axes) for line in overrides))]

    def _axes_of_tasks(self, overrides: list[str]) -> set[int]:
        """Axes of position of all tasks that a sweep names; of run.yaml's if it names none."""
        given = [line for line in overrides if line.startswith("task=")]
        tasks = [job.partition("=")[2] for line in given for job in self._alternatives(line, {1, 2})] or [self.tree.defaults()["task"]]
        domains = [self.tree.read("task", name).get("domain") for name in tasks if name in self.tree.options("task")]
        return {DOMAIN_AXES[domain] for domain in domains if domain in DOMAIN_AXES}

    def _alternatives(self, line: str, axes: set[int]) -> list[str]:
        """The single overrides that this one stands for; glob(...) on attentions takes those that are defined for these axes."""
        from hydra.core.override_parser.types import Glob

        override = parse(literal_path(line), sweep=True)
        if not override.is_sweep_override():
            return [line]
        if isinstance(override.value(), Glob):
            key = override.key_or_group
            if key not in GROUPS:
                raise UsageError(f"'{line}': glob(...) works on {', '.join(GROUPS)} only")
            known = self.tree.options(key)
            if key == "attention":
                known = [name for name in known if all(name in self.tree.attentions_for(number) for number in axes)]
            names = override.value().filter(known)
            if not names:
                raise UsageError(f"'{line}' matches none of {', '.join(known)}")
            return [f"{key}={name}" for name in names]
        values = list(override.sweep_string_iterator())
        if not values:
            raise UsageError(f"'{line}' stands for no value at all: range(0,3) is 0, 1 and 2")
        return [f"{override.get_key_element()}={value}" for value in values]

    def _choices(self, parsed: list[Override]) -> dict[str, str]:
        """group -> chosen name for every group that the overrides or run.yaml choose; checked against the files."""
        chosen = self.tree.defaults()
        chosen["scale"] = chosen["scale"].partition("/")[0]
        for override in parsed:
            key, value = override.key_or_group, override.value()
            if override.is_delete():
                raise UsageError(f"'{override.input_line}': keys cannot be removed; give {key} another value (null where it may be empty)")
            if override.package is not None or key.partition(".")[0] == "hydra":
                raise UsageError(f"'{override.input_line}': goatbench composes {', '.join(GROUPS)} and single keys, nothing else")
            if key in GROUPS:
                if not isinstance(value, str):
                    raise UsageError(f"'{override.input_line}': {key} is one name; known: {', '.join(self.tree.options(key))}")
                try:
                    self.tree.check(key, value)
                except UsageError as error:
                    raise UsageError(f"{error}{broken_plugins()}") from None
                chosen[key] = value
        for registry, needs in ((tasks, [chosen["task"]]), (attentions, self.tree.schemes_of(chosen["attention"]))):
            if any(name not in registry for name in needs):
                raise UsageError(
                    f"{registry.kind}={chosen[registry.kind]} has values (from {self.tree.provider(registry.kind, chosen[registry.kind])}) "
                    f"but no code: register it through the entry-point group goatbench.plugins{broken_plugins()}"
                )
        return chosen

    def _spec(self, choices: dict[str, str], overrides: list[str]) -> RunSpec:
        domain = self.tree.read("task", choices["task"]).get("domain")
        if domain not in RUN_SPECS:
            raise UsageError(f"task {choices['task']}: domain '{domain}' is not one of {', '.join(RUN_SPECS)}")
        setting = self.tree.setting_of(choices["task"])
        if setting not in self.tree.settings(choices["scale"]):
            raise UsageError(f"scale={choices['scale']} has no values for {setting} tasks (task={choices['task']})")
        self._check_axes(choices, DOMAIN_AXES[domain], domain)
        self._check_kinds(choices, domain)
        values = self._hydra(choices, [f"scale={choices['scale']}/{setting}", *overrides])
        if isinstance(values.get("task"), dict) and values["task"].pop("domain", None) != domain:
            raise UsageError(f"task.domain belongs to the task ('{domain}' for {choices['task']}) and cannot be set")
        if isinstance(values.get("task"), dict) and values["task"].pop("setting", setting) != setting:
            raise UsageError(f"task.setting belongs to the task ('{setting}' for {choices['task']}) and cannot be set")
        if self.tree.read("task", choices["task"]).get("multiples") and values["task"].get("multiples") == []:
            raise UsageError("task.multiples needs at least one, such as [1,16]: the headline is measured at one of them")
        for group in ("task", "attention"):
            if isinstance(values.get(group), dict) and values[group].get("name") != choices[group]:
                raise UsageError(f"{group}.name '{values[group].get('name')}' is not the chosen '{choices[group]}'; write {group}=NAME")
        if values.get("scale") != choices["scale"]:
            raise UsageError(f"scale '{values.get('scale')}' is not the name of its folder '{choices['scale']}'; choose with scale=NAME")
        values["domain"] = domain
        try:
            return RUN_SPECS[domain].model_validate_json(json.dumps(values), strict=True)
        except ValidationError as error:
            raise UsageError(explain(error, known_keys(RUN_SPECS[domain])) + self._models_that_fit(error)) from None

    def _models_that_fit(self, error: ValidationError) -> str:
        """Where a model has another vocabulary than its data, those that have theirs."""
        cause = error.errors()[0].get("ctx", {}).get("error")
        if not isinstance(cause, VocabularyError):
            return ""
        fitting = self.tree.models_with(cause.wanted, cause.model.embed_dim, cause.model.depth)
        return f"; models that fit, the nearest in size first: {', '.join(fitting)}"

    def _check_axes(self, choices: dict[str, str], num_axes: int, domain: str) -> None:
        name = choices["attention"]
        if num_axes in self.tree.read("attention", name).get("axes", [1, 2]):
            return
        fitting, guess = self.tree.attentions_for(num_axes), self.tree.nearest_attention(name, num_axes)
        hint = f"did you mean attention={guess}? " if guess else ""
        raise UsageError(
            f"attention={name} is not defined for task={choices['task']} ({domain}: {num_axes} {'axis' if num_axes == 1 else 'axes'}); "
            f"{hint}these are: {', '.join(fitting)}"
        )

    def _check_kinds(self, choices: dict[str, str], domain: str) -> None:
        """A decoder does not fit a vision task, nor images a genome task."""
        for group in ("model", "data", "evaluation"):
            kind = kind_of(RUN_SPECS[domain], group)
            if group in choices and self.tree.read(group, choices[group]).get("kind") != kind:
                fitting = [name for name in self.tree.options(group) if self.tree.read(group, name).get("kind") == kind]
                where = f"task={choices['task']} ({domain})"
                raise UsageError(f"{group}={choices[group]} does not fit {where}; these do: {', '.join(fitting)}")
        model = self.tree.model_of_recipe(choices["recipe"]) if "recipe" in choices else None
        if model is not None and self.tree.read("model", model).get("kind") != kind_of(RUN_SPECS[domain], "model"):
            raise UsageError(f"recipe={choices['recipe']} trains model {model}, which does not fit task={choices['task']} ({domain})")

    def _open_names(self, choices: dict[str, str], key: str) -> Iterable[Any]:
        """The names under one of OPEN_KEYS in the chosen file, which is the scale's where the overrides choose none."""
        group, _, last = key.partition(".")
        chosen = choices.get(group) or self.tree.scale_choice(choices["scale"], self.tree.setting_of(choices["task"]), group)
        return self.tree.read(group, chosen).get(last, {}) if chosen else []

    def _with_number(self, choices: dict[str, str], line: str) -> str:
        """evaluation.pixels.512=V as evaluation.pixels={512:V}: to Hydra the last part of a dotted key is text, these keys are numbers."""
        key, equals, value = line.partition("=")
        nominal = key.strip().removeprefix(PIXELS + ".")
        known = equals and nominal.isdecimal() and int(nominal) in self._open_names(choices, PIXELS)
        return f"{PIXELS}={{{nominal}:{value.strip() or NO_TEXT}}}" if known else line

    def _hydra(self, choices: dict[str, str], overrides: list[str]) -> dict[str, Any]:
        """The composed values as plain containers, everything resolved."""
        from hydra import compose as hydra_compose
        from hydra import initialize_config_module
        from hydra.errors import HydraException
        from omegaconf.errors import OmegaConfBaseException
        from yaml import YAMLError

        others = [root.search_path for root in self.tree.roots[1:]]
        search = ["hydra.searchpath=[" + ",".join(json.dumps(path) for path in others) + "]"] if others else []
        try:
            with initialize_config_module("goatbench.configs", version_base="1.3"):
                config = hydra_compose("run", [*search, *(self._with_number(choices, line) for line in overrides)])
            return resolved(config)
        except HydraException as error:
            keys = known_keys(RUN_SPECS[self.tree.read("task", choices["task"])["domain"]])
            raise UsageError(explain_hydra(str(error), overrides, lambda key: self._open_names(choices, key), keys)) from None
        except UnicodeDecodeError:
            for group, name in choices.items():
                self.tree.read(group, name)  # says so of the file
            raise
        except YAMLError as error:
            raise UsageError(f"not valid YAML: {' '.join(str(error).split())}") from None
        except OmegaConfBaseException as error:
            key = f"{error.full_key}: " if error.full_key else ""
            said = str(error).partition("\n")[0].rpartition("raised while resolving interpolation: ")[2]
            raise UsageError(f"{key}{said}") from None
        except (AttributeError, LookupError, OSError, TypeError, ValueError) as error:  # Hydra, of a file with lists where it wants names
            said = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            files = ", ".join(f"{group}={name}" for group, name in choices.items())
            raise UsageError(f"one of the files of {files} cannot be composed: {said}") from None


def _settable(line: str, override: Override, domain: str | None) -> str:
    """Keys that the models know but the chosen file leaves at their default are set as plainly as the others ('++' to Hydra)."""
    plain = override.type is not None and override.type.name == "CHANGE"
    return f"++{line}" if plain and override.key_or_group in SINGLE_KEYS.get(domain, ()) else line


def kind_of(spec: type[RunSpec], group: str) -> str:
    """What `kind` a file of this group must have for runs of this class."""
    return get_args(spec.model_fields[group].annotation.model_fields["kind"].annotation)[0]


SINGLE_KEYS = {domain: frozenset(known_keys(spec)) - frozenset(GROUPS) for domain, spec in RUN_SPECS.items()}


def _differences(plain: dict[str, Any], this: dict[str, Any]) -> dict[str, Any]:
    """Dotted key -> value where `this` differs from `plain`; None for a key that is gone."""
    ours, theirs = _flat(this), _flat(plain)
    changed = {key: ours.get(key) for key in {**ours, **theirs} if key not in ours or key not in theirs or ours[key] != theirs[key]}
    return {key: value for key, value in sorted(changed.items()) if key != "seed"}


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat
