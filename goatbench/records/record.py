"""The record of one run: what a reader needs to trust a number and to make it again. No torch here.

No host names, user names or absolute paths ever enter a record.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

SCHEMA_VERSION = 1

NAME_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,63}$"
HASH_PATTERN = r"^[0-9a-f]{8,64}$"
RUN_ID_PATTERN = r"^[0-9]{8}t[0-9]{6}-[0-9a-f]{8}-[0-9a-f]{6}$"  # UTC second, config hash, random


Conditions = dict[str, str | int | float | bool]


class Strict(BaseModel):
    """Defaults of lists and dicts are factories: pydantic copies any other default deeply, for each record anew."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)


class Status(StrEnum):
    OK = "ok"
    FAILED = "failed"
    OOM = "oom"
    TIMEOUT = "timeout"
    INTERRUPTED = "interrupted"


class Measurement(Strict):
    """One number. `value` is None only with a `reason` ("not applicable: ..."); n counts the examples behind it.

    A condition "reference" marks a yardstick that the run measured beside its own score, on the same examples: 'markov-6'.
    """

    metric: str
    value: float | None
    unit: str
    n: int = Field(ge=0)
    stderr: float | None = Field(default=None, ge=0)
    stderr_method: str | None = None
    reason: str | None = None
    conditions: Conditions = Field(default_factory=dict)


def check_reasons(measurements: list[Measurement]) -> None:
    """ValueError if one has neither value nor reason, or both. Here and not in the class: boards read hundreds of thousands of them."""
    for m in measurements:
        if (m.value is None) != (m.reason is not None):
            raise ValueError(f"{m.metric}: a measurement has a value, or None and a reason")


class Curve(Strict):
    """A quantity along an axis (loss by position in the window), too long for a table; y has a value for each x."""

    name: str
    unit: str
    x_name: str
    x: list[float]
    y: list[float]
    n: int = Field(ge=1)  # examples behind each point
    conditions: Conditions = Field(default_factory=dict)

    @model_validator(mode="after")
    def _same_length(self) -> Curve:
        if len(self.x) != len(self.y):
            raise ValueError(f"curve {self.name} has {len(self.x)} x and {len(self.y)} y")
        return self


class ExampleArray(Strict):
    """Scores of the single examples behind one measurement: its metric and conditions, and the array's name in the file.

    weights: the array of the examples' weights (bytes of each window); None: all weigh the same. Their mean is the measurement's value.
    """

    name: str = Field(pattern=r"^s[0-9]{1,4}$")
    metric: str
    conditions: Conditions = Field(default_factory=dict)
    dtype: Literal["bool", "float16", "float32"]
    num_examples: int = Field(ge=1)
    weights: str | None = Field(default=None, pattern=r"^w[0-9]{1,4}$")  # float32


class ExampleScores(Strict):
    """The file of per-example scores beside the record: what it holds, and its hash."""

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    num_bytes: int = Field(ge=1)
    arrays: list[ExampleArray] = Field(min_length=1)


class Cost(Strict):
    """What a part of the run cost, with the method it was measured by ('cpu_time', 'rss', 'cuda_allocator', ...)."""

    name: str  # train_cpu_seconds, train_wall_seconds, eval_images_per_second, peak_memory_bytes, ...
    value: float
    unit: str
    method: str
    conditions: Conditions = Field(default_factory=dict)


class TaskRef(Strict):
    name: str = Field(pattern=NAME_PATTERN)
    version: int = Field(ge=1)
    card_hash: str = Field(pattern=HASH_PATTERN)


class RowRef(Strict):
    """Who is measured: an attention, and whatever was set away from the defaults of task and scale (seed and machine apart)."""

    attention: str = Field(pattern=NAME_PATTERN)
    variant: dict[str, str | int | float | bool | list[Any] | None] = Field(default_factory=dict)


class ModelInfo(Strict):
    name: str
    params_total: int
    params_trainable: int
    params_prior: int  # inside the position scheme
    head_dim: int
    content_dim: int
    num_lanes: int
    lanes: Literal["carve", "append", "none"]
    kernel_train: str
    kernel_eval: str
    notes: list[str] = Field(default_factory=list)


