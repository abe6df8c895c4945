"""The fast scorer: for one text at a time on one CPU thread, or for many on several."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from decaf.errors import ConfigError
from decaf.model import Model
from decaf.networks import FrozenEncoder, Instance, Shortlister
from decaf.networks.graph import NOBODY
from decaf.predictions import Predictions
from decaf.progress import progress
from decaf.scoring.exact import CANDIDATES, averaged
from decaf.scoring.kernels import Clusters, Documents, Encoder, Labels, encode, rank, rank_apart, scan
from decaf.scoring.scorer import check_tokens

__all__ = ["FastScorer"]

_DOCUMENTS = 256  # of one thread at a time
_NARROW = 128  # directions along which all clusters are looked at
_NOTHING: NDArray[np.float32] = np.zeros((0, 1), dtype=np.float32)


class FastScorer:
    """Scores as the exact one does, but looks at a part of the clusters alone, and at weights of eight bits.

    `effort` is how many clusters are looked at in full: the more, the closer to the exact answer.
    A scorer may be called from several threads at once; they do not wait for each other.
    """

    def __init__(
        self,
        model: Model,
        *,
        tail: float | None = None,
        effort: int = 600,
        precision: str = "int8",
        threads: int = 1,
    ) -> None:
        if precision not in ("int8", "float32"):
            raise ConfigError(f"there is no precision {precision!r}; choose int8 or float32")
        at = model.tail(tail)
        self._instances = [_Instance(instance, at, effort, precision) for instance in model.instances]
        self._kept, self._labels = model.kept, model.labels.count
        self._tokens = len(model.instances[0].ranker.encoder.table)
        self._threads = threads

    @property
    def labels(self) -> int:
        """How many labels there are to choose from."""
        return self._labels

    def top(self, documents: sparse.csr_array, top: int) -> Predictions:
        """The most probable labels of each feature row, with their probabilities."""
        check_tokens(documents, self._tokens)
        bounds = documents.indptr.astype(np.int64)
        tokens, values = documents.indices.astype(np.int64), documents.data.astype(np.float32)
        count = documents.shape[0]
        if count <= _DOCUMENTS:
            return Predictions(*self._top(Documents(bounds, tokens, values), top))
        cuts = range(0, count, _DOCUMENTS)
        parts = [Documents(bounds[start : start + _DOCUMENTS + 1], tokens, values) for start in cuts]
        found = []
        with progress("predicting", count) as advance, ThreadPoolExecutor(self._threads) as pool:
            for answer in pool.map(self._top, parts, [top] * len(parts)):
                found.append(answer)
                advance(len(answer[0]))
        ids, scores = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
        return Predictions(ids, scores)

    def _top(self, documents: Documents, top: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Labels [documents, top] and their chances."""
        if len(self._instances) == 1:
            labels, chances = self._instances[0].top(documents, top)
            chances = np.exp(chances)
        else:
            found = [instance.top(documents, max(top, CANDIDATES)) for instance in self._instances]
            both = averaged([(torch.as_tensor(ids), torch.as_tensor(of)) for ids, of in found])
            labels, chances = (tensor[:, :top].numpy() for tensor in both)
        there = (labels >= 0) & (np.diff(documents.bounds) > 0)[:, None]  # an empty text has no labels
        return np.where(there, self._kept[labels], -1), np.where(there, chances, np.float32(-np.inf))


@dataclass(frozen=True, eq=False)
class _Quantised:
    """Rows of weights: what each is worth is the scale of its row times the value."""

    values: NDArray[Any]  # float32 or int8, [rows, width]
    scales: NDArray[np.float32]  # [rows]

    @classmethod
    def of(cls, rows: Tensor | NDArray[np.float32], precision: str) -> _Quantised:
        array = np.ascontiguousarray(rows, dtype=np.float32)
        if precision == "float32":
            return cls(array, np.ones(len(array), dtype=np.float32))
        scales = np.maximum(np.abs(array).max(axis=1, initial=0.0), 1e-30) / 127
        return cls(np.rint(array / scales[:, None]).astype(np.int8), scales.astype(np.float32))


def _encoder(encoder: FrozenEncoder, precision: str) -> Encoder:
    table = _Quantised.of(encoder.table, precision)
    gate, matrix, bias = (np.ascontiguousarray(array, dtype=np.float32) for array in encoder[1:4])
    return Encoder(table.values, table.scales, gate, matrix, bias, encoder.unit)


def _encoded(documents: Documents, encoder: Encoder) -> NDArray[np.float32]:
    out = np.empty((len(documents.bounds) - 1, encoder.matrix.shape[0]), dtype=np.float32)
    encode(documents, encoder, out)
    return out


