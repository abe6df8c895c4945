"""Verbs of a model that is served, and of its live labels."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from decaf.cli.options import AsJson, Kept, ModelFolder, Verify
from decaf.errors import ConfigError, DataError
from decaf.serving import ServeSettings

__all__ = ["add_label", "list_labels", "remove_label", "serve"]


SERVED = ServeSettings()


def serve(
    model: ModelFolder,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 is all of them.")] = SERVED.host,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: one that is free.")] = SERVED.port,
    workers: Annotated[int, typer.Option(min=1, help="Processes that answer.")] = SERVED.workers,
    threads: Annotated[int, typer.Option(min=1, help="Threads of each worker's scorer.")] = SERVED.threads,
    labels: Kept = "",
    watch: Annotated[
        bool, typer.Option("--watch/--no-watch", help="Load another model when it stands there.")
    ] = SERVED.watch,
    verify: Verify = SERVED.verify,
    read_key: Annotated[
        str | None,
        typer.Option(metavar="KEY", envvar="DECAF_READ_KEY", show_envvar=True, help="Who asks must send this key."),
    ] = None,
    write_key: Annotated[
        str | None,
        typer.Option(metavar="KEY", envvar="DECAF_WRITE_KEY", show_envvar=True, help="Who changes must send this key."),
    ] = None,
    cors: Annotated[
        list[str] | None, typer.Option(metavar="ORIGIN", help="Let pages of this origin ask, as often as needed.")
    ] = None,
    body_bytes: Annotated[int, typer.Option(min=1, help="Bytes of a request.")] = SERVED.body_bytes,
    texts: Annotated[int, typer.Option(min=1, help="Texts of a request.")] = SERVED.texts,
    text_length: Annotated[int, typer.Option(min=1, help="Characters of a text.")] = SERVED.text_length,
    top: Annotated[int, typer.Option(min=1, help="Most labels for each text.")] = SERVED.top,
    rows: Annotated[int, typer.Option(min=1, help="Rows of a CSV file.")] = SERVED.rows,
    queue: Annotated[int, typer.Option(min=1, help="Requests that may wait to be scored.")] = SERVED.queue,
    concurrency: Annotated[int, typer.Option(min=1, help="Requests at once, in each worker.")] = SERVED.concurrency,
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds for a request.")] = SERVED.timeout,
    drain: Annotated[float, typer.Option(min=0.001, help="Seconds for running requests after SIGTERM.")] = SERVED.drain,
    idle: Annotated[float, typer.Option(min=0.001, help="Seconds that a connection may do nothing.")] = SERVED.idle,
    connections: Annotated[int, typer.Option(min=1, help="Connections at once, in each worker.")] = SERVED.connections,
    head_bytes: Annotated[
        int, typer.Option(min=1, help="Bytes of a request's address and headers.")
    ] = SERVED.head_bytes,
    unsent_bytes: Annotated[
        int, typer.Option(min=1, help="Bytes of answers that clients leave unread, in each worker.")
    ] = SERVED.unsent_bytes,
) -> None:
    """Answer over HTTP, with a page to try the model on."""
    from decaf import console
    from decaf.serving import serve as run

    for name in ("READ", "WRITE"):  # a variable that was forgotten must not open the door
        if os.environ.get(f"DECAF_{name}_KEY") == "":
            raise ConfigError(f"DECAF_{name}_KEY is empty; set a key, or unset the variable")
    if read_key == "" or write_key == "":
        raise ConfigError("a key is empty; set one, or leave the option out")
    settings = ServeSettings(
        host=host,
        port=port,
        workers=workers,
        threads=threads,
        labels=labels,
        watch=watch,
        verify=verify,
        read_key=read_key or "",
        write_key=write_key or "",
        cors=tuple(cors or ()),
        body_bytes=body_bytes,
        texts=texts,
        text_length=text_length,
        top=top,
        rows=rows,
        queue=queue,
        concurrency=concurrency,
        timeout=timeout,
        drain=drain,
        idle=idle,
        connections=connections,
        head_bytes=head_bytes,
        unsent_bytes=unsent_bytes,
    )
    with console.session():
        run(model, settings, announce=console.say)


LabelId = Annotated[str, typer.Argument(metavar="ID", help="The id of a label.")]


def add_label(
    model: ModelFolder,
    label: Annotated[str | None, typer.Argument(metavar="[ID]", help="The id of a label.")] = None,
    text: Annotated[str | None, typer.Argument(metavar="[TEXT]", help="Its text.")] = None,
    source: Annotated[
        Path | None, typer.Option("--input", metavar="FILE", help="Many at once: a CSV file with columns id and text.")
    ] = None,
    kept: Kept = "",
) -> None:
    """Add a label by its text alone, give one another text, or bring a hidden one back.

    It is predicted from now on, also by a service that runs on the model. Train again when there is time: a label with
    documents of its own is found far more often.
    """
    from decaf import console
    from decaf.labels import add_labels, read_labels

    with console.session():
        if (source is None) == (label is None or text is None):
            raise DataError("write the id and the text behind the model, or name a table with --input")
        wanted = {label or "": text or ""} if source is None else read_labels(source)
        count = add_labels(model, wanted, kept)
    console.say(f"{count:,} {'label' if count == 1 else 'labels'} added or changed")


def remove_label(model: ModelFolder, label: LabelId, kept: Kept = "") -> None:
    """Take an added label away, or hide one that was trained; `decaf labels add` brings it back."""
    from decaf import console
    from decaf.labels import remove_label as remove

    with console.session():
        hidden = remove(model, label, kept)
    console.say(f"{label} is {'hidden' if hidden else 'gone'}")


def list_labels(model: ModelFolder, kept: Kept = "", as_json: AsJson = False) -> None:
    """List what was changed since training; as JSON, one object a line."""
    from decaf import console
    from decaf.header import read_header
    from decaf.stores import kept_changes, to_lines

    with console.session():
        changes = kept_changes(model, kept)
        if not changes:
            read_header(model)  # or there is no such model either
    if as_json:
        for line in to_lines(changes):
            print(line)
    else:
        console.show_changes(changes)
