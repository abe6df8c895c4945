"""Live labels: those that were added, changed or hidden after training, and how a model scores them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor
from torch.nn.functional import embedding_bag

from decaf.errors import ModelError
from decaf.model import Column, Model
from decaf.networks import LabelTexts, Parts, Rows
from decaf.networks.words import LEAST_SHARE, with_texts
from decaf.packed import Encoder, Floats, Ints, Labels, Overlay, Packed, by_place, precision_of, quantised, whole
from decaf.scoring.fast import FastScorer
from decaf.scoring.scorer import Changes
from decaf.stores import Change

__all__ = ["LabelView", "Live"]

_SAMPLE = 512  # trained labels that new ones are made after
_CLUSTERS = 16  # in which the neighbours of a label are looked for
_REMEMBERED = 1 << 16  # ids whose rows were looked up
_CPU = torch.device("cpu")


class _Added(NamedTuple):
    """A label whose text was written after training, ready to be scored."""

    text: str
    labels: tuple[Labels, ...]  # one row, for each instance
    clusters: tuple[int, ...]  # that it is in, for each instance


class Live:
    """A model with changes of its labels applied. It does not change; `updated` makes another one.

    A label that was never trained is scored by its text alone, as labels that were hardly ever seen in training are.
    One that was trained and has another text now keeps what it learned from documents.
    """

    labels: LabelView
    _made: dict[str, _Added]  # by id
    _maker: _Maker

    def __init__(self, model: Model, changes: Sequence[Change] = (), before: Live | None = None) -> None:
        self.model = model
        self._maker = _Maker(model) if before is None else before._maker
        names = _Names(model) if before is None else before.labels.names
        made = {} if before is None else before._made
        changed = {change.id: (names.row(change.id), change.text) for change in changes}
        hidden = {row for row, text in changed.values() if row is not None and text is None}
        texts = {
            label: text
            for label, (row, text) in changed.items()
            if text is not None and (row is None or not names.trained(row) or text != names.text(row))
        }
        wanted = [label for label, text in texts.items() if label not in made or made[label].text != text]
        fresh = self._maker.made([texts[label] for label in wanted], [changed[label][0] for label in wanted])
        made = made | dict(zip(wanted, fresh, strict=True))
        self._made = {label: made[label] for label in texts}  # in the order of the changes, whatever was before
        self.labels = LabelView(self, names, {label: (changed[label][0], texts[label]) for label in texts}, hidden)

    def updated(self, changes: Sequence[Change]) -> Live:
        """The same model with these changes in place of those before; what was made for them is made once."""
        return Live(self.model, changes, self)

    @cached_property
    def changes(self) -> Changes:
        """What scorers need to know."""
        if not self.labels.changed:
            return Changes.none(self.model)
        scored = [(self.labels.row(label), made) for label, made in self._made.items() if made.labels]
        kept, rows = self.model.kept, np.array([row for row, _ in scored], dtype=np.int64)
        out_of_sight = np.union1d(np.array(sorted(self.labels.hidden_rows), dtype=np.int64), rows)
        overlays = []
        for number, packed in enumerate(self.model.packed):
            parts = [Overlay.nothing(packed.labels).added, *(made.labels[number] for _, made in scored)]
            clusters = np.array([made.clusters[number] for _, made in scored], dtype=np.int64)
            added = Labels.joined(parts, clusters, len(packed.clusters.bias), len(kept))
            overlays.append(Overlay(added, np.isin(kept, out_of_sight)))
        return Changes(tuple(overlays), np.concatenate([kept, rows]), self.labels.count)

    def knows(self, text: str) -> bool:
        """Whether a label of this text could ever be predicted."""
        return self.model.features is not None and self.model.features.transform([text]).nnz > 0


class _Names:
    """The ids and texts of a model's own labels."""

    def __init__(self, model: Model) -> None:
        self._model, self._items, self._frequency = model, model.labels, model.frequency
        self.count = model.labels.count
        self.row = lru_cache(_REMEMBERED)(self._row)  # all changes are looked up again after each

    @cached_property
    def _ids(self) -> pa.ChunkedArray | None:
        return _column(self._items.ids)

    @cached_property
    def _texts(self) -> pa.ChunkedArray | None:
        return _column(self._items.texts)

    def _row(self, label: str) -> int | None:
        """The row of an id."""
        if self._ids is None:
            known = label.isascii() and label.isdecimal() and str(int(label)) == label and int(label) < self.count
            return int(label) if known else None
        row = pc.index(self._ids, label).as_py()
        return None if row < 0 else int(row)

    def id(self, row: int) -> str:
        return self._items.id(row)

    def text(self, row: int) -> str:
        return self._items.text(row)

    def trained(self, row: int) -> bool:
        return self._model.number(row) is not None

    def frequency(self, row: int) -> int:
        return 0 if self._frequency is None else int(self._frequency[row])

    def having(self, words: Sequence[str]) -> Ints:
        """Rows whose text has all these words in it, in any case; or whose id is one of them."""
        found = np.ones(self.count, dtype=bool)
        for word in words:
            one = np.zeros(self.count, dtype=bool)
            if self._texts is not None:
                one |= pc.match_substring(self._texts, word, ignore_case=True).to_numpy()
            if self._ids is not None:
                one |= pc.equal(self._ids, word).to_numpy()
            elif (row := self.row(word)) is not None:
                one[row] = True
            found &= one
        return np.flatnonzero(found)


