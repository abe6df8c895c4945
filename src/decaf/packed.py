"""Instances as they are stored and read by compiled loops: rows of few bits, labels in the order of their clusters.

All arrays are plain numpy. Those of a model folder are views of a memory-mapped file, and nothing is copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from decaf.networks import LEANING, Blend, FrozenEncoder, Instance, LabelTexts, Level, Parts, Ranker, Shortlister, Words

__all__ = [
    "MIDDLE",
    "Clusters",
    "Curve",
    "Encoder",
    "Labels",
    "Overlay",
    "Packed",
    "by_place",
    "narrowed",
    "precision_of",
    "quantised",
    "whole",
]

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

MIDDLE = 8  # the half of a byte that stands for nothing
_NARROW = ((1 << 16, 128), (1 << 62, 64))  # up to so many clusters, so many directions
_VECTORS = ("labels.weights", "labels.texts")  # of four or eight bits, or as they were
_ROWS = (
    *("near.table", "far.table", "clusters.weights"),
    *("labels.likeness", "labels.shares", "labels.cue_weights", "labels.matches"),
)  # of eight bits, or as they were
_TOGETHER = (({"int8"}, {"int4"}), ({"int8"}, {"int8"}), ({"float32"}, {"float32"}))  # rows, and vectors of labels
_PARTS = len(Parts._fields) - 1  # of a score


class Encoder(NamedTuple):
    """A document encoder; see `networks.encoder.FrozenEncoder`."""

    table: NDArray[Any]  # [tokens, dim]
    scales: Floats  # of the table's rows
    gate: Floats
    matrix: Floats
    bias: Floats
    unit: bool

    @classmethod
    def of(cls, encoder: FrozenEncoder, precision: str) -> Encoder:
        """The encoder with a table of this precision."""
        gate, matrix, bias = (_array(tensor) for tensor in encoder[1:4])
        return cls(*quantised(_array(encoder.table), precision), gate, matrix, bias, encoder.unit)

    def network(self) -> FrozenEncoder:
        """The encoder as a network."""
        table, gate, matrix, bias = (_tensor(array) for array in (whole(self.table, self.scales), *self[2:5]))
        return FrozenEncoder(table, gate, matrix, bias, self.unit)


class Clusters(NamedTuple):
    """Vectors of clusters, and the same along the few directions that tell most of them apart."""

    rotation: Floats  # the directions, [narrow, dim]
    first: NDArray[np.int8]  # [clusters, narrow]
    first_scales: Floats
    weights: NDArray[Any]  # [clusters, dim]
    scales: Floats
    bias: Floats

    @classmethod
    def of(cls, shortlister: Shortlister, precision: str) -> Clusters:
        """The clusters' vectors of this precision, and the directions in which they differ most."""
        weights, bias = _array(shortlister.weights), _array(shortlister.bias)
        rotation, first = narrowed(weights)
        return cls(rotation, *quantised(first, "int8"), *quantised(weights, precision), bias)


class Labels(NamedTuple):
    """All that is known of labels, in the order of their clusters. What is not there has no rows."""

    bounds: Ints  # where the labels of each cluster begin and the last ends, [clusters + 1]
    numbers: Ints
    weights: NDArray[Any]  # [labels, dim]
    weight_scales: Floats
    bias: Floats
    rarity: Floats
    texts: NDArray[Any]  # [labels, dim]
    text_scales: Floats
    words: NDArray[np.int32]  # tokens, [labels, width]
    likeness: NDArray[Any]  # [labels, width]
    likeness_scales: Floats
    shares: NDArray[Any]  # [labels, width]
    share_scales: Floats
    cues: NDArray[np.int32]  # tokens of the linear classifiers and of the labels' texts, [labels, cues]
    cue_weights: NDArray[Any]  # [labels, cues]
    cue_scales: Floats
    cue_bias: Floats
    matches: NDArray[Any]  # [labels, cues]
    match_scales: Floats

    def take(self, places: Ints, bounds: Ints, numbers: Ints) -> Labels:
        """The labels at these places, in clusters with these bounds, under other numbers."""
        rows: list[Any] = [array[places] if len(array) else array for array in self[2:]]
        return Labels(bounds, numbers, *rows)

    @classmethod
    def joined(cls, parts: Sequence[Labels], clusters: Ints, count: int, first: int) -> Labels:
        """Labels of several parts in the order of their clusters, of which there are so many.

        `clusters` are those of all labels, part by part; `first` is the number of the first of them.
        """
        order = np.argsort(clusters, kind="stable")
        bounds = np.searchsorted(clusters[order], np.arange(count + 1))
        columns = zip(*(part[2:] for part in parts), strict=True)
        rows: list[Any] = [array[order] if len(array) else array for array in map(np.concatenate, columns)]
        return cls(bounds.astype(np.int64), (first + order).astype(np.int64), *rows)


