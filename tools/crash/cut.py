"""Files that are cut short while nobody looks: checkpoints, parts of an output, states, models, labels and inputs."""

from __future__ import annotations

import gzip
import os
import random
import shutil
from contextlib import closing
from pathlib import Path

from decaf.errors import StoreError
from decaf.model import Model
from decaf.stores import kept_changes
from decaf.stores.sqlite import SqliteStore
from tools.crash.commands import FORMATS, check_output
from tools.crash.rounds import Moment, Round, check, check_model, check_refused, topic_name

__all__ = ["cut_checkpoint", "cut_input", "cut_labels", "cut_model", "cut_part", "cut_record", "cut_state"]


def cut(path: Path, rng: random.Random) -> None:
    """Take an end off a file, up to all of it."""
    os.truncate(path, rng.choice([0, rng.randrange(path.stat().st_size)]))


def cut_checkpoint(round_: Round) -> None:
    """A checkpoint that is cut short is made again, or refused."""
    model = _stopped_training(round_)
    file = round_.rng.choice(sorted((model / "checkpoint").iterdir()))
    round_.facts["file"] = file.name
    cut(file, round_.rng)
    if file.name == "run.json":
        check_refused(round_.decaf(*round_.train(model)), "another folder")
        shutil.rmtree(model)
    round_.finish(*round_.train(model))
    check_model(model, round_.stand.model, record=file.name != "run.json")


def cut_record(round_: Round) -> None:
    """A record that is cut short goes on, line by line."""
    model = _stopped_training(round_)
    cut(model / "metrics.jsonl", round_.rng)
    round_.finish(*round_.train(model))
    check_model(model, round_.stand.model, record=False)


def cut_part(round_: Round, kind: str = "") -> None:
    """A part of an output that is cut short is made again."""
    output, command = _stopped_predicting(round_, kind)
    parts = sorted(output.with_name(f"{output.name}.parts").glob("part-*"))
    cut(round_.rng.choice(parts), round_.rng)
    round_.finish(*command)
    check_output(round_, output)


def cut_state(round_: Round, kind: str = "") -> None:
    """Without its state, a run that was stopped is refused, and begins anew when its folder is gone."""
    output, command = _stopped_predicting(round_, kind)
    folder = output.with_name(f"{output.name}.parts")
    cut(folder / "state.json", round_.rng)
    check_refused(round_.decaf(*command), f"remove the folder {folder} to begin anew")
    check(not output.exists(), "there is an output of a run that was refused")
    shutil.rmtree(folder)
    round_.finish(*command)
    check_output(round_, output)


def cut_model(round_: Round, verb: str = "") -> None:
    """A model that is cut short is refused by whoever would use it."""
    model = round_.folder / "model"
    shutil.copytree(round_.stand.model, model)
    content = Model.load(model)
    check(content.version, "no version")
    name = round_.rng.choice(sorted(_files(model)))
    round_.facts["file"] = name
    cut(model / name, round_.rng)
    output = round_.folder / "out.jsonl"
    verb = verb or round_.rng.choice(["predict", "serve", "train"])
    words: dict[str, list[object]] = {
        "predict": round_.predict(round_.stand.source(".jsonl"), output, model),
        "serve": ["serve", model, "--port", 0],
        "train": round_.train(model),
    }
    check_refused(round_.decaf(*words[verb]), "damaged", "restore it")
    check(not output.exists(), "there is an output of a damaged model")
    shutil.rmtree(model)
    shutil.copytree(round_.stand.model, model)
    check(Model.load(model).version == content.version, "a model that was restored is another")


def _files(model: Path) -> list[str]:
    """The files that a model is made of."""
    return [path.name for path in model.iterdir() if path.suffix in (".arrow", ".json", ".safetensors")]


def cut_labels(round_: Round) -> None:
    """Labels that are cut short are all there, or refused."""
    rng, path = round_.rng, round_.folder / "labels.sqlite"
    with closing(SqliteStore(path)) as store:
        for number in range(rng.randrange(20, 200)):
            store.put(f"label-{number}", f"{topic_name(number % 40)}{' the' * rng.randrange(100)}")
        wanted = store.changes()
    os.truncate(path, rng.randrange(1, path.stat().st_size))  # a file without any byte is one that has not begun
    try:
        found = kept_changes(round_.stand.model, path)
    except StoreError as error:
        check("cannot be read" in str(error) or "is cut short" in str(error), f"not told clearly: {error}")
    else:
        check(found == wanted, f"{len(found)} of {len(wanted)} labels were read, and nothing was said")


def cut_input(round_: Round, kind: str = "") -> None:
    """Documents that are cut short are refused, and predicted when they are whole; gzip and Parquet can tell."""
    kind = kind or round_.rng.choice([".parquet", ".csv", ".jsonl"])
    whole = round_.stand.source(kind)
    source = round_.folder / (whole.name if kind == ".parquet" else f"{whole.name}.gz")
    content = whole.read_bytes() if kind == ".parquet" else gzip.compress(whole.read_bytes(), 1)
    source.write_bytes(content[: round_.rng.randrange(1, len(content))])
    output = round_.folder / "out.jsonl"
    command = round_.predict(source, output)
    check_refused(round_.decaf(*command), source.name)
    check(not output.exists(), "there is an output of an input that is cut short")
    source.write_bytes(content)
    done = round_.decaf(*command)
    if done.status:  # what was finished came from another file
        check_refused(done, "remove the folder")
        shutil.rmtree(output.with_name(f"{output.name}.parts"))
        round_.finish(*command)
    source.unlink()
    check_output(round_, output)


def _stopped_training(round_: Round) -> Path:
    """A folder of a run that was killed when there was something to lose."""
    model = round_.folder / "model"
    notes = round_.stand.steps["train"].count("open metrics.jsonl")
    round_.decaf(*round_.train(model), at=Moment(step=round_.rng.randint(2, notes), word="open metrics.jsonl"))
    return model


def _stopped_predicting(round_: Round, kind: str) -> tuple[Path, list[object]]:
    """An output of which a part or more is finished, and the command."""
    kind = kind or round_.rng.choice(FORMATS)
    output = round_.folder / f"out{kind}"
    command = round_.predict(round_.stand.source(kind), output)
    parts = sum(name.startswith("os.rename .part-") for name in round_.stand.steps["predict"])
    round_.decaf(*command, at=Moment(step=round_.rng.randint(2, parts), word="os.rename .part-"))
    return output, command