def _column(values: Sequence[str] | None) -> pa.ChunkedArray | None:
    if values is None or isinstance(values, Column):
        return None if values is None else values.values
    return pa.chunked_array([pa.array(list(values), pa.large_string())])


class LabelView:
    """All labels of a model and those added to it: what they are called, and which are near to one."""

    def __init__(self, live: Live, names: _Names, changed: dict[str, tuple[int | None, str]], hidden: set[int]) -> None:
        self.names, self.hidden_rows = names, hidden
        self._live = live
        new = [label for label, (row, _) in changed.items() if row is None]
        self._new = {label: names.count + at for at, label in enumerate(new)}
        self._ids = {row: label for label, row in self._new.items()}
        self._texts = {self._new[label] if row is None else row: text for label, (row, text) in changed.items()}

    @property
    def count(self) -> int:
        """How many labels there are, hidden ones too."""
        return self.names.count + len(self._new)

    @property
    def added(self) -> int:
        """How many were never trained."""
        return len(self._new)

    @property
    def changed(self) -> bool:
        """Whether anything is not as it was trained."""
        return bool(self._texts or self.hidden_rows)

    @property
    def hidden_count(self) -> int:
        """How many are hidden."""
        return len(self.hidden_rows)

    def row(self, label: str) -> int:
        """The row of an id that is there."""
        row = self.find(label)
        if row is None:
            raise KeyError(label)
        return row

    def find(self, label: str) -> int | None:
        """The row of an id, or None."""
        return self._new[label] if label in self._new else self.names.row(label)

    def is_own(self, label: str, text: str) -> bool:
        """Whether the model was trained with this label and this text."""
        row = self.names.row(label)
        return row is not None and self.names.trained(row) and self.names.text(row) == text

    def id(self, row: int) -> str:
        """The user's name for a label."""
        return self._ids[row] if row in self._ids else self.names.id(row)

    def text(self, row: int) -> str:
        """The text of a label as it is now."""
        return self._texts[row] if row in self._texts else self.names.text(row)

    def frequency(self, row: int) -> int:
        """Training documents of a label."""
        return self.names.frequency(row) if row < self.names.count else 0

    def trained(self, row: int) -> bool:
        """Whether a label is the model's own."""
        return row < self.names.count

    def live(self, row: int) -> bool:
        """Whether a label was added, or has another text than in training."""
        return row in self._texts

    def hidden(self, row: int) -> bool:
        """Whether a label is never predicted."""
        return row in self.hidden_rows

    def search(self, words: str, *, offset: int = 0, limit: int = 20, live: bool = False) -> tuple[int, list[int]]:
        """How many labels have all these words in their text, or one as their id, and some of them, as rows."""
        wanted = words.split()
        if not wanted and not live:
            return self.count, list(range(self.count)[offset : offset + limit])
        changed = {*self._texts, *self.hidden_rows} if live else set(self._texts)
        found = {row for row in changed if self._has(row, wanted)}
        if not live:
            found |= set(self.names.having(wanted).tolist()) - changed
        return len(found), sorted(found)[offset : offset + limit]

    def _has(self, row: int, words: Sequence[str]) -> bool:
        text, label = self.text(row).casefold(), self.id(row)
        return all(word.casefold() in text or word == label for word in words)

    def neighbours(self, row: int, top: int = 10) -> list[tuple[int, float]]:
        """The labels most like one, and their cosines: by text where a model has that, or by what was learned."""
        changes = self._live.changes
        (numbers,) = np.nonzero(changes.rows == row)
        if not len(numbers):
            return []
        packed, overlay, number = self._live.model.packed[0], changes.overlays[0], int(numbers[-1])
        place, cluster = packed.place(overlay, number)
        labels = packed.labels if number < len(packed.labels.numbers) else overlay.added
        none = np.zeros(0, dtype=np.int64)
        (own,) = _directions(labels.take(np.array([place]), none, none))
        near, known = packed.close_up(overlay, _alike(packed, cluster))
        likeness = _directions(near.labels) @ own
        rows = changes.rows[known[near.labels.numbers]]
        order = np.argsort(-likeness, kind="stable")
        return [(int(rows[at]), float(likeness[at])) for at in order if rows[at] != row][:top]


