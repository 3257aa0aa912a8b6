"""What a run is: the validated, frozen specification that every part of the suite is given. No torch here.

Hydra composes the values, these models check them, and `config_hash` names them.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from .records.canonical import canonical_json as canonical_json
from .records.canonical import digest as digest
from .records.record import NAME_PATTERN

LATER_FIELDS = {  # part.name -> default: no part of a run's identity at it, so that older records keep their hash
    "model.weight_std": 0.02,
    "model.embedding_std": 0.02,
    "attention.position": None,
    "attention.gate": "none",
    "attention.inner": "softmax",
    "attention.inner_options": {},
}
DOMAIN_AXES = {"vision": 2, "genome": 1, "text": 1, "toy": 1, "stories": 1}  # axes of position


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class VisionTaskSpec(Strict):
    """resolutions: nominal resolutions to evaluate, base first or not; base is always measured."""

    name: str = Field(pattern=NAME_PATTERN)
    resolutions: list[int] = []
    split: Literal["test", "validation"] = "test"


class SequenceTaskSpec(Strict):
    """multiples: lengths to evaluate, in training lengths (genome_length, lm_length, needle)."""

    name: str = Field(pattern=NAME_PATTERN)
    multiples: list[Annotated[int, Field(gt=0)]] = []
    split: Literal["test", "validation"] = "test"


class AttentionSpec(Strict):
    """options go to the scheme's constructor, options_1d / options_2d on top of them by the number of axes.
    axes: for how many axes of position the mechanism is defined (1 text and genome, 2 images).
    position: name of the position scheme, or several joined by '+'; None: the row's own name. gate: of attention's output.
    inner: registry name of the inner attention; inner_options go to its constructor."""

    name: str = Field(pattern=NAME_PATTERN)
    position: str | None = Field(default=None, min_length=1)
    gate: Literal["none", "headwise", "elementwise"] = "none"
    inner: str = Field(default="softmax", pattern=NAME_PATTERN)
    inner_options: dict[str, Any] = {}
    axes: list[Literal[1, 2]] = Field(default=[1, 2], min_length=1)
    lanes: Literal["carve", "append"] = "carve"
    options: dict[str, Any] = {}
    options_1d: dict[str, Any] = {}
    options_2d: dict[str, Any] = {}
    tuned: dict[str, dict[str, float]] = {}  # domain -> {scale: learning rate}, from the committed sweep

    @property
    def schemes(self) -> list[str]:
        """Registry names of the position schemes that the row takes."""
        return (self.position or self.name).split("+")




class VitSpec(Strict):
    """A plain pre-norm ViT (timm's vocabulary). image_size is the base resolution in pixels."""

    kind: Literal["vit"]
    name: str = Field(pattern=NAME_PATTERN)
    image_size: int = Field(gt=0)
    patch_size: int = Field(gt=0)
    in_chans: int = Field(gt=0)
    num_classes: int = Field(gt=1)
    embed_dim: int = Field(gt=0, le=65_536)
    depth: int = Field(gt=0, le=1024)
    num_heads: int = Field(gt=0, le=1024)
    mlp_ratio: float = Field(gt=0)
    drop_path: float = Field(ge=0, lt=1)
    class_token: bool = True
    num_reg_tokens: int = Field(default=0, ge=0)
    init_values: float | None = None  # LayerScale

    @model_validator(mode="after")
    def _fits(self) -> VitSpec:
        if self.image_size % self.patch_size:
            raise ValueError(f"image_size {self.image_size} is not a multiple of patch_size {self.patch_size}")
        if self.embed_dim % self.num_heads:
            raise ValueError(f"embed_dim {self.embed_dim} is not a multiple of num_heads {self.num_heads}")
        return self


class DecoderSpec(Strict):
    """A causal pre-norm decoder. seq_len is the training length; tokens from num_scored on are never targets (genome: N).
    weight_std, embedding_std: of the initial weights and token embeddings; GPT-2's 0.02 by default."""

    kind: Literal["decoder"]
    name: str = Field(pattern=NAME_PATTERN)
    vocab_size: int = Field(gt=1, le=2**20)
    num_scored: int = Field(gt=1)
    seq_len: int = Field(gt=0)
    embed_dim: int = Field(gt=0, le=65_536)
    depth: int = Field(gt=0, le=1024)
    num_heads: int = Field(gt=0, le=1024)
    num_kv_heads: int | None = Field(default=None, gt=0)  # None: num_heads
    mlp_ratio: float = Field(gt=0)
    tie_embeddings: bool = False
    weight_std: float = Field(default=0.02, gt=0)
    embedding_std: float = Field(default=0.02, gt=0)

    @model_validator(mode="after")
    def _fits(self) -> DecoderSpec:
        if self.embed_dim % self.num_heads:
            raise ValueError(f"embed_dim {self.embed_dim} is not a multiple of num_heads {self.num_heads}")
        if self.num_kv_heads is not None and self.num_heads % self.num_kv_heads:
            raise ValueError(f"num_kv_heads {self.num_kv_heads} does not divide num_heads {self.num_heads}")
        if self.num_scored > self.vocab_size:
            raise ValueError(f"num_scored {self.num_scored} is more than vocab_size {self.vocab_size}")
        return self


class AugmentationSpec(Strict):
    """Training transform: random resized crop from the native image, then flip; the rest is for paper scale."""

    crop_min_scale: float = Field(gt=0, le=1)
    crop_max_ratio: float = Field(default=4 / 3, ge=1)
    horizontal_flip: bool = True
    three_augment: bool = False
    color_jitter: float = Field(default=0.0, ge=0)
    mixup: float = Field(default=0.0, ge=0)
    cutmix: float = Field(default=0.0, ge=0)
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)


