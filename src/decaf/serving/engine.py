"""The model that is served, with its live labels: refreshed when they change, swapped as a whole."""

from __future__ import annotations

import gc
import logging
import math
import threading
from pathlib import Path
from typing import Any, NamedTuple

from decaf.errors import DecafError, ModelError, StoreError
from decaf.evaluation import card_of
from decaf.model import Model
from decaf.predictor import Predictor
from decaf.serving.problems import ProblemError
from decaf.stores import LabelStore, open_store

__all__ = ["Engine", "Served"]

log = logging.getLogger(__name__)

_BATCH = 32  # texts to warm up with: many are scored by other loops than few

_File = tuple[int, int, int]  # device, inode and time of change


class Served(NamedTuple):
    """What answers at one moment; rows of labels are those of this predictor alone."""

    predictor: Predictor
    version: str
    tail: float | None  # None: the model cannot lean
    card: dict[str, Any]  # statistics of its dataset, metrics and quantiles, where they are known
    stamp: object  # of the changes that it knows


class Engine:
    """A model folder in use, with the store of its live labels. All methods may be called from any thread."""

    def __init__(
        self, folder: Path, labels: str | Path = "", *, threads: int = 1, watch: bool = True, verify: bool = True
    ) -> None:
        self.folder = folder
        self.store: LabelStore = open_store(folder, labels)
        self.writer: LabelStore = open_store(
            folder, labels
        )  # apart: who looks for changes does not wait for who writes them
        self._threads = threads
        self._watch = watch
        self._verify = verify
        self._served: Served | None = None
        self._blind = False  # whether changes could not be read the last time
        self._loading = threading.Lock()
        self._changing = threading.Lock()
        self._tried: tuple[_File | None, int] = (None, 0)  # the file and the wishes for a load at the latest one

    @property
    def latest(self) -> Served:
        """The model as it was last used: the newest changes of labels may be missing."""
        if self._served is None:
            raise ProblemError("not_ready", "the model is being loaded; try again in a moment")
        return self._served

    @property
    def fresh(self) -> bool:
        """Whether `current` has nothing to do."""
        try:
            return self.latest.stamp == self.store.stamp()
        except (ProblemError, StoreError):
            return False  # `current` says why

    def current(self) -> Served:
        """The model with every change of labels that was acknowledged so far, as far as the store can be read."""
        try:
            served = self.exact()
        except StoreError as error:
            if not self._blind:
                log.warning("%s; answers go on with the labels that are known", error)
            self._blind = True
            return self.latest
        self._blind = False
        return served

    def exact(self) -> Served:
        """The same, or a StoreError where the store cannot be read."""
        return self.latest if self.latest.stamp == self.store.stamp() else self._refreshed()

    def load(self, *, tell: bool = False) -> Served:
        """Load the folder anew, try it out and put it in the place of the old one; `tell` other workers to do so too.

        Raises DecafError if the folder is bad; then the old one stays.
        """
        with self._loading:
            wishes = self.store.reloads()
            self._tried = (self._file(), wishes)
            try:
                served = self._opened()
            except DecafError:
                raise
            except Exception as error:  # whatever a damaged model can do
                raise ModelError(f"{self.folder}: cannot be used ({error!r}); train it again or restore it") from error
            with self._changing:
                self._served = served
            if tell:
                self.writer.ask_reload()
                self._tried = (self._tried[0], wishes + 1)
        _settle()
        log.info("%s: version %s is in use", self.folder, served.version)
        return served

    def outdated(self) -> bool:
        """Whether another model stands in the folder than was last tried, or a worker asks to load it anew."""
        file, wishes = self._tried
        now = self._file()
        return self.store.reloads() != wishes or (self._watch and now is not None and now != file)

    def close(self) -> None:
        """Let go of the store of live labels."""
        self.store.close()
        self.writer.close()

    def _file(self) -> _File | None:
        """Which file model.json is, links followed; None while there is none."""
        try:
            facts = (self.folder / "model.json").stat()
        except OSError:
            return None
        return facts.st_dev, facts.st_ino, facts.st_mtime_ns

    def _opened(self) -> Served:
        model = Model.load(self.folder, verify=self._verify)
        if model.features is None:
            raise ModelError(f"{self.folder}: was trained on ready features and knows no words; train it on texts")
        stamp = self.store.stamp()  # before the changes are read: what comes after is seen later
        predictor = Predictor(model, threads=self._threads, changes=self.store.changes())
        _warm_up(predictor)
        return Served(predictor, model.version, model.facts().get("tail"), card_of(model, self.folder), stamp)

    def _refreshed(self) -> Served:
        with self._changing:
            served, stamp = self.latest, self.store.stamp()
            if served.stamp != stamp:
                served = served._replace(predictor=served.predictor.updated(self.store.changes()), stamp=stamp)
                self._served = served
            return served


def _settle() -> None:
    """Have what was loaded left alone by the garbage collector, whose rounds would hold up requests for long."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def _warm_up(predictor: Predictor) -> None:
    """Have the loops compiled, and see that answers come out."""
    text = next((text for row in range(min(100, predictor.labels.count)) if (text := predictor.labels.text(row))), "a")
    for count in (1, _BATCH):
        for matches in predictor.predict([text] * count):
            if not all(math.isfinite(match.score) for match in matches):
                raise DecafError("the model answers with scores that are no numbers; train it again")
