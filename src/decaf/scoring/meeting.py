"""Compiled loops of the fast scorer: many documents meet at the clusters that they look into.

The labels of a cluster are read once for all documents that visit it, four at a time: their tokens are collected, each
with what it weighs in all four, and what a document is going to read is fetched ahead. Scores are the bits that
`decaf.scoring.ranking` gives to each document alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from decaf import packed
from decaf.compiled import compiled, drop_stale, inlined, unowned
from decaf.packed import Floats, Ints, Labels, Overlay
from decaf.scoring import arithmetic, lanes, nearest, ranking
from decaf.scoring.arithmetic import TOGETHER, Vectors
from decaf.scoring.lanes import add_row, fetch
from decaf.scoring.nearest import Documents, Tokens
from decaf.scoring.ranking import is_hidden, look, numbers_of, score_of, settle, size_of, weigh

__all__ = ["WIDEST", "rank_together"]

WIDEST = 256  # words, or cues, of labels that documents may meet at: the weights of as many fit into two bytes
_SOON = 16  # labels of a cluster that are fetched ahead
_PARTS = 4  # sums of a label: likeness, share, classifier and match; those of TOGETHER labels fill all lanes
_HEADS = 4096  # chains of tokens, by their last bits
_LAST = np.uint32(_HEADS - 1)
_ONE, _TWO = np.uint32(1), np.uint32(2)  # without a sign: numba looks for no places below 0
drop_stale(__file__, [packed.__file__, arithmetic.__file__, lanes.__file__, nearest.__file__, ranking.__file__])


class Visits(NamedTuple):
    """Which documents look into which clusters, in the order of the clusters."""

    ends: Ints  # where those to each cluster end; and behind them how many there are
    documents: NDArray[np.uint32]
    shared: Floats  # what the cluster scores, for all its labels
    starts: Ints  # where the scores of its labels begin


class Met(NamedTuple):
    """A few labels of a cluster that documents meet: their tokens, each once, and what it weighs in each label."""

    heads: NDArray[np.uint16]  # by the last bits of a token, the first of its chain; places are counted from 1
    nexts: NDArray[np.uint16]  # by place; 0 ends a chain
    tokens: Tokens
    weights: NDArray[np.int16]  # in likeness, share, classifier and match of each label, [tokens, labels x 4]
    entries: NDArray[np.int64]  # of a document, those whose tokens may be among them
    sums: NDArray[np.int32]  # likeness, share, classifier and match of each label with a document
    said: Floats  # what their vectors say, [2, labels]


@compiled
def rank_together(
    documents: Documents,
    near: Vectors,
    far: Vectors,
    clusters: Ints,
    of_cluster: Floats,
    labels: Labels,
    changes: Overlay,
    blend: Floats,
    found: Ints,
    chances: Floats,
) -> None:
    """Find the best labels of many documents, as `rank` does.

    Labels have few bits, and at most `WIDEST` words and cues each.
    """
    count = len(clusters)
    weights, steps, longest = np.empty(len(documents.tokens), np.int16), np.empty(count, np.float32), 1
    for document in range(count):
        first, last = documents.bounds[document], documents.bounds[document + 1]
        longest = max(longest, last - first)
        given = (documents.tokens[first:last], documents.values[first:last])
        steps[document] = weigh(*given, weights[first:last])
    firsts, visits = _visits(clusters, of_cluster, labels.bounds, changes.added.bounds)
    scores = np.full(firsts[-1], -np.inf, np.float32)
    parts = (documents, weights, steps, near, far, labels, changes, blend)
    most = TOGETHER * max(_tokens_of(labels), _tokens_of(changes.added))
    met = Met(
        np.zeros(_HEADS, np.uint16),
        np.zeros(most, np.uint16),
        np.zeros(most, np.uint32),
        np.zeros((most, TOGETHER * _PARTS), np.int16),
        np.zeros(longest, np.int64),
        np.zeros(TOGETHER * _PARTS, np.int32),
        np.zeros((2, TOGETHER), np.float32),
    )
    _meet(visits, met, *parts, scores)
    for document in range(count):
        if documents.bounds[document] < documents.bounds[document + 1]:
            numbers = numbers_of(clusters[document], labels, changes.added)
            of_document = scores[firsts[document] : firsts[document + 1]]
            settle(of_document, numbers, blend, found[document], chances[document])


@inlined
def _tokens_of(labels: Labels) -> int:
    """How many tokens a label may have."""
    return int(labels.words.shape[1] + labels.cues.shape[1])


@compiled
def _visits(clusters: Ints, of_cluster: Floats, own: Ints, added: Ints) -> tuple[Ints, Visits]:
    """Where the scores of each document begin, and its visits; sizes of clusters come as bounds."""
    firsts, ends = np.zeros(len(clusters) + 1, np.int64), np.zeros(len(own), np.int64)
    for document in range(len(clusters)):
        firsts[document + 1] = firsts[document]
        for cluster in clusters[document]:
            if cluster >= 0:
                firsts[document + 1] += size_of(cluster, own) + size_of(cluster, added)
                ends[cluster + 1] += 1
    ends = np.cumsum(ends)
    total = ends[-1]
    who, shared, starts = np.empty(total, np.uint32), np.empty(total, np.float32), np.empty(total, np.int64)
    for document in range(len(clusters)):
        start = firsts[document]
        for number in range(clusters.shape[1]):
            cluster = clusters[document, number]
            if cluster >= 0:
                at = ends[cluster]
                who[at], shared[at], starts[at] = document, of_cluster[document, number], start
                start += size_of(cluster, own) + size_of(cluster, added)
                ends[cluster] += 1
    return firsts, Visits(ends, who, shared, starts)


@inlined
def _fetch_labels(cluster: int, labels: Labels) -> None:
    """Have the first labels of a cluster brought near."""
    first = labels.bounds[cluster]
    last = min(first + _SOON, labels.bounds[cluster + 1])
    _fetch_span(labels.weights, first, last)
    _fetch_span(labels.texts, first, last)
    _fetch_span(labels.words, first, last)
    _fetch_span(labels.likeness, first, last)
    _fetch_span(labels.shares, first, last)
    _fetch_span(labels.cues, first, last)
    _fetch_span(labels.cue_weights, first, last)
    _fetch_span(labels.matches, first, last)


@inlined
def _fetch_span(rows: NDArray[Any], first: int, last: int) -> None:
    """Have the rows from one to another brought near."""
    if len(rows):
        wide = rows.shape[1] * rows.itemsize
        fetch(rows, first * wide, (last - first) * wide)


@inlined
def _fetch_planes(vectors: Vectors, vector: int) -> None:
    """The second half of a vector's planes, which rows of four bits, the usual ones, are multiplied with."""
    if len(vectors.planes):
        half = vectors.planes.shape[1] // 2
        fetch(vectors.planes, (2 * vector + 1) * half, half)


