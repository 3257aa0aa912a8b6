"""Arguments of the benchmarks. No torch: --help and a mistake are answered at once."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..errors import UsageError

ATTENTION_PARTS = ("layer", "stack", "preparation", "memory", "compile", "bf16")

ATTENTION = """\
Time and memory of one attention layer and of a 6-layer pre-norm stack (width 384, 6 heads of 64, causal, fp32), forward and
backward. Time is CPU time of one thread; variants are interleaved (A B C, C B A, ...), ratios formed round by round, and given
as median [quartiles]. Beside each ratio stands its target and PASS or MISS; a miss changes nothing else, and the exit code
says only whether everything could be measured.

variants: plain (no position), rope and rope-tables (cos and sin worked out beforehand; goat is judged against the faster),
goat (16 lanes carved out of 64), goat-append (lanes added), goat_reference (the paper's form in our core), and goat-attention
(the published package, if installed)."""

ATTENTION_EPILOG = """\
The whole takes about 40 minutes on one core that is otherwise idle; --quick takes seconds and judges nothing.
Example: goatbench bench attention --only layer,memory --out results/bench/attention-mymachine.json"""

DECODER = """\
step: build the decoder for training at that many tokens, one sequence of random tokens forward with loss, backward, clipping, AdamW.
evaluation: build it for its own training length and score every token of one window of that many. Seconds are those of building and
computing once, nothing warmed up: CPU time of all threads, and wall time. Bytes are the rise of the resident set above what it was
before the model was built (weights, optimizer state and allocator slack included). On a GPU all of it is done twice, the second time
is measured, and bytes are those of the CUDA allocator."""

DECODER_EPILOG = """\
The default, the paper's 124 M parameters with GPT-2's vocabulary, takes about 25 minutes of CPU time and 6 GB. On a GPU:
goatbench bench decoder --device cuda --attention goat,rope,alibi --step-tokens 2048,8192,32768
Example: goatbench bench decoder --attention goat,rope --out results/bench/decoder-mymachine.json"""

GENOME_LOADER = """\
CPU time of one process for random windows as int64 tokens, from the memory-mapped codes (ours) and from pyfaidx (as_raw) with a table
look-up, interleaved (A B, B A, ...); ratios are formed round by round and given as median [quartiles]. Both read the same windows,
from a warm page cache, and their tokens are compared first."""

GENOME_LOADER_EPILOG = """\
Takes about ten seconds; --quick a second, and judges nothing.
Example: goatbench bench genome_loader --fasta hg38.fa --contig chr20 --out loader.json"""

IMAGE_LOADER = """\
CPU time of one thread for images at 224 px: decoding and the evaluation transform from class folders, parquet shards and tar shards,
decoding alone, the training transform alone (DeiT III's; with decoding it is what a training image costs), and a ready tensor, which is
only picked and normalised. Steps are interleaved (A B C, C B A, ...) and given as median [quartiles]; files are read from a warm page
cache. "parquet, shuffled" takes each image from another row group, of 100 images, as training in random order does.
Without --root the files are made up: 500 x 375 px of smooth random colours, in JPEG as large as ImageNet's; no photographs."""

IMAGE_LOADER_EPILOG = """\
Takes about three minutes; --quick one.
Example: goatbench bench image_loader --root /data/imagenet --out images.json"""

GPU = """\
One command on a machine with a CUDA GPU: every kernel in bf16 and fp16 against the dense float64 reference (output, dq dk dv,
gradients of the prior, biases in flex among them); whether carved and appended lanes run in the flash backend; the key term at
65,536 tokens; time, saved and peak bytes of an attention layer over those of plain SDPA at 1,024 to 32,768 tokens, in bf16-mixed.
Exit code 1 if a check of correctness misses or a job fails; ratios of time and memory have targets, too, and fail nothing."""

GPU_EPILOG = """\
Under ten minutes: what has not begun after eight is left out, and said.
Example: goatbench bench gpu --out results/bench/gpu-mymachine.json"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:
        raise UsageError(f"{message} ({self.prog} --help shows an example)")


def attention(argv: list[str]) -> argparse.Namespace:
    raw = argparse.RawDescriptionHelpFormatter
    parser = _Parser("goatbench bench attention", description=ATTENTION, epilog=ATTENTION_EPILOG, formatter_class=raw)
    parser.add_argument("--only", metavar="PARTS", help=f"comma-separated, of: {', '.join(ATTENTION_PARTS)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="tiny shapes and two rounds: does everything run?")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write one JSON record there (default: none is written)")
    return parser.parse_args(argv)


def decoder(argv: list[str]) -> argparse.Namespace:
    raw = argparse.RawDescriptionHelpFormatter
    parser = _Parser("goatbench bench decoder", description=DECODER, epilog=DECODER_EPILOG, formatter_class=raw)
    parser.add_argument("--model", default="decoder_c4_125m", help="a text decoder of configs/model (default: %(default)s)")
    parser.add_argument("--attention", default="goat,rope", help="comma-separated (default: %(default)s)")
    lengths = {"type": _lengths, "metavar": "N[,N...]"}
    parser.add_argument("--step-tokens", default=[2048], help="0: no training step (default: 2048)", **lengths)
    parser.add_argument("--evaluation-tokens", default=[32_768], help="0: no evaluation (default: 32768)", **lengths)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="cuda: in bf16-mixed (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="compute threads (default: %(default)s)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write one JSON record there (default: none is written)")
    arguments = parser.parse_args(argv)
    if min(*arguments.step_tokens, *arguments.evaluation_tokens) < 0 or arguments.threads < 1:
        parser.error("--step-tokens and --evaluation-tokens are 0 or more, --threads 1 or more")
    return arguments


def _lengths(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def gpu(argv: list[str]) -> argparse.Namespace:
    raw = argparse.RawDescriptionHelpFormatter
    parser = _Parser("goatbench bench gpu", description=GPU, epilog=GPU_EPILOG, formatter_class=raw)
    parser.add_argument("--out", type=Path, metavar="FILE", help="write one JSON record there (default: none is written)")
    return parser.parse_args(argv)


def image_loader(argv: list[str]) -> argparse.Namespace:
    raw = argparse.RawDescriptionHelpFormatter
    parser = _Parser("goatbench bench image_loader", description=IMAGE_LOADER, epilog=IMAGE_LOADER_EPILOG, formatter_class=raw)
    parser.add_argument("--root", type=Path, metavar="FOLDER", help="an image folder, train/ and val/ of class folders: files of val/")
    parser.add_argument("--images", type=int, default=256, metavar="N", help="how many, 2 or more (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="three rounds in place of eleven")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write one JSON record there (default: none is written)")
    arguments = parser.parse_args(argv)
    if arguments.images < 2:
        parser.error(f"--images {arguments.images}: 2 or more are needed")
    return arguments


def genome_loader(argv: list[str]) -> argparse.Namespace:
    raw = argparse.RawDescriptionHelpFormatter
    parser = _Parser("goatbench bench genome_loader", description=GENOME_LOADER, epilog=GENOME_LOADER_EPILOG, formatter_class=raw)
    parser.add_argument("--fasta", type=Path, metavar="FILE", help="a plain FASTA (default: the DNA inside the package)")
    parser.add_argument("--contig", metavar="NAME", help="read from this contig (default: the longest)")
    parser.add_argument("--quick", action="store_true", help="three rounds: does everything run?")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write one JSON record there (default: none is written)")
    return parser.parse_args(argv)
