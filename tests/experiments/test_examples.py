"""Examples: which documents are shown and what is said of their labels, against sets and loops."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from modules import dataset_of, truth_of

from decaf import Dataset, Predictions
from decaf.experiments.examples import examples, never_together

LABELS, DOCUMENTS = 12, 60
NAMES = [f"label {label}" for label in range(LABELS)]
KINDS = ["found more", "found as many", "found fewer"]


@settings(deadline=None, derandomize=True, max_examples=200)
@given(st.lists(st.sets(st.integers(0, 5), max_size=4), max_size=6), st.sets(st.integers(0, 5)))
def test_labels_that_no_training_document_has_together(training: list[set[int]], labels: set[int]) -> None:
    expected = {
        label
        for label in labels
        if len(labels) > 1 and not any({label, other} <= row for other in labels - {label} for row in training)
    }
    truth = truth_of([sorted(row) for row in training], 6)
    assert never_together(np.array(sorted(labels), dtype=np.int64), truth) == expected


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    """Two labels in training, one to five in test; every tenth document is too long for a table."""
    rng = np.random.default_rng(1)
    train = [(f"training {pair}", pair) for pair in list(combinations(range(LABELS), 2))[::3]]
    test = [
        (
            f"document {row}" + (" that is too long" * 5 if row % 10 == 0 else ""),
            sorted(rng.choice(LABELS, size=rng.integers(1, 6), replace=False).tolist()),
        )
        for row in range(DOCUMENTS)
    ]
    return dataset_of(train, NAMES, test)


def random_predictions(seed: int, top: int = 8) -> Predictions:
    """Labels in any order; some documents have fewer than five."""
    rng = np.random.default_rng(seed)
    ids = np.stack([rng.permutation(LABELS)[:top] for _ in range(DOCUMENTS)])
    ids[np.arange(top) >= rng.integers(3, top + 1, size=(DOCUMENTS, 1))] = -1
    scores = np.where(ids >= 0, np.arange(top, 0, -1), -np.inf).astype(np.float32)
    return Predictions(ids, scores)


@pytest.fixture(scope="module")
def systems() -> dict[str, Predictions]:
    return {"decaf": random_predictions(1), "match": random_predictions(2), "paper": random_predictions(3, top=4)}


def kind_of(dataset: Dataset, systems: dict[str, Predictions], row: int) -> str | None:
    """The kind of a document, or none where it is not to be shown."""
    true = set(np.flatnonzero(dataset.test.truth[[row]].toarray()[0]).tolist())
    hits = {name: len(true & set(found.ids[row, :5].tolist())) for name, found in systems.items()}
    ours, best = hits["decaf"], max(hits["match"], hits["paper"])
    if len(true) < 3 or len(dataset.test.documents.text(row)) > 60 or not max(ours, best):
        return None
    return KINDS[0] if ours > best else KINDS[1] if ours == best else KINDS[2]


def test_two_documents_of_each_kind_are_shown(dataset: Dataset, systems: dict[str, Predictions]) -> None:
    kinds = [kind_of(dataset, systems, row) for row in range(DOCUMENTS)]
    assert all(kinds.count(kind) > 2 for kind in KINDS)
    for seed in range(10):
        shown = examples(dataset, systems, "decaf", seed)
        assert [one["kind"] for one in shown] == [kind for kind in KINDS for _ in range(2)]
        assert len({one["document"] for one in shown}) == 6
        for one in shown:
            assert kinds[int(one["document"].split()[1])] == one["kind"]


def test_where_there_are_fewer_documents_of_a_kind_they_are_all_shown(
    dataset: Dataset, systems: dict[str, Predictions]
) -> None:
    wanted = [row for row in range(DOCUMENTS) if kind_of(dataset, systems, row) == "found fewer"][:1]
    wanted += [row for row in range(DOCUMENTS) if kind_of(dataset, systems, row) in ("found more", None)]
    rows = np.array(wanted)
    less = Dataset("own", dataset.train, dataset.test.take(rows), dataset.labels)
    shown = examples(less, {name: of.take(rows.tolist(), 8) for name, of in systems.items()}, "decaf")
    assert [one["kind"] for one in shown] == ["found more", "found more", "found fewer"]


def test_labels_are_told_as_they_are(dataset: Dataset, systems: dict[str, Predictions]) -> None:
    truth = dataset.train.truth.toarray()
    seen_new = seen_old = 0
    for seed in range(10):
        for one in examples(dataset, systems, "decaf", seed):
            row = int(one["document"].split()[1])
            true = np.flatnonzero(dataset.test.truth[[row]].toarray()[0]).tolist()
            assert one["document"] == dataset.test.documents.text(row)
            assert one["true"] == [NAMES[label] for label in true]
            assert list(one["systems"]) == list(systems)
            for name, labels in one["systems"].items():
                ids = [label for label in systems[name].ids[row, :5].tolist() if label >= 0]
                assert [label["label"] for label in labels] == [NAMES[label] for label in ids]
                for label, told in zip(ids, labels, strict=True):
                    company = any(truth[at, label] and truth[at, true].sum() > 1 for at in range(len(truth)))
                    assert told["right"] == (label in true)
                    assert told["new"] == (label in true and not company)
                    seen_new += told["new"]
                    seen_old += told["right"] and not told["new"]
    assert seen_new
    assert seen_old


def test_the_same_documents_are_drawn_again(dataset: Dataset, systems: dict[str, Predictions]) -> None:
    shown = examples(dataset, systems, "decaf", 4)
    assert examples(dataset, systems, "decaf", 4) == shown
    assert examples(dataset, systems, "decaf", 5) != shown


def test_without_our_system_or_another_there_is_nothing_to_show(
    dataset: Dataset, systems: dict[str, Predictions]
) -> None:
    assert examples(dataset, {name: systems[name] for name in ("match", "paper")}, "decaf") == []
    assert examples(dataset, {"decaf": systems["decaf"]}, "decaf") == []
    assert examples(dataset, {}, "decaf") == []