class DataInfo(Strict):
    name: str
    fingerprint: str = Field(pattern=HASH_PATTERN)
    counts: dict[str, int]  # split -> examples used
    source: str  # 'real' or 'synthetic', with its origin
    skipped: int = 0  # unreadable training images left out


class CodeInfo(Strict):
    version: str
    commit: str | None
    dirty: bool | None  # changes under goatbench/, tasks/, configs/, pyproject.toml only
    source_hash: str = Field(pattern=HASH_PATTERN)


class PluginInfo(Strict):
    """Foreign code that took part: 'attention/same_row' of a package, its version, and a hash over all its Python files."""

    name: str
    provider: str
    version: str | None
    source_hash: str = Field(pattern=HASH_PATTERN)


class Budget(Strict):
    epochs: int
    steps: int
    samples: int
    batch_size: int


class TrainingInfo(Strict):
    training_hash: str = Field(pattern=HASH_PATTERN)
    reused: bool  # the checkpoint of an earlier run with the same training hash served
    from_run: str | None = None  # the run that trained it
    selected_epoch: int | None = None
    selected_on: str | None = None  # 'validation top1 at base resolution'
    selected_value: float | None = None
    learning_rate: float
    learning_rate_source: str  # 'tuned: results/vit_tuning@v1' (older records: 'tuned'), 'default', 'given'


class ErrorInfo(Strict):
    kind: str
    message: str


REFUSED = "RefusedError"  # kind of the error of a run whose mechanism, as it comes, cannot do what the task asks


class RunRecord(Strict):
    schema_version: Literal[1] = SCHEMA_VERSION
    run_id: str = Field(pattern=RUN_ID_PATTERN)
    sweep_id: str | None = None
    status: Status
    error: ErrorInfo | None = None
    task: TaskRef
    scale: str = Field(pattern=NAME_PATTERN)
    domain: str = Field(pattern=NAME_PATTERN)
    row: RowRef
    seed: int = Field(ge=0)
    config: dict[str, Any]
    config_hash: str = Field(pattern=HASH_PATTERN)
    overrides: list[str] = Field(default_factory=list)
    model: ModelInfo | None = None
    data: DataInfo | None = None
    code: CodeInfo
    plugins: list[PluginInfo] = Field(default_factory=list)
    environment: dict[str, str | int | bool | None] = Field(default_factory=dict)
    budget: Budget | None = None
    training: TrainingInfo | None = None
    protocol: dict[str, str | int | float | bool | None] = Field(default_factory=dict)
    measurements: list[Measurement] = Field(default_factory=list)
    curves: list[Curve] = Field(default_factory=list)
    costs: list[Cost] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)
    artifacts: list[str] = Field(default_factory=list)  # files beside the record in its run folder
    examples: ExampleScores | None = None
    started_at: str  # UTC, ISO 8601
    finished_at: str | None = None

    @property
    def ending(self) -> str:
        """The status, or 'refused': a failure that is known before anything was trained."""
        return "refused" if self.error is not None and self.error.kind == REFUSED else str(self.status)

    @model_validator(mode="after")
    def _status_agrees(self) -> RunRecord:
        if (self.status is Status.OK) == (self.error is not None):
            raise ValueError(f"{self.run_id}: status {self.status} and error disagree")
        if self.status is Status.OK and not (self.model and self.data and self.measurements):
            raise ValueError(f"{self.run_id}: an ok record names model, data and at least one measurement")
        check_reasons(self.measurements)
        return self


@dataclass(frozen=True, slots=True)
class Examples:
    """Scores of the single examples behind a measurement: numpy [n] of bool, float16 or float32, always in the order of the example ids.

    weights: [n], None if each example counts the same. The weighted mean is the measurement's value.
    """

    metric: str
    conditions: dict[str, Any]
    scores: Any
    weights: Any = None