class ImageDataSpec(Strict):
    """Images. source is a name of the data registry; root a local folder for the sources that need one."""

    kind: Literal["images"]
    name: str = Field(pattern=NAME_PATTERN)
    root: str | None = None
    class_map: str | None = None
    num_train: int | None = Field(default=None, gt=0)  # None: all
    num_validation: int | None = Field(default=None, gt=0)
    num_test: int | None = Field(default=None, gt=0)
    max_unreadable: int = Field(default=0, ge=0)  # training images that may be skipped (and are counted) before the run fails
    augmentation: AugmentationSpec


class GenomeDataSpec(Strict):
    """DNA from a FASTA file. name: of the genome-source registry; fasta: the file, for the sources that need one; split: the name of
    a preset, or 'file' with split_file (contig, start, end, split, core_start, core_end). Counts are windows; null: all (training:
    as many as cover the bases once)."""

    kind: Literal["genome"]
    name: str = Field(pattern=NAME_PATTERN)
    fasta: str | None = None
    split: str = Field(pattern=NAME_PATTERN)
    split_file: str | None = None
    num_train: int | None = Field(default=None, gt=0)  # windows an epoch
    num_validation: int | None = Field(default=None, gt=0)
    num_test: int | None = Field(default=None, gt=0)
    reverse_complement: bool = False  # training windows from either strand, drawn for each sample

    @model_validator(mode="after")
    def _split_is_named_once(self) -> GenomeDataSpec:
        if (self.split == "file") != (self.split_file is not None):
            raise ValueError("split=file needs split_file=PATH, and split_file is read with split=file only")
        return self


class TextDataSpec(Strict):
    """Documents. name: of the text-source registry; path: a file or folder, for the sources that need one. Counts are windows; null:
    all (training: as many as cover the tokens once).
    tokenizer: bytes, gpt2 (byte-pair encoding from tokenizer_file, a folder with GPT-2's two files) or file (any tokenizer.json).
    packing: concat lets a window reach over document borders; documents masks attention at them and restarts positions.
    lambada: a local file of the real LAMBADA, for the task of that name."""

    kind: Literal["text"]
    name: str = Field(pattern=NAME_PATTERN)
    path: str | None = None
    tokenizer: Literal["bytes", "gpt2", "file"] = "bytes"
    tokenizer_file: str | None = None
    packing: Literal["concat", "documents"] = "concat"
    lambada: str | None = None
    num_train: int | None = Field(default=None, gt=0)  # windows an epoch
    num_validation: int | None = Field(default=None, gt=0)