class Overlay(NamedTuple):
    """What was changed in the labels of an instance since it was trained."""

    added: Labels  # numbers go on behind the last one of the instance
    hidden: NDArray[np.bool_]  # by number; empty: none

    @classmethod
    def nothing(cls, labels: Labels) -> Overlay:
        """No change."""
        none = np.zeros(0, dtype=np.int64)
        return cls(labels.take(none, np.zeros_like(labels.bounds), none), np.zeros(0, dtype=np.bool_))


class Curve(NamedTuple):
    """What the parts of a score weigh from head to tail; see `networks.instance.Blend`."""

    tails: Floats
    weights: Floats
    chances: Floats

    def at(self, tail: float) -> Floats:
        """The weights, the leanings and the chances' weights at a place between head and tail, one after the other."""
        tails, of_parts, of_chances = (_tensor(array) for array in self)
        weights, chances = Blend.between(tails, of_parts, of_chances, tail)
        return np.array([*weights, *chances], dtype=np.float32)


@dataclass(frozen=True, eq=False)
class Packed:
    """One instance of a model."""

    near: Encoder  # of the shortlister
    far: Encoder  # of the ranker
    clusters: Clusters
    labels: Labels
    curve: Curve | None  # None: as in the paper, a label's chance is its cluster's times its own
    beam: int
    texts: LabelTexts | None = None  # see `networks.instance.Ranker`
    searched: bool = False  # clusters are found by a graph of neighbours
    above: tuple[Level, ...] = ()  # levels of the tree above the clusters
    near_texts: LabelTexts | None = None  # see `networks.instance.Shortlister`

    @classmethod
    def of(cls, instance: Instance, precision: str) -> Self:
        """The instance with rows of this precision, see `quantised`; only vectors of labels have four bits."""
        shortlister, ranker, blend = instance.shortlister, instance.ranker, instance.blend
        members = shortlister.members.cpu().numpy()
        numbers = members[members >= 0]
        bounds = np.concatenate([[0], np.cumsum((members >= 0).sum(axis=1))])

        of_rows = "float32" if precision == "float32" else "int8"
        of_vectors = of_rows if len(shortlister.weights.T) % 2 else precision  # two make a byte

        def vectors(tensor: Tensor | None) -> tuple[NDArray[Any], Floats]:
            return quantised(_NOTHING if tensor is None else _array(tensor)[numbers], of_vectors)

        def rows(tensor: Tensor | None) -> tuple[NDArray[Any], Floats]:
            return quantised(_NOTHING if tensor is None else _array(tensor)[numbers], of_rows)

        def tokens(tensor: Tensor | None) -> NDArray[np.int32]:
            return (_NOTHING if tensor is None else tensor.cpu().numpy()[numbers]).astype(np.int32)

        words = None if blend is None else blend.words
        labels = Labels(
            bounds.astype(np.int64),
            numbers.astype(np.int64),
            *vectors(ranker.weights),
            _array(ranker.bias)[numbers],
            np.zeros(0, dtype=np.float32) if blend is None else _array(blend.rarity)[numbers],
            *vectors(None if blend is None else blend.texts),
            tokens(None if words is None else words.tokens),
            *rows(None if words is None else words.weights),
            *rows(None if words is None else words.shares),
            tokens(None if words is None else words.cues),
            *rows(None if words is None else words.cue_weights),
            np.zeros(0, dtype=np.float32) if words is None else _array(words.cue_bias)[numbers],
            *rows(None if words is None else words.matches),
        )
        return cls(
            Encoder.of(shortlister.encoder, of_rows),
            Encoder.of(ranker.encoder, of_rows),
            Clusters.of(shortlister, of_rows),
            labels,
            None if blend is None else Curve(*(_array(t) for t in (blend.tails, blend.weights, blend.chances))),
            instance.beam,
            _on_cpu(ranker.texts),
            shortlister.searched,
            tuple(Level(level.weights.cpu(), level.bias.cpu()) for level in shortlister.above),
            _on_cpu(shortlister.texts),
        )

    def shortlister(self) -> Shortlister:
        """The shortlister as a network."""
        bounds, numbers = self.labels.bounds, self.labels.numbers
        sizes = np.diff(bounds)
        members = np.full((len(sizes), max(1, int(sizes.max(initial=0)))), -1, dtype=np.int64)
        members[np.arange(members.shape[1]) < sizes[:, None]] = numbers
        weights = _tensor(whole(self.clusters.weights, self.clusters.scales))
        given = (_tensor(self.clusters.bias), _tensor(members), self.above, self.searched, self.near_texts)
        return Shortlister(self.near.network(), weights, *given)

    def instance(self) -> Instance:
        """The instance as networks, of single precision."""
        labels, order = self.labels, np.argsort(self.labels.numbers)

        def rows(values: NDArray[Any], scales: Floats) -> Tensor:
            return _tensor(whole(values, scales)[order])

        weights = rows(labels.weights, labels.weight_scales)
        ranker = Ranker(self.far.network(), weights, _tensor(labels.bias[order]), self.texts)
        blend = None
        if self.curve is not None:
            words = None
            if len(labels.words):
                of_words = (rows(labels.likeness, labels.likeness_scales), rows(labels.shares, labels.share_scales))
                of_cues = (rows(labels.cue_weights, labels.cue_scales), _tensor(labels.cue_bias[order]))
                of_text = rows(labels.matches, labels.match_scales)
                words = Words(_tensor(labels.words[order]), *of_words, _tensor(labels.cues[order]), *of_cues, of_text)
            texts = rows(labels.texts, labels.text_scales) if len(labels.texts) else None
            tails, of_parts, chances = (_tensor(array) for array in self.curve)
            blend = Blend(tails, of_parts, chances, _tensor(labels.rarity[order]), texts, words)
        return Instance(self.shortlister(), ranker, self.beam, blend)

    def close_up(self, overlay: Overlay, clusters: Ints | None = None) -> tuple[Self, Ints]:
        """The instance with changes applied and the labels of these clusters alone, in order; None: of all.

        Clusters and labels are numbered anew; the second result says what the labels' numbers were.
        """
        count = len(self.clusters.bias)
        wanted = np.arange(count) if clusters is None else clusters
        own, of_own = _within(self.labels.bounds, wanted)
        if len(overlay.hidden):
            there = ~overlay.hidden[self.labels.numbers[own]]
            own, of_own = own[there], of_own[there]
        added, of_added = _within(overlay.added.bounds, wanted)
        none = np.zeros(0, dtype=np.int64)
        parts = [self.labels.take(own, none, none), overlay.added.take(added, none, none)]
        labels = Labels.joined(parts, np.concatenate([of_own, of_added]), len(wanted), 0)
        numbers = np.concatenate([self.labels.numbers[own], overlay.added.numbers[added]])
        made = replace(self, labels=labels, beam=min(self.beam, len(wanted)))
        if clusters is not None:
            vectors: list[Any] = [array[wanted] for array in self.clusters[1:]]
            made = replace(made, clusters=Clusters(self.clusters.rotation, *vectors))
        return made, numbers

    def place(self, overlay: Overlay, number: int) -> tuple[int, int]:
        """Where a label is, among those of the instance or those added, and in which cluster."""
        labels = self.labels if number < len(self.labels.numbers) else overlay.added
        (place,) = np.flatnonzero(labels.numbers == number)
        return int(place), int(np.searchsorted(labels.bounds, place, side="right")) - 1

    def of_tokens(self, tokens: Ints) -> Self:
        """The instance with these tokens alone, in order, numbered by their place; one more stands for all others."""

        def part(encoder: Encoder) -> Encoder:
            nothing = np.zeros((1, encoder.table.shape[1]), dtype=encoder.table.dtype)
            table = np.concatenate([encoder.table[tokens], nothing])
            return encoder._replace(table=table, scales=np.append(encoder.scales[tokens], np.float32(1)))

        def places(named: NDArray[np.int32]) -> NDArray[np.int32]:
            at = np.searchsorted(tokens, named)
            there = np.append(tokens, -1)[at] == named
            return np.where(there, at, len(tokens)).astype(np.int32)

        labels = self.labels._replace(words=places(self.labels.words), cues=places(self.labels.cues))
        return replace(self, near=part(self.near), far=part(self.far), labels=labels)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All arrays by name."""
        parts: dict[str, Any] = {"near": self.near, "far": self.far, "clusters": self.clusters}
        parts |= {"labels": self.labels, "curve": self.curve, "texts": self.texts, "near_texts": self.near_texts}
        parts |= {f"above.{number}": level for number, level in enumerate(self.above)}
        named = {
            f"{part}.{name}": np.asarray(array)
            for part, of in parts.items()
            if of is not None
            for name, array in of._asdict().items()
        }
        return named | {"beam": np.array([self.beam]), "searched": np.array([self.searched])}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The instance made of these arrays."""
        arrays = _as_of_now(arrays)

        def part(kind: type[Any], prefix: str) -> Any:  # noqa: ANN401 - one of the tuples above
            return kind(*(arrays[f"{prefix}.{name}"] for name in kind._fields))

        near, far = (part(Encoder, name)._replace(unit=bool(arrays[f"{name}.unit"])) for name in ("near", "far"))
        levels = sum(name.startswith("above.") and name.endswith(".weights") for name in arrays)
        above = (part(Level, f"above.{number}") for number in range(levels))

        def texts(prefix: str) -> LabelTexts | None:
            return LabelTexts(*map(_tensor, part(LabelTexts, prefix))) if f"{prefix}.factor" in arrays else None

        return cls(
            near,
            far,
            part(Clusters, "clusters"),
            part(Labels, "labels"),
            part(Curve, "curve") if "curve.tails" in arrays else None,
            int(arrays["beam"][0]),
            texts("texts"),
            bool(arrays["searched"][0]),
            tuple(Level(*map(_tensor, level)) for level in above),
            texts("near_texts"),
        )

    def check(self) -> None:
        """Refuse arrays that do not belong together: compiled loops look nothing up twice."""
        arrays, labels = self.arrays(), self.labels
        for name, (shape, kinds) in self._expected().items():
            if arrays[name].shape != shape or arrays[name].dtype not in kinds:
                raise ValueError(f"{name} is not of the model")
        kept, of_vectors = ({precision_of(arrays[name]) for name in names} for names in (_ROWS, _VECTORS))
        sizes = (*self.clusters.rotation.shape, len(self.far.table), len(labels.numbers))
        if (kept, of_vectors) not in _TOGETHER or min(sizes) < 1:
            raise ValueError("rows are of several kinds, or there are none")
        of_rows = () if self.searched else (*_ROWS, *_VECTORS)  # a graph of neighbours is made of numbers alone
        for name, array in arrays.items():
            if name not in of_rows and array.dtype == np.float32 and not np.isfinite(array).all():
                raise ValueError(f"{name} holds what is no number")
        if self.curve is not None and (np.diff(self.curve.tails, prepend=np.float32(-1)) <= 0).any():
            raise ValueError("places between head and tail are not in order")
        levels = [*(len(level.bias) for level in self.above), len(self.clusters.bias)]
        if min(levels) < 1 or any(below % above for above, below in pairwise(levels)):
            raise ValueError("levels of the tree do not fit")
        if self.beam < 1:
            raise ValueError("no cluster is looked into")
        if labels.bounds[0] != 0 or labels.bounds[-1] != len(labels.numbers) or (np.diff(labels.bounds) < 0).any():
            raise ValueError("clusters do not end where they should")
        among: list[tuple[NDArray[Any], int]] = [
            (labels.numbers, len(labels.numbers)),
            (labels.words, len(self.far.table)),
            (labels.cues, len(self.far.table)),
        ]
        if any(len(array) and not 0 <= int(array.min()) <= int(array.max()) < size for array, size in among):
            raise ValueError("labels or tokens are named that are not there")
        if len(np.unique(labels.numbers)) != len(labels.numbers):
            raise ValueError("a label is in two clusters")

    def _expected(self) -> dict[str, tuple[tuple[int, ...], tuple[Any, ...]]]:
        """The shape and the types that each array must have."""
        labels, floats, ints = self.labels, (np.float32,), (np.int64,)
        rows, vectors = (np.int8, np.float32), (np.uint8, np.int8, np.float32)
        wide, cues = labels.words.shape[-1], labels.cues.shape[-1]
        count, clusters, tokens = len(labels.numbers), len(self.clusters.bias), len(self.far.table)
        narrow, dim = self.clusters.rotation.shape
        halves = labels.weights.dtype == np.uint8
        across = dim if not halves else -1 if dim % 2 else dim // 2
        expected: dict[str, tuple[tuple[int, ...], tuple[Any, ...]]] = {
            "clusters.rotation": ((narrow, dim), floats),
            "clusters.first": ((clusters, narrow), (np.int8,)),
            "clusters.first_scales": ((clusters,), floats),
            "clusters.weights": ((clusters, dim), rows),
            "clusters.scales": ((clusters,), floats),
            "clusters.bias": ((clusters,), floats),
            "labels.bounds": ((clusters + 1,), ints),
            "labels.numbers": ((count,), ints),
            "labels.weights": ((count, across), vectors),
            "labels.weight_scales": ((count,), floats),
            "labels.bias": ((count,), floats),
            "labels.rarity": ((0 if self.curve is None else count,), floats),
        }
        for name in ("near", "far"):
            expected |= {f"{name}.table": ((tokens, dim), rows), f"{name}.scales": ((tokens,), floats)}
            expected |= {f"{name}.gate": ((dim,), floats), f"{name}.bias": ((dim,), floats)}
            expected[f"{name}.matrix"] = ((dim, dim), floats)
        many = count if len(labels.texts) else 0
        expected |= {"labels.texts": ((many, across if many else 1), vectors), "labels.text_scales": ((many,), floats)}
        many = count if len(labels.words) else 0
        expected |= {"labels.words": ((many, wide), (np.int32,)), "labels.cues": ((many, cues), (np.int32,))}
        expected |= {"labels.cue_weights": ((many, cues), rows), "labels.cue_scales": ((many,), floats)}
        expected |= {"labels.matches": ((many, cues), rows), "labels.match_scales": ((many,), floats)}
        expected["labels.cue_bias"] = ((many,), floats)
        for name, scales in (("likeness", "likeness_scales"), ("shares", "share_scales")):
            expected |= {f"labels.{name}": ((many, wide), rows), f"labels.{scales}": ((many,), floats)}
        if self.curve is not None:
            points = max(1, len(self.curve.tails))
            expected |= {"curve.tails": ((points,), floats), "curve.weights": ((points, _PARTS + len(LEANING)), floats)}
            expected["curve.chances"] = ((points, 3), floats)
        for prefix, texts in (("texts", self.texts), ("near_texts", self.near_texts)):
            if texts is not None:
                expected |= {f"{prefix}.{name}": ((dim,), floats) for name in ("scale", "bias", "factor")}
                expected |= {f"{prefix}.weight": ((dim, dim), floats), f"{prefix}.unit": ((1,), (np.bool_,))}
        for number, level in enumerate(self.above):
            nodes = len(level.bias)
            expected[f"above.{number}.weights"] = ((nodes, dim), floats)
            expected[f"above.{number}.bias"] = ((nodes,), floats)
        return expected


