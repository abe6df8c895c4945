"""Explanations: what the score of a label is made of, and which tokens carried it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor
from torch.nn.functional import embedding_bag

from decaf.errors import ModelError
from decaf.features import Features, unit_values
from decaf.model import Model
from decaf.networks import Instance, Rows, blended
from decaf.predictions import Match

__all__ = ["Explainer", "Explanation"]

_CPU = torch.device("cpu")


@dataclass(frozen=True)
class Explanation:
    """Why a label was predicted. Numbers are in units of the score, whose logistic is nearly the chance."""

    label: int  # a row of the model's labels
    score: float  # its chance
    parts: dict[str, float]  # by how much each puts the label above the mean of those looked at
    tokens: dict[str, float]  # by how much the score falls without each token of the text


class Explainer:
    """Takes scores apart; made for looking at one text, not for speed."""

    def __init__(self, model: Model, *, tail: float | None = None) -> None:
        if model.features is None:
            raise ModelError("this model was trained on ready features and knows no words; it cannot explain itself")
        self._model, self._features, self._tail = model, model.features, model.tail(tail)
        self._names = self._features.vocabulary

    @torch.inference_mode()
    def explain(self, text: str, matches: Sequence[Match]) -> list[Explanation]:
        """Why these labels were predicted for a text."""
        row = self._features.transform([text])
        if not matches or not row.nnz:
            return []
        labels = torch.as_tensor(self._places([match.label for match in matches]))
        instances = self._model.instances
        parts = [self._parts(instance, row, labels) for instance in instances]
        falls = torch.stack([self._falls(instance, row, labels) for instance in instances]).mean(dim=0)
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

    def _places(self, labels: list[int]) -> NDArray[np.int64]:
        """Where labels stand among those that were trained."""
        kept = self._model.kept
        places = np.searchsorted(kept, labels)
        if any(at == len(kept) or kept[at] != label for at, label in zip(places, labels, strict=True)):
            raise ValueError("a label that was not trained has no score to explain")
        return places

    def _parts(self, instance: Instance, row: sparse.csr_array, labels: Tensor) -> dict[str, list[float]]:
        """What each part adds to these labels, against its mean over the shortlist."""
        documents = _rows(row)
        listed = instance.parts(*documents)
        there = listed.labels[0][listed.labels[0] >= 0]
        both = instance.parts_of(*documents, torch.cat([labels, there])[None])
        values = dict(zip(both._fields, (column[0] for column in both), strict=True))
        own = self._of_text(instance, documents, values["labels"])
        if own is not None:
            named = {"label text": own, "refinement": values["classifier"] - own}
        else:
            named = {"refinement" if instance.ranker.texts is None else "classifier": values["classifier"]}
        named["shortlister"] = values["cluster"]
        if instance.blend is not None:
            weights = dict(zip(both._fields[2:], instance.blend.at(self._tail)[0], strict=True))
            weighed = {name: weight * values[name] for name, weight in weights.items()}
            named |= {"text likeness": weighed["text"], "shortlister": weighed["cluster"]}
            named |= {"words": weighed["likeness"] + weighed["share"], "rarity": weighed["rarity"]}
        count = len(labels)
        return {name: (value[:count] - value[count:].mean()).tolist() for name, value in named.items()}

    def _of_text(self, instance: Instance, documents: tuple[Tensor, Tensor, Tensor], labels: Tensor) -> Tensor | None:
        """What the labels' texts add to their classifiers' scores; None where a model does not know the whole texts."""
        ranker = instance.ranker
        if ranker.texts is None or self._model.config.features.content:
            return None
        items = self._model.labels
        bags = _bags(self._features, [items.text(int(self._model.kept[at])) for at in labels], ranker.encoder.table)
        return ranker.texts(bags) @ ranker.encoder(*documents)[0]

    def _falls(self, instance: Instance, row: sparse.csr_array, labels: Tensor) -> Tensor:
        """How much lower the scores of labels are without each token -> [tokens, labels]."""
        whole, *without = (self._scores(instance, given, labels) for given in (row, *_without_each(row)))
        return torch.stack([whole - other for other in without])

    def _scores(self, instance: Instance, row: sparse.csr_array, labels: Tensor) -> Tensor:
        parts = instance.parts_of(*_rows(row), labels[None])
        if instance.blend is None:
            return instance.chances(parts, self._tail)[0]
        return blended(parts, instance.blend.at(self._tail)[0])[0]


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


def _bags(features: Features, texts: list[str], table: Tensor) -> Tensor:
    """Bag embeddings of texts -> [texts, dim]."""
    rows = Rows.of(features.transform(texts), _CPU)
    return embedding_bag(rows.columns, table, rows.starts, mode="sum", per_sample_weights=rows.values)
