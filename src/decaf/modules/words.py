"""What is known of each label by tokens, for the blend."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from decaf.features import unit_values
from decaf.modules.problem import Problem
from decaf.networks import Words, heaviest, with_texts

if TYPE_CHECKING:
    from decaf.modules.linear import Linear

__all__ = ["WIDTH", "label_words", "usual_cues"]

WIDTH = 32  # tokens kept of a label's documents, and cues at least
_MOST_CUES = 256  # of a label
_ALL_CUES = 1 << 19  # of all labels together, where each may have more than the least
_LABELS = 1 << 12  # looked at at a time


def usual_cues(labels: int) -> int:
    """How many cues each of so many labels has, a power of two: the fewer labels, the more documents speak of each."""
    return min(_MOST_CUES, max(WIDTH, 1 << (_ALL_CUES // max(1, labels)).bit_length() >> 1))


def label_words(problem: Problem, linear: Linear | None, device: torch.device) -> Words:
    """The sum of each label's documents, its heaviest tokens alone: of unit length, and as shares of all documents.

    With it go the labels' texts, and the linear classifiers where there are any.
    """
    by_label, documents = sparse.csr_array(problem.truth.T), problem.documents
    total = np.bincount(documents.indices, weights=np.abs(documents.data), minlength=documents.shape[1])
    tokens, sums = _in_parts(lambda part: heaviest(by_label[part] @ documents, WIDTH), by_label.shape[0])
    tokens, sums = _trimmed((tokens, sums), sums != 0)
    length = np.sqrt((sums.astype(np.float64) ** 2).sum(axis=1, keepdims=True))
    weights, shares = sums / np.maximum(length, 1e-30), sums / np.maximum(total[tokens], 1e-30)
    cues, cue_weights, matches = _cues(problem, linear)
    bias = np.zeros(len(tokens), np.float32) if linear is None else linear.bias
    arrays = (tokens, weights.astype(np.float32), shares.astype(np.float32), cues, cue_weights, bias, matches)
    return Words(*(torch.as_tensor(np.ascontiguousarray(array)).to(device) for array in arrays))


def _cues(problem: Problem, linear: Linear | None) -> list[NDArray[Any]]:
    """The tokens of labels' texts and of their classifiers, and what they weigh in both."""
    texts = problem.labels.copy()
    texts.data = unit_values(texts, texts.data)
    nothing = np.zeros((texts.shape[0], 0))
    tokens, weights = (nothing.astype(np.int32), nothing.astype(np.float32)) if linear is None else linear[:2]
    width = max(WIDTH, tokens.shape[1])
    arrays = _in_parts(lambda part: with_texts(tokens[part], weights[part], texts[part], width), texts.shape[0])
    return _trimmed(arrays, (arrays[1] != 0) | (arrays[2] != 0))


def _in_parts(make: Callable[[slice], tuple[NDArray[Any], ...]], labels: int) -> list[NDArray[Any]]:
    """What is made of all labels, some at a time, on all cores."""
    parts = [slice(start, start + _LABELS) for start in range(0, max(1, labels), _LABELS)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(make, parts))
    return [np.concatenate(arrays) for arrays in zip(*found, strict=True)]


def _trimmed(arrays: Sequence[NDArray[Any]], there: NDArray[np.bool_]) -> list[NDArray[Any]]:
    """The columns that any row needs, at least one; what is there stands before what is not."""
    width = max(1, int(np.count_nonzero(there, axis=1).max(initial=0)))
    return [array[:, :width] for array in arrays]