class ToyDataSpec(Strict):
    """Sequences made up as they are needed; the task says which. min_length: the shortest training length, drawn uniformly from there
    to the model's seq_len in every second step; null: always seq_len. num_test: sequences of each length and depth.
    num_needles, num_asked: multi_needle only."""

    kind: Literal["toy"]
    name: str = Field(pattern=NAME_PATTERN)
    num_train: int = Field(gt=0)  # sequences an epoch
    num_validation: int = Field(gt=0)
    num_test: int = Field(gt=0)
    min_length: int | None = Field(default=None, gt=0)
    num_needles: int = Field(default=4, gt=0, le=6)
    num_asked: int = Field(default=2, gt=0, le=6)

    @model_validator(mode="after")
    def _asks_for_what_is_there(self) -> ToyDataSpec:
        if self.num_asked > self.num_needles:
            raise ValueError(f"num_asked {self.num_asked} is more than num_needles {self.num_needles}")
        return self


class StoryDataSpec(Strict):
    """Stories with questions. name: of the story-source registry; path: the folder of the real BABILong, for data=babilong.
    text, text_path: the documents that the other sentences come from, a name of the text-source registry and its file or folder.
    num_test: stories of each question and length."""

    kind: Literal["stories"]
    name: str = Field(pattern=NAME_PATTERN)
    path: str | None = None
    text: str = Field(pattern=NAME_PATTERN)
    text_path: str | None = None
    questions: list[Literal["qa1", "qa2", "qa3", "qa4", "qa5"]] = Field(min_length=1)
    num_train: int = Field(gt=0)  # stories an epoch
    num_validation: int = Field(gt=0)
    num_test: int = Field(gt=0)

    @model_validator(mode="after")
    def _questions_once(self) -> StoryDataSpec:
        if len(set(self.questions)) < len(self.questions):
            raise ValueError(f"questions {self.questions} names one twice")
        return self


class TrainingSpec(Strict):
    """The budget and recipe; equal for every attention but for the learning rate, which a committed sweep chose for each."""

    epochs: int = Field(gt=0)
    batch_size: int = Field(gt=0)  # global
    learning_rate: Annotated[float, Field(gt=0)] | Literal["tuned"] = "tuned"
    default_learning_rate: float = Field(gt=0)  # where no sweep has been run
    min_learning_rate_ratio: float = Field(default=0.01, ge=0, le=1)
    warmup_fraction: float = Field(default=0.1, ge=0, lt=1)
    optimizer: Literal["adamw", "lamb"] = "adamw"
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = Field(default=0.05, ge=0)
    clip_norm: float | None = 1.0
    loss: Literal["cross_entropy", "binary_cross_entropy"] = "cross_entropy"


class ImageEvaluationSpec(Strict):
    """pixels maps the nominal resolutions of the card to the pixels of this scale (paper scale: the identity).
    crop_pct: the short side is resized to pixels / crop_pct before the centre crop; base_crop_pct replaces it at the base
    resolution (LookHere's published protocol), None: the same everywhere."""

    kind: Literal["images"]
    preset: str
    base: int = Field(gt=0)  # nominal base resolution
    pixels: dict[int, int]
    crop_pct: float = Field(gt=0, le=1)
    base_crop_pct: float | None = Field(default=None, gt=0, le=1)
    interpolation: Literal["bicubic", "bilinear"]
    batch_tokens: int = Field(default=16384, gt=0)  # batch size = batch_tokens // tokens, at least 1
    coords: list[Literal["raw", "scaled"]] = ["raw", "scaled"]

    def crop_at(self, height: int, width: int) -> float:
        """The crop that goes with this size in pixels: LookHere crops 0.875 at base and not at all elsewhere."""
        is_base = height == width == self.pixels[self.base]
        return self.base_crop_pct if is_base and self.base_crop_pct is not None else self.crop_pct


class GenomeEvaluationSpec(Strict):
    """batch_tokens: tokens of one forward pass. both_strands: score the reverse complement as well.
    num_targets, num_blocks: genome_length scores the last num_targets bases of windows of every context, at num_blocks places.
    prompt, generate, num_prompts, num_samples: free running (genome_gc). gc_window: bases of one GC window.
    lengths: genome_memory. markov_orders, markov_interpolated: the Markov models beside the score, the last one over 0 to that order."""

    kind: Literal["genome"]
    preset: str
    batch_tokens: int = Field(default=16384, gt=0)
    both_strands: bool = True
    num_targets: int = Field(gt=0)
    num_blocks: int = Field(gt=0)
    gc_window: int = Field(gt=0)
    prompt: int = Field(gt=0)
    generate: int = Field(gt=0)
    num_prompts: int = Field(gt=0)
    num_samples: int = Field(ge=8)  # of each prompt: one alone says little of a distribution
    lengths: list[Annotated[int, Field(gt=0)]] = Field(min_length=1)
    markov_orders: list[Annotated[int, Field(ge=0, le=12)]] = [2, 6, 10]
    markov_interpolated: int = Field(default=12, ge=0, le=12)


