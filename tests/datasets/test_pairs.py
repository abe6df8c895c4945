"""Filter pairs: the paper's rule against two plain loops, and their files."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decaf.config import TableSettings
from decaf.datasets import Items, Part, Parts
from decaf.datasets.pairs import read_pairs, with_pair_filters, write_pairs
from decaf.datasets.parts import no_pairs
from decaf.datasets.tables import read_tables

from .helpers import examples, lists, truth_of

NAMES = st.sampled_from("pqrstuvw")


def _slow_filters(parts: Parts, column: str) -> tuple[list[list[int]], list[list[int]]]:
    """The rule, word for word: training and test pairs."""

    def names(items: Items) -> list[str]:
        return list(getattr(items, column))

    labels, train, test = names(parts.labels), names(parts.train.documents), names(parts.test.documents)
    self_train = [[d, i] for d, name in enumerate(train) for i, label in enumerate(labels) if name == label]
    filters = [[d, i] for d, name in enumerate(test) for i, label in enumerate(labels) if name == label]
    for a, targets in enumerate(lists(parts.train.truth)):
        for target in targets:
            for b, name in enumerate(test):
                filters += [[b, i] for i, label in enumerate(labels) if name == labels[target] and label == train[a]]
    return self_train, [list(pair) for pair in sorted(set(map(tuple, filters)))]


def _make(column: str, train: list[str], test: list[str], labels: list[str], truth: list[list[int]]) -> Parts:
    """Documents and labels that may share names in this column and never in the other."""

    def items(letter: str, names: list[str]) -> Items:
        other = [f"{letter}{row}" for row in range(len(names))]
        return Items(len(names), names, other) if column == "ids" else Items(len(names), other, names)

    rows = [[label for label in row if label < len(labels)] for row in truth]
    rows = (rows + [[]] * len(train))[: len(train)]
    return Parts(
        Part(items("a", train), truth_of(rows, len(labels)), no_pairs()),
        Part(items("b", test), truth_of([[]] * len(test), len(labels)), no_pairs()),
        items("l", labels),
    )


def _assert_filters_follow_the_rule(parts: Parts, column: str) -> None:
    made = with_pair_filters(parts)
    train, test = _slow_filters(parts, column)
    assert made.train.filters.tolist() == train
    assert made.test.filters.tolist() == test


DISTINCT = st.lists(NAMES, min_size=1, max_size=6, unique=True)
TRUTH = st.lists(st.lists(st.integers(0, 5), max_size=4), max_size=6)


@pytest.mark.parametrize("column", ["ids", "texts"])
@examples(80)
@given(train=DISTINCT, test=DISTINCT, labels=DISTINCT, truth=TRUTH)
def test_filters_are_those_of_a_plain_loop(
    column: str, train: list[str], test: list[str], labels: list[str], truth: list[list[int]]
) -> None:
    _assert_filters_follow_the_rule(_make(column, train, test, labels, truth), column)


def test_the_rule_by_hand() -> None:
    parts = _make("texts", ["p", "q", "x"], ["r", "q2"], ["p", "q", "r"], [[1, 2], [0], [2]])
    made = with_pair_filters(parts)
    assert made.train.filters.tolist() == [[0, 0], [1, 1]]  # p is label 0, q is label 1
    assert made.test.filters.tolist() == [[0, 0], [0, 2]]  # p -> r was trained, so r -> p does not count; r is label 2


def test_test_documents_of_the_same_text_are_all_filtered() -> None:
    parts = _make("texts", ["p"], ["r", "r"], ["p", "r"], [[1]])
    _assert_filters_follow_the_rule(parts, "texts")


def test_labels_of_the_same_text_are_all_filtered() -> None:
    parts = _make("texts", ["p"], ["r"], ["p", "p", "r", "r"], [[2, 3]])
    _assert_filters_follow_the_rule(parts, "texts")


def test_texts_do_not_count_where_the_other_part_shares_ids() -> None:
    labels = Items(2, ["1", "2"], ["red", "blue"])
    train = Part(Items(1, ["1"], ["red"]), truth_of([[1]], 2), no_pairs())
    test = Part(Items(1, ["9"], ["blue"]), truth_of([[0]], 2), no_pairs())
    made = with_pair_filters(Parts(train, test, labels))
    assert made.train.filters.tolist() == [[0, 0]]
    assert made.test.filters.tolist() == []


def test_row_numbers_of_a_table_without_ids_are_not_taken_for_labels(tmp_path: Path) -> None:
    (tmp_path / "docs.csv").write_text("text,labels\na,1\nb,0;1\n")
    made = with_pair_filters(read_tables(tmp_path / "docs.csv", TableSettings()))
    assert made.train.filters.tolist() == []


def test_filters_of_a_set_without_names_are_empty() -> None:
    part = Part(Items(2), truth_of([[0], [1]], 2), no_pairs())
    made = with_pair_filters(Parts(part, part, Items(2)))
    assert made.train.filters.shape == made.test.filters.shape == (0, 2)


@examples(40)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4)), max_size=8))
def test_pairs_are_read_back_sorted_and_once(pairs: list[tuple[int, int]]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "filters.txt"
        write_pairs(np.array(pairs, dtype=np.int64).reshape(-1, 2), path)
        read = read_pairs(path, 10, 5)
        assert read.shape[1] == 2
        assert read.tolist() == [list(pair) for pair in sorted(set(pairs))]


@pytest.mark.parametrize("content", [b"0 1\r\n2 0\r\n", b"0\t1\n\n2   0", b" 0 1 \n\n2 0\n\n", b"2 0\n0 1\n2 0\n"])
def test_spacing_and_order_of_pairs_do_not_matter(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "filters.txt").write_bytes(content)
    assert read_pairs(tmp_path / "filters.txt", 3, 2).tolist() == [[0, 1], [2, 0]]


@pytest.mark.parametrize("content", [b"", b"\n \n"])
def test_an_empty_file_holds_no_pairs(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "filters.txt").write_bytes(content)
    assert read_pairs(tmp_path / "filters.txt", 3, 2).shape == (0, 2)
