"""What several verbs take on the command line, and what they do with it first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from decaf.errors import ConfigError

if TYPE_CHECKING:
    from decaf.config import Config
    from decaf.datasets import Dataset

__all__ = [
    "AsJson",
    "Assignments",
    "Data",
    "Device",
    "Fast",
    "Kept",
    "Layout",
    "ModelFolder",
    "Output",
    "Recipe",
    "Tail",
    "Threads",
    "Verify",
    "checked",
    "config_of",
    "load",
    "use_threads",
]

Data = Annotated[
    str, typer.Argument(metavar="DATA", help="A dataset: a folder, a table, or `catalogue`, the embedded one.")
]
Output = Annotated[Path, typer.Argument(metavar="OUT", help="The folder to write; it must not exist yet.")]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="STAGE.KEY=VALUE", help="Change a setting, as often as needed; see `decaf settings`."
    ),
]
ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="The folder of a trained model.")]
Device = Annotated[str, typer.Option(metavar="NAME", help="auto, cpu or cuda.")]
Recipe = Annotated[
    str,
    typer.Option(metavar="NAME", help="contrastive, paper, or paper-lite (token embeddings as module I left them)."),
]
Tail = Annotated[
    float | None,
    typer.Option(min=0, max=1, help="From 0, frequent labels first, to 1, rare ones; left out: as the model was made."),
]
Fast = Annotated[
    bool | None,
    typer.Option(
        "--fast/--exact", help="Compiled loops on the CPU, or every cluster looked at; left out: fast on the CPU."
    ),
]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads of the CPU; left out: one for each core.")]
Verify = Annotated[
    bool,
    typer.Option("--verify/--no-verify", help="Compare the model's files with their checksums, which takes a while."),
]
Kept = Annotated[
    str,
    typer.Option(
        "--labels",
        metavar="WHERE",
        envvar="DECAF_LABELS",
        help="Where live labels are kept, a file or postgresql://...; left out: MODEL.labels.sqlite.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Layout = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="LAYOUT",
        help="raw, sparse, single, csv, jsonl or parquet  [default: raw; sparse without texts]",
    ),
]


def config_of(assignments: list[str] | None) -> Config:
    """The settings that are not of a recipe, with these changes."""
    from decaf.config import Config

    return Config().with_settings(assignments or [])


def load(data: str, config: Config) -> Dataset:
    """The dataset at a path, a table read as the settings say."""
    from decaf.datasets import Dataset

    return Dataset.load(data, table=config.table)


def checked(fast: bool | None, device: str) -> bool | None:
    """The wanted scorer, if it can work on that device."""
    if fast and device == "cuda":
        raise ConfigError("--fast scores on the CPU; leave it out, or leave out --device cuda")
    return fast


def use_threads(threads: int | None) -> int:
    """How many threads there are to work with, after this choice."""
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    return torch.get_num_threads()
