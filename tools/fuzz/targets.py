"""What is done with a spoiled folder: it is read, and used if it can be read."""

from __future__ import annotations

import io
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import closing, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import torch

from decaf import Dataset, Model, Predictor, SplitSettings, statistics
from decaf.batch import BatchSettings, predict_file
from decaf.cli import main
from decaf.datasets import cache
from decaf.datasets.raw import read_raw
from decaf.errors import DecafError
from decaf.live import Live
from decaf.modules.checkpoints import Checkpoint
from decaf.predictions import Predictions, load_scores
from decaf.scoring.fast import FastScorer
from decaf.stores import Change, kept_changes, open_store
from tools.fuzz.seeds import CACHED, FINGERPRINT, MODELS, checkpoint_tensors
from tools.make_format import TEXTS, kept_models

__all__ = ["warm_up", "work"]

_GOOD = kept_models()[0]


class AcceptedError(Exception):
    """What should have been refused was taken."""


def work(case: dict[str, Any], folder: Path) -> str:
    """Read the folder in one of the ways there are: "used", or the message of the error meant for the user.

    Whatever else is raised is a fault.
    """
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            _TARGETS.get(case["kind"], _dataset)(case, folder)
    except DecafError as error:
        if _for_want_of_memory(error):
            raise MemoryError from error  # told well, but only because there is a limit
        return str(error)
    return "used"


def _for_want_of_memory(error: BaseException | None) -> bool:
    return error is not None and (isinstance(error, MemoryError) or _for_want_of_memory(error.__cause__))


def warm_up() -> None:
    """Have all loops compiled before times and memory are looked at."""
    for model in kept_models():
        for way in range(4):
            _model({"verify": True, "way": way, "changed": False}, model)


def _run(*arguments: object) -> None:
    """A verb of the command line: it ends with 0, 1 or 2, and says why."""
    before = sys.argv
    sys.argv = ["decaf", *map(str, arguments)]
    handlers = logging.getLogger().handlers[:]
    try:
        main()
    except SystemExit as end:
        if end.code not in (None, 0, 1, 2) and not (isinstance(end.code, str) and end.code.startswith("decaf: ")):
            raise AcceptedError(f"the command line ended with {end.code!r}") from end
        if isinstance(end.code, str):
            raise DecafError(end.code) from end.__context__
    finally:
        sys.argv = before
        logging.getLogger().handlers[:] = handlers


def _dataset(case: dict[str, Any], folder: Path) -> None:
    if case["way"] % 5 == 0:
        _run("inspect", folder, "--json")
        return
    dataset = Dataset.load(folder)
    statistics(dataset)
    if case["way"] % 3 == 0:
        dataset.filtered().split(SplitSettings())
    if case["way"] % 3 == 1 and dataset.has_texts:
        dataset.save(folder / "again", "csv")


def _documents(case: dict[str, Any], folder: Path) -> None:
    predict_file(_GOOD, folder / case["file"], folder / "out.jsonl", BatchSettings())


def _npz(case: dict[str, Any], folder: Path) -> None:
    if case["way"] % 3 == 0:
        _run("metrics", folder / "data", folder / "scores.npz", "--json")
    else:
        Predictions.from_csr(load_scores(folder / "scores.npz", 2, 4), 3)


def _model(case: dict[str, Any], folder: Path) -> None:
    way = case["way"] % 10
    if way == 9:
        _run("inspect", folder, *([] if case["way"] % 20 == 9 else ["--json"]))
        return
    if way == 8:
        _run("predict", folder, *TEXTS[:2], *([] if case["verify"] else ["--no-verify"]), "--json")
        return
    model = Model.load(folder, verify=case["verify"])
    if case["verify"] and case["changed"] and case["kind"] != "model.json" and not case["remade"]:
        raise AcceptedError("a file that its checksum does not fit was taken")
    model.facts()
    Predictor(model).predict(TEXTS)
    if way == 0:
        Predictor(model).predict(TEXTS * 5)
    elif way == 1:
        Predictor(model, fast=False).predict(TEXTS)
    elif way == 2 and model.features is not None:
        FastScorer(model, effort=1).top(model.features.transform(TEXTS), 5)
    elif way == 3:
        predictor = Predictor(model, changes=[Change("new", "amber delta", ""), Change("L3", "kelp", "")])
        predictor.predict(TEXTS)
        predictor.explain(TEXTS[0])
        predictor.labels.search("amber")


def _sqlite(case: dict[str, Any], folder: Path) -> None:
    if case["way"] % 3 == 0:
        _run("labels", "list", folder / "model", "--json")
        return
    changes = kept_changes(folder / "model")
    with closing(open_store(folder / "model")) as store:
        store.stamp()
        store.reloads()
        changes = store.changes()
        store.put("later", "amber kelp")
        store.hide("L2")
    live = Live(Model.load(folder / "model"), changes)
    live.labels.search("amber")
    live.changes  # noqa: B018 - made when asked for


def _cache(case: dict[str, Any], folder: Path) -> None:
    """Damaged or not, the dataset comes out."""
    before, os.environ["DECAF_CACHE"] = os.environ.get("DECAF_CACHE"), str(folder / "cache")
    try:
        file = folder / "data" / f"{CACHED}.gz"
        parts = cache.cached([file], "fuzz", lambda: read_raw(folder / "data"), smallest=0)
    finally:
        del os.environ["DECAF_CACHE"]
        if before is not None:
            os.environ["DECAF_CACHE"] = before
    statistics(Dataset("cached", *parts)._with(parts))


def _checkpoint(case: dict[str, Any], folder: Path) -> None:
    """What is damaged is made again; what is not of this run is refused."""
    kept = Checkpoint(folder, FINGERPRINT, torch.device("cpu"))
    kept.result("module I", checkpoint_tensors)
    kept.restore("module II", checkpoint_tensors())
    kept.note(epoch=2)
    kept.keep("module II", checkpoint_tensors(), 3)


def _check(case: dict[str, Any], folder: Path) -> None:
    """Do harm on purpose, to see that it is seen."""
    if case["do"] == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif case["do"] == "hang":
        time.sleep(3600)
    elif case["do"] == "memory":
        bytearray(1 << 40)
    elif case["do"] == "memory, told well":
        try:
            bytearray(1 << 40)
        except MemoryError as error:
            raise DecafError("there is no room") from error
    elif case["do"] == "exception":
        raise KeyError("nobody expects this")
    elif case["do"] == "error":
        raise DecafError("this is meant for the user")
    elif case["do"] == "command line":
        raise SystemExit(3)


_TARGETS: dict[str, Callable[[dict[str, Any], Path], None]] = {
    **dict.fromkeys(MODELS, _model),
    "documents": _documents,
    "npz": _npz,
    "sqlite": _sqlite,
    "cache": _cache,
    "checkpoint": _checkpoint,
    "check": _check,
}
