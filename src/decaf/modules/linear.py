"""Linear classifiers over tokens, one for each label: support vector machines on the documents that look at it."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from decaf.compiled import compiled, drop_stale
from decaf.features import unit_values
from decaf.modules.problem import Problem
from decaf.progress import progress

__all__ = ["Linear", "all_meet", "learn_linear"]

_CLUSTERS = 30  # of a document's shortlist whose labels learn from it
_PASSES = 5  # over the documents of a label
_COST = 1.0  # of a document on the wrong side
_MANY = 50  # documents of a label, in the mean, from which on all labels learn from all documents
_MANY_COST = 0.3
_MOST_MET = 300_000_000  # documents times labels, up to which that is soon done
_GROUPS = 16  # of labels that then learn from the same documents, for the threads to share
_PARTS = 1024  # clusters are shared out to threads in at most so many parts


drop_stale(__file__)


class Linear(NamedTuple):
    """The heaviest tokens of each label's classifier; one that has fewer has zeros."""

    tokens: NDArray[np.int32]  # [labels, cues]
    weights: NDArray[np.float32]  # [labels, cues]
    bias: NDArray[np.float32]  # [labels]


class _Rows(NamedTuple):
    """A matrix by rows."""

    bounds: NDArray[np.int64]
    columns: NDArray[np.int64]
    values: NDArray[np.float32]

    @classmethod
    def of(cls, matrix: sparse.csr_array) -> _Rows:
        return cls(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data.astype(np.float32))


def learn_linear(
    problem: Problem, cluster: NDArray[np.int64], shortlists: NDArray[np.int64], *, cues: int = 32
) -> Linear:
    """Learn to tell a label's documents from the others that have its cluster in their shortlist.

    A label's text is a document of it too, which its cluster alone looks at. `cluster` is that of each label,
    `shortlists` [documents, beam] the clusters of each document, best first. Of a classifier the `cues` tokens that
    weigh most are kept. Where labels have many documents and there are few of them, each learns from all documents.
    """
    count, labels = int(max(cluster.max(initial=0), shortlists.max(initial=0))) + 1, len(cluster)
    cost = _COST
    if all_meet(problem.truth):
        cost, count = _MANY_COST, min(_GROUPS, labels)
        cluster = np.arange(labels) % count
        shortlists = np.tile(np.arange(count), (problem.truth.shape[0], 1))
    documents = sparse.csr_array(sparse.vstack([problem.documents, problem.labels], format="csr", dtype=np.float32))
    documents.data = unit_values(documents, documents.data)
    filled = np.flatnonzero(np.diff(problem.labels.indptr))  # labels that have a text
    own = (np.ones(len(filled), dtype=np.float32), (filled, filled))
    known = sparse.csr_array(sparse.vstack([problem.known(), sparse.csr_array(own, shape=(labels, labels))]).T)
    known.sort_indices()
    lookers = _lookers(problem.truth, cluster, shortlists[:, :_CLUSTERS], filled, count)
    order = np.argsort(cluster, kind="stable")
    members = np.searchsorted(cluster[order], np.arange(count + 1))
    made = Linear(
        np.zeros((labels, cues), dtype=np.int32),
        np.zeros((labels, cues), dtype=np.float32),
        np.zeros(labels, dtype=np.float32),
    )
    given = (_Rows.of(documents), documents.shape[1], _Rows.of(known), _Rows.of(lookers), members, order, cost, made)
    cuts = _shares(np.diff(lookers.indptr) * np.diff(members))
    with progress("linear classifiers", count) as advance, ThreadPoolExecutor(os.cpu_count()) as pool:
        for done in pool.map(lambda first, last: _learn(*given, first, last), cuts[:-1], cuts[1:]):
            advance(done)
    return made


def all_meet(truth: sparse.csr_array) -> bool:
    """Whether all labels learn from all documents: each has many, and it is soon done."""
    documents, labels = truth.shape
    return bool(truth.nnz >= _MANY * labels and documents * labels <= _MOST_MET)