class TextEvaluationSpec(Strict):
    """batch_tokens: tokens of one forward pass. num_targets, num_blocks: lm_length scores the last num_targets bytes of windows of
    every context, at num_blocks places. num_spans: stretches of the longest context that are cut into windows without overlap.
    streaming: also read the windows as streams, with a cache of num_sinks first tokens and the latest training length of others
    (StreamingLLM). num_passages: passages of the lambada task."""

    kind: Literal["text"]
    preset: str
    batch_tokens: int = Field(default=16384, gt=0)
    num_targets: int = Field(gt=0)
    num_blocks: int = Field(gt=0)
    num_spans: int = Field(gt=0)
    streaming: bool = False
    num_sinks: int = Field(default=4, ge=0)
    num_passages: int = Field(default=500, gt=0)


class ToyEvaluationSpec(Strict):
    """batch_tokens: tokens of one forward pass. depths: places of the needle, 0 the start of the filler and 1 its end."""

    kind: Literal["toy"]
    preset: str
    batch_tokens: int = Field(default=16384, gt=0)
    depths: list[Annotated[float, Field(ge=0, le=1)]] = Field(min_length=1)


class StoryEvaluationSpec(Strict):
    """batch_tokens: tokens of one forward pass."""

    kind: Literal["stories"]
    preset: str
    batch_tokens: int = Field(default=16384, gt=0)


class TrainerSpec(Strict):
    """The machine side: handed to Lightning. Not part of a run's identity, but for precision.

    checkpoint_steps, checkpoint_minutes: how often a training that is under way is saved; None: not on this account.
    """

    accelerator: Literal["cpu", "gpu", "auto"] = "cpu"
    devices: int = Field(default=1, gt=0)
    num_nodes: int = Field(default=1, gt=0)
    strategy: Literal["auto", "ddp", "fsdp2"] = "auto"
    precision: Literal["32-true", "bf16-mixed", "bf16-true"] = "32-true"
    num_threads: int = Field(default=1, gt=0, le=1024)
    num_workers: int = Field(default=0, ge=0)
    accumulate: int = Field(default=1, gt=0)
    checkpoint_activations: bool = False
    compile: bool = False
    time_limit_minutes: float | None = Field(default=None, gt=0)
    checkpoint_steps: int | None = Field(default=None, gt=0)
    checkpoint_minutes: float | None = Field(default=10, gt=0)

    @model_validator(mode="after")
    def _has_gpus_to_shard_over(self) -> TrainerSpec:
        if self.strategy == "fsdp2" and self.accelerator != "gpu":
            raise ValueError(f"strategy=fsdp2 shards over GPUs, but accelerator={self.accelerator}: use trainer=fsdp2, or strategy=ddp")
        return self

    @property
    def numerics(self) -> dict[str, Any]:
        """What changes the order of sums, beside threads and processes, where it is not at its default."""
        found = {"accumulate": self.accumulate, "compile": self.compile, "sharded": self.strategy == "fsdp2"}
        return {name: value for name, value in found.items() if value is not False and (name != "accumulate" or value > 1)}


class LaunchSpec(Strict):
    """Where the processes of a run start: local, or as jobs of a Slurm cluster, which the rest is for. No part of a run's identity.

    Each rank is a task of a job, with a GPU if the trainer uses them. grace_seconds: from SIGUSR1 to the end of a job; time for a
    checkpoint. max_requeues: how often a job that ran out of time_minutes goes on. parallel: jobs of an array at a time.
    setup: lines of shell before the run.
    """

    kind: Literal["local", "slurm"] = "local"
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    time_minutes: int = Field(default=240, gt=0)
    memory_gb: float | None = Field(default=None, gt=0)
    grace_seconds: int = Field(default=120, ge=30)
    max_requeues: int = Field(default=20, ge=0)
    parallel: int = Field(default=64, gt=0)
    setup: list[str] = []


