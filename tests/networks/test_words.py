"""Words of labels: how documents compare with them, against an obvious loop, in blocks and one at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import Tensor

from decaf.networks import Words, with_texts

TOKENS, LABELS = 40, 30
Document = dict[int, float]  # what its tokens weigh


def words_of(width: int) -> Words:
    """Every label has between none and all of so many tokens, the fewer the more cues; other places hold zeros."""
    rng = np.random.default_rng(width)
    tokens, weights, shares = np.zeros((LABELS, width), dtype=np.int32), *np.zeros((2, LABELS, width), dtype=np.float32)
    cues, cue_weights = np.zeros((LABELS, 33 - width), dtype=np.int32), np.zeros((LABELS, 33 - width), dtype=np.float32)
    for label in range(LABELS):
        count = int(rng.integers(0, width + 1)) if label else width
        tokens[label, :count] = rng.choice(TOKENS, size=count, replace=False)
        weights[label, :count], shares[label, :count] = rng.random(count), rng.random(count)
        count = int(rng.integers(0, 34 - width)) if label else 33 - width
        cues[label, :count] = rng.choice(TOKENS, size=count, replace=False)
        cue_weights[label, :count] = rng.standard_normal(count)
    bias = rng.standard_normal(LABELS).astype(np.float32)
    matches = np.where(cue_weights != 0, rng.random(cues.shape), 0).astype(np.float32)
    return Words(*(torch.as_tensor(array) for array in (tokens, weights, shares, cues, cue_weights, bias, matches)))


def documents_of(count: int, *, seed: int = 0) -> list[Document]:
    """Between no token and seven; the first and last are there too."""
    rng = np.random.default_rng(seed)
    found = [
        {int(token): float(np.float32(rng.random())) for token in rng.choice(TOKENS, rng.integers(0, 8), replace=False)}
        for _ in range(count)
    ]
    found[0] = {0: 0.5, TOKENS - 1: 0.25}
    return found


def compared(words: Words, documents: Sequence[Document], labels: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    lengths = [len(document) for document in documents]
    starts = torch.tensor([0, *lengths]).cumsum(0)[:-1]
    entries = [entry for document in documents for entry in document.items()]
    tokens = torch.tensor([token for token, _ in entries], dtype=torch.int64)
    return words.compare(tokens, starts, torch.tensor([weight for _, weight in entries]), labels, TOKENS)


def listed(documents: int, width: int, *, seed: int = 1) -> Tensor:
    """Some labels of each document, and gaps."""
    return torch.randint(-1, LABELS, (documents, width), generator=torch.Generator().manual_seed(seed))


def obvious(words: Words, document: Document, label: int) -> tuple[float, float, float, float]:
    """Token by token."""
    likeness, share, linear, match = 0.0, 0.0, float(words.cue_bias[label]), 0.0
    length = math.sqrt(sum(weight**2 for weight in document.values())) or 1.0
    document = {token: weight / length for token, weight in document.items()}
    for token, weight, part in zip(*(array[label].tolist() for array in words[:3]), strict=True):
        likeness += document.get(token, 0.0) * weight
        share += document.get(token, 0.0) * part
    of_cues = (words.cues, words.cue_weights, words.matches)
    for token, weight, own in zip(*(array[label].tolist() for array in of_cues), strict=True):
        linear += document.get(token, 0.0) * weight
        match += document.get(token, 0.0) * own
    return likeness, math.log(share + 0.001), linear, match


def check(words: Words, documents: Sequence[Document], labels: Tensor) -> None:
    parts = compared(words, documents, labels)
    assert all(part.shape == labels.shape for part in parts)
    assert all(bool(torch.isfinite(part).all()) for part in parts)  # places without a label too
    for row, document in enumerate(documents):
        for at, label in enumerate(labels[row].tolist()):
            if label >= 0:
                found = tuple(float(part[row, at]) for part in parts)
                assert found == pytest.approx(obvious(words, document, label), abs=1e-5)


@pytest.mark.parametrize("count", [1, 9, 291, 292, 293, 600])  # 292 are compared at a time: 8,192 over 28 cues
def test_documents_compare_with_labels_as_in_an_obvious_loop(count: int) -> None:
    check(words_of(5), documents_of(count), listed(count, 4))


@pytest.mark.parametrize("width", [1, 2, 32])
@pytest.mark.parametrize("places", [1, 7])
def test_so_they_do_whatever_the_number_of_tokens_and_labels(width: int, places: int) -> None:
    check(words_of(width), documents_of(20), listed(20, places))


@pytest.mark.parametrize("width", [28, 300, 9000])  # then 27 documents are compared at a time, and one
def test_so_they_do_with_room_for_more_cues_than_there_are(width: int) -> None:
    words = words_of(5)
    rest = (0, width - 28)
    names = ("cues", "cue_weights", "matches")
    wide = words._replace(**{name: torch.nn.functional.pad(getattr(words, name), rest) for name in names})
    check(wide, documents_of(60), listed(60, 4))


def test_documents_without_a_token_have_nothing_in_common_with_any_label() -> None:
    words, labels = words_of(5), listed(700, 3)
    # At the beginning, a whole block of 292, and at the end.
    documents = documents_of(700)
    for row in (0, *range(292, 584), 699):
        documents[row] = {}
    check(words, documents, labels)
    for few in (documents[292:295], documents[:1]):
        likeness, share, linear, match = compared(words, few, labels[: len(few)])
        assert not likeness.any()
        assert not match.any()
        assert torch.allclose(share, torch.tensor(0.001).log())
        there = labels[: len(few)] >= 0
        assert torch.equal(linear[there], words.cue_bias[labels[: len(few)][there]])


def test_no_documents_compare_with_no_labels() -> None:
    assert [part.shape for part in compared(words_of(5), [], listed(0, 4))] == [(0, 4)] * 4


def test_a_place_without_a_label_changes_nothing_for_the_others() -> None:
    words, documents, labels = words_of(5), documents_of(30), listed(30, 6)
    there = labels >= 0
    assert 0 < int(there.sum()) < there.numel()
    filled = labels.masked_fill(~there, 3)
    for gaps, full in zip(compared(words, documents, labels), compared(words, documents, filled), strict=True):
        assert torch.equal(gaps[there], full[there])


def test_the_zeros_behind_a_labels_tokens_are_not_token_zero() -> None:
    about = torch.tensor([[3, 0, 0]]), torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([[0.5, 0.0, 0.0]])
    of_cues = torch.tensor([[3, 0]]), torch.tensor([[-2.0, 0.0]]), torch.tensor([0.5]), torch.tensor([[0.25, 0.0]])
    words = Words(*about, *of_cues)
    likeness, share, linear, match = compared(words, [{0: 0.8, 3: 0.6}, {0: 1.0}], torch.zeros(2, 1, dtype=torch.int64))
    assert likeness[:, 0].tolist() == pytest.approx([0.6, 0])
    assert share[:, 0].tolist() == pytest.approx([math.log(0.301), math.log(0.001)])
    assert linear[:, 0].tolist() == pytest.approx([-0.7, 0.5])
    assert match[:, 0].tolist() == pytest.approx([0.15, 0])


@pytest.mark.parametrize("width", [1, 3, 8, 31, 32])
@pytest.mark.parametrize("places", [1, 2, 9])
def test_a_document_alone_is_the_document_among_others_bit_for_bit(width: int, places: int) -> None:
    words, documents, labels = words_of(width), documents_of(300), listed(300, places)
    together = compared(words, documents, labels)
    for row in (0, 1, 2, 100, 254, 255, 256, 257, 298, 299):
        alone = compared(words, documents[row : row + 1], labels[row : row + 1])
        assert all(torch.equal(one[0], all_of[row]) for one, all_of in zip(alone, together, strict=True))


def obvious_cues(
    cues: dict[int, float], text: dict[int, float], width: int
) -> tuple[dict[int, float], dict[int, float]]:
    """The 16 heaviest tokens of the text, then the heaviest of the classifier, as long as there is room."""
    own = sorted(text, key=lambda token: (-text[token], token))[: min(16, width)]
    others = sorted(set(cues) - set(own), key=lambda token: -abs(cues[token]))[: width - len(own)]
    weighed = {token: cues[token] for token in [*own, *others] if token in cues}
    return weighed, {token: text[token] for token in own}


@pytest.mark.parametrize("width", [1, 5, 16, 32])
@pytest.mark.parametrize("seed", range(3))
def test_the_tokens_of_texts_come_before_those_of_classifiers(width: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    cues, weights, texts, known = [], [], [], []
    for label in range(50):
        of_cues = rng.choice(TOKENS, 12, replace=False)
        of_text = rng.choice(TOKENS, 0 if label == 3 else rng.integers(0, 25), replace=False)
        drawn, row = rng.standard_normal(12).astype(np.float32), np.zeros(TOKENS, dtype=np.float32)
        drawn[10:] = 0  # a classifier of fewer tokens
        row[of_text] = rng.random(len(of_text)) + 0.1
        cues.append(of_cues)
        weights.append(drawn)
        texts.append(row)
        named = {int(token): float(weight) for token, weight in zip(of_cues[:10], drawn, strict=False)}
        known.append((named, {int(token): float(row[token]) for token in of_text}))
    given = (np.array(cues, dtype=np.int32), np.array(weights), sparse.csr_array(np.array(texts)), width)
    tokens, in_classifier, in_text = with_texts(*given)
    assert tokens.shape == in_classifier.shape == in_text.shape == (50, width)
    assert (tokens.dtype, in_classifier.dtype, in_text.dtype) == (np.int32, np.float32, np.float32)
    for label, (named, text) in enumerate(known):
        found = [
            {int(token): float(value) for token, value in zip(tokens[label], array[label], strict=True) if value}
            for array in (in_classifier, in_text)
        ]
        assert found == list(obvious_cues(named, text, width))
        there = (in_classifier[label] != 0) | (in_text[label] != 0)
        assert not tokens[label][~there].any()
        assert not there[np.count_nonzero(there) :].any()  # what is there stands before what is not
