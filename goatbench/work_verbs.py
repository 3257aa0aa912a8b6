"""The verbs around a run: plan and data before it, export after it. Torch is imported once there is work to do."""

from __future__ import annotations

from typing import Annotated

import typer

from .completion import complete_data, complete_data_key, complete_override, complete_run
from .errors import UsageError
from .options import ConfigDir, RunsDir, check_given_once, check_names
from .plan.sizes import parse_bytes

data = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Data of a run, before it: prepare and check.")
DataName = Annotated[str, typer.Argument(metavar="NAME", help="What goatbench list data prints.", autocompletion=complete_data)]
DataKeys = Annotated[
    list[str] | None, typer.Argument(metavar="[data.KEY=VALUE]...", help="Where it lies, as for run.", autocompletion=complete_data_key)
]


def plan(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="What to plan, as for run; a,b is a sweep.", autocompletion=complete_override),
    ] = None,
    memory: Annotated[str | None, typer.Option(metavar="SIZE", help="Of one device, such as 80GiB: refuse what does not fit.")] = None,
    throughput: Annotated[
        float | None, typer.Option(metavar="N", help="Images or tokens a second of one device, for the wall time.")
    ] = None,
    config_dir: ConfigDir = None,
) -> None:
    """Parameters, FLOPs, training tokens, peak memory and wall time of runs, without data and without a GPU.

    Example: goatbench plan task=vit_res512 attention=goat,rope_axial seed=0,1,2

    At full size: goatbench plan task=genome_nll scale=paper --memory 80GiB --throughput 1e6
    """
    check_given_once(overrides or [])
    check_names(overrides or [], config_dir)
    if throughput is not None and not 0 < throughput < float("inf"):
        raise UsageError(f"--throughput {throughput:g} is no number above 0: images or tokens a second of one device")
    if memory is not None:
        parse_bytes(memory)
    from .plan.table import write_plan

    write_plan(overrides or [], memory, throughput, config_dir)


def export(
    run: Annotated[
        str,
        typer.Argument(metavar="RUN", help="A run id, run folder, record file, or last: the latest run.", autocompletion=complete_run),
    ],
    out: Annotated[str, typer.Option(metavar="DIR", help="A new folder: model.safetensors and config.json.")],
    runs_dir: RunsDir = "runs",
) -> None:
    """The weights of a run as a folder that timm (images) and plain torch load again.

    Example: goatbench export last --out my_model
    """
    from .export import export as write

    print("\n".join(write(run, out, runs_dir)))


@data.command()
def prepare(name: DataName, overrides: DataKeys = None, config_dir: ConfigDir = None) -> None:
    """Read and encode a data set once, so that runs begin at once; DNA goes on where a killed call stopped.

    Example: goatbench data prepare text_embedded

    Of your own: goatbench data prepare fasta data.fasta=hg38.fa
    """
    from .preparing import data_spec
    from .preparing import prepare as facts

    for fact in facts(data_spec(name, overrides or [], config_dir)):
        print(fact, flush=True)


@data.command()
def check(name: DataName, overrides: DataKeys = None, config_dir: ConfigDir = None) -> None:
    """Counts, hashes, splits and label order of a data set; exit code 1 if something in it is broken.

    Example: goatbench data check genome_embedded

    Of your own: goatbench data check imagenet_folder data.root=/path/to/imagenet
    """
    from .preparing import check as facts
    from .preparing import data_spec

    broken = 0
    for fact in facts(data_spec(name, overrides or [], config_dir)):
        print(fact, flush=True)
        broken += fact.level == "broken"
    if broken:
        raise typer.Exit(1)