def _shares(work: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where to cut clusters so that all parts are about as much work: a few clusters are looked at by everybody."""
    done = np.cumsum(work + 1)
    cuts = np.searchsorted(done, np.linspace(0, done[-1], _PARTS + 1)[1:-1])
    found: NDArray[np.int64] = np.unique(np.concatenate([[0], cuts, [len(work)]]))
    return found


def _lookers(
    truth: sparse.csr_array,
    cluster: NDArray[np.int64],
    shortlists: NDArray[np.int64],
    filled: NDArray[np.int64],
    count: int,
) -> sparse.csr_array:
    """The documents that look into each cluster, or should, and the texts of its labels behind them."""
    documents, listed = np.nonzero(shortlists >= 0)
    rows = np.concatenate([shortlists[documents, listed], cluster[truth.indices], cluster[filled]])
    of_truth = np.repeat(np.arange(truth.shape[0]), np.diff(truth.indptr))
    columns = np.concatenate([documents, of_truth, truth.shape[0] + filled])
    ones = np.ones(len(rows), dtype=np.float32)
    found = sparse.csr_array((ones, (rows, columns)), shape=(count, truth.shape[0] + len(cluster)))
    found.sum_duplicates()
    return found


@compiled
def _learn(
    documents: _Rows,
    vocabulary: int,
    known: _Rows,  # by label: 1 for its documents, -1 for those that count for nothing
    lookers: _Rows,  # documents by cluster
    members: NDArray[np.int64],  # where the labels of each cluster begin in `order`
    order: NDArray[np.int64],
    cost: float,  # of a document on the wrong side
    made: Linear,
    first: int,
    last: int,
) -> int:
    """Learn the classifiers of the labels of these clusters, each by dual coordinate descent (squared hinge loss)."""
    weights = np.zeros(vocabulary, np.float32)
    touched = np.zeros(vocabulary, np.bool_)
    tokens = np.empty(vocabulary, np.int64)
    for cluster in range(first, last):
        looking = lookers.columns[lookers.bounds[cluster] : lookers.bounds[cluster + 1]]
        used = 0
        for document in looking:
            for entry in range(documents.bounds[document], documents.bounds[document + 1]):
                token = documents.columns[entry]
                if not touched[token]:
                    touched[token] = True
                    tokens[used] = token
                    used += 1
        for label in order[members[cluster] : members[cluster + 1]]:
            made.bias[label] = _descend(documents, looking, _signs(known, label, looking), cost, weights)
            _keep(weights, tokens[:used], made.tokens[label], made.weights[label])
            for token in tokens[:used]:
                weights[token] = 0
        for token in tokens[:used]:
            touched[token] = False
    return last - first


@compiled
def _signs(known: _Rows, label: int, looking: NDArray[np.int64]) -> NDArray[np.float32]:
    """1 for documents of the label, 0 for those that count for nothing, -1 for all others; both are in order."""
    signs = np.full(len(looking), -1, np.float32)
    entry, end = known.bounds[label], known.bounds[label + 1]
    for at in range(len(looking)):
        while entry < end and known.columns[entry] < looking[at]:
            entry += 1
        if entry < end and known.columns[entry] == looking[at]:
            signs[at] = max(known.values[entry], np.float32(0))
    return signs


@compiled
def _descend(
    documents: _Rows,
    looking: NDArray[np.int64],
    signs: NDArray[np.float32],
    cost: float,
    weights: NDArray[np.float32],
) -> float:
    """Add to the weights what these documents teach; the bias. A document is of unit length, the bias a token more."""
    half, bias = np.float32(0.5 / cost), np.float32(0)
    shares = np.zeros(len(looking), np.float32)
    places = np.arange(len(looking))
    state = np.uint64(88172645463325252)
    for _ in range(_PASSES):
        for at in range(len(places)):
            state ^= state << np.uint64(13)  # Marsaglia's xorshift: another order in every pass, the same in every run
            state ^= state >> np.uint64(7)
            state ^= state << np.uint64(17)
            other = at + np.int64(state % np.uint64(len(places) - at))
            places[at], places[other] = places[other], places[at]
            place = places[at]
            sign, document = signs[place], looking[place]
            if sign == 0:
                continue
            score = bias
            for entry in range(documents.bounds[document], documents.bounds[document + 1]):
                score += weights[documents.columns[entry]] * documents.values[entry]
            slope = sign * score - np.float32(1) + shares[place] * half
            share = max(shares[place] - slope / (np.float32(2) + half), np.float32(0))
            step = (share - shares[place]) * sign
            if step == 0:
                continue
            shares[place] = share
            bias += step
            for entry in range(documents.bounds[document], documents.bounds[document + 1]):
                weights[documents.columns[entry]] += step * documents.values[entry]
    return float(bias)


@compiled
def _keep(
    weights: NDArray[np.float32],
    tokens: NDArray[np.int64],
    kept: NDArray[np.int32],
    heaviest: NDArray[np.float32],
) -> None:
    """The tokens that weigh most, the heaviest first, into what is there."""
    count = 0
    for token in tokens:
        weight = weights[token]
        if abs(weight) <= abs(heaviest[-1]):
            continue
        at = min(count, len(kept) - 1)
        while at > 0 and abs(heaviest[at - 1]) < abs(weight):
            kept[at], heaviest[at] = kept[at - 1], heaviest[at - 1]
            at -= 1
        kept[at], heaviest[at] = token, weight
        count = min(count + 1, len(kept))
