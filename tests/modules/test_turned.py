"""Pairs turned round: those of an obvious, slow search and no others, and none where they are not to be trusted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from decaf.modules import turned as turned_module
from decaf.modules.problem import Problem
from decaf.modules.turned import turned_pairs

from . import truth_of

Text = tuple[int, ...]  # its tokens
Document = tuple[Text, list[int]]  # its text and labels
Pairs = set[tuple[int, int]]  # of a label's text, and the label that it is a document of


def rows_of(texts: Sequence[Text], tokens: int) -> sparse.csr_array:
    """One text a row, of unit length, its tokens in the order they come in."""
    indices = np.array([token for text in texts for token in text], dtype=np.int32)
    data = np.array([len(text) ** -0.5 for text in texts for _ in text], dtype=np.float32)
    return sparse.csr_array((data, indices, np.cumsum([0, *map(len, texts)])), shape=(len(texts), tokens))


def problem_of(documents: Sequence[Document], labels: Sequence[Text]) -> Problem:
    texts = [text for text, _ in documents]
    tokens = 1 + max((token for text in (*texts, *labels) for token in text), default=0)
    truth = truth_of([links for _, links in documents], len(labels))
    nothing, ones = np.zeros((0, 2), dtype=np.int64), np.ones(len(labels))
    return Problem(rows_of(texts, tokens), rows_of(labels, tokens), truth, np.arange(len(labels)), nothing, ones)


def found(documents: Sequence[Document], labels: Sequence[Text]) -> Pairs:
    pairs = turned_pairs(problem_of(documents, labels))
    assert pairs.shape == (len(labels), len(labels))
    assert pairs.dtype == np.float32
    assert set(pairs.data.tolist()) <= {1.0}  # no zero is stored either
    return {(int(row), int(column)) for row, column in np.argwhere(pairs.toarray())}


def name(item: int) -> Text:
    """Two tokens that no other item has together."""
    return item, 1000 + item % 7


def world(links: Sequence[tuple[int, Sequence[int]]], items: int) -> tuple[list[Document], list[Text]]:
    """Items that are labels, some of them documents too, given the items that they are linked to."""
    return [(name(item), list(linked)) for item, linked in links], [name(item) for item in range(items)]


def ring(size: int) -> list[tuple[int, list[int]]]:
    """Each is linked to the two beside it, and they to it: two pairs an item that can be checked, and all are true."""
    return [(item, [(item - 1) % size, (item + 1) % size]) for item in range(size)]


def with_links(links: list[tuple[int, list[int]]], more: Sequence[tuple[int, int]]) -> list[tuple[int, list[int]]]:
    """The same, and more links between documents and items."""
    return [(item, linked + [end for start, end in more if start == item]) for item, linked in links]


LOOSE = [(3, 30), (4, 30), (29, 30), (0, 31)]  # links to items that are no documents


def test_who_is_linked_to_is_linked_back() -> None:
    pairs = found(*world(with_links(ring(30), LOOSE), 33))
    assert pairs == {(30, 3), (30, 4), (30, 29), (31, 0)}  # nobody is linked to item 32


def test_documents_of_no_label_and_labels_of_no_document_take_no_part() -> None:
    documents, labels = world(with_links(ring(30), LOOSE), 33)
    others: list[Document] = [((2000,), [30, 31, 32]), ((3, 4), [30]), ((3,), [31])]  # not the very tokens of a label
    assert found([*others, *documents], labels) == {(30, 3), (30, 4), (30, 29), (31, 0)}


def test_the_order_of_tokens_makes_no_other_text_but_other_weights_do() -> None:
    documents, labels = world(with_links(ring(30), LOOSE), 33)
    assert found([(text[::-1], links) for text, links in documents], labels) == found(documents, labels) != set()
    problem = problem_of(documents, labels)
    problem.documents.data *= 0.5
    assert turned_pairs(problem).nnz == 0


@pytest.mark.parametrize(("items", "enough"), [(25, True), (24, False)])
def test_fifty_pairs_are_enough_to_check_by(items: int, enough: bool) -> None:
    links = with_links(ring(items), [(2, items)])
    assert found(*world(links, items + 1)) == ({(items, 2)} if enough else set())


def test_forty_nine_are_not() -> None:
    links = with_links(ring(25), [(2, 25)])
    links[7][1].remove(8)
    assert found(*world(links, 26)) == set()


@pytest.mark.parametrize(("items", "believed"), [(48, True), (49, True), (50, False)])
def test_a_quarter_of_them_must_be_true(items: int, believed: bool) -> None:
    """Every item is linked to the next one and seven of them back: of 49 + 7 pairs 14 are true, a quarter."""
    links = [(item, [(item + 1) % items]) for item in range(items)]
    links = with_links(links, [(item + 1, item) for item in range(7)] + [(20, items)])
    assert found(*world(links, items + 1)) == ({(items, 20)} if believed else set())


def test_links_that_go_one_way_are_not_turned() -> None:
    links = [(item, [(item + step) % 60 for step in (1, 2, 3)]) for item in range(60)]
    assert found(*world(with_links(links, [(4, 60)]), 61)) == set()


def test_what_more_than_ten_link_to_does_not_link_back() -> None:
    ten, eleven = [(item, 30) for item in range(10)], [(item, 31) for item in range(11)]
    pairs = found(*world(with_links(ring(30), ten + eleven), 32))
    assert pairs == {(30, item) for item in range(10)}


def test_it_is_not_checked_by_either() -> None:
    """Seven hubs that all link to, and that link to none of them, would drown the sixty pairs that are true."""
    hubs = range(30, 37)
    links = with_links(ring(30), [(item, hub) for item in range(30) for hub in hubs] + [(5, 37)])
    links += [(hub, [38]) for hub in hubs]
    assert found(*world(links, 39)) == {(37, 5), *((38, hub) for hub in hubs)}


def test_a_document_of_its_own_label_counts_for_nothing() -> None:
    documents, labels = world(with_links(ring(30), [(item, item) for item in range(30)] + LOOSE), 33)
    assert found(documents, labels) == {(30, 3), (30, 4), (30, 29), (31, 0)}
    # Ten are linked to item 0 and back. With itself they were eleven: left out, and less than fifty pairs to check by.
    others = [pair for item in range(2, 10) for pair in ((item, 0), (0, item))]
    assert found(*world(with_links(ring(20), [*others, (0, 0), (0, 20)]), 21)) == {(20, 0)}


def unshared(pairs: Pairs, labels: Sequence[Text]) -> Pairs:
    """Those of labels that have their text for themselves."""
    return {pair for pair in pairs if labels.count(labels[pair[0]]) == 1}


def test_labels_that_share_a_text_are_matched_with_no_document() -> None:
    documents, labels = world(with_links(ring(30), LOOSE), 33)
    labels[32] = labels[4]
    assert unshared(found(documents, labels), labels) == {(30, 3), (30, 29), (31, 0)}
    labels[31] = labels[3]
    assert unshared(found(documents, labels), labels) == {(30, 29)}
    assert found(documents, [labels[0]] * 33) == set()


def test_labels_whose_text_is_a_document_get_none() -> None:
    documents, labels = world(with_links(ring(30), LOOSE), 33)
    documents.append((name(30), [32]))
    # Its three pairs can be checked now, and are not true; the pair of label 32 is new.
    assert found(documents, labels) == {(31, 0), (32, 30)}
    documents.append((name(31), [5]))
    assert found(documents, labels) == {(32, 30)}


def test_labels_without_a_text_get_none() -> None:
    documents, labels = world(with_links(ring(30), LOOSE), 33)
    labels[30] = ()
    assert found(documents, labels) == {(31, 0)}
    documents.append(((), [31]))  # which is not the text of label 30
    assert found(documents, labels) == {(31, 0)}


def test_without_a_document_or_a_text_there_are_none() -> None:
    assert found([], [(1,), (2,)]) == set()
    assert found([((1,), [0])], [()]) == set()


def slow_pairs(documents: Sequence[Document], labels: Sequence[Text], most: int, enough: int, least: float) -> Pairs:
    """One link after another."""
    owner = {text: label for label, text in enumerate(labels) if text and labels.count(text) == 1}
    back: dict[int, set[int]] = {}
    for text, links in documents:
        for label in links:
            if text in owner and owner[text] != label:
                back.setdefault(label, set()).add(owner[text])
    back = {label: others for label, others in back.items() if len(others) <= most and labels[label]}
    checked = [other in links for text, links in documents if text in owner for other in back.get(owner[text], set())]
    if len(checked) < enough or sum(checked) < least * len(checked):
        return set()
    known = {text for text, _ in documents}
    return {(label, other) for label, others in back.items() if labels[label] not in known for other in others}


TEXTS: list[Text] = [(), (0,), (1,), (0, 1), (2,), (0, 2), (1, 2), (0, 1, 2), (3,), (4,), (3, 4), (2, 4)]


def drawn(rng: np.random.Generator, *, links: float, both_ways: float) -> tuple[list[Document], list[Text]]:
    """Most texts are labels, some twice, and some are documents; now and then a document has a text of its own."""
    chosen = [*rng.permutation(len(TEXTS))[:10], *rng.integers(0, len(TEXTS), size=rng.integers(0, 3))]
    labels = [TEXTS[at] for at in chosen]
    linked = rng.random((len(TEXTS), len(TEXTS))) < links
    linked |= linked.T & (rng.random(linked.shape) < both_ways)
    texts = rng.integers(0, len(TEXTS), size=rng.integers(0, 12)).tolist()
    return [(TEXTS[text], [label for label, at in enumerate(chosen) if linked[text, at]]) for text in texts], labels


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(
    seed=st.integers(0, 10_000),
    links=st.sampled_from([0.1, 0.2, 0.4]),
    both_ways=st.sampled_from([0.0, 0.5, 1.0]),
    most=st.integers(1, 6),
    enough=st.sampled_from([1, 2, 6]),
    least=st.sampled_from([0.0, 0.25, 0.5, 1.0]),
)
def test_pairs_are_those_of_a_slow_search(
    seed: int, links: float, both_ways: float, most: int, enough: int, least: float
) -> None:
    documents, labels = drawn(np.random.default_rng(seed), links=links, both_ways=both_ways)
    with pytest.MonkeyPatch.context() as patch:
        for constant, value in (("_MOST", most), ("_ENOUGH", enough), ("_SHARE", least)):
            patch.setattr(turned_module, constant, value)
        pairs = found(documents, labels)
    expected = slow_pairs(documents, labels, most, enough, least)
    assert unshared(pairs, labels) == unshared(expected, labels)
