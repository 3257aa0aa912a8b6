"""Names -> code, imported only when asked for; outsiders add names through the entry-point group `goatbench.plugins`.

A plug-in's entry point is a callable `register(registries)`, or a module that holds one:

    def register(registries):
        registries.attentions.add("mine", "my_package.mine:Mine")
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module, metadata
from typing import Any

from .errors import UsageError

PLUGIN_GROUP = "goatbench.plugins"
CONFIG_GROUP = "goatbench.configs"
OWN = "goatbench"
MAX_SHOWN = 60  # letters of an unknown name that an error repeats
NEAR = 0.66  # of difflib's ratio: one wrong letter in three, two in six; at 0.5 'nope' looks like 'copy'
NEAR_SHORT = 0.5  # for one or two letters: one wrong in two


class Registry:
    """Names of one kind, each a lazy "module:attribute" and the distribution that provides it."""

    def __init__(self, kind: str, targets: dict[str, str]) -> None:
        self.kind = kind
        self._entries = {name: (target, OWN) for name, target in targets.items()}

    def add(self, name: str, target: str, provider: str) -> None:
        """Add a name. UsageError if another provider has it already: which one a run took must never be a matter of order."""
        if ":" not in target:
            raise UsageError(f"{self.kind} '{name}' of {provider}: target '{target}' is not of the form module:attribute")
        if name in self._entries:
            raise UsageError(f"{self.kind} '{name}' is provided by both {self.provider(name)} and {provider}; uninstall or rename one")
        self._entries[name] = (target, provider)

    def get(self, name: str) -> Any:
        """The object, imported now. UsageError with the known names and the nearest one if the name is unknown."""
        if name not in self._entries:
            raise UsageError(unknown(self.kind, name, self.names()) + broken_plugins())
        target, _ = self._entries[name]
        module, _, attribute = target.partition(":")
        return getattr(import_module(module), attribute)

    def names(self) -> list[str]:
        """In the order of registration: ours first."""
        return list(self._entries)

    def target(self, name: str) -> str:
        return self._entries[name][0]

    def provider(self, name: str) -> str:
        return self._entries[name][1]

    def __contains__(self, name: str) -> bool:
        return name in self._entries


attentions = Registry(
    "attention",
    {
        "goat": "goatbench.attention.priors.fourier:Goat",
        "goat_reference": "goatbench.attention.priors.fourier_reference:GoatReference",
        "goat_spectral": "goatbench.attention.priors.fourier:GoatSpectral",
        "goat_sink": "goatbench.attention.priors.fourier:GoatSink",
        "goat_no_slope": "goatbench.attention.priors.fourier:GoatNoSlope",
        "nope": "goatbench.attention.scheme:NoPosition",
        "learned_absolute": "goatbench.attention.embeddings:LearnedAbsolute",
        "sinusoidal": "goatbench.attention.embeddings:Sinusoidal",
        "rope": "goatbench.attention.rotary:Rope",
        "rope_xpos": "goatbench.attention.rope_xpos:RopeXpos",
        "rope_randomised": "goatbench.attention.rope_randomised:RopeRandomised",
        "fope": "goatbench.attention.fope:Fope",
        "rope_axial": "goatbench.attention.rotary:RopeAxial",
        "rope_mixed": "goatbench.attention.rotary:RopeMixed",
        "alibi": "goatbench.attention.priors.alibi:Alibi",
        "alibi_2d": "goatbench.attention.priors.alibi:Alibi2D",
        "sink_scalar": "goatbench.attention.priors.sink:SinkScalar",
        "alibi_learned": "goatbench.attention.priors.alibi_learned:AlibiLearned",
        "t5": "goatbench.attention.priors.bucketed:T5",
        "kerple_log": "goatbench.attention.priors.kerple:KerpleLog",
        "kerple_power": "goatbench.attention.priors.kerple:KerplePower",
        "fire": "goatbench.attention.priors.fire:Fire",
        "fire_2d": "goatbench.attention.priors.fire:Fire2D",
        "bam": "goatbench.attention.priors.bam:Bam",
        "lookhere": "goatbench.attention.priors.lookhere:LookHere",
        "rpb": "goatbench.attention.priors.relative_table:RelativeTable",
        "rope_axial_ape": "goatbench.attention.rotary_absolute:RopeAxialApe",
        "rope_mixed_ape": "goatbench.attention.rotary_absolute:RopeMixedApe",
        "softmax1": "goatbench.attention.priors.sink:SoftmaxOffByOne",
        "sink_token": "goatbench.attention.sink_token:SinkToken",
        "fox": "goatbench.attention.priors.forgetting:Fox",
        "cable": "goatbench.attention.priors.forgetting:Cable",
        "goat_learned_freqs": "goatbench.attention.priors.fourier_learned:GoatLearnedFreqs",
        "goat_mixed": "goatbench.attention.priors.fourier_learned:GoatMixed",
    },
)

inner_attentions = Registry(
    "inner attention",
    {
        "softmax": "goatbench.attention.inner.softmax:Softmax",
        "multi_token": "goatbench.attention.inner.multi_token:MultiToken",
        "talking_heads": "goatbench.attention.inner.multi_token:TalkingHeads",
        "differential_v1": "goatbench.attention.inner.differential:DifferentialV1",
        "differential_v2": "goatbench.attention.inner.differential:DifferentialV2",
        "contextual": "goatbench.attention.inner.contextual:Contextual",
    },
)

_VIT_TASKS = ("vit_res224", "vit_res288", "vit_res320", "vit_res384", "vit_res448", "vit_res512", "vit_resolution", "vit_tuning")
_GENOME_TASKS = {
    "genome_nll": "genome_nll:GENOME_NLL",
    "genome_length": "genome_length:GENOME_LENGTH",
    "genome_gc": "genome_gc:GENOME_GC",
    "genome_memory": "genome_memory:GENOME_MEMORY",
    "genome_tuning": "genome_nll:GENOME_TUNING",
    "attention_stats_genome": "attention_stats:ATTENTION_STATS_GENOME",
}
_TEXT_TASKS = {
    "lm_length": "lm_length:LM_LENGTH",
    "lambada": "lambada:LAMBADA",
    "lm_tuning": "lm_length:LM_TUNING",
    "babilong": "babilong:BABILONG",
    "needle": "retrieval:NEEDLE",
    "passkey": "retrieval:PASSKEY",
    "multi_needle": "retrieval:MULTI_NEEDLE",
    "needle_tuning": "retrieval:NEEDLE_TUNING",
    "copy": "toys:COPY",
    "selective_copy": "toys:SELECTIVE_COPY",
    "induction": "toys:INDUCTION",
    "toy_blocks": "toy_blocks:TOY_BLOCKS",
    "toy_blocks_first": "toy_blocks:TOY_BLOCKS_FIRST",
    "toy_blocks_last": "toy_blocks:TOY_BLOCKS_LAST",
    "toy_blocks8": "toy_blocks:TOY_BLOCKS8",
    "toy_blocks8_first": "toy_blocks:TOY_BLOCKS8_FIRST",
    "toy_blocks8_last": "toy_blocks:TOY_BLOCKS8_LAST",
    "toy_mqar": "toy_recall:TOY_MQAR",
    "toy_copy_mixture": "toy_copy_mixture:TOY_COPY_MIXTURE",
    "mad_recall": "mad:MAD_RECALL",
    "mad_fuzzy_recall": "mad:MAD_FUZZY_RECALL",
    "mad_noisy_recall": "mad:MAD_NOISY_RECALL",
    "mad_selective_copy": "mad:MAD_SELECTIVE_COPY",
    "mad_compression": "mad:MAD_COMPRESSION",
    "mad_memorisation": "mad:MAD_MEMORISATION",
    "attention_stats": "attention_stats:ATTENTION_STATS",
    "precision": "precision:PRECISION",
    "attention_stats_needle": "attention_stats:ATTENTION_STATS_NEEDLE",
    "attention_stats_stories": "attention_stats:ATTENTION_STATS_STORIES",
}
tasks = Registry(
    "task",
    {name: f"goatbench.tasks.vit_resolution:{name.upper()}" for name in _VIT_TASKS}
    | {"attention_stats_vision": "goatbench.tasks.attention_stats_vision:ATTENTION_STATS_VISION"}
    | {name: f"goatbench.tasks.{target}" for name, target in {**_GENOME_TASKS, **_TEXT_TASKS}.items()},
)

image_sources = Registry(
    "image source",
    {
        "fashion_mnist": "goatbench.data.sources:FashionMnistEmbedded",
        "fashion_mnist_full": "goatbench.data.sources:FashionMnistFull",
        "image_folder": "goatbench.data.sources:ImageFolderSource",
        "image_parquet": "goatbench.data.sources:ImageParquetSource",
        "image_webdataset": "goatbench.data.sources:ImageWebdatasetSource",
    },
)


genome_sources = Registry(
    "genome source",
    {
        "genome_embedded": "goatbench.data.genome.sources:Embedded",
        "chr20": "goatbench.data.genome.sources:LocalFasta",
        "fasta": "goatbench.data.genome.sources:LocalFasta",
    },
)

text_sources = Registry(
    "text source",
    {
        "text_embedded": "goatbench.data.text.sources:Embedded",
        "text_files": "goatbench.data.text.sources:TextFiles",
        "shakespeare": "goatbench.data.text.sources:Shakespeare",
        "c4": "goatbench.data.text.sources:C4",
        "fineweb": "goatbench.data.text.sources:FineWeb",
    },
)

toy_sources = Registry(  # presets; data.name=synthetic is the task's own
    "toy source",
    {
        "passkey_paper": "goatbench.data.text.paper_problems:PASSKEY_PAPER",
        "niah_paper": "goatbench.data.text.paper_problems:NIAH_PAPER",
    },
)

story_sources = Registry(
    "story source",
    {
        "stories": "goatbench.data.stories.sources:GeneratedStories",
        "babilong": "goatbench.data.stories.sources:BabilongFolder",
    },
)

DATA_SOURCES = {  # by domain
    "vision": image_sources,
    "genome": genome_sources,
    "text": text_sources,
    "toy": toy_sources,
    "stories": story_sources,
}


@dataclass(frozen=True)
class _Bound:
    """A registry as one plug-in sees it: its provider is filled in."""

    registry: Registry
    own_provider: str

    def add(self, name: str, target: str, provider: str | None = None) -> None:
        self.registry.add(name, target, provider or self.own_provider)


@dataclass(frozen=True)
class Registries:
    """What a plug-in's `register` is given."""

    attentions: _Bound
    tasks: _Bound
    image_sources: _Bound
    genome_sources: _Bound
    text_sources: _Bound
    toy_sources: _Bound
    story_sources: _Bound
    inner_attentions: _Bound


