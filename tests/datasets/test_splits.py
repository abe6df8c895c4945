"""Splits by the paper's rule, validation, and parts taken out of parts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from decaf.config import SplitSettings
from decaf.datasets import Dataset, Items, Part, Parts
from decaf.datasets.parts import empty_part, no_pairs
from decaf.datasets.splits import pool, split_parts, validation_split
from decaf.errors import DataError

from .helpers import assert_same_parts, examples, ids_of, lists, make_parts, truth_of


def _dense_parts(documents: int = 200, labels: int = 8) -> Parts:
    """So many documents that every label lands on both sides."""
    rows = [[row % labels, (row * 3 + 1) % labels] for row in range(documents)]
    return make_parts(rows[: documents // 2], rows[documents // 2 :], labels)


def _rare_parts() -> Parts:
    """Labels of one to three documents, and documents without labels."""
    rng = np.random.default_rng(5)
    return make_parts([rng.choice(60, size=size).tolist() for size in rng.integers(0, 3, 80)], [[3], [4, 5], []], 60)


def test_documents_are_shared_out_as_asked() -> None:
    parts = split_parts(_dense_parts(), SplitSettings(train=0.7))
    assert parts.train.documents.count == 140
    assert parts.test.documents.count == 60


@pytest.mark.parametrize("seed", range(5))
def test_every_kept_label_has_a_document_on_both_sides(seed: int) -> None:
    parts = split_parts(_rare_parts(), SplitSettings(train=0.6, seed=seed))
    for part in (parts.train, parts.test):
        assert part.truth.shape[1] == parts.labels.count
        assert np.bincount(part.truth.indices, minlength=parts.labels.count).min() >= 1
        assert np.diff(part.truth.indptr).min() >= 1


@pytest.mark.parametrize("seed", range(5))
def test_no_label_with_documents_on_both_sides_is_lost(seed: int) -> None:
    before = _rare_parts()
    settings = SplitSettings(train=0.6, seed=seed)
    truth = pool(before).truth.toarray()
    order = np.random.default_rng(seed).permutation(len(truth))
    cut = round(0.6 * len(order))
    both = (truth[order[:cut]] > 0).any(axis=0) & (truth[order[cut:]] > 0).any(axis=0)
    assert ids_of(split_parts(before, settings).labels) == [f"l{label}" for label in np.flatnonzero(both)]


def test_documents_keep_their_ids_texts_and_labels() -> None:
    before = _rare_parts()
    after = split_parts(before, SplitSettings(seed=3))
    kept = set(ids_of(after.labels))
    known = {}
    for part in (before.train, before.test):
        for row, labels in enumerate(lists(part.truth)):
            known[part.documents.id(row)] = {before.labels.id(label) for label in labels} & kept
    seen: list[str] = []
    for part in (after.train, after.test):
        for row, labels in enumerate(lists(part.truth)):
            name = part.documents.id(row)
            seen.append(name)
            assert {after.labels.id(label) for label in labels} == known[name]
            assert part.documents.text(row) == f"text of {name}"
    assert len(seen) == len(set(seen))
    assert set(seen) == {name for name, labels in known.items() if labels}


def test_the_same_seed_gives_the_same_split() -> None:
    first, second = (split_parts(_rare_parts(), SplitSettings(seed=7)) for _ in range(2))
    assert_same_parts(first, second)


def test_another_seed_gives_another_split() -> None:
    first, second = (split_parts(_dense_parts(), SplitSettings(seed=seed)) for seed in (7, 8))
    assert first.train.documents.ids != second.train.documents.ids


def test_a_split_sets_the_filters_anew() -> None:
    names = [f"n{row}" for row in range(40)]
    truth = truth_of([[(row + 1) % 40, (row + 2) % 40, (row + 20) % 40] for row in range(40)], 40)
    before = Parts(Part(Items(40, names, names), truth, no_pairs()), empty_part(40), Items(40, names, names))
    after = split_parts(before, SplitSettings(train=0.5))
    labels = ids_of(after.labels)
    train_pairs = {
        (after.train.documents.id(row), labels[label])
        for row, row_labels in enumerate(lists(after.train.truth))
        for label in row_labels
    }
    expected = [
        [row, label]
        for row, document in enumerate(ids_of(after.test.documents))
        for label, name in enumerate(labels)
        if name == document or (name, document) in train_pairs
    ]
    assert after.test.filters.tolist() == expected
    assert len(expected) > after.test.documents.count / 2


def test_a_split_of_documents_without_names_invents_no_filters() -> None:
    rows = [[row % 4] for row in range(40)]
    part = Part(Items(40, features=truth_of(rows, 4)), truth_of(rows, 4), no_pairs())
    after = split_parts(Parts(part, empty_part(4), Items(4)), SplitSettings())
    assert after.train.filters.tolist() == []
    assert after.test.filters.tolist() == []


def test_a_split_keeps_the_features() -> None:
    rows = [[row % 4, 4 + row % 3] for row in range(40)]
    part = Part(Items(40, features=truth_of(rows, 7)), truth_of([[row % 4] for row in range(40)], 4), no_pairs())
    parts = split_parts(Parts(part.take(np.arange(30)), part.take(np.arange(30, 40)), Items(4)), SplitSettings())
    for side in (parts.train, parts.test):
        features = lists(side.documents.need_features())
        assert features == [rows[int(name)] for name in ids_of(side.documents)]


def test_a_split_keeps_contents_that_one_part_has() -> None:
    parts = _dense_parts(40, 4)
    contents = [f"more of a{row}" for row in range(20)]
    train = replace(parts.train, documents=replace(parts.train.documents, contents=contents))
    documents = split_parts(parts._replace(train=train), SplitSettings()).train.documents
    expected = [f"more of {name}" if name.startswith("a") else "" for name in ids_of(documents)]
    assert documents.contents == expected


def test_labels_of_one_document_cannot_be_split() -> None:
    with pytest.raises(DataError, match="no label has a document on both sides"):
        split_parts(make_parts([[0], [1], [2]], [], 3), SplitSettings())


def test_an_id_in_both_parts_cannot_be_split() -> None:
    parts = _dense_parts()
    with pytest.raises(DataError, match="a document id is in training and in test"):
        split_parts(parts._replace(test=parts.train), SplitSettings())


@pytest.mark.parametrize("share", [0.0, 0.05, 0.3, 0.9])
def test_validation_takes_its_share_of_the_training_documents(share: float) -> None:
    part = _dense_parts().train
    kept, held_out = validation_split(part, SplitSettings(validation=share))
    assert held_out.documents.count == round(share * 100)
    assert sorted(ids_of(kept.documents) + ids_of(held_out.documents)) == sorted(ids_of(part.documents))
    for side in (kept, held_out):
        rows = [int(name[1:]) for name in ids_of(side.documents)]
        assert lists(side.truth) == [lists(part.truth)[row] for row in rows]


def test_validation_is_seeded() -> None:
    part = _dense_parts().train
    first, second, other = (
        validation_split(part, SplitSettings(validation=0.2, seed=seed))[1].documents.ids for seed in (1, 1, 2)
    )
    assert first == second
    assert first != other


def test_validation_puts_training_documents_in_the_place_of_the_test_documents() -> None:
    dataset = Dataset("small", *_dense_parts(), about={"task": "test"})
    made = dataset.validation(SplitSettings(validation=0.1))
    assert (made.train.documents.count, made.test.documents.count) == (90, 10)
    assert all(name.startswith("a") for name in ids_of(made.test.documents))
    assert made.labels is dataset.labels
    assert (made.name, made.about) == ("small", {"task": "test"})


@st.composite
def _parts_with_filters(draw: st.DrawFn) -> Part:
    rows, labels = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    truth = draw(st.lists(st.sets(st.integers(0, labels - 1)), min_size=rows, max_size=rows))
    cells = [(row, label) for row in range(rows) for label in range(labels)]
    filters = sorted(draw(st.sets(st.sampled_from(cells))))
    part = make_parts([sorted(row) for row in truth], [], labels).train
    return replace(part, filters=np.array(filters, dtype=np.int64).reshape(-1, 2))


@examples(80)
@given(_parts_with_filters(), st.data())
def test_taken_documents_keep_their_labels_and_filters(part: Part, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, part.documents.count - 1), unique=True))
    taken = part.take(np.array(rows, dtype=np.int64))
    assert taken.documents.ids == [f"a{row}" for row in rows]
    assert lists(taken.truth) == [lists(part.truth)[row] for row in rows]
    old = set(map(tuple, part.filters.tolist()))
    new = [[at, label] for at, row in enumerate(rows) for label in range(part.truth.shape[1]) if (row, label) in old]
    assert taken.filters.tolist() == new


@examples(80)
@given(_parts_with_filters(), st.data())
def test_taken_labels_keep_their_documents_and_filters(part: Part, data: st.DataObject) -> None:
    columns = data.draw(st.lists(st.integers(0, part.truth.shape[1] - 1), unique=True, min_size=1))
    taken = part.take_labels(np.array(columns, dtype=np.int64))
    assert taken.truth.toarray().tolist() == part.truth.toarray()[:, columns].tolist()
    assert lists(taken.truth) == [sorted(row) for row in lists(taken.truth)]
    old = set(map(tuple, part.filters.tolist()))
    new = {(row, at) for row in range(part.documents.count) for at, label in enumerate(columns) if (row, label) in old}
    assert set(map(tuple, taken.filters.tolist())) == new


def test_taken_rows_without_ids_keep_their_numbers() -> None:
    items = Items(4, texts=["p", "q", "r", "s"], contents=["1", "2", "3", "4"]).take(np.array([3, 1]))
    assert (items.ids, items.texts, items.contents) == (["3", "1"], ["s", "q"], ["4", "2"])


def test_pieces_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(DataError, match="2 texts for 3 rows"):
        Items(3, texts=["p", "q"])
    with pytest.raises(DataError, match="1 feature rows for 3 rows"):
        Items(3, features=truth_of([[0]], 2))
    with pytest.raises(DataError, match="3 documents but labels for 1"):
        Part(Items(3), truth_of([[0]], 2), no_pairs())


def test_the_reverse_of_a_training_pair_counts_for_nothing_in_validation() -> None:
    """Twenty documents that are the labels of the same number, each with its two neighbours' labels, in a ring."""
    count = 20
    pairs = [(row, (row + step) % count) for row in range(count) for step in (1, 2)]
    rows, columns = zip(*pairs, strict=True)
    truth = sparse.csr_array((np.ones(len(pairs), np.float32), (rows, columns)), shape=(count, count))
    names = [f"n{row}" for row in range(count)]
    own = np.stack([np.arange(count)] * 2, axis=1)
    part = Part(Items(count, names, names), truth, own)
    kept, held_out = validation_split(part, SplitSettings(validation=0.4))
    trained = {int(name[1:]) for name in kept.documents.ids or ()}
    expected = set()
    for at, name in enumerate(held_out.documents.ids or ()):
        number = int(name[1:])
        expected |= {(at, number)} | {
            (at, (number - step) % count) for step in (1, 2) if (number - step) % count in trained
        }
    assert {(int(row), int(label)) for row, label in held_out.filters} == expected
    assert len(expected) > held_out.documents.count  # some reverse is there to be left out
    assert all(kept.documents.id(row) == f"n{label}" for row, label in kept.filters.tolist())
