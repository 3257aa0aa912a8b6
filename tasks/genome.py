"""What all genome tasks share: the same training of a causal decoder on human DNA, and the yardsticks every number needs beside it.

Imports no torch at the top: `goatbench list` and the leaderboards read the cards.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from goatbench.records.record import Outcome, TaskCard
from goatbench.spec import GenomeRunSpec

if TYPE_CHECKING:
    import numpy as np

    from goatbench.data.genome.module import GenomeData
    from goatbench.data.genome.windows import EvaluationWindows
    from goatbench.metrics.markov import MarkovModel
    from goatbench.models.decoder import Decoder
    from goatbench.training.evaluate_lm import LikelihoodResult

SOURCE = "arXiv 2601.15380 (GOAT), arXiv 2306.15794 (HyenaDNA), Debian packages vt-examples and augustus-doc (embedded sequence)"
TRAINING = (
    "A causal decoder reads windows of A C G T (N-free, one strand unless reverse_complement is set) and predicts the next base; "
    "the epoch is chosen by NLL on the validation block. "
)


@dataclass(frozen=True, slots=True)
class GenomeTask:
    """One task of the family; goatbench.execute calls the methods in this order. Subclasses measure."""

    card: TaskCard
    trains: ClassVar[bool] = True

    def fingerprint(self, spec: GenomeRunSpec) -> str:
        """Of the bases that this run would use; no torch."""
        from goatbench.data.genome.sources import fingerprint_of

        return fingerprint_of(spec.data)

    def longest_context(self, spec: GenomeRunSpec) -> int:
        """Of any evaluation, in bases: splits must lie at least so far apart."""
        return spec.model.seq_len * max(spec.task.multiples, default=1)

    def data(self, spec: GenomeRunSpec) -> GenomeData:
        from goatbench.data.genome.module import GenomeData

        return GenomeData(
            spec.data,
            spec.model,
            spec.evaluation,
            seed=spec.seed,
            batch_size=spec.training.batch_size,
            num_workers=spec.trainer.num_workers,
            accumulate=spec.trainer.accumulate,
            longest_context=self.longest_context(spec),
        )

    def model(self, spec: GenomeRunSpec) -> Decoder:
        from goatbench.attention.kernels.select import get_kernel
        from goatbench.models import build_decoder

        net = build_decoder(spec.model, spec.attention, get_kernel(spec.kernel))
        net.set_grad_checkpointing(spec.trainer.checkpoint_activations)
        return net

    def model_info(self, spec: GenomeRunSpec, net: Decoder) -> dict[str, Any]:
        """Fields of records.ModelInfo but for the name; the kernels are observed on one training and one evaluation window each."""
        import torch

        from goatbench.models import kernels_used, model_info

        train = kernels_used(net.train(), torch.zeros(1, spec.model.seq_len, dtype=torch.int64))
        with torch.inference_mode():
            evaluation = kernels_used(net.eval(), torch.zeros(1, spec.model.seq_len, dtype=torch.int64))
        return {**model_info(net), "kernel_train": train, "kernel_eval": evaluation}

    def train(self, spec: GenomeRunSpec, net: Decoder, data: GenomeData, checkpoint: Path, meta: dict[str, Any]) -> None:
        """Trains and writes the weights of the best epoch, with meta and what training did, to `checkpoint`."""
        from goatbench.training.causal_lm import CausalLM
        from goatbench.training.fit import fit

        steps = spec.training.epochs * data.steps_per_epoch
        module = CausalLM(net, spec.training, spec.learning_rate, steps, spec.model.num_scored)
        fit(module, data, spec.trainer, spec.training.epochs, checkpoint, seed=spec.seed, meta=meta)

    def protocol(self, spec: GenomeRunSpec) -> dict[str, Any]:
        """What must agree between two rows of one board, beside task version, scale and data."""
        return {
            "preset": spec.evaluation.preset, "train_context": spec.model.seq_len, "dtype": spec.trainer.precision,
            "split": spec.data.split, "part": spec.task.split, "reverse_complement": spec.data.reverse_complement,
            "targets": "A C G T", "model": spec.model.name,
        }  # fmt: skip

    def measure(self, spec: GenomeRunSpec, net: Decoder, data: GenomeData, folder: Path | None) -> Outcome:
        raise NotImplementedError


def write_inputs(folder: Path | None, data: GenomeData) -> list[str]:
    """What the run read, beside its record: split.tsv (every interval) and contigs.json (length, M5, counts, share of N by contig)."""
    import json

    from goatbench.data.genome.splits import write_split
    from goatbench.records.files import replace_atomic

    if folder is None:
        return []
    write_split(folder / "split.tsv", data.sequence.intervals)
    replace_atomic(folder / "contigs.json", (json.dumps(data.genome.report(), indent=1) + "\n").encode())
    return ["split.tsv", "contigs.json"]


def evaluate(
    spec: GenomeRunSpec, net: Decoder, data: GenomeData, windows: EvaluationWindows, label: str, last: int | None = None
) -> LikelihoodResult:
    """Exact likelihood of every target of the windows, or of their last `last` ones."""
    import torch

    from goatbench.training.evaluate_lm import evaluate_lm

    return evaluate_lm(
        net,
        data.eval_loader(windows),
        num_windows=len(windows),
        num_scored=spec.model.num_scored,
        device=device_of(spec),
        last=last,
        progress_label=label,
        autocast_dtype=torch.bfloat16 if spec.trainer.precision == "bf16-mixed" else None,
    )


def device_of(spec: GenomeRunSpec) -> str:
    import torch

    return "cuda" if spec.trainer.accelerator != "cpu" and torch.cuda.is_available() else "cpu"


def markov_models(spec: GenomeRunSpec, data: GenomeData, only_interpolated: bool = False) -> dict[str, MarkovModel]:
    """Name -> Markov model counted on the training bases (one strand), smoothed by what is best on the validation bases."""
    from goatbench.metrics.markov import MarkovCounts, choose_pseudo, choose_weight
    from goatbench.progress import Progress

    orders, largest = [] if only_interpolated else spec.evaluation.markov_orders, spec.evaluation.markov_interpolated
    validation = data.stretches("validation")
    models: dict[str, MarkovModel] = {}
    with Progress("counting n-grams", total=2 + len(orders), unit="model") as bar:
        counts = MarkovCounts.fit(data.stretches("train"), largest)
        bar.advance()
        for order in orders:
            models[f"markov-{order}"] = choose_pseudo(counts, order, validation)
            bar.advance()
        models[interpolated(spec)] = choose_weight(counts, validation)
        bar.advance()
    return models


def interpolated(spec: GenomeRunSpec) -> str:
    return f"markov-0..{spec.evaluation.markov_interpolated}"


def codes_of(windows: EvaluationWindows) -> np.ndarray:
    """uint8 [n, context + 1] of all windows."""
    from goatbench.data.genome.module import codes_of

    return codes_of(windows)