@unowned
def _meet(
    visits: Visits,
    met: Met,
    documents: Documents,
    weights: NDArray[np.int16],
    steps: Floats,
    near: Vectors,
    far: Vectors,
    labels: Labels,
    changes: Overlay,
    blend: Floats,
    scores: Floats,
) -> None:
    """Score the labels of cluster after cluster that are not hidden, for all documents that visit it."""
    begin, none = 0, changes.hidden[:0]
    for cluster in range(len(labels.bounds) - 1):
        first, begin = begin, visits.ends[cluster]
        if first < begin:
            if visits.ends[cluster + 1] > begin:
                _fetch_labels(cluster + 1, labels)
            here = (visits, first, begin, met, documents, weights, steps, near, far, blend, scores)
            _meet_in(cluster, labels, changes.hidden, 0, *here)
            if size_of(cluster, changes.added.bounds):
                _meet_in(cluster, changes.added, none, size_of(cluster, labels.bounds), *here)


@unowned
def _meet_in(
    cluster: int,
    labels: Labels,
    hidden: NDArray[np.bool_],
    behind: int,  # where the scores of these labels begin among those of a visit
    visits: Visits,
    first: int,  # of those to this cluster
    last: int,
    met: Met,
    documents: Documents,
    weights: NDArray[np.int16],
    steps: Floats,
    near: Vectors,
    far: Vectors,
    blend: Floats,
    scores: Floats,
) -> None:
    """The same in one cluster, for its own labels or those that were added."""
    own, end = labels.bounds[cluster], labels.bounds[cluster + 1]
    for place in range(own, end, TOGETHER):
        some = min(TOGETHER, end - place)
        _collect(place, some, labels, met)
        for visit in range(first, last):
            document, to = visits.documents[visit], visits.starts[visit] + behind + place - own
            if visit + 1 < len(visits.documents):
                _fetch_planes(far, visits.documents[visit + 1])
                if len(labels.texts):
                    _fetch_planes(near, visits.documents[visit + 1])
            _sum_up(documents, document, weights, met)
            look(place, labels, near, far, document, met.said)
            for at in range(some):
                if not is_hidden(hidden, labels.numbers[place + at]):
                    of = _PARTS * at
                    sums = (met.sums[of], met.sums[of + 1], met.sums[of + 2], met.sums[of + 3])
                    step, shared = steps[document], visits.shared[visit]
                    scores[to + at] = score_of(place + at, labels, met.said[:, at], sums, step, shared, blend)