def _directions(labels: Labels) -> Floats:
    """Vectors of unit length: of labels' texts, or else of their classifiers."""
    texts = len(labels.texts) > 0
    vectors = whole(labels.texts, labels.text_scales) if texts else whole(labels.weights, labels.weight_scales)
    unit: Floats = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return unit


def _alike(packed: Packed, cluster: int) -> Ints:
    """The clusters most like one, and itself, in order."""
    search = packed.clusters
    products = search.first.astype(np.float32) @ search.first[cluster].astype(np.float32) * search.first_scales
    products[cluster] = np.inf
    best = np.argpartition(-products, min(_CLUSTERS, len(products)) - 1)[:_CLUSTERS]
    clusters: Ints = np.sort(best).astype(np.int64)
    return clusters


@dataclass(frozen=True)
class _Typical:
    """What a label that was hardly ever seen in training scores for its own text, part by part."""

    factor: float  # of the label text's part of the classifier, to be all of it
    bias: float
    rarity: float
    share: float
    linear: float
    linear_bias: float


class _Maker:
    """Makes labels out of texts."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def made(self, texts: Sequence[str], rows: Sequence[int | None]) -> list[_Added]:
        """Labels of these texts; those that were trained, by their row, with what they have learned."""
        if not texts:
            return []
        if self._model.features is None:
            raise ModelError("this model was trained on ready features and knows no words; labels cannot be added")
        features = self._model.features.transform(list(texts))
        empty = np.diff(features.indptr) == 0
        given = [None if row is None else self._model.number(row) for row in rows]
        of_instances = [self._of_instance(at, features, given) for at in range(len(self._model.packed))]
        return [
            _Added(text, (), ())
            if empty[at]
            else _Added(
                text,
                tuple(labels[at] for labels, _ in of_instances),
                tuple(int(clusters[at]) for _, clusters in of_instances),
            )
            for at, text in enumerate(texts)
        ]

    def _of_instance(
        self, at: int, features: sparse.csr_array, numbers: Sequence[int | None]
    ) -> tuple[list[Labels], Ints]:
        """Labels as one instance stores them, one by one, and their clusters."""
        packed, typical = self._model.packed[at], self._typical[at]
        vectors = _text_part(packed, features)
        texts = _texts(packed.near_texts, packed.near, features) if len(packed.labels.texts) else None
        clusters = self._scorer.nearest(at, features)
        made = [
            _label(packed, features, row, typical, vectors[row], None if texts is None else texts[row])
            for row in range(features.shape[0])
        ]
        for row, number in enumerate(numbers):
            if number is not None:
                text = sparse.csr_array(features[[row]])
                made[row], clusters[row] = self._changed(packed, number, text, vectors[row], made[row])
        return made, clusters

    def _changed(
        self, packed: Packed, number: int, new: sparse.csr_array, text_part: Floats, made: Labels
    ) -> tuple[Labels, int]:
        """A label that was trained, with another text: what it learned from documents stays."""
        place, cluster = packed.place(Overlay.nothing(packed.labels), number)
        none = np.zeros(0, dtype=np.int64)
        old = packed.labels.take(np.array([place]), none, none)
        weights = whole(old.weights, old.weight_scales)
        if packed.texts is not None and self._model.features is not None:
            text = self._model.labels.text(int(self._model.kept[number]))
            weights = weights + text_part - _text_part(packed, self._model.features.transform([text]))
        rows, scales = quantised(weights, precision_of(old.weights))
        old = old._replace(weights=rows, weight_scales=scales, texts=made.texts, text_scales=made.text_scales)
        if len(old.cues):
            learned = whole(old.cue_weights, old.cue_scales)
            cues, in_classifier, in_text = with_texts(old.cues, learned, new, old.cues.shape[1])
            cue_weights, cue_scales = quantised(in_classifier, precision_of(old.cue_weights))
            matches, match_scales = quantised(in_text, precision_of(old.matches))
            old = old._replace(cues=cues, cue_weights=cue_weights, cue_scales=cue_scales)
            old = old._replace(matches=matches, match_scales=match_scales)
        return old, cluster

    @cached_property
    def _scorer(self) -> FastScorer:
        return FastScorer(self._model)

    @cached_property
    def _typical(self) -> list[_Typical]:
        """Of each instance, by the labels that have the fewest training documents."""
        model, features = self._model, self._model.features
        assert features is not None  # noqa: S101 - the caller has looked
        frequency = np.zeros(len(model.kept)) if model.frequency is None else model.frequency[model.kept]
        numbers = np.argsort(frequency, kind="stable")[:_SAMPLE]
        texts = features.transform([model.labels.text(int(model.kept[number])) for number in numbers])
        filled = np.diff(texts.indptr) > 0
        return [_typical(packed, numbers[filled], sparse.csr_array(texts[filled])) for packed in model.packed]


def _typical(packed: Packed, numbers: Ints, texts: sparse.csr_array) -> _Typical:
    """What these labels score for their own texts, in the mean."""
    nothing = Overlay.nothing(packed.labels)
    if not len(numbers):
        return _Typical(1.0, 0.0, 0.0, LEAST_SHARE, 0.0, 0.0)
    clusters = np.unique([packed.place(nothing, int(number))[1] for number in numbers])
    near, known = packed.close_up(nothing, None if packed.above else clusters)
    tokens = np.unique(texts.indices).astype(np.int64)
    instance = near.of_tokens(tokens).instance()
    labels = torch.as_tensor([int(np.flatnonzero(known == number)[0]) for number in numbers])
    rows = Rows.of(by_place(texts, tokens), _CPU)
    parts: Parts = instance.parts_of(rows.columns, rows.starts, rows.values, labels[:, None])
    bias = instance.ranker.bias[labels]
    far = instance.ranker.encoder(rows.columns, rows.starts, rows.values).numpy()
    of_text = float((_text_part(packed, texts) * far).sum(axis=1).mean())
    whole = float((parts.classifier[:, 0] - bias).mean())
    blend = instance.blend
    linear_bias = 0.0 if blend is None or blend.words is None else float(blend.words.cue_bias[labels].mean())
    return _Typical(
        factor=whole / of_text if of_text > 0 else 1.0,
        bias=float(bias.mean()),
        rarity=0.0 if blend is None else float(parts.rarity.max()),
        share=max(0.0, float(parts.share.exp().mean()) - LEAST_SHARE),
        linear=float(parts.linear.mean()),
        linear_bias=linear_bias,
    )


def _label(
    packed: Packed, features: sparse.csr_array, row: int, typical: _Typical, text_part: Floats, text: Floats | None
) -> Labels:
    """A label as it is stored: one that answers to its own text as typical ones do."""
    labels = packed.labels

    def rows(values: Floats | None, like: NDArray[Any]) -> tuple[NDArray[Any], Floats]:
        return quantised(np.zeros((0, 1), np.float32) if values is None else values[None], precision_of(like))

    span = slice(features.indptr[row], features.indptr[row + 1])
    tokens, values = features.indices[span], features.data[span]

    def heaviest(width: int) -> tuple[NDArray[np.int32], Floats]:
        order = np.argsort(-np.abs(values), kind="stable")[:width]
        padded = np.zeros((2, width))
        padded[0, : len(order)], padded[1, : len(order)] = tokens[order], values[order]
        weights = padded[1] / max(float(np.linalg.norm(padded[1])), 1e-12)
        return padded[:1].astype(np.int32), weights.astype(np.float32)

    none = np.zeros((0, 1), np.int32), None
    words, own = heaviest(labels.words.shape[1]) if len(labels.words) else none
    cues, own_cues = heaviest(labels.cues.shape[1]) if len(labels.cues) else none
    reach = np.float32(typical.linear - typical.linear_bias)
    return Labels(
        np.zeros(0, np.int64),
        np.zeros(0, np.int64),
        *rows(np.float32(typical.factor) * text_part, labels.weights),
        np.array([typical.bias], np.float32),
        np.array([typical.rarity] if len(labels.rarity) else [], np.float32),
        *rows(text, labels.texts),
        words,
        *rows(own, labels.likeness),
        *rows(None if own is None else np.float32(typical.share) * own, labels.shares),
        cues,
        *rows(None if own_cues is None else reach * own_cues, labels.cue_weights),
        np.array([typical.linear_bias] if len(labels.cues) else [], np.float32),
        *rows(own_cues, labels.matches),
    )


def _text_part(packed: Packed, features: sparse.csr_array) -> Floats:
    """What label texts make of classifiers: their own part of it, or what comes nearest -> [texts, dim]."""
    if packed.texts is not None:
        return _texts(packed.texts, packed.far, features)
    return _texts(packed.near_texts, packed.near, features)


def _texts(made: LabelTexts | None, encoder: Encoder, features: sparse.csr_array) -> Floats:
    """Label texts as vectors -> [texts, dim]; zeros where a model has not learned any."""
    if made is None:
        return np.zeros((features.shape[0], encoder.table.shape[1]), dtype=np.float32)
    tokens = np.unique(features.indices)
    table = torch.as_tensor(whole(encoder.table[tokens], encoder.scales[tokens]))
    places = torch.as_tensor(np.searchsorted(tokens, features.indices))
    starts, weights = torch.as_tensor(features.indptr[:-1].astype(np.int64)), torch.as_tensor(features.data)
    bags: Tensor = embedding_bag(places, table, starts, mode="sum", per_sample_weights=weights)
    # One by one: a product of matrices gives a row other last digits in other company, and labels are made once.
    return np.concatenate([made(bag[None]).numpy() for bag in bags])
