"""The fast scorer: for one text at a time on one CPU thread, or for many on several."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from weakref import WeakKeyDictionary

import numpy as np
import torch
from scipy import sparse

from decaf.model import Model
from decaf.networks.graph import NOBODY
from decaf.packed import Floats, Ints, Overlay, Packed
from decaf.predictions import Predictions
from decaf.progress import progress
from decaf.scoring.arithmetic import Vectors, blank
from decaf.scoring.exact import CANDIDATES, averaged
from decaf.scoring.lanes import width
from decaf.scoring.meeting import WIDEST, rank_together
from decaf.scoring.nearest import Documents, Effort, Maker, Room, Search, encode, find
from decaf.scoring.ranking import answer, rank, rank_apart
from decaf.scoring.scorer import Changes, check_tokens

__all__ = ["FastScorer"]

_FEW = 1024  # documents up to which one thread answers, however many there are
_PART = 4096  # documents of one thread at a time: the more, the more meet at a cluster
_SCORES = 1 << 24  # of a part's documents, at most
_MANY = 16  # documents for which meeting at clusters pays
_COMPARED = 32  # documents compared with all clusters at a time
_LEAST, _LEAST_SHARE = 400, 128  # clusters that are looked at in full, or one in so many
_LEAST_OF_FEW, _FEW_CLUSTERS = 600, 4096  # the same where all others cost little
_MOST, _MOST_SHARE = 1024, 12  # the same where rough scores tell little
_SURE = np.float32(2.5)  # standard deviations by which a rough score may be wrong


class FastScorer:
    """Scores as the exact one does, but looks at a part of the clusters alone.

    `effort` is how many clusters are looked at in full: the more, the closer to the exact answer. If nothing is said,
    it is 400 (600 of up to 4,096 clusters) or one in 128, and more for a document that needs it, up to 1,024 or one in
    12; always twice as many as the model looks into.
    A scorer may be called from several threads at once; they do not wait for each other.
    """

    def __init__(
        self,
        model: Model,
        *,
        tail: float | None = None,
        effort: int | None = None,
        threads: int = 1,
        changes: Changes | None = None,
    ) -> None:
        self._model, self._tail = model, model.tail(tail)
        changes = changes or Changes.none(model)
        given = zip(model.packed, changes.overlays, strict=True)
        self._instances = [_Instance(packed, overlay, effort) for packed, overlay in given]
        self._kept, self._labels = np.append(changes.rows, -1), changes.labels  # -1 is none here too
        self._tokens = model.tokens
        if threads < 1:
            raise ValueError(f"threads begin at 1, not {threads}")
        self._threads = threads
        self._part = min(_PART, max(_MANY, _SCORES // max(instance.listed for instance in self._instances)))

    @property
    def labels(self) -> int:
        """How many labels there are to choose from."""
        return self._labels

    def top(self, documents: sparse.csr_array, top: int, *, tail: float | None = None) -> Predictions:
        """The most probable labels of each feature row, with their probabilities; leaning as said here or before."""
        at = self._tail if tail is None else self._model.tail(tail)
        check_tokens(documents, self._tokens)
        given, count = _documents(documents), documents.shape[0]
        if count <= min(_FEW, self._part):
            return Predictions(*self._top(given, top, at))
        rounds = -(-count // (self._part * self._threads))
        size = -(-count // (rounds * self._threads))  # all threads have the same to do
        parts = [given._replace(bounds=given.bounds[start : start + size + 1]) for start in range(0, count, size)]
        found = []
        with progress("predicting", count) as advance, ThreadPoolExecutor(self._threads) as pool:
            for answer in pool.map(lambda part: self._top(part, top, at), parts):
                found.append(answer)
                advance(len(answer[0]))
        ids, scores = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
        return Predictions(ids, scores)

    def clusters(self, document: sparse.csr_array) -> list[Ints]:
        """The clusters that one feature row looks into, by instance, in order."""
        return [instance.clusters(_documents(document)) for instance in self._instances]

    def nearest(self, instance: int, documents: sparse.csr_array) -> Ints:
        """The best cluster of each feature row, by one of the instances; -1 for none."""
        return self._instances[instance].nearest(_documents(documents))

    def _top(self, documents: Documents, top: int, tail: float) -> tuple[Ints, Floats]:
        """Labels [documents, top] and their chances."""
        if len(self._instances) == 1:
            labels, chances = self._instances[0].top(documents, top, tail)
            np.exp(chances, out=chances)
        else:
            found = [instance.top(documents, max(top, CANDIDATES), tail) for instance in self._instances]
            both = averaged([(torch.as_tensor(ids), torch.as_tensor(of)) for ids, of in found])
            labels, chances = (tensor[:, :top].numpy() for tensor in both)
        chances[labels < 0] = -np.inf
        return self._kept[labels], chances


class _Instance:
    """One instance, and room to work in for every thread."""

    def __init__(self, packed: Packed, changes: Overlay, effort: int | None) -> None:
        clusters = len(packed.clusters.bias)
        self._packed, self._changes, self._beam = packed, changes, min(packed.beam, clusters)
        self._near, self._far, self._search = _ready(packed)
        self._whole = packed.labels.weights.dtype != np.float32  # sums are of whole numbers
        both = (packed.labels, changes.added)
        self._meeting = self._whole and max(max(of.words.shape[1], of.cues.shape[1]) for of in both) <= WIDEST
        self.listed = max(self._beam * sum(int(np.diff(of.bounds).max()) for of in both), 1)  # labels, at most
        self._effort = _effort(clusters, self._beam, effort)
        self._asked = packed.shortlister() if packed.above or packed.searched else None  # not scanned
        self._blend = lru_cache(maxsize=64)(lambda tail: None if packed.curve is None else packed.curve.at(tail))
        self._rooms = threading.local()

    def clusters(self, document: Documents) -> Ints:
        """The clusters that a document looks into, in order."""
        found, _ = self._nearest(self._encoded(document, self._near))
        clusters: Ints = np.unique(found[found >= 0])
        return clusters

    def nearest(self, documents: Documents) -> Ints:
        """The best cluster of each document."""
        clusters, scores = self._nearest(self._encoded(documents, self._near))
        best: Ints = np.take_along_axis(clusters, scores.argmax(axis=1)[:, None], axis=1)[:, 0]
        return best

    def top(self, documents: Documents, top: int, tail: float) -> tuple[Ints, Floats]:
        """Labels [documents, top], -1 for none, and the logarithms of their chances."""
        packed, changes, count = self._packed, self._changes, len(documents.bounds) - 1
        blend = self._blend(tail)
        found = np.full((count, top), -1, dtype=np.int64)
        chances = np.full((count, top), -np.inf, dtype=np.float32)
        if blend is not None and self._asked is None and count < _MANY:
            near, far = (blank(count, len(packed.near.gate), whole=self._whole) for _ in range(2))
            search = (self._near, self._far, self._search, self._effort, self._beam)
            room = self._room(count)
            answer(documents, *search, packed.labels, changes, blend, near, far, room, found, chances)
            return found, chances
        near, far = self._encoded(documents, self._near), self._encoded(documents, self._far)
        clusters, of_cluster = self._nearest(near)
        if blend is None:
            of_cluster = of_cluster if packed.above else -np.logaddexp(np.float32(0), -of_cluster)
            rank_apart(documents, far, clusters, of_cluster, packed.labels, changes, found, chances)
            return found, chances
        listed = (documents, near, far, clusters, of_cluster, packed.labels, changes, blend)
        (rank_together if self._meeting and count >= _MANY else rank)(*listed, found, chances)
        return found, chances

    def _encoded(self, documents: Documents, maker: Maker) -> Vectors:
        made = blank(len(documents.bounds) - 1, len(maker.gate), whole=self._whole)
        encode(documents, maker, made)
        return made

    def _nearest(self, vectors: Vectors) -> tuple[Ints, Floats]:
        """The best clusters and their scores -> [documents, at most beam] each; -1 for none."""
        if self._asked is not None:
            found, of_found = self._asked.nearest(torch.as_tensor(vectors.floats(len(self._near.gate))), self._beam)
            return found.masked_fill(of_found <= NOBODY, -1).numpy(), of_found.numpy()
        count, search = len(vectors.values), self._search
        clusters = np.full((count, self._beam), -1, dtype=np.int64)
        scores = np.full(clusters.shape, -np.inf, dtype=np.float32)
        find(vectors, search, self._effort, self._room(min(count, _COMPARED)), clusters, scores)
        return clusters, scores

    def _room(self, count: int) -> Room:
        """Room to compare so many documents with all clusters, of this thread alone."""
        room: Room | None = getattr(self._rooms, "room", None)
        if room is None or count > len(room.steps):
            whole = np.zeros((count, width(len(self._search.rotation))), dtype=np.uint8)
            steps, spreads = (np.empty(count, dtype=np.float32) for _ in range(2))
            rough = np.empty((count, self._search.first.starts.size), dtype=np.float32)
            room = self._rooms.room = Room(whole, steps, spreads, rough)
        return Room(room.whole[:count], room.steps[:count], room.spreads[:count], room.rough[:count])


def _effort(clusters: int, beam: int, wanted: int | None) -> Effort:
    """How many clusters are looked at in full: as many as are wanted, or as a document needs."""
    if wanted is not None:
        return Effort(max(wanted, beam), max(wanted, beam), np.float32(0))
    least = max(2 * beam, _LEAST_OF_FEW if clusters <= _FEW_CLUSTERS else _LEAST, clusters // _LEAST_SHARE)
    return Effort(least, max(least, _MOST, clusters // _MOST_SHARE), _SURE)


_READY: WeakKeyDictionary[Packed, tuple[Maker, Maker, Search]] = WeakKeyDictionary()


def _ready(packed: Packed) -> tuple[Maker, Maker, Search]:
    """Encoders and clusters ready to be used, made once for an instance: every change of labels makes a new scorer."""
    if packed not in _READY:
        _READY[packed] = Maker.of(packed.near), Maker.of(packed.far), Search.of(packed.clusters)
    return _READY[packed]


def _documents(rows: sparse.csr_array) -> Documents:
    return Documents(rows.indptr.astype(np.int64), rows.indices.astype(np.uint32), rows.data.astype(np.float32))
