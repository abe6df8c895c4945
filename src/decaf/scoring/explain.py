"""Explanations: what the score of a label is made of, and which tokens carried it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy import sparse
from torch import Tensor
from torch.nn.functional import embedding_bag

from decaf.errors import ModelError
from decaf.features import unit_values
from decaf.model import Model
from decaf.networks import Instance, Parts, Rows, blended, weighed
from decaf.packed import Ints, Overlay, Packed, by_place
from decaf.predictions import Match
from decaf.scoring.fast import FastScorer
from decaf.scoring.scorer import Changes

__all__ = ["Explainer", "Explanation"]

_CPU = torch.device("cpu")


@dataclass(frozen=True)
class Explanation:
    """Why a label was predicted. Numbers are in units of the score, whose logistic is nearly the chance."""

    label: int  # a row of the model's labels
    score: float  # its chance
    parts: dict[str, float]  # by how much each puts the label above the mean of those looked at
    tokens: dict[str, float]  # by how much the score falls without each token of the text


@dataclass(frozen=True)
class _Sight:
    """One instance as far as one text sees it."""

    instance: Instance  # of the labels in its shortlist, and of the tokens that matter
    row: sparse.csr_array  # the text, by these tokens
    listed: Tensor  # the shortlisted labels, by their number here
    asked: Tensor  # the labels to explain, too
    texts: sparse.csr_array | None  # of all labels here; None where a model does not know the whole texts


class Explainer:
    """Takes scores apart; made for looking at one text, not for speed.

    `text_of` says what the text of a label is, by its row.
    """

    def __init__(self, model: Model, scorer: FastScorer, changes: Changes, text_of: Callable[[int], str]) -> None:
        if model.features is None:
            raise ModelError("this model was trained on ready features and knows no words; it cannot explain itself")
        self._model, self._features = model, model.features
        self._scorer, self._changes, self._text_of = scorer, changes, text_of
        self._names = self._features.vocabulary

    @torch.inference_mode()
    def explain(self, text: str, matches: Sequence[Match], *, tail: float | None = None) -> list[Explanation]:
        """Why these labels were predicted for a text."""
        row = self._features.transform([text])
        if not matches or not row.nnz:
            return []
        at = self._model.tail(tail)
        numbers = self._numbers([match.label for match in matches])
        sights = self._sights(row, numbers)
        parts = [_parts(sight, at) for sight in sights]
        falls = torch.stack([_falls(sight, at) for sight in sights]).mean(dim=0)
        named = [self._names[token].removeprefix("pair:").removeprefix("word:") for token in row.indices]
        return [
            Explanation(
                match.label,
                match.score,
                {name: float(np.mean([of[name][at] for of in parts])) for name in parts[0]},
                {name: float(falls[token, at]) for token, name in enumerate(named)},
            )
            for at, match in enumerate(matches)
        ]

    def _numbers(self, rows: list[int]) -> Ints:
        """The numbers of labels; of one that was changed the later counts."""
        hidden = np.flatnonzero(self._changes.overlays[0].hidden)
        found = [np.setdiff1d(np.flatnonzero(self._changes.rows == row), hidden) for row in rows]
        if not all(len(numbers) for numbers in found):
            raise ValueError("a label that was not trained or is hidden has no score to explain")
        return np.array([numbers[-1] for numbers in found])

    def _sights(self, row: sparse.csr_array, numbers: Ints) -> list[_Sight]:
        given = zip(self._model.packed, self._changes.overlays, self._scorer.clusters(row), strict=True)
        return [self._sight(packed, overlay, looked, row, numbers) for packed, overlay, looked in given]

    def _sight(self, packed: Packed, overlay: Overlay, looked: Ints, row: sparse.csr_array, numbers: Ints) -> _Sight:
        own = [packed.place(overlay, int(number))[1] for number in numbers]
        clusters = np.unique(np.concatenate([looked, own])).astype(np.int64)
        # The nodes of a tree are known by the numbers of their clusters, so that all of them stay.
        near, known = packed.close_up(overlay, None if packed.above else clusters)
        kept = np.arange(len(packed.clusters.bias)) if packed.above else clusters
        of_label = np.repeat(kept, np.diff(near.labels.bounds))
        listed = near.labels.numbers[np.isin(of_label, looked)]
        tokens, texts = np.unique(row.indices), None
        if packed.texts is not None and not self._model.config.features.content:
            texts = self._features.transform([self._text_of(int(self._changes.rows[number])) for number in known])
            tokens = np.unique(np.concatenate([tokens, texts.indices]))
        asked = np.array([np.flatnonzero(known == number)[0] for number in numbers])
        return _Sight(
            near.of_tokens(tokens.astype(np.int64)).instance(),
            by_place(row, tokens),
            torch.as_tensor(listed),
            torch.as_tensor(asked),
            None if texts is None else by_place(texts, tokens),
        )


def _parts(sight: _Sight, tail: float) -> dict[str, list[float]]:
    """What each part adds to the labels that are asked for, against its mean over the shortlist."""
    documents, instance = _rows(sight.row), sight.instance
    both = instance.parts_of(*documents, torch.cat([sight.asked, sight.listed])[None])
    values = Parts(*(column[0] for column in both))
    own, classifier = _of_text(sight, values.labels), values.classifier
    named = {"shortlister": values.cluster}
    if instance.blend is not None:
        weights = instance.blend.at(tail)[0]
        own = None if own is None else weighed(values._replace(classifier=own), weights)["classifier"]
        adds = weighed(values, weights)
        classifier = adds["classifier"]
        words = adds["likeness"] + adds["share"] + adds["linear"] + adds["match"]
        named = {"text likeness": adds["text"], "shortlister": adds["cluster"]}
        named |= {"words": words, "rarity": adds["rarity"]}
    if own is not None:
        named = {"label text": own, "refinement": classifier - own} | named
    else:
        named = {"refinement" if instance.ranker.texts is None else "classifier": classifier} | named
    count = len(sight.asked)
    return {name: (value[:count] - value[count:].mean()).tolist() for name, value in named.items()}


def _of_text(sight: _Sight, labels: Tensor) -> Tensor | None:
    """What the labels' texts add to their classifiers' scores."""
    ranker = sight.instance.ranker
    if ranker.texts is None or sight.texts is None:
        return None
    tokens, starts, weights = _rows(sparse.csr_array(sight.texts[labels.numpy()]))
    bags = embedding_bag(tokens, ranker.encoder.table, starts, mode="sum", per_sample_weights=weights)
    return ranker.texts(bags) @ ranker.encoder(*_rows(sight.row))[0]


def _falls(sight: _Sight, tail: float) -> Tensor:
    """How much lower the scores of labels are without each token -> [tokens, labels]."""
    whole, *without = (_scores(sight, row, tail) for row in (sight.row, *_without_each(sight.row)))
    return torch.stack([whole - other for other in without])


def _scores(sight: _Sight, row: sparse.csr_array, tail: float) -> Tensor:
    instance = sight.instance
    parts = instance.parts_of(*_rows(row), sight.asked[None])
    if instance.blend is None:
        return instance.chances(parts, tail)[0]
    return blended(parts, instance.blend.at(tail)[0])[0]


def _without_each(row: sparse.csr_array) -> list[sparse.csr_array]:
    """The row without each of its tokens in turn, of unit length."""
    made = []
    for at in range(row.nnz):
        indices, data = np.delete(row.indices, at), np.delete(row.data, at)
        one = sparse.csr_array((data, indices, [0, len(data)]), shape=row.shape)
        one.data = unit_values(one, one.data)
        made.append(one)
    return made


def _rows(row: sparse.csr_array) -> tuple[Tensor, Tensor, Tensor]:
    rows = Rows.of(row, _CPU)
    return rows.columns, rows.starts, rows.values
