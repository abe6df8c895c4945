"""Instances as they are stored and read by compiled loops: rows of eight bits, labels in the order of their clusters.

All arrays are plain numpy. Those of a model folder are views of a memory-mapped file, and nothing is copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from decaf.networks import Blend, FrozenEncoder, Instance, LabelTexts, Level, Parts, Ranker, Shortlister, Words

__all__ = ["Clusters", "Curve", "Encoder", "Labels", "Packed", "narrowed", "quantised"]

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

_NARROW = ((1 << 16, 128), (1 << 62, 64))  # up to so many clusters, so many directions
_PARTS = len(Parts._fields) - 2  # of a score, beside labels and classifier


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
        table, gate, matrix, bias = (_tensor(array) for array in (_whole(self.table, self.scales), *self[2:5]))
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


class Curve(NamedTuple):
    """What the parts of a score weigh from head to tail; see `networks.instance.Blend`."""

    tails: Floats
    weights: Floats
    chances: Floats

    def at(self, tail: float) -> Floats:
        """The weights and the chances' at a place between head and tail."""
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

    @classmethod
    def of(cls, instance: Instance, precision: str) -> Self:
        """The instance with rows of this precision: int8, with a scale each, or float32."""
        shortlister, ranker, blend = instance.shortlister, instance.ranker, instance.blend
        members = shortlister.members.cpu().numpy()
        numbers = members[members >= 0]
        bounds = np.concatenate([[0], np.cumsum((members >= 0).sum(axis=1))])

        def rows(tensor: Tensor | None) -> tuple[NDArray[Any], Floats]:
            return quantised(_NOTHING if tensor is None else _array(tensor)[numbers], precision)

        words = None if blend is None else blend.words
        labels = Labels(
            bounds.astype(np.int64),
            numbers.astype(np.int64),
            *rows(ranker.weights),
            _array(ranker.bias)[numbers],
            np.zeros(0, dtype=np.float32) if blend is None else _array(blend.rarity)[numbers],
            *rows(None if blend is None else blend.texts),
            (_NOTHING if words is None else words.tokens.cpu().numpy()[numbers]).astype(np.int32),
            *rows(None if words is None else words.weights),
            *rows(None if words is None else words.shares),
        )
        return cls(
            Encoder.of(shortlister.encoder, precision),
            Encoder.of(ranker.encoder, precision),
            Clusters.of(shortlister, precision),
            labels,
            None if blend is None else Curve(*(_array(t) for t in (blend.tails, blend.weights, blend.chances))),
            instance.beam,
            None if ranker.texts is None else LabelTexts(*(tensor.cpu() for tensor in ranker.texts)),
            shortlister.searched,
            tuple(Level(level.weights.cpu(), level.bias.cpu()) for level in shortlister.above),
        )

    def shortlister(self) -> Shortlister:
        """The shortlister as a network."""
        bounds, numbers = self.labels.bounds, self.labels.numbers
        sizes = np.diff(bounds)
        members = np.full((len(sizes), max(1, int(sizes.max(initial=0)))), -1, dtype=np.int64)
        members[np.arange(members.shape[1]) < sizes[:, None]] = numbers
        weights = _tensor(_whole(self.clusters.weights, self.clusters.scales))
        given = (_tensor(self.clusters.bias), _tensor(members), self.above, self.searched)
        return Shortlister(self.near.network(), weights, *given)

    def instance(self) -> Instance:
        """The instance as networks, of single precision."""
        labels, order = self.labels, np.argsort(self.labels.numbers)

        def rows(values: NDArray[Any], scales: Floats) -> Tensor:
            return _tensor(_whole(values, scales)[order])

        weights = rows(labels.weights, labels.weight_scales)
        ranker = Ranker(self.far.network(), weights, _tensor(labels.bias[order]), self.texts)
        blend = None
        if self.curve is not None:
            words = None
            if len(labels.words):
                of_words = (rows(labels.likeness, labels.likeness_scales), rows(labels.shares, labels.share_scales))
                words = Words(_tensor(labels.words[order]), *of_words)
            texts = rows(labels.texts, labels.text_scales) if len(labels.texts) else None
            tails, of_parts, chances = (_tensor(array) for array in self.curve)
            blend = Blend(tails, of_parts, chances, _tensor(labels.rarity[order]), texts, words)
        return Instance(self.shortlister(), ranker, self.beam, blend)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All arrays by name."""
        parts: dict[str, Any] = {"near": self.near, "far": self.far, "clusters": self.clusters}
        parts |= {"labels": self.labels, "curve": self.curve, "texts": self.texts}
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

        def part(kind: type[Any], prefix: str) -> Any:  # noqa: ANN401 - one of the tuples above
            return kind(*(arrays[f"{prefix}.{name}"] for name in kind._fields))

        near, far = (part(Encoder, name)._replace(unit=bool(arrays[f"{name}.unit"])) for name in ("near", "far"))
        levels = sum(name.startswith("above.") and name.endswith(".weights") for name in arrays)
        above = (part(Level, f"above.{number}") for number in range(levels))
        return cls(
            near,
            far,
            part(Clusters, "clusters"),
            part(Labels, "labels"),
            part(Curve, "curve") if "curve.tails" in arrays else None,
            int(arrays["beam"][0]),
            LabelTexts(*map(_tensor, part(LabelTexts, "texts"))) if "texts.factor" in arrays else None,
            bool(arrays["searched"][0]),
            tuple(Level(*map(_tensor, level)) for level in above),
        )

    def check(self) -> None:
        """Refuse arrays that do not belong together: compiled loops look nothing up twice."""
        arrays, labels = self.arrays(), self.labels
        for name, (shape, kinds) in self._expected().items():
            if arrays[name].shape != shape or arrays[name].dtype not in kinds:
                raise ValueError(f"{name} is not of the model")
        sizes = [*(len(level.bias) for level in self.above), len(self.clusters.bias)]
        if min(sizes) < 1 or any(below % above for above, below in pairwise(sizes)):
            raise ValueError("levels of the tree do not fit")
        if self.beam < 1:
            raise ValueError("no cluster is looked into")
        if labels.bounds[0] != 0 or labels.bounds[-1] != len(labels.numbers) or (np.diff(labels.bounds) < 0).any():
            raise ValueError("clusters do not end where they should")
        among: list[tuple[NDArray[Any], int]] = [
            (labels.numbers, len(labels.numbers)),
            (labels.words, len(self.far.table)),
        ]
        if any(len(array) and not 0 <= int(array.min()) <= int(array.max()) < size for array, size in among):
            raise ValueError("labels or tokens are named that are not there")
        if len(np.unique(labels.numbers)) != len(labels.numbers):
            raise ValueError("a label is in two clusters")

    def _expected(self) -> dict[str, tuple[tuple[int, ...], tuple[Any, ...]]]:
        """The shape and the types that each array must have."""
        labels, floats, ints = self.labels, (np.float32,), (np.int64,)
        rows, wide = (np.int8, np.float32), labels.words.shape[-1]
        count, clusters, tokens = len(labels.numbers), len(self.clusters.bias), len(self.far.table)
        narrow, dim = self.clusters.rotation.shape
        expected: dict[str, tuple[tuple[int, ...], tuple[Any, ...]]] = {
            "clusters.rotation": ((narrow, dim), floats),
            "clusters.first": ((clusters, narrow), (np.int8,)),
            "clusters.first_scales": ((clusters,), floats),
            "clusters.weights": ((clusters, dim), rows),
            "clusters.scales": ((clusters,), floats),
            "clusters.bias": ((clusters,), floats),
            "labels.bounds": ((clusters + 1,), ints),
            "labels.numbers": ((count,), ints),
            "labels.weights": ((count, dim), rows),
            "labels.weight_scales": ((count,), floats),
            "labels.bias": ((count,), floats),
            "labels.rarity": ((0 if self.curve is None else count,), floats),
        }
        for name in ("near", "far"):
            expected |= {f"{name}.table": ((tokens, dim), rows), f"{name}.scales": ((tokens,), floats)}
            expected |= {f"{name}.gate": ((dim,), floats), f"{name}.bias": ((dim,), floats)}
            expected[f"{name}.matrix"] = ((dim, dim), floats)
        many = count if len(labels.texts) else 0
        expected |= {"labels.texts": ((many, dim if many else 1), rows), "labels.text_scales": ((many,), floats)}
        many = count if len(labels.words) else 0
        expected["labels.words"] = ((many, wide), (np.int32,))
        for name, scales in (("likeness", "likeness_scales"), ("shares", "share_scales")):
            expected |= {f"labels.{name}": ((many, wide), rows), f"labels.{scales}": ((many,), floats)}
        if self.curve is not None:
            points = max(1, len(self.curve.tails))
            expected |= {"curve.tails": ((points,), floats), "curve.weights": ((points, _PARTS), floats)}
            expected["curve.chances"] = ((points, 3), floats)
        if self.texts is not None:
            expected |= {f"texts.{name}": ((dim,), floats) for name in ("scale", "bias", "factor")}
            expected |= {"texts.weight": ((dim, dim), floats), "texts.unit": ((1,), (np.bool_,))}
        for number, level in enumerate(self.above):
            nodes = len(level.bias)
            expected[f"above.{number}.weights"] = ((nodes, dim), floats)
            expected[f"above.{number}.bias"] = ((nodes,), floats)
        return expected


_NOTHING: Floats = np.zeros((0, 1), dtype=np.float32)


def narrowed(weights: Floats) -> tuple[Floats, Floats]:
    """The directions in which vectors differ most, and the vectors along them.

    The more vectors there are, the fewer directions: looking at all of them must stay cheap.
    """
    narrow = next(size for most, size in _NARROW if len(weights) <= most)
    _, directions = np.linalg.eigh(weights.T.astype(np.float64) @ weights)
    rotation = np.ascontiguousarray(directions[:, ::-1].T[:narrow], dtype=np.float32)
    return rotation, weights @ rotation.T


def quantised(rows: Floats, precision: str) -> tuple[NDArray[Any], Floats]:
    """Rows as whole numbers of eight bits and a scale for each; or as they are, with scales of one."""
    if precision == "float32":
        return np.ascontiguousarray(rows, dtype=np.float32), np.ones(len(rows), dtype=np.float32)
    scales = np.maximum(np.abs(rows).max(axis=1, initial=0.0), 1e-30) / 127
    return np.rint(rows / scales[:, None]).astype(np.int8), scales.astype(np.float32)


def _whole(values: NDArray[Any], scales: Floats) -> Floats:
    """What rows and their scales are worth."""
    return values if values.dtype == np.float32 else values * scales[:, None]


def _array(tensor: Tensor) -> Floats:
    array: Floats = np.ascontiguousarray(tensor.detach().cpu().numpy(), dtype=np.float32)
    return array


def _tensor(array: NDArray[Any]) -> Tensor:
    return torch.as_tensor(np.ascontiguousarray(array))
