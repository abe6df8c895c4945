"""The command line: verbs only; the work is done elsewhere, and imported when a verb is called."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable
from typing import Annotated

import typer

from decaf import __version__
from decaf.cli.data import convert, inspect, match, metrics, settings, split
from decaf.cli.models import demo, evaluate, predict, train
from decaf.cli.serving import add_label, list_labels, remove_label, serve
from decaf.errors import DecafError

__all__ = ["app", "main"]

app = typer.Typer(
    name="decaf",
    epilog="Begin with `decaf demo`.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"decaf {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Which few of a million labels belong to this short text?"""


def _add(verbs: Iterable[Callable[..., None]], to: typer.Typer) -> None:
    for verb in verbs:
        to.command(verb.__name__.partition("_")[0])(verb)  # add_label is `add`, among the verbs of labels


_add((demo, train, evaluate, predict, inspect, convert, split, match, metrics, settings, serve), app)
labels_app = typer.Typer(
    no_args_is_help=True,
    help="Labels that come and go after training, kept beside the model in MODEL.labels.sqlite.",
)
_add((add_label, remove_label, list_labels), labels_app)
app.add_typer(labels_app, name="labels")


def main() -> None:
    """Run a verb; what goes wrong on purpose is one line, not a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        app()
    except DecafError as error:
        sys.exit(f"decaf: {error}")
    except OSError as error:
        sys.exit(f"decaf: {error.filename or 'input or output'}: {error.strerror or error}")