class RunSpec(Strict):
    """One run, whatever its domain. `config_hash` leaves out what may not change a result (where files go, the machine, retrain)."""

    path_keys: ClassVar[tuple[str, ...]] = ()  # of data: where it lies; what it holds is in the data fingerprint

    scale: str = Field(pattern=NAME_PATTERN)
    domain: str = Field(pattern=NAME_PATTERN)
    attention: AttentionSpec
    training: TrainingSpec
    trainer: TrainerSpec
    launch: LaunchSpec = LaunchSpec()
    kernel: Literal["auto", "reference", "sdpa", "flash", "flex"] = "auto"
    seed: int = Field(default=0, ge=0, lt=2**31)
    runs_dir: str = Field(default="runs", min_length=1)
    retrain: bool = False

    @model_validator(mode="after")
    def _batch_divides(self) -> RunSpec:
        parts = self.trainer.devices * self.trainer.num_nodes * self.trainer.accumulate
        if self.training.batch_size % parts:
            raise ValueError(
                f"training.batch_size {self.training.batch_size} is global and no multiple of devices * num_nodes * accumulate = {parts}"
            )
        if self.trainer.strategy == "fsdp2" and self.training.optimizer == "lamb":
            raise ValueError("training.optimizer=lamb takes norms of whole parameters, which strategy=fsdp2 has nowhere: use strategy=ddp")
        return self

    @property
    def learning_rate(self) -> float:
        if self.training.learning_rate != "tuned":
            return float(self.training.learning_rate)
        return self.attention.tuned.get(self.domain, {}).get(self.scale, self.training.default_learning_rate)

    @property
    def learning_rate_source(self) -> str:
        if self.training.learning_rate != "tuned":
            return "given"
        return "tuned" if self.scale in self.attention.tuned.get(self.domain, {}) else "default"

    @property
    def identity(self) -> dict[str, Any]:
        """The part of the configuration that can change a result."""
        full = self.model_dump(mode="json", exclude={"runs_dir", "retrain", "trainer", "launch"})
        full["precision"] = self.trainer.precision
        for path in self.path_keys:
            full["data"].pop(path)
        full["attention"].pop("axes")
        for key, default in LATER_FIELDS.items():
            part, _, name = key.partition(".")
            if name in full[part] and full[part][name] == default:
                del full[part][name]
        rate = self.attention.tuned.get(self.domain, {}).get(self.scale)  # those of other domains and scales are no part of this run
        full["attention"]["tuned"] = {} if rate is None else {self.domain: {self.scale: rate}}
        return full

    @property
    def config_hash(self) -> str:
        return digest(self.identity)

    @property
    def earlier_config_hash(self) -> str:
        """What config_hash was for records that were made while every domain's tuned learning rates counted."""
        return digest({**self.identity, "attention": {**self.identity["attention"], "tuned": self.attention.tuned}})

    def training_hash(self, data_fingerprint: str, source_hash: str) -> str:
        """Names a checkpoint: all runs that would train the same weights share it."""
        part = self.identity
        for key in ("task", "evaluation"):
            part.pop(key)
        part["attention"].pop("tuned")
        part["training"].pop("default_learning_rate")
        part["training"]["learning_rate"] = self.learning_rate
        part["data"].pop("num_test", None)
        made_by = [part, self.trainer.num_threads, self.trainer.devices * self.trainer.num_nodes, data_fingerprint, source_hash]
        return digest([*made_by, self.trainer.numerics] if self.trainer.numerics else made_by)


class VisionRunSpec(RunSpec):
    """A ViT on images."""

    path_keys: ClassVar[tuple[str, ...]] = ("root", "class_map")

    task: VisionTaskSpec
    model: VitSpec
    data: ImageDataSpec
    evaluation: ImageEvaluationSpec

    @model_validator(mode="after")
    def _resolutions_fit(self) -> VisionRunSpec:
        known = sorted(self.evaluation.pixels)
        for nominal in (self.evaluation.base, *self.task.resolutions):
            if nominal not in self.evaluation.pixels:
                raise ValueError(f"resolution {nominal} is not one of {known}")
        for nominal in {self.evaluation.base, *self.task.resolutions}:
            pixels = self.evaluation.pixels[nominal]
            if pixels % self.model.patch_size:
                raise ValueError(f"{pixels} px (nominal {nominal}) is not a multiple of patch_size {self.model.patch_size}")
        if self.evaluation.pixels[self.evaluation.base] != self.model.image_size:
            pixels = self.evaluation.pixels[self.evaluation.base]
            raise ValueError(f"base resolution {self.evaluation.base} means {pixels} px, but the model trains at {self.model.image_size}")
        return self