@inlined
def _collect(place: int, some: int, labels: Labels, met: Met) -> None:
    """Collect the tokens of a few labels from this place on."""
    met.heads[:] = 0
    met.nexts[:] = 0
    met.weights[:] = 0
    count = np.uint32(0)
    for label in range(some if len(labels.words) else 0):
        of, to = np.uint32(place + label), np.uint32(_PARTS * label)
        for at in range(np.uint32(labels.words.shape[1])):
            likeness, share = labels.likeness[of, at], labels.shares[of, at]
            if likeness | share:
                there, count = _placed(np.uint32(labels.words[of, at]), met, count)
                met.weights[there, to] += likeness
                met.weights[there, to + _ONE] += share
        for at in range(np.uint32(labels.cues.shape[1])):
            linear, match = labels.cue_weights[of, at], labels.matches[of, at]
            if linear | match:
                there, count = _placed(np.uint32(labels.cues[of, at]), met, count)
                met.weights[there, to + _TWO] += linear
                met.weights[there, to + _TWO + _ONE] += match


@inlined
def _placed(token: np.uint32, met: Met, count: np.uint32) -> tuple[np.uint32, np.uint32]:
    """Where a token is, now at the latest; and how many there are. Hardly a branch goes wrong here."""
    head = np.uint32(met.heads[token & _LAST])
    count += np.uint32(head == 0)
    there = (head if head else count) - _ONE
    if head and met.tokens[there] != token:  # another one of the chain
        while met.tokens[there] != token and met.nexts[there]:
            there = np.uint32(met.nexts[there]) - _ONE
        if met.tokens[there] != token:
            count += _ONE
            met.nexts[there] = count
            there = count - _ONE
            met.tokens[there] = token
    else:
        met.tokens[there] = token
        met.heads[token & _LAST] = there + _ONE
    return there, count


@inlined
def _place_of(token: np.uint32, met: Met) -> np.uint32:
    """The place of a token, counted from 1; 0 if it is not there."""
    at = np.uint32(met.heads[token & _LAST])
    while at and met.tokens[at - _ONE] != token:
        at = np.uint32(met.nexts[at - _ONE])
    return at


@inlined
def _sum_up(documents: Documents, document: int, weights: NDArray[np.int16], met: Met) -> None:
    """Likeness, share, classifier and match of a document with the few labels whose tokens were collected."""
    met.sums[:] = 0
    count = 0
    for entry in range(documents.bounds[document], documents.bounds[document + 1]):
        met.entries[count] = entry  # written over by the next if nobody has its token: a branch would cost more
        count += met.heads[documents.tokens[entry] & _LAST] > 0
    for number in range(count):
        entry = met.entries[number]
        at = _place_of(documents.tokens[entry], met)
        if at:
            add_row(met.weights, int(at - _ONE), weights[entry], met.sums)