class Outcome(Strict):
    """What a task's measurement hands over to the record."""

    measurements: list[Measurement]
    costs: list[Cost] = Field(default_factory=list)
    curves: list[Curve] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)
    artifacts: list[str] = Field(default_factory=list)
    examples: list[Examples] = Field(default_factory=list)

    @model_validator(mode="after")
    def _missing_values_have_reasons(self) -> Outcome:
        check_reasons(self.measurements)
        return self


class Metric(Strict):
    """How a number is to be read."""

    name: str
    unit: str
    direction: Literal["higher", "lower", "none"]  # none: neither end is better; boards are sorted by it and rank nobody
    chance: float | dict[str, float] | None = None  # of a blind guess; by scale where the number of classes differs
    chance_where: dict[str, str] = {}  # protocol fields with which alone it is that, e.g. {"tokens": "bytes"}
    bounds: tuple[float | None, float | None] | None = None  # what a value can be; None: open on that side
    digits: int = 1
    percent: bool = False  # stored as a fraction, shown times 100
    counted: str = "examples"  # what a measurement's n counts: bytes, bases, symbols
    everywhere: bool = True  # a record has it under each of its conditions; else under some, at least one

    @property
    def arrow(self) -> str:
        return {"higher": "↑", "lower": "↓", "none": "↕"}[self.direction]

    @property
    def sign(self) -> int:
        """1 where larger values come first on a board, else -1."""
        return -1 if self.direction == "lower" else 1

    @property
    def reading(self) -> str:
        return "neither end is better" if self.direction == "none" else f"{self.direction} is better"

    def text(self, value: float, sign: str = "") -> str:
        """As tables show it: times 100 where it is a percentage. sign: '+' shows it. Numbers that no digits help are powers of ten."""
        value = value * (100 if self.percent else 1)
        return f"{value:{sign}.{self.digits}f}" if abs(value) < 1e12 else f"{value:{sign}.2e}"

    def chance_at(self, scale: str) -> float | None:
        return self.chance.get(scale) if isinstance(self.chance, dict) else self.chance


class Learned(Strict):
    """A row whose mean of `metric` at `value` of the column condition is below `at_least` has not learned the task: it is not ranked."""

    metric: str
    value: str | int
    at_least: float


class TaskCard(Strict):
    """What `goatbench show TASK` prints and leaderboards read. Kept free of torch."""

    name: str = Field(pattern=NAME_PATTERN)
    version: int = Field(ge=1)
    domain: str
    summary: str  # one line
    protocol: str  # a few sentences
    metrics: tuple[Metric, ...]
    primary_metric: str
    primary_conditions: dict[str, str | int | float | bool]  # the headline cell, e.g. {"nominal": 512}
    column_condition: str  # the condition that becomes the columns of the board, e.g. "nominal"
    column_label: str = ""  # the condition shown in the column head, e.g. "resolution" (default: column_condition)
    column_details: tuple[str, ...] = ()  # further conditions that the column decides, e.g. the side images are resized to
    row_conditions: tuple[str, ...] = ()  # evaluation-time variants that become rows of their own, e.g. ("coords",)
    headline_rows: dict[str, tuple[str | int | float | bool, ...]] = {}  # which values of a row condition are the plain row
    controls: tuple[str, ...] = ()  # attentions shown for comparison only, left out of ranks, e.g. ("nope",)
    per_seed: bool = False  # every seed's headline value is shown: of outcomes with two modes a mean says nothing
    learned: Learned | None = None  # when a row counts as having learned the task at all
    is_overall: bool = True  # in the table across tasks; False: no performance of anything trained
    protocol_per_row: tuple[str, ...] = ()  # protocol fields that may differ between the rows of one board, e.g. ("tuned",)
    expected_time: dict[str, str]  # scale -> text
    source: str

    @property
    def is_tuning(self) -> bool:
        """A sweep on validation at half budget that chose settings: no result."""
        return self.name.endswith("_tuning")

    def metric(self, name: str) -> Metric:
        return next(m for m in self.metrics if m.name == name)
