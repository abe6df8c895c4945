"""What all rounds share: data and models to begin with, commands that are killed, and what must be true afterwards."""

from __future__ import annotations

import csv
import json
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from decaf.errors import ModelError
from decaf.model import Model

__all__ = [
    "PATIENCE",
    "TRAINING",
    "BrokenPromiseError",
    "Done",
    "Moment",
    "Round",
    "Stand",
    "check",
    "check_model",
    "check_refused",
    "drawn",
    "model_or_none",
    "until",
]

ROOT = Path(__file__).parent.parent.parent
PATIENCE = 180.0  # seconds for what takes a few where the machine is busy
TRAINING = [
    *("--device", "cpu", "--quiet"),
    *("--set", "model.dim=16", "--set", "tokens.epochs=3", "--set", "shortlister.epochs=2", "--set", "ranker.epochs=3"),
    # Models that are too sure of their answers cannot be told from each other.
    *("--set", "features.ends=false", "--set", "features.shapes=false"),
]
_LABELS = 40


class BrokenPromiseError(Exception):
    """Something that must be true is not."""


def drawn(seed: float | str) -> random.Random:
    """Chance that a seed decides."""
    return random.Random(seed)  # noqa: S311 - no secrets


def check(true: object, what: str) -> None:
    """What must be true; otherwise the round has failed."""
    if not true:
        raise BrokenPromiseError(what)


def until(true: Callable[[], object], what: str) -> None:
    """Wait for something that comes soon."""
    end = time.monotonic() + PATIENCE
    while not true():
        check(time.monotonic() < end, f"{what} did not come")
        time.sleep(0.02)


class Done(NamedTuple):
    """A command that has ended."""

    status: int  # minus the signal where it was killed
    said: str  # on standard error


class Moment(NamedTuple):
    """When a command is killed: before its n-th step on the disk, or after so many seconds."""

    step: int = 0
    seconds: float = 0.0
    word: str = ""  # counts steps alone that have this in their name


@dataclass(frozen=True)
class Stand:
    """What rounds begin with: a table, two models of it, files to predict, and what comes out undisturbed."""

    folder: Path
    documents: int  # of the files to predict
    steps: dict[str, list[str]] = field(default_factory=dict)  # on the disk, of commands that are not disturbed
    seconds: dict[str, float] = field(default_factory=dict)
    mount: bool = True  # whether disks may be mounted

    @property
    def table(self) -> Path:
        """The table to train on."""
        return self.folder / "table.csv"

    @property
    def model(self) -> Path:
        """The model of seed 0."""
        return self.folder / "model"

    @property
    def other(self) -> Path:
        """The model of seed 1."""
        return self.folder / "other"

    def source(self, kind: str) -> Path:
        """The documents to predict, in a format."""
        return self.folder / f"documents{kind}"

    def wanted(self, kind: str) -> Path:
        """What comes out, in a format."""
        return self.folder / f"predicted{kind}"

    def write_files(self, texts: int = 800) -> None:
        """The table and the files to predict, the same ones for each seed."""
        rng = drawn(7)
        secret = [["".join(rng.choices("bcdfghjklmnpqrstvwxz", k=5)) for _ in range(4)] for _ in range(_LABELS)]

        def text(topic: int) -> str:
            return " ".join([*rng.sample(secret[topic], 2), rng.choice(["the", "of", "and"])])

        self.folder.mkdir(parents=True, exist_ok=True)
        with self.table.open("w", newline="", encoding="utf-8") as stream:
            rows = [[text(row % _LABELS), topic_name(row % _LABELS)] for row in range(texts)]
            csv.writer(stream).writerows([["text", "labels"], *rows])
        found = [{"id": f"d{row}", "text": text(rng.randrange(_LABELS))} for row in range(self.documents)]
        with self.source(".jsonl").open("w", encoding="utf-8") as stream:
            stream.writelines(json.dumps(one) + "\n" for one in found)
        with self.source(".csv").open("w", newline="", encoding="utf-8") as stream:
            csv.writer(stream).writerows([["id", "text"], *([one["id"], one["text"]] for one in found)])
        pq.write_table(pa.Table.from_pylist(found), self.source(".parquet"))

    def prepare(self, say: Callable[[str], None]) -> None:
        """Make everything with commands that nobody disturbs."""
        self.write_files()
        alone = Round(self, self.folder, drawn(0), {})
        for name, seed in (("other", 1), ("model", 0)):
            say(f"training {name}")
            alone.measured("train", *alone.train(self.folder / name), "--seed", seed)
        for kind in (".jsonl", ".csv", ".parquet"):
            say(f"predicting {self.wanted(kind).name}")
            alone.measured("predict", *alone.predict(self.source(kind), self.wanted(kind)))


def topic_name(topic: int) -> str:
    """The label of a topic."""
    return f"topic {chr(97 + topic // 26)}{chr(97 + topic % 26)}"


