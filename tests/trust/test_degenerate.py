"""Data at the edges: both recipes train on them, and answer as one would."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
from modules import dataset_of
from numpy.typing import NDArray
from scipy import sparse

import decaf
from decaf import Dataset, Model, Predictions, Predictor
from decaf.config import RECIPES
from decaf.datasets import Items, Part
from decaf.datasets.parts import no_pairs

WIDE = 100_000
FRUIT = ["red apple", "green pear", "yellow banana", "blue plum"]
SCRIPTS = [
    *(
        "红色 苹果",
        "зелёная груша",
        "κίτρινη μπανάνα",
        "دراق طازج",
        "नीला बेर",
        "빨간 사과",
        "みかん ジュース",
        "תפוז מתוק",
    ),
    *("🍎 🥧 📱", "👩‍🚀 🚀", "naïve café", "ﬁne ofﬁce", "İstanbul ıssız", "e\u0301te\u0301 brûlée"),
]


# A few documents are one step of the paper's batches; so few steps teach nothing.
TINY = {
    "paper": [
        f"{stage}.{what}"
        for stage in ("tokens", "shortlister", "ranker")
        for what in ("batch=4", "epochs=30", "dropout=0.1")
    ]
}


class Case(NamedTuple):
    """Documents with their labels, label texts, and which labels each of some texts should have first."""

    documents: Sequence[tuple[str, Sequence[int]]]
    labels: Sequence[str]
    expected: dict[str, set[int]]


def own(labels: Sequence[str]) -> list[tuple[str, Sequence[int]]]:
    """A document for each label: its own text."""
    return [(text, [label]) for label, text in enumerate(labels)]


CASES: dict[str, Callable[[], Case]] = {
    "one label": lambda: Case([("red apple", [0]), ("apple pie", [0])], ["fruit"], {"red apple": {0}, "pie": {0}}),
    "one document": lambda: Case([("red apple", [0, 1])], ["red", "fruit"], {"red apple": {0, 1}}),
    "one document, one label, one letter": lambda: Case([("a", [0])], ["a"], {"a": {0}}),
    "all the same text": lambda: Case(
        [("red apple", [0])] * 9 + [("red apple", [1])] * 3, FRUIT[:2], {"red apple": {0, 1}, "red": {0, 1}}
    ),
    "the same text everywhere, labels too": lambda: Case(
        [("red apple", [0, 1])] * 5, ["red apple", "red apple"], {"red apple": {0, 1}}
    ),
    "a label without text": lambda: Case(
        own(FRUIT) + [("old shoe", [4])] * 2, [*FRUIT, ""], {"old shoe": {4}, "red apple": {0}, "blue plum": {3}}
    ),
    "no label with text": lambda: Case(own(FRUIT) * 3, [""] * 4, {text: {label} for text, [label] in own(FRUIT)}),
    "every document ten times": lambda: Case(own(FRUIT) * 10, FRUIT, {text: {label} for text, [label] in own(FRUIT)}),
    "empty texts": lambda: Case(
        [("", [0]), ("?!", [1]), (" \t\n", [2]), ("\u200b", [3]), *own(FRUIT) * 2],
        FRUIT,
        {"": set(), "?!": set(), " \t\n": set(), **{text: {label} for text, [label] in own(FRUIT)}},
    ),
    "other scripts and emoji": lambda: Case(
        own(SCRIPTS) * 2, SCRIPTS, {text: {label} for text, [label] in own(SCRIPTS)}
    ),
    "labels without documents": lambda: Case(
        own(FRUIT)[:2] * 2, FRUIT, {"red apple": {0}, "green pear": {1}, "old shoe": set()}
    ),
    "documents without labels": lambda: Case(
        own(FRUIT) * 2 + [("green apple", []), ("odd thing", [])],
        FRUIT,
        {text: {label} for text, [label] in own(FRUIT)},
    ),
}


@cache
def trained(recipe: str, name: str) -> tuple[Model, Case]:
    case = CASES[name]()
    config = RECIPES[recipe].with_settings(["model.dim=32", "ensemble.instances=1", *TINY.get(recipe, [])])
    return decaf.train(dataset_of(case.documents, case.labels), config, device="cpu"), case


def check(found: Predictions, kept: NDArray[np.int64]) -> None:
    """Chances, best first, of labels that were trained, none of them twice; nothing behind the last."""
    there = found.ids >= 0
    assert np.isfinite(found.scores[there]).all()
    assert (found.scores[there] >= 0).all()
    assert (found.scores[there] <= 1).all()
    assert np.isneginf(found.scores[~there]).all()
    for ids, scores in zip(found.ids, found.scores, strict=True):
        count = int((ids >= 0).sum())
        assert (ids[:count] >= 0).all()
        assert np.isin(ids[:count], kept).all()
        assert len(set(ids[:count].tolist())) == count
        assert (np.diff(scores[:count]) <= 0).all()


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "exact"])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("recipe", ["contrastive", "paper"])
def test_answers_are_chances_and_a_text_finds_its_labels(recipe: str, name: str, fast: bool) -> None:
    model, case = trained(recipe, name)
    found = Predictor(model, fast=fast).predict(list(case.expected), top=20)
    check(found, model.kept)
    assert set(model.kept.tolist()) <= {label for _, labels in case.documents for label in labels}
    for ids, (text, expected) in zip(found.ids, case.expected.items(), strict=True):
        assert set(ids[: len(expected)].tolist()) == expected, text
        if not expected:
            assert (ids < 0).all(), text


@cache
def wide(recipe: str) -> Model:
    """A document that has a hundred thousand labels, beside two that have one."""
    texts = ["everything at once", "red apple", "green pear"]
    names = [
        " ".join(f"{letter}{digit}" for letter, digit in zip("abcde", f"{label:05}", strict=True))
        for label in range(WIDE)
    ]
    columns, ends = np.concatenate([np.arange(WIDE), [7, 8]]), [0, WIDE, WIDE + 1, WIDE + 2]
    truth = sparse.csr_array((np.ones(WIDE + 2, np.float32), columns, ends), shape=(3, WIDE))
    part = Part(Items(3, None, texts), truth, no_pairs())
    sizes = ["model.dim=4", "tokens.batch=512", "shortlister.clusters=16384", "shortlister.beam=16"]
    epochs = ["tokens.epochs=1", "shortlister.epochs=1", "ranker.epochs=2", "ensemble.instances=1"]
    config = RECIPES[recipe].with_settings([*sizes, *epochs])
    return decaf.train(Dataset("wide", part, part, Items(WIDE, None, names)), config, device="cpu")


@pytest.mark.parametrize("recipe", ["contrastive", "paper"])
def test_a_hundred_thousand_labels_of_one_document(recipe: str) -> None:
    model = wide(recipe)
    assert len(model.kept) == WIDE
    found = Predictor(model).predict(["everything at once", "red apple", "", "unheard of"], top=50)
    check(found, model.kept)
    assert (found.ids[:2] >= 0).all()
    assert (found.ids[2:] < 0).all()