class _Clusters:
    """A search for the best clusters: all along the first directions, the best in full."""

    def __init__(self, shortlister: Shortlister, effort: int, precision: str) -> None:
        self._shortlister, self._effort = shortlister, effort
        self.paths = bool(shortlister.above)
        self._searched = None if shortlister.above or shortlister.searched else _turned(shortlister, precision)

    def nearest(self, vectors: NDArray[np.float32], beam: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The best clusters and their scores -> [documents, at most beam] each; -1 for none."""
        if self._searched is None:
            found, of_found = self._shortlister.nearest(torch.as_tensor(vectors), beam)
            return found.masked_fill(of_found <= NOBODY, -1).numpy(), of_found.numpy()
        clusters = np.full((len(vectors), min(beam, len(self._searched.bias))), -1, dtype=np.int64)
        scores = np.full(clusters.shape, -np.inf, dtype=np.float32)
        scan(vectors, self._searched, max(self._effort, beam), clusters, scores)
        return clusters, scores


def _turned(shortlister: Shortlister, precision: str) -> Clusters:
    """The clusters' vectors, turned so that most of what they are lies in the first directions."""
    weights, bias = shortlister.weights.numpy(), shortlister.bias.numpy().astype(np.float32)
    _, directions = np.linalg.eigh(weights.T.astype(np.float64) @ weights)
    rotation = np.ascontiguousarray(directions[:, ::-1].T, dtype=np.float32)
    turned = weights @ rotation.T
    first = np.pad(turned[:, :_NARROW], ((0, -len(bias) % 4), (0, 0)))
    rough, whole = (_Quantised.of(rows, precision) for rows in (first, turned))
    numbers = np.arange(len(bias))
    return Clusters(rotation, rough.values, rough.scales, whole.values, whole.scales, bias, numbers)


class _Instance:
    """One instance as the compiled loops want it: labels in the order of their clusters."""

    def __init__(self, instance: Instance, tail: float, effort: int, precision: str) -> None:
        shortlister, ranker, blend = instance.shortlister, instance.ranker, instance.blend
        self._near, self._far = _encoder(shortlister.encoder, precision), _encoder(ranker.encoder, precision)
        self._clusters, self._beam = _Clusters(shortlister, effort, precision), instance.beam
        members = shortlister.members.numpy()
        numbers = members[members >= 0]
        bounds = np.concatenate([[0], np.cumsum((members >= 0).sum(axis=1))])
        weights = _Quantised.of(ranker.weights[numbers], precision)
        bias = ranker.bias.numpy()[numbers].astype(np.float32)
        texts = likeness = shares = _Quantised(_NOTHING, _NOTHING[:, 0])
        words, self._blend = _NOTHING.astype(np.int32), None
        if blend is not None:
            (*weighed, of_rarity), chances = blend.at(tail)
            self._blend = np.array([*weighed, *chances], dtype=np.float32)
            bias = bias + np.float32(of_rarity) * blend.rarity.numpy()[numbers]
            if blend.texts is not None:
                texts = _Quantised.of(blend.texts[numbers], precision)
            if blend.words is not None:
                words = np.ascontiguousarray(blend.words.tokens[numbers], dtype=np.int32)
                likeness = _Quantised.of(blend.words.weights[numbers], precision)
                shares = _Quantised.of(blend.words.shares[numbers], precision)
        quantised = [(part.values, part.scales) for part in (weights, texts, likeness, shares)]
        of_weights, of_texts, of_likeness, of_shares = quantised
        self._labels = Labels(bounds, numbers, *of_weights, bias, *of_texts, words, *of_likeness, *of_shares)
        self._vocabulary = len(ranker.encoder.table) if len(words) else 0
        self._rooms = threading.local()

    def top(self, documents: Documents, top: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Labels [documents, top], -1 for none, and the logarithms of their chances."""
        near, far = _encoded(documents, self._near), _encoded(documents, self._far)
        clusters, of_cluster = self._clusters.nearest(near, self._beam)
        found = np.full((len(near), top), -1, dtype=np.int64)
        chances = np.full((len(near), top), -np.inf, dtype=np.float32)
        if self._blend is None:
            of_cluster = of_cluster if self._clusters.paths else -np.logaddexp(np.float32(0), -of_cluster)
            rank_apart(far, clusters, of_cluster, self._labels, found, chances)
        else:
            about = (self._labels, self._blend, self._room())
            rank(documents, near, far, clusters, of_cluster, *about, found, chances)
        return found, chances

    def _room(self) -> NDArray[np.float32]:
        """A place for each token, of this thread alone."""
        if not hasattr(self._rooms, "weighs"):
            self._rooms.weighs = np.zeros(self._vocabulary, dtype=np.float32)
        room: NDArray[np.float32] = self._rooms.weighs
        return room