def _as_of_now(arrays: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
    """Arrays of older formats as those of today.

    Format 5 knew nothing of how a text matches that of a label; up to format 7 the classifier's weight was one, and
    nothing leaned on rarity.
    """
    added = {}
    if "labels.matches" not in arrays and "labels.cue_weights" in arrays:
        added["labels.matches"] = np.zeros_like(arrays["labels.cue_weights"])
        added["labels.match_scales"] = np.ones_like(arrays["labels.cue_scales"])
    weights = arrays.get("curve.weights")
    if weights is not None and weights.ndim == 2 and weights.shape[1] == _PARTS - (2 if added else 1):
        whole = np.pad(weights, ((0, 0), (1, _PARTS + len(LEANING) - 1 - weights.shape[1])))
        whole[:, 0] = 1
        added["curve.weights"] = whole
    return {**arrays, **added}


def _within(bounds: Ints, clusters: Ints) -> tuple[Ints, Ints]:
    """The places of the labels of these clusters, and which of the clusters each is in."""
    sizes = bounds[clusters + 1] - bounds[clusters]
    at = np.repeat(np.arange(len(clusters)), sizes)
    behind = np.arange(len(at)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return bounds[clusters][at] + behind, at


_NOTHING: Floats = np.zeros((0, 1), dtype=np.float32)


def narrowed(weights: Floats) -> tuple[Floats, Floats]:
    """The directions in which vectors differ most, and the vectors along them.

    The more vectors there are, the fewer directions: looking at all of them must stay cheap.
    """
    narrow = next(size for most, size in _NARROW if len(weights) <= most)
    _, directions = np.linalg.eigh(weights.T.astype(np.float64) @ weights)
    rotation = np.ascontiguousarray(directions[:, ::-1].T[:narrow], dtype=np.float32)
    return rotation, weights @ rotation.T


def precision_of(rows: NDArray[Any]) -> str:
    """In what rows are kept."""
    return {"uint8": "int4", "int8": "int8", "float32": "float32"}[rows.dtype.name]


def quantised(rows: Floats, precision: str) -> tuple[NDArray[Any], Floats]:
    """Rows as whole numbers of eight or four bits and a scale for each; or as they are, with scales of one."""
    if precision == "float32":
        return np.ascontiguousarray(rows, dtype=np.float32), np.ones(len(rows), dtype=np.float32)
    if precision == "int4":
        return _in_halves(rows)
    scales = np.maximum(np.abs(rows).max(axis=1, initial=0.0), 1e-30) / 127
    return np.rint(rows / scales[:, None]).astype(np.int8), scales.astype(np.float32)


def _in_halves(rows: Floats) -> tuple[NDArray[np.uint8], Floats]:
    """Two numbers a byte, the first in its lower half."""
    scales = np.maximum(np.abs(rows).max(axis=1, initial=0.0), 1e-30) / (MIDDLE - 1)
    values = (np.rint(rows / scales[:, None]) + MIDDLE).astype(np.uint8)
    values = np.pad(values, ((0, 0), (0, rows.shape[1] % 2)), constant_values=MIDDLE)
    return values[:, ::2] | values[:, 1::2] << 4, scales.astype(np.float32)


def by_place(rows: sparse.csr_array, tokens: NDArray[Any]) -> sparse.csr_array:
    """Rows of features by the place of their tokens among these; see `Packed.of_tokens`."""
    shape = (rows.shape[0], len(tokens) + 1)
    return sparse.csr_array((rows.data, np.searchsorted(tokens, rows.indices), rows.indptr), shape=shape)


def whole(values: NDArray[Any], scales: Floats) -> Floats:
    """What rows and their scales are worth."""
    if values.dtype == np.float32:
        return values
    if values.dtype == np.uint8:
        values = np.stack([values & 15, values >> 4], axis=2).reshape(len(values), -1).astype(np.int8) - MIDDLE
    worth: Floats = values * scales[:, None]
    return worth


def _on_cpu(texts: LabelTexts | None) -> LabelTexts | None:
    return None if texts is None else LabelTexts(*(tensor.cpu() for tensor in texts))


def _array(tensor: Tensor) -> Floats:
    array: Floats = np.ascontiguousarray(tensor.detach().cpu().numpy(), dtype=np.float32)
    return array


def _tensor(array: NDArray[Any]) -> Tensor:
    return torch.as_tensor(np.ascontiguousarray(array))
