"""The tokens of labels' documents: against an obvious loop, the heaviest alone, in blocks, and shares by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import sparse

from decaf.modules import words as words_module
from decaf.modules.linear import Linear
from decaf.modules.problem import Problem
from decaf.modules.words import label_words, usual_cues
from decaf.networks import Words

from . import random_rows, truth_of

CPU = torch.device("cpu")


def problem_of(documents: sparse.csr_array, truth: sparse.csr_array) -> Problem:
    labels = truth.shape[1]
    texts = sparse.csr_array((labels, documents.shape[1]), dtype=np.float32)
    return Problem(documents, texts, truth, np.arange(labels), np.zeros((0, 2), dtype=np.int64), np.ones(labels))


def drawn(*, documents: int = 60, labels: int = 17, tokens: int = 25, most: int = 6, seed: int = 0) -> Problem:
    """Each document has between one label and three; label 0 has no document."""
    rng = np.random.default_rng(seed)
    truth = [
        rng.choice(np.arange(1, labels), size=rng.integers(1, 4), replace=False).tolist() for _ in range(documents)
    ]
    return problem_of(random_rows(documents, tokens, seed=seed + 1, most=most), truth_of(truth, labels))


def obvious(problem: Problem) -> list[list[tuple[int, float, float]]]:
    """The (token, weight, share) of every label, heaviest first and at most 32."""
    documents, truth = problem.documents.toarray().astype(np.float64), problem.truth.toarray()
    found = []
    for label in range(truth.shape[1]):
        sums: Counter[int] = Counter()
        for row in np.flatnonzero(truth[:, label]):
            for token in np.flatnonzero(documents[row]):
                sums[int(token)] += documents[row, token]
        heaviest = sorted(sums, key=lambda token: -sums[token])[:32]
        length = sum(sums[token] ** 2 for token in heaviest) ** 0.5
        found.append([(token, sums[token] / length, sums[token] / documents[:, token].sum()) for token in heaviest])
    return found


def check(words: Words, problem: Problem) -> None:
    expected = obvious(problem)
    assert words.tokens.shape == (len(expected), max(1, *map(len, expected)))
    assert words.weights.shape == words.shares.shape == words.tokens.shape
    for label, entries in enumerate(expected):
        tokens, weights, shares = (array[label].tolist() for array in words[:3])
        rest = [0] * (words.tokens.shape[1] - len(entries))
        assert tokens == [token for token, _, _ in entries] + rest
        assert weights == pytest.approx([weight for _, weight, _ in entries] + rest, rel=1e-5)
        assert shares == pytest.approx([share for _, _, share in entries] + rest, rel=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_tokens_weights_and_shares_are_those_of_an_obvious_loop(seed: int) -> None:
    problem = drawn(seed=seed)
    words = label_words(problem, None, CPU)
    check(words, problem)
    assert not any(array[0].any() for array in words)  # the label without a document


def test_of_more_than_32_tokens_the_heaviest_are_kept() -> None:
    problem = drawn(documents=30, tokens=200, most=30)
    counts = np.diff(sparse.csr_array(problem.truth.T @ problem.documents).indptr)
    assert counts.max() > 64
    assert 0 < counts[1:].min() < 32
    words = label_words(problem, None, CPU)
    assert words.tokens.shape[1] == 32
    check(words, problem)


@pytest.mark.parametrize("size", [1, 3, 16, 17, 18])  # of 17 labels
def test_labels_are_summed_alike_some_at_a_time_and_all_at_once(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    problem = drawn()
    together = label_words(problem, None, CPU)
    monkeypatch.setattr(words_module, "_LABELS", size)
    for found, expected in zip(label_words(problem, None, CPU), together, strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("most", [6, 60])
def test_rows_are_of_unit_length(most: int) -> None:
    words = label_words(drawn(tokens=100, most=most), None, CPU)
    assert torch.allclose(words.weights[1:].norm(dim=1), torch.tensor(1.0))
    assert float(words.weights.min()) >= 0


def test_shares_by_hand() -> None:
    rows = np.array([[3, 1, 0, 0], [1, 0, 4, 0], [4, 0, 0, 0]], dtype=np.float32)
    problem = problem_of(sparse.csr_array(rows), truth_of([[0, 1], [0], [2]], 3))
    words = label_words(problem, None, CPU)
    # Token 0 weighs 8 in all; label 0 has 4 of it, label 1 has 3, and label 2 the last 4. Token 3 is in no document.
    assert words.tokens.tolist() == [[0, 2, 1], [0, 1, 0], [0, 0, 0]]
    assert words.shares.tolist() == [[0.5, 1, 1], [0.375, 1, 0], [0.5, 0, 0]]
    expected = np.array([[4, 4, 1], [3, 1, 0], [4, 0, 0]]) / np.sqrt([[33], [10], [16]])
    assert words.weights.numpy() == pytest.approx(expected)


def test_labels_without_any_token_make_one_empty_column() -> None:
    problem = problem_of(sparse.csr_array((2, 5), dtype=np.float32), truth_of([[0], [2]], 3))
    words = label_words(problem, None, CPU)
    assert [array.tolist() for array in words] == [*[[[0]] * 3] * 5, [0] * 3, [[0]] * 3]


def classifiers(labels: int, cues: int = 4) -> Linear:
    """Of random tokens and weights."""
    rng = np.random.default_rng(3)
    tokens = np.stack([rng.choice(25, cues, replace=False) for _ in range(labels)])
    weights = -np.sort(-np.abs(rng.standard_normal((labels, cues)))) * rng.choice([-1, 1], (labels, cues))
    return Linear(tokens.astype(np.int32), weights.astype(np.float32), rng.random(labels).astype(np.float32))


@pytest.mark.parametrize("known", [True, False])
def test_its_arrays_are_small_and_can_be_stored(known: bool) -> None:
    words = label_words(drawn(), classifiers(17) if known else None, CPU)
    assert [array.dtype for array in words] == [*[torch.int32, *[torch.float32] * 2] * 2, torch.float32]
    assert all(array.is_contiguous() for array in words)


def test_linear_classifiers_go_with_the_words_as_they_are() -> None:
    problem, linear = drawn(), classifiers(17)
    words = label_words(problem, linear, CPU)
    check(words, problem)
    for found, expected in zip(words[3:6], linear, strict=True):
        assert np.array_equal(found.numpy(), expected)
    assert not words.matches.any()  # the labels have no text


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("size", [5, 100])
def test_the_match_is_the_cosine_of_a_document_and_a_labels_text(
    monkeypatch: pytest.MonkeyPatch, known: bool, size: int
) -> None:
    monkeypatch.setattr(words_module, "_LABELS", size)
    problem, linear = drawn(), classifiers(17)
    texts = random_rows(17, 25, seed=5, most=9)
    texts.data *= 3  # of any length
    words = label_words(replace(problem, labels=texts), linear if known else None, CPU)
    documents = problem.documents
    given = (torch.as_tensor(documents.indices).long(), torch.as_tensor(documents.indptr[:-1]).long())
    *_, said, match = words.compare(*given, torch.as_tensor(documents.data), torch.arange(17).repeat(60, 1), 25)

    def unit(rows: sparse.csr_array) -> np.ndarray:
        return rows.toarray() / np.maximum(np.linalg.norm(rows.toarray(), axis=1, keepdims=True), 1e-12)

    assert match.numpy() == pytest.approx(unit(documents) @ unit(texts).T, abs=1e-5)
    dense = np.zeros((17, 25))
    for label, (tokens, weights) in enumerate(zip(linear.tokens, linear.weights, strict=True)):
        dense[label, tokens] = weights
    expected = unit(documents) @ dense.T + linear.bias if known else np.zeros((60, 17))
    assert said.numpy() == pytest.approx(expected, abs=1e-5)  # the classifiers say what they said


def test_where_there_are_none_they_say_nothing_of_any_document() -> None:
    problem = drawn()
    words, documents = label_words(problem, None, CPU), problem.documents
    assert [array.shape for array in words[3:]] == [(17, 1), (17, 1), (17,), (17, 1)]
    given = (torch.as_tensor(documents.indices).long(), torch.as_tensor(documents.indptr[:-1]).long())
    *others, linear, match = words.compare(*given, torch.as_tensor(documents.data), torch.arange(17).repeat(60, 1), 25)
    assert all(bool(part.any()) for part in others)
    assert not linear.any()
    assert not match.any()


def test_a_document_of_a_label_is_like_it() -> None:
    """What is learned here and compared there fits together: each document is most like its own labels."""
    rng = np.random.default_rng(2)
    rows = np.kron(np.eye(6), np.ones((5, 4))) * rng.random((30, 24)) + 0.05 * rng.random((30, 24))
    documents = sparse.csr_array((rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32))
    words = label_words(problem_of(documents, truth_of([[row // 5] for row in range(30)], 6)), None, CPU)
    tokens, starts = torch.as_tensor(documents.indices).long(), torch.as_tensor(documents.indptr[:-1]).long()
    labels = torch.arange(6).repeat(30, 1)
    likeness, share, *_ = words.compare(tokens, starts, torch.as_tensor(documents.data), labels, 24)
    own = [row // 5 for row in range(30)]
    assert likeness.argmax(dim=1).tolist() == share.argmax(dim=1).tolist() == own
    sums = np.stack([documents.toarray()[5 * label : 5 * label + 5].sum(axis=0) for label in range(6)])
    cosines = documents.toarray() @ (sums / np.linalg.norm(sums, axis=1, keepdims=True)).T
    assert likeness.numpy() == pytest.approx(cosines, abs=1e-5)


@pytest.mark.parametrize(
    ("labels", "cues"),
    [(0, 256), (1, 256), (2_048, 256), (2_049, 128), (4_097, 64), (8_192, 64), (8_193, 32), (1_000_000, 32)],
)
def test_the_fewer_labels_the_more_cues_each_has(labels: int, cues: int) -> None:
    assert usual_cues(labels) == cues


def test_labels_have_as_many_cues_as_their_classifiers_keep() -> None:
    problem, rng = drawn(tokens=100), np.random.default_rng(4)
    tokens = np.stack([rng.permutation(100)[:64] for _ in range(17)]).astype(np.int32)
    linear = Linear(tokens, rng.standard_normal((17, 64)).astype(np.float32), np.zeros(17, np.float32))
    words = label_words(problem, linear, CPU)
    assert words.cues.shape == words.cue_weights.shape == words.matches.shape == (17, 64)
    assert words.tokens.shape[1] <= 32
    for label in range(17):
        kept = dict(zip(words.cues[label].tolist(), words.cue_weights[label].tolist(), strict=True))
        assert kept == dict(zip(linear.tokens[label].tolist(), linear.weights[label].tolist(), strict=True))