@dataclass
class Round:
    """One round: a folder of its own, its own chance, and what happened."""

    stand: Stand
    folder: Path
    rng: random.Random
    facts: dict[str, Any]

    def train(self, model: Path) -> list[object]:
        """The command that trains a model."""
        return ["train", self.stand.table, "-o", model, *TRAINING]

    def predict(self, source: Path, output: Path, model: Path | None = None) -> list[object]:
        """The command that predicts a file."""
        return ["predict", model or self.stand.model, "--input", source, "--output", output, "--threads", 1]

    def moment(self, name: str) -> Moment:
        """A moment of a command, drawn: half of them by steps, half by time."""
        if self.rng.random() < 0.5:
            return self.step(name)
        return Moment(seconds=self.rng.uniform(0.1, 1) * self.stand.seconds[name])

    def step(self, name: str) -> Moment:
        """One of its steps, drawn; of those in training by name, as states are kept more or less often."""
        steps = self.stand.steps[name]
        if name != "train":
            return Moment(step=self.rng.randint(1, len(steps)))
        sure = [one for one in steps if ".running." not in one and one != "os.mkdir checkpoint"]
        at = self.rng.randrange(len(sure))
        return Moment(step=sure[: at + 1].count(sure[at]), word=sure[at])

    def count(self, what: str, more: int = 1) -> None:
        """Note that something happened."""
        self.facts[what] = self.facts.get(what, 0) + more

    def decaf(self, *words: object, at: Moment | None = None, most: int | None = None, **variables: str) -> Done:
        """Run a command to its end or to a moment; `most` bytes may be in a file."""
        moment = at or Moment()
        started = time.monotonic()
        counted = self.folder / "steps"
        command = [
            sys.executable,
            "-m",
            "tools.crash.child",
            f"{moment.step} {moment.word}",
            self.folder,
            counted,
            *words,
        ]
        with subprocess.Popen(
            [str(word) for word in command],
            cwd=ROOT,
            env=environment(**variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            preexec_fn=None if most is None else partial(_limit_files, most),
        ) as process:
            try:
                _, told = process.communicate(timeout=moment.seconds or PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                _, told = process.communicate()
                check(moment.seconds, f"no end after {PATIENCE:.0f} s: {command_line(words)}")
            except BaseException:
                process.kill()
                raise
        done = Done(process.returncode, told.decode(errors="replace"))
        if done.status < 0:
            self.count("kills")
        with (self.folder / "log.txt").open("a", encoding="utf-8") as stream:
            took = f"{time.monotonic() - started:.1f} s"
            stream.write(f"$ {command_line(words)}\n{moment}, {took}, status {done.status}\n{done.said}\n")
        return done

    def finish(self, *words: object) -> Done:
        """Run a command that must end well."""
        done = self.decaf(*words)
        check(done.status == 0, f"status {done.status} of {command_line(words)}: {done.said[-2000:]}")
        check("Traceback" not in done.said, f"a traceback from {command_line(words)}: {done.said[-2000:]}")
        return done

    def measured(self, name: str, *words: object) -> None:
        """Run a command that nobody disturbs, and note its steps and seconds, the fewest of several."""
        started = time.monotonic()
        self.finish(*words)
        took = time.monotonic() - started
        self.stand.seconds[name] = min(took, self.stand.seconds.get(name, took))
        self.stand.steps[name] = (self.folder / "steps").read_text(encoding="utf-8").splitlines()


def environment(**variables: str) -> dict[str, str]:
    """The environment of commands: one thread, as results are compared bit by bit."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **variables}


def command_line(words: Sequence[object]) -> str:
    """A command as it is typed."""
    return " ".join(["decaf", *map(str, words)])


def check_refused(done: Done, *words: str) -> None:
    """A command that failed says why in one line, without a traceback."""
    check(done.status == 1, f"status {done.status}, not 1: {done.said[-2000:]}")
    lines = done.said.strip().splitlines()
    check(lines and lines[-1].startswith("decaf: ") and "Traceback" not in done.said, f"no clear error: {done.said!r}")
    for word in words:
        check(word in lines[-1], f"{word!r} is not said: {lines[-1]!r}")


def model_or_none(folder: Path) -> Model | None:
    """The model of a folder, its checksums verified; None while a run is unfinished or has not begun."""
    if (folder / "model.json").is_file():
        return Model.load(folder)
    try:
        Model.load(folder)
    except ModelError as error:
        told = str(error)
        check("unfinished run" in told or "holds no model" in told, f"not told as unfinished: {told}")
        return None
    raise BrokenPromiseError(f"{folder}: a model without model.json was loaded")


def check_model(folder: Path, wanted: Path, *, record: bool = True) -> None:
    """A finished folder is that of the undisturbed run, bit by bit; `record`: so are the epochs noted."""
    Model.load(folder)
    found, expected = (_header(path) for path in (folder, wanted))
    check(found == expected, f"model.json: {found} is not {expected}")
    for name in expected["files"]:
        check((folder / name).read_bytes() == (wanted / name).read_bytes(), f"{name}: other bytes")
    names, known = ({path.name for path in place.iterdir()} for place in (folder, wanted))
    check(names == known, f"files that were left, or are missing: {sorted(names ^ known)}")
    check((folder / "training.png").read_bytes().endswith(b"IEND\xaeB`\x82"), "training.png is not whole")
    epochs, all_epochs = _epochs(folder), _epochs(wanted)
    check(epochs == all_epochs if record else epochs <= all_epochs, f"metrics.jsonl: {epochs ^ all_epochs}")


def _header(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    return {name: value for name, value in content.items() if name != "seconds"}


def _epochs(folder: Path) -> set[tuple[str, int]]:
    """The epochs that are noted; each line must be whole."""
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    try:
        notes = [json.loads(line) for line in lines]
    except ValueError as error:
        raise BrokenPromiseError(f"metrics.jsonl: a line is not JSON ({error})") from error
    return {(note["module"], note["epoch"]) for note in notes if "epoch" in note}


def _limit_files(most: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
