"""A suite: which tasks with which attentions and seeds, read from YAML. Its golden records lie beside it. No torch here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import Field, ValidationError, model_validator

from ..errors import UsageError
from ..records.files import one_line, read_bounded
from ..records.record import NAME_PATTERN, Strict
from ..registry import unknown

SMOKE = Path(__file__).with_name("smoke.yaml")
Name = Annotated[str, Field(pattern=NAME_PATTERN)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]


@dataclass(frozen=True, slots=True)
class Job:
    """One attention on one task; `baseline` is the job of the same task that its cost is divided by (itself for the first one)."""

    task: str
    attention: str
    baseline: str
    metrics: tuple[str, ...]
    overrides: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.task}/{self.attention}"


class SuiteTask(Strict):
    """attentions: the first one is the baseline of the cost. metrics: those whose spread over seeds is a tolerance."""

    attentions: tuple[Name, ...] = Field(min_length=1)
    metrics: tuple[str, ...] = Field(min_length=1)
    overrides: tuple[str, ...] = ()


class Suite(Strict):
    """seeds: of a check; golden_seeds: of the golden records, these and more, since their spread is the tolerance."""

    scale: Name
    seeds: tuple[Seed, ...] = Field(min_length=1)
    golden_seeds: tuple[Seed, ...] = Field(min_length=3)
    tasks: dict[Name, SuiteTask] = Field(min_length=1)

    @model_validator(mode="after")
    def _golden_seeds_hold_those_of_a_check(self) -> Suite:
        if not set(self.seeds) <= set(self.golden_seeds):
            raise ValueError("golden_seeds leaves out some of seeds")
        return self

    def jobs(self, only: list[str] | None = None) -> list[Job]:
        """All jobs, or those that `only` names as TASK or TASK/ATTENTION, each with its baseline before it. UsageError if unknown."""
        found = [
            Job(name, attention, f"{name}/{task.attentions[0]}", task.metrics, task.overrides)
            for name, task in self.tasks.items()
            for attention in task.attentions
        ]
        if not only:
            return found
        known = [*self.tasks, *(job.name for job in found)]
        for name in only:
            if name not in known:
                raise UsageError(unknown("job", name, known))
        wanted = {job.name for job in found if job.task in only or job.name in only}
        baselines = {job.baseline for job in found if job.name in wanted}
        return [job for job in found if job.name in wanted | baselines]


def read_suite(path: Path = SMOKE) -> Suite:
    """The suite in this YAML file. UsageError in one line that names the file and the field."""
    try:
        return Suite.model_validate(yaml.safe_load(read_bounded(path)))
    except yaml.YAMLError as error:
        raise UsageError(one_line(f"{path} is not valid YAML: {str(error).splitlines()[0]}")) from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "the suite"
        raise UsageError(one_line(f"{path} is not a suite: {field}: {first['msg']}")) from None


def golden_path(suite: Path) -> Path:
    """smoke.yaml -> smoke.golden.json."""
    return suite.with_name(f"{suite.stem}.golden.json")
