"""What a user wrote as key=value, read in Hydra's grammar, and the values that come of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from .errors import UsageError
from .spec import RUN_SPECS

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override
    from omegaconf import DictConfig

# a record holds no paths of this machine
PATH_KEYS = ("runs_dir", *(f"data.{key}" for spec in RUN_SPECS.values() for key in spec.path_keys))


def is_of_this_machine(key: str) -> bool:
    """Paths, and where and how the processes start (launch.setup may name a path, launch.account a person)."""
    return key in PATH_KEYS or key.partition(".")[0] == "launch"


def job_label(job: list[str], overrides: list[str]) -> str:
    """The overrides that tell a job from the others of its sweep, of which `overrides` were written."""
    return " ".join(line for line, given in zip(job, overrides, strict=True) if line != given) or " ".join(job) or "defaults"


def literal_path(line: str) -> str:
    """The override of a path with its value quoted for Hydra, so that any file name can be given as it is; other overrides as they are.

    `null` unsets a path. A value in quotes is left to Hydra: "data.fasta='a.fa','b.fa'" is a sweep, data.fasta=a,b.fa is one file.
    """
    from hydra.core.override_parser.types import Quote, QuotedString

    if any("\ud800" <= letter <= "\udfff" for letter in line):
        raise UsageError(f"{line!a} is not valid UTF-8: rename the file, or link to it under another name")
    key, equals, value = line.partition("=")
    if not equals or key.strip().lstrip("+") not in PATH_KEYS or value.strip().lower() == "null":
        return line
    if len(value) > 1 and value[0] in "'\"" and value[-1] == value[0]:
        return line
    if not value.strip():
        none = "" if key.strip().lstrip("+") == "runs_dir" else f", or {key}=null for none"
        raise UsageError(f"'{line}' names no path: write {key}=PATH{none}")
    return f"{key}={QuotedString(value, Quote.single).with_quotes()}"


def parse(line: str, sweep: bool = False) -> Override:
    """One override in Hydra's grammar. Outside a sweep, a value with several alternatives is an error."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        override = OverridesParser.create().parse_override(line)
        if not override.key_or_group:
            raise HydraException
    except HydraException:
        key, equals, value = line.partition("=")
        quoted = f"; text with blanks, commas or brackets goes in two pairs of quotes: \"{key}='{value}'\"" if equals and value else ""
        first = f"task={line}" if line.isidentifier() else "attention=goat"
        wanted = f"write key=value, such as {first}, seed=3, task.resolutions=[224,512]"
        raise UsageError(f"cannot read '{line}': {wanted}{quoted}") from None
    if override.is_sweep_override() and not sweep:
        raise UsageError(f"'{line}' holds several values; run them all with: goatbench run -m {line} ...")
    return override


def resolved(config: DictConfig) -> dict[str, Any]:
    """Plain containers. Only the keys of paths, which no record holds, may take a value from the environment, or from one another.
    OmegaConfBaseException for what cannot be resolved."""
    from omegaconf import OmegaConf

    public = OmegaConf.to_container(config)
    for holder, name in _places(public):
        holder.pop(name, None)
    with _environment_unread():
        public = OmegaConf.to_container(OmegaConf.create(public), resolve=True, throw_on_missing=True)
    whole = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    for (holder, name), (known, _) in zip(_places(public), _places(whole), strict=True):
        if name in known:
            holder[name] = known[name]
    return public


def _places(values: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Where the paths of a run are, or would be."""
    for key in PATH_KEYS:
        parent, _, name = key.rpartition(".")
        holder = values.get(parent) if parent else values
        if isinstance(holder, dict):
            yield holder, name


@contextmanager
def _environment_unread() -> Iterator[None]:
    """Whatever way an interpolation comes to oc.env: one may name it by another interpolation, or be a text that is decoded."""
    from omegaconf import OmegaConf
    from omegaconf.resolvers import oc

    def refuse(name: str, *_: object) -> NoReturn:
        places = "runs_dir and those of data, such as data.root"
        raise UsageError(f"${{oc.env:{name}}} would put the environment into a record; only paths ({places}) may be read from there")

    OmegaConf.register_new_resolver("oc.env", refuse, replace=True)
    try:
        yield
    finally:
        OmegaConf.register_new_resolver("oc.env", oc.env, replace=True)