@dataclass(frozen=True)
class Plugin:
    """One entry point and how its loading went. `error` is one line, None if all is well."""

    name: str
    target: str
    provider: str
    error: str | None = None


_loaded: list[Plugin] | None = None  # entry points run once a process


def load_plugins() -> list[Plugin]:
    """Run every plug-in's `register` once and say how it went. GOATBENCH_NO_PLUGINS=1 switches plug-ins off.

    A plug-in that fails to import is reported (doctor, and in the message about an unknown name), not raised: it must not
    keep other runs from working. A name that two providers claim raises UsageError.
    """
    global _loaded
    if _loaded is None:
        _loaded = [_load(point) for point in plugin_entry_points(PLUGIN_GROUP)]
    return _loaded


def plugin_entry_points(group: str) -> list[metadata.EntryPoint]:
    """The installed entry points of a group, in a stable order; none with GOATBENCH_NO_PLUGINS=1."""
    if os.environ.get("GOATBENCH_NO_PLUGINS") == "1":
        return []
    return sorted(metadata.entry_points(group=group), key=lambda point: (point.name, point.value))


def provider_of(point: metadata.EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.name


def _load(point: metadata.EntryPoint) -> Plugin:
    provider = provider_of(point)
    try:
        loaded = point.load()
        register = loaded if callable(loaded) else loaded.register
        register(Registries(*(_Bound(registry, provider) for registry in (attentions, tasks, *DATA_SOURCES.values(), inner_attentions))))
    except UsageError:
        raise
    except Exception as error:  # a plug-in is foreign code: whatever it throws becomes one line
        return Plugin(point.name, point.value, provider, f"{type(error).__name__}: {error}".splitlines()[0])
    return Plugin(point.name, point.value, provider)


def broken_plugins() -> str:
    """'' or a clause that names the plug-ins that failed to load, for messages about names that may be theirs."""
    broken = [plugin for plugin in _loaded or [] if plugin.error]
    return "".join(f"; plug-in {plugin.name} ({plugin.provider}) failed to load: {plugin.error}" for plugin in broken)


def nearest(name: str, known: Iterable[str], cutoff: float | None = None) -> str | None:
    """The known name that `name` is probably meant to be, or None: one that begins with it, looks like it, or that it goes on from.

    cutoff: how like, of difflib's ratio, 0 to 1; None: NEAR, or NEAR_SHORT where the name has one or two letters.
    """
    known = list(known)
    if cutoff is None:
        cutoff = NEAR if len(name) > 2 else NEAR_SHORT
    close = [other for other in known if len(name) > 2 and other.startswith(name)]
    close = close or difflib.get_close_matches(name, known, n=1, cutoff=cutoff)
    close = close or [other for other in known if name.startswith(other) and not name[len(other)].isalnum()]
    return close[0] if close else None


def unknown(kind: str, name: str, known: Iterable[str], instead: str = "") -> str:
    """One line: what is unknown, the nearest name or what it is instead ('nope is an attention: attention=nope'), what is known."""
    known = list(known)
    guess = nearest(name, known)
    hint = f"; did you mean '{guess}'?" if guess else ";"
    if instead:
        hint = f"; {instead};"
    shown = name if len(name) <= MAX_SHOWN else f"{name[:MAX_SHOWN]}..."
    return f"unknown {kind} '{shown}'{hint} known: {', '.join(known)}"
