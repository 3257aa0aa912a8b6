"""lm-evaluation-harness: the model class `goatbench`, which serves an exported text decoder (goatbench export RUN --out DIR).

    python -m goatbench.integrations.lm_eval run --model goatbench --model_args path=DIR --tasks lambada_openai --limit 100

The module registers the class when it is imported, and as a program it hands over to the harness. As in training, token 0 of every
window is BOS and a model reads at most its training length (`max_length` sets another), so that the numbers are those of our own
tasks: `loglikelihood` of a last word is that of `task=lambada`, `loglikelihood_rolling` that of windows without overlap in
`task=lm_length`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from ..errors import UsageError

try:
    from lm_eval.api.model import TemplateLM
    from lm_eval.api.registry import register_model
    from lm_eval.utils import get_rolling_token_windows
except ImportError as error:
    raise UsageError(f"lm-evaluation-harness is not installed ({error}): pip install 'goatbench[lm-eval]'") from None

from ..data.text.tokenizers import load_tokenizer
from ..metrics.token_nll import token_nll
from ..models.decoder import Decoder
from ..models.exported import load_exported, read_config
from ..models.generate import generate
from ..progress import Progress
from ..spec import TextDataSpec

QUIET_SECONDS = 2.0
MAX_GENERATED = 256  # tokens, where a task does not say
Row = tuple[list[int], list[int]]  # tokens read (BOS first), and the targets, which are those of the last positions


@register_model("goatbench")
class GoatbenchLM(TemplateLM):
    """path: an exported folder. max_length: tokens a window holds, BOS and targets included but for the last; default: the training
    length. tokenizer_file: of a model that does not read bytes. seed: of sampled generation."""

    def __init__(
        self,
        path: str,
        max_length: int | None = None,
        tokenizer_file: str | None = None,
        device: str = "cpu",
        batch_size: int | str = 8,
        max_batch_size: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        net, config = load_exported(path), read_config(path)
        if not isinstance(net, Decoder):
            raise UsageError(f"{path} holds a {type(net).__name__}: lm-evaluation-harness asks language models")
        kind = str(config["goatbench"].get("tokenizer"))
        if kind not in ("bytes", "gpt2", "file"):
            raise UsageError(f"{path} was not trained on text: no tokenizer is known for it")
        data = TextDataSpec(kind="text", name="text_files", tokenizer=kind, tokenizer_file=tokenizer_file)
        if (kind == "bytes") != (tokenizer_file is None):
            raise UsageError(f"{path} reads {kind}: tokenizer_file=PATH is {'not used' if kind == 'bytes' else 'needed'}")
        self.encoding = load_tokenizer(data)
        if (self.encoding.num_scored, net.vocab_size) != (net.num_scored, self.encoding.vocab_size):
            raise UsageError(f"{path} has {net.vocab_size} tokens, and its tokenizer {self.encoding.vocab_size}: it is another one")
        self.net, self._device = net.to(device), torch.device(device)
        self.max_length = int(max_length or net.seq_len)
        if net.max_positions is not None and self.max_length > net.max_positions:
            raise UsageError(f"max_length={self.max_length}: this mechanism ends at {net.max_positions} positions")
        self.batch_size = int(batch_size) if str(batch_size).isdigit() else 8  # 'auto' is for models that fill a GPU
        self.generator = torch.Generator(self._device).manual_seed(seed)

    # What the harness's own scoring asks for

    @property
    def eot_token_id(self) -> int:
        return self.encoding.bos

    @property
    def tokenizer_name(self) -> str:
        return self.encoding.fingerprint

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **kwargs: Any) -> list[int]:
        return self.encoding.encode(string).tolist()

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[Any, list[int], list[int]]], disable_tqdm: bool = False, **kwargs: Any
    ) -> list[tuple[float, bool]]:
        """(log-likelihood in nats, whether every target is the most likely token) of each (name, context, continuation)."""
        rows = []
        for _, context, targets in requests:
            room = self.max_length - len(targets)
            if room < 0:
                raise UsageError(f"a continuation has {len(targets)} tokens, and a window holds {self.max_length}: set max_length")
            text = context[1:] if context[:1] == [self.encoding.bos] else context
            rows.append(([self.encoding.bos, *text[max(0, len(text) - room) :], *targets[:-1]], targets))
        return self._scores(rows, disable_tqdm)

    # Requests

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """Nats of whole texts, cut into windows of max_length, each behind a BOS of its own; the last one reaches back to be full."""
        rows: list[Row] = []
        counts = []
        for request in requests:
            own = list(self._windows(self.tok_encode(request.args[0])))
            rows += own
            counts.append(len(own))
        scores = iter(self._scores(rows, disable_tqdm))
        return [sum(next(scores)[0] for _ in range(count)) for count in counts]

    def _windows(self, tokens: list[int]) -> Iterator[Row]:
        for inputs, targets in get_rolling_token_windows(tokens, self.encoding.bos, self.max_length, 1):
            yield [self.encoding.bos, *inputs[1:]], targets

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Text behind each context up to the first of `until`, greedy unless do_sample with a temperature is asked for."""
        found = []
        with Progress("generating", len(requests), "text", after=QUIET_SECONDS) as bar:
            for request in requests:
                context, options = request.args
                until = options.get("until") or []
                until = [until] if isinstance(until, str) else until
                count = min(int(options.get("max_gen_toks", MAX_GENERATED)), self.max_length - 1)
                prompt = [self.encoding.bos, *self.tok_encode(context)[-(self.max_length - count) :]]
                heat = float(options.get("temperature") or 0) if options.get("do_sample") else 0.0
                drawn = generate(self.net, self._tensor([prompt]), count, temperature=heat, generator=self.generator)
                text = self.encoding.decode(drawn[0].cpu().numpy()).decode(errors="replace")
                found.append(text[: min((text.find(stop) for stop in until if stop and stop in text), default=None)])
                bar.advance()
        return found

    # The model

    def _scores(self, rows: Sequence[Row], quiet: bool) -> list[tuple[float, bool]]:
        """In the order of the rows; windows of similar length share a batch, filled up behind their targets."""
        order = sorted(range(len(rows)), key=lambda index: -len(rows[index][0]))
        found: dict[int, tuple[float, bool]] = {}
        with Progress("scoring", len(rows), "window", after=float("inf") if quiet else QUIET_SECONDS) as bar:
            for start in range(0, len(order), self.batch_size):
                batch = order[start : start + self.batch_size]
                found |= zip(batch, self._batch([rows[index] for index in batch]), strict=True)
                bar.advance(len(batch))
        return [found[index] for index in range(len(rows))]

    @torch.inference_mode()
    def _batch(self, rows: Sequence[Row]) -> list[tuple[float, bool]]:
        hidden = self.net.hidden(self._tensor([inputs for inputs, _ in rows]))
        scores = []
        for row, (inputs, targets) in zip(hidden, rows, strict=True):
            logits = self.net.head(row[len(inputs) - len(targets) : len(inputs)])[None].float()
            wanted = torch.tensor([targets], device=self._device)
            nll, _ = token_nll(logits, wanted, self.net.num_scored)
            scores.append((-float(nll.double().sum()), bool((logits.argmax(-1) == wanted).all())))
        return scores

    def _tensor(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """[n, K] int64, filled up with BOS behind, where nothing causal can see it."""
        longest = max(map(len, rows))
        return torch.tensor([[*row, *[self.encoding.bos] * (longest - len(row))] for row in rows], device=self._device)


def main() -> None:
    """The harness's own command line, with the class `goatbench` known."""
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()


if __name__ == "__main__":
    main()
