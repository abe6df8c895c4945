"""Tests of the modules, and the tiny dataset that they and the tests of training learn from."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
from scipy import sparse

from decaf import Dataset
from decaf.config import recipe
from decaf.datasets import Items, Part
from decaf.datasets.parts import no_pairs

QUICK_SETTINGS = ["model.dim=16", "ensemble.instances=1"] + [
    f"{stage}.{setting}"
    for stage in ("tokens", "shortlister", "ranker")
    for setting in ("epochs=5", "batch=32", "rate=0.05", "dropout=0.2")
]
QUICK = recipe("paper").with_settings(QUICK_SETTINGS)


def truth_of(rows: Sequence[Sequence[int]], labels: int) -> sparse.csr_array:
    """Lists of labels -> the matrix, all weights 1."""
    dense = np.zeros((len(rows), labels), dtype=np.float32)
    for row, columns in enumerate(rows):
        dense[row, list(columns)] = 1
    return sparse.csr_array(dense)


def dataset_of(
    documents: Sequence[tuple[str, Sequence[int]]],
    labels: Sequence[str],
    test: Sequence[tuple[str, Sequence[int]]] = (),
    *,
    ids: Sequence[str] | None = None,
) -> Dataset:
    """A dataset of (text, labels) documents."""

    def part(rows: Sequence[tuple[str, Sequence[int]]]) -> Part:
        truth = truth_of([columns for _, columns in rows], len(labels))
        return Part(Items(len(rows), None, [text for text, _ in rows]), truth, no_pairs())

    return Dataset("own", part(documents), part(test or documents), Items(len(labels), ids, list(labels)))


def topics(*, labels: int = 24, train: int = 240, test: int = 120, spare: Sequence[int] = ()) -> Dataset:
    """Each topic has four secret words that its name does not say; a document holds two of them, and noise.

    Topics in `spare` have test documents but none to train on.
    """
    rng = random.Random(7)
    secret = [["".join(rng.choices("bcdfghjklmnpqrstvwxz", k=5)) for _ in range(4)] for _ in range(labels)]

    def part(count: int, chosen: Sequence[int]) -> list[tuple[str, Sequence[int]]]:
        found = []
        for row in range(count):
            topic = chosen[row % len(chosen)]
            words = [*rng.sample(secret[topic], 2), rng.choice(["the", "of", "and"])]
            found.append((" ".join(words), [topic]))
        return found

    trained = [topic for topic in range(labels) if topic not in spare]
    names = [f"topic {chr(97 + topic // 26)}{chr(97 + topic % 26)}" for topic in range(labels)]
    ids = [f"L{topic}" for topic in range(labels)]
    return dataset_of(part(train, trained), names, part(test, range(labels)), ids=ids)


def random_rows(rows: int, columns: int, *, seed: int, most: int = 6, least: int = 1) -> sparse.csr_array:
    """Rows of between `least` and `most` random entries."""
    rng = np.random.default_rng(seed)
    dense = np.zeros((rows, columns), dtype=np.float32)
    for row in dense:
        at = rng.choice(columns, size=rng.integers(least, min(most, columns) + 1), replace=False)
        row[at] = rng.random(len(at)) + 0.1
    return sparse.csr_array(dense)