class GenomeRunSpec(RunSpec):
    """A causal decoder on DNA."""

    path_keys: ClassVar[tuple[str, ...]] = ("fasta", "split_file")

    task: SequenceTaskSpec
    model: DecoderSpec
    data: GenomeDataSpec
    evaluation: GenomeEvaluationSpec

    @model_validator(mode="after")
    def _lengths_fit(self) -> GenomeRunSpec:
        if self.training.loss != "cross_entropy":
            raise ValueError("training.loss: next-base prediction is trained with cross_entropy")
        if self.model.vocab_size < 5 or self.model.num_scored != 4:
            raise ValueError("model: DNA needs vocab_size 5 (A C G T N) and num_scored 4")
        if max(self.evaluation.markov_orders, default=0) > self.evaluation.markov_interpolated:
            raise ValueError(f"evaluation.markov_orders go beyond markov_interpolated {self.evaluation.markov_interpolated}")
        if self.evaluation.num_targets > self.model.seq_len:
            raise ValueError(
                f"evaluation.num_targets {self.evaluation.num_targets} exceeds the training length {self.model.seq_len}: "
                f"set evaluation.num_targets={self.model.seq_len} or less"
            )
        return self


class TextRunSpec(RunSpec):
    """A causal decoder on text. The vocabulary of a tokenizer that is not bytes is compared with the model's when it is read."""

    path_keys: ClassVar[tuple[str, ...]] = ("path", "tokenizer_file", "lambada")

    task: SequenceTaskSpec
    model: DecoderSpec
    data: TextDataSpec
    evaluation: TextEvaluationSpec

    @model_validator(mode="after")
    def _lengths_fit(self) -> TextRunSpec:
        if self.training.loss != "cross_entropy":
            raise ValueError("training.loss: next-token prediction is trained with cross_entropy")
        if (self.data.tokenizer == "bytes") != (self.data.tokenizer_file is None):
            raise ValueError("data.tokenizer=gpt2 and =file need data.tokenizer_file=PATH, which is read with these two only")
        if self.data.tokenizer == "bytes" and (self.model.vocab_size, self.model.num_scored) != (257, 256):
            raise ValueError("model: bytes of text need vocab_size 257 (256 bytes and BOS) and num_scored 256")
        if self.evaluation.num_targets > self.model.seq_len:
            raise ValueError(f"evaluation.num_targets {self.evaluation.num_targets} exceeds the training length {self.model.seq_len}")
        return self


class ToyRunSpec(RunSpec):
    """A causal decoder on made-up sequences."""

    task: SequenceTaskSpec
    model: DecoderSpec
    data: ToyDataSpec
    evaluation: ToyEvaluationSpec

    @model_validator(mode="after")
    def _lengths_fit(self) -> ToyRunSpec:
        if self.training.loss != "cross_entropy":
            raise ValueError("training.loss: answers are trained with cross_entropy")
        return self


class StoryRunSpec(RunSpec):
    """A causal decoder on stories with questions. A token is a word."""

    path_keys: ClassVar[tuple[str, ...]] = ("path", "text_path")

    task: SequenceTaskSpec
    model: DecoderSpec
    data: StoryDataSpec
    evaluation: StoryEvaluationSpec

    @model_validator(mode="after")
    def _words_fit(self) -> StoryRunSpec:
        if self.training.loss != "cross_entropy":
            raise ValueError("training.loss: answers are trained with cross_entropy")
        if self.model.num_scored != self.model.vocab_size - 5 or self.model.num_scored < 100:
            raise ValueError("model: words of stories need num_scored of 100 or more, and vocab_size 5 above it (five marks)")
        return self


RUN_SPECS: dict[str, type[RunSpec]] = {  # by domain
    "vision": VisionRunSpec,
    "genome": GenomeRunSpec,
    "text": TextRunSpec,
    "toy": ToyRunSpec,
    "stories": StoryRunSpec,
}
