"""`goatbench bench NAME`: each is a module of goatbench.bench with `main(argv)`, whose arguments are in goatbench.bench.arguments."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import typer

from .progress import tell

BENCHMARKS = {
    "attention": "Time and memory of attention layers, variants interleaved.",
    "decoder": "Time and memory of one training step and one long evaluation of a decoder.",
    "genome_loader": "Reading windows of DNA, beside pyfaidx.",
    "gpu": "Does everything hold on this GPU, and what does it cost there? Under ten minutes.",
    "image_loader": "Decoding and transforming image files, beside ready tensors.",
}

bench = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Speed and memory of single parts.")


def _command(name: str, about: str) -> Callable[[typer.Context], None]:
    def run(context: typer.Context) -> None:
        from .bench import arguments

        getattr(arguments, name)(context.args)  # --help and mistakes end here, before torch is imported
        tell("loading PyTorch ...")
        raise typer.Exit(import_module(f".bench.{name}", __package__).main(context.args) or 0)

    run.__doc__ = f"{about}\n\nExample: goatbench bench {name} --help"
    return run


for _name, _about in BENCHMARKS.items():
    _settings = {"allow_extra_args": True, "ignore_unknown_options": True}
    bench.command(_name, context_settings=_settings, add_help_option=False)(_command(_name, _about))
