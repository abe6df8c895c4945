"""Sharing documents out: training against test by the paper's rule, and validation out of training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import sparse

from decaf.config import SplitSettings
from decaf.datasets.pairs import reverse_pairs, with_pair_filters
from decaf.datasets.parts import Items, Part, Parts, no_pairs
from decaf.errors import DataError

__all__ = ["pool", "split_parts", "validation_split"]


def split_parts(parts: Parts, settings: SplitSettings) -> Parts:
    """Share all documents out anew; labels without a document on both sides go, and documents without a label."""
    documents = pool(parts)
    rng = np.random.default_rng(settings.seed)
    order = rng.permutation(documents.documents.count)
    cut = round(settings.train * len(order))
    rows_train, rows_test = np.sort(order[:cut]), np.sort(order[cut:])
    kept = np.flatnonzero(_frequency(documents.truth[rows_train]) & _frequency(documents.truth[rows_test]))
    if not len(kept):
        raise DataError("no label has a document on both sides of the split; more documents or fewer labels are needed")
    sides = []
    for rows in (rows_train, rows_test):
        truth = documents.truth[rows][:, kept]
        sides.append(documents.take(rows[np.diff(truth.indptr) > 0]).take_labels(kept))
    labels = parts.labels.take(kept)
    names = labels if parts.labels.ids is not None else replace(labels, ids=None)
    train, test = (_named(side, documents.documents) for side in sides)
    made = with_pair_filters(Parts(train, test, names))
    return Parts(replace(sides[0], filters=made.train.filters), replace(sides[1], filters=made.test.filters), labels)


def _named(part: Part, pool: Items) -> Part:
    """Row numbers that `take` made into ids are no names."""
    return part if pool.ids is not None else replace(part, documents=replace(part.documents, ids=None))


def validation_split(part: Part, settings: SplitSettings) -> tuple[Part, Part]:
    """The training documents without, and with only, the share kept for validation.

    As for test documents, the reverse of a training pair counts for nothing where filters say who is who.
    """
    rng = np.random.default_rng(settings.seed)
    order = rng.permutation(part.documents.count)
    size = round(settings.validation * len(order))
    kept, held_out = part.take(np.sort(order[size:])), part.take(np.sort(order[:size]))
    reverse = reverse_pairs(held_out.filters, held_out.documents.count, kept.truth, kept.filters)
    return kept, replace(held_out, filters=np.unique(np.concatenate([held_out.filters, reverse]), axis=0))


def pool(parts: Parts) -> Part:
    """All documents of both parts as one, without filters."""
    train, test = parts.train.documents, parts.test.documents
    if not test.count:
        return Part(train, parts.train.truth, no_pairs())
    ids = [*(train.ids or []), *(test.ids or [])] if train.ids is not None and test.ids is not None else None
    if ids is not None and len(set(ids)) != len(ids):
        raise DataError("a document id is in training and in test; give each document an id of its own to split anew")

    def join(left: object, right: object) -> list[str] | None:
        return [*left, *right] if isinstance(left, list | tuple) and isinstance(right, list | tuple) else None

    features = None
    if train.features is not None and test.features is not None:
        features = sparse.csr_array(sparse.vstack([train.features, test.features], format="csr"))
    documents = Items(train.count + test.count, ids, join(train.texts, test.texts), _contents(train, test), features)
    truth = sparse.csr_array(sparse.vstack([parts.train.truth, parts.test.truth], format="csr"))
    return Part(documents, truth, no_pairs())


def _contents(train: Items, test: Items) -> list[str] | None:
    if train.contents is None and test.contents is None:
        return None
    return [*(train.contents or [""] * train.count), *(test.contents or [""] * test.count)]


def _frequency(truth: sparse.csr_array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.bincount(truth.indices, minlength=truth.shape[1]) > 0
