"""Compiled loops of the fast scorer: from shortlisted labels to the best ones.

One document goes to its clusters, and many wait at each cluster for their labels: either way the same sums of whole
numbers are taken, so that the bits of an answer do not depend on the company it is made in. Nothing here holds the
interpreter's lock, and what is not a sum is computed in the order in which it is written.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from decaf import packed
from decaf.compiled import compiled, drop_stale, inlined, unowned
from decaf.networks.words import LEAST_SHARE
from decaf.packed import Floats, Ints, Labels, Overlay
from decaf.scoring import arithmetic, lanes, nearest
from decaf.scoring.arithmetic import TOGETHER, Vectors, fours, nothing, products, put, times
from decaf.scoring.lanes import LANES, add_row, fetch, first_of, same
from decaf.scoring.nearest import Documents, Maker, Search, Tokens, encode, find

__all__ = ["WIDEST", "answer", "rank", "rank_apart", "rank_together"]

WIDEST = 256  # words, or cues, of labels that documents may meet at: the weights of as many fit into two bytes
_HEADS = 4096  # chains of tokens, by their last bits
_USUAL = 2 * LANES  # words and cues of a label, which are compared at once
_ONE, _TWO, _BIT = np.uint32(1), np.uint32(2), np.uint64(1)  # without a sign: numba looks for no places below 0
_LAST = np.uint32(_HEADS - 1)
_LEAST = np.float32(LEAST_SHARE)
_LOG_LEAST = np.float32(math.log(_LEAST))
_HEAVIEST = (1 << 15) - 1  # what the heaviest token of a document weighs in whole numbers
drop_stale(__file__, [packed.__file__, arithmetic.__file__, lanes.__file__, nearest.__file__])


class Visits(NamedTuple):
    """Which documents look into which clusters, in the order of the clusters."""

    ends: Ints  # where those to each cluster end
    documents: NDArray[np.uint32]
    shared: Floats  # what the cluster says of all its labels
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
def rank(
    documents: Documents,
    near: Vectors,  # of the shortlister
    far: Vectors,  # of the ranker
    clusters: Ints,  # [documents, beam], -1 for none
    of_cluster: Floats,  # their scores
    labels: Labels,
    changes: Overlay,
    blend: Floats,  # weights of the parts beside the classifier, in order; slope, company, constant of chances
    found: Ints,  # the best labels [documents, top], -1 for none
    chances: Floats,  # the logarithms of their chances
) -> None:
    """Find the best labels of the shortlisted clusters; of equal ones the higher number goes first."""
    said = np.empty((2, TOGETHER), np.float32)
    for document in range(len(clusters)):
        first, last = documents.bounds[document], documents.bounds[document + 1]
        if first == last:
            continue  # an empty text has no labels
        tokens, weights = documents.tokens[first:last], np.empty(last - first, near.values.dtype)
        step = _weigh(tokens, documents.values[first:last], weights)
        numbers = _numbers(clusters[document], labels, changes.added)
        scores = np.full(len(numbers), -np.inf, np.float32)
        parts = (tokens, weights, step, near, far, document, of_cluster[document])
        _visit(clusters[document], *parts, labels, changes, blend, numbers, said, scores)
        _settle(scores, numbers, blend, found[document], chances[document])


@unowned
def _visit(
    clusters: Ints,
    tokens: Tokens,
    weights: NDArray[Any],
    step: np.float32,
    near: Vectors,
    far: Vectors,
    document: int,
    of_cluster: Floats,
    labels: Labels,
    changes: Overlay,
    blend: Floats,
    numbers: Ints,
    said: Floats,
    scores: Floats,
) -> None:
    """Score the labels of a document's clusters that are not hidden."""
    count = 0
    for number in range(len(clusters)):
        cluster = clusters[number]
        if cluster < 0:
            continue
        shared = blend[1] * of_cluster[number]
        first = labels.bounds[cluster]
        for place in range(first, labels.bounds[cluster + 1]):
            at = (place - first) % TOGETHER
            if at == 0:
                _look(place, labels, near, far, document, said)
            if not _hidden(changes.hidden, numbers[count]):
                sums = _sums(place, labels, tokens, weights)
                scores[count] = _score(place, labels, said[:, at], sums, step, shared, blend)
            count += 1
        for place in range(changes.added.bounds[cluster], changes.added.bounds[cluster + 1]):
            _look(place, changes.added, near, far, document, said)
            sums = _sums(place, changes.added, tokens, weights)
            scores[count] = _score(place, changes.added, said[:, 0], sums, step, shared, blend)
            count += 1


@inlined
def _sums(place: int, labels: Labels, tokens: Tokens, weights: NDArray[Any]) -> tuple[Any, Any, Any, Any]:
    """Likeness, share, classifier and match of a label with a document, token by token."""
    likeness, share = nothing(labels.likeness), nothing(labels.shares)
    linear, match = nothing(labels.cue_weights), nothing(labels.matches)
    words, cues = (labels.words.shape[1], labels.cues.shape[1]) if len(labels.words) else (0, 0)
    usual = words == _USUAL and cues == _USUAL
    for entry in range(len(tokens)):
        token, weight = tokens[entry], weights[entry]
        if usual:
            bits = same(labels.words, labels.cues, place, token)
            while bits:
                at = first_of(bits)
                if at < _USUAL:
                    likeness += times(labels.likeness[place, at], weight)
                    share += times(labels.shares[place, at], weight)
                else:
                    linear += times(labels.cue_weights[place, at - _USUAL], weight)
                    match += times(labels.matches[place, at - _USUAL], weight)
                bits &= bits - _BIT
            continue
        for at in range(words):
            if np.uint32(labels.words[place, at]) == token:
                likeness += times(labels.likeness[place, at], weight)
                share += times(labels.shares[place, at], weight)
        for at in range(cues):
            if np.uint32(labels.cues[place, at]) == token:
                linear += times(labels.cue_weights[place, at], weight)
                match += times(labels.matches[place, at], weight)
    return likeness, share, linear, match


@inlined
def _look(place: int, labels: Labels, near: Vectors, far: Vectors, document: int, said: Floats) -> None:
    """What classifiers and texts, by their vectors, say of four labels from this place on."""
    four = fours(place, len(labels.numbers))
    products(labels.weights, four, far, document, said[0])
    for at in range(TOGETHER):
        said[0, at] *= labels.weight_scales[four[at]] * far.steps[document]
    if len(labels.texts):
        products(labels.texts, four, near, document, said[1])
        for at in range(TOGETHER):
            said[1, at] *= labels.text_scales[four[at]] * near.steps[document]


@inlined
def _score(
    place: int,
    labels: Labels,
    said: Floats,  # by its vectors
    sums: tuple[Any, Any, Any, Any],
    step: np.float32,  # of the sums
    shared: np.float32,  # what the cluster says
    blend: Floats,
) -> np.float32:
    """What all parts together say of a label."""
    score = said[0] + labels.bias[place] + blend[5] * labels.rarity[place]
    if len(labels.texts):
        score += blend[0] * said[1]
    if len(labels.words):
        likeness, share = np.float32(sums[0]), np.float32(sums[1])
        linear, match = np.float32(sums[2]), np.float32(sums[3])
        score += blend[2] * (likeness * (labels.likeness_scales[place] * step))
        of_share = _LOG_LEAST
        if share > 0:
            of_share = np.float32(math.log(share * (labels.share_scales[place] * step) + _LEAST))
        score += blend[3] * of_share
        score += blend[4] * (linear * (labels.cue_scales[place] * step) + labels.cue_bias[place])
        score += blend[6] * (match * (labels.match_scales[place] * step))
    return np.float32(score + shared)


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
    """The same for many documents: those that look into a cluster meet there, and its labels are read once.

    Labels have few bits, and at most `WIDEST` words and cues each.
    """
    count = len(clusters)
    weights, steps = np.empty(len(documents.tokens), np.int16), np.empty(count, np.float32)
    for document in range(count):
        first, last = documents.bounds[document], documents.bounds[document + 1]
        given = (documents.tokens[first:last], documents.values[first:last])
        steps[document] = _weigh(*given, weights[first:last])
    firsts, visits = _visits(clusters, of_cluster, labels.bounds, changes.added.bounds, blend)
    scores = np.full(firsts[-1], -np.inf, np.float32)
    parts = (documents, weights, steps, near, far, labels, changes, blend)
    longest = 1
    for document in range(count):
        longest = max(longest, documents.bounds[document + 1] - documents.bounds[document])
    most = TOGETHER * (labels.words.shape[1] + labels.cues.shape[1])
    met = Met(
        np.zeros(_HEADS, np.uint16),
        np.zeros(most, np.uint16),
        np.zeros(most, np.uint32),
        np.zeros((most, LANES), np.int16),
        np.zeros(longest, np.int64),
        np.zeros(LANES, np.int32),
        np.zeros((2, TOGETHER), np.float32),
    )
    _meet(visits, met, *parts, scores)
    for document in range(count):
        if documents.bounds[document] < documents.bounds[document + 1]:
            numbers = _numbers(clusters[document], labels, changes.added)
            own = scores[firsts[document] : firsts[document + 1]]
            _settle(own, numbers, blend, found[document], chances[document])


@compiled
def _visits(clusters: Ints, of_cluster: Floats, own: Ints, added: Ints, blend: Floats) -> tuple[Ints, Visits]:
    """Where the scores of each document begin, and its visits; sizes of clusters come as bounds."""
    firsts, ends = np.zeros(len(clusters) + 1, np.int64), np.zeros(len(own), np.int64)
    for document in range(len(clusters)):
        firsts[document + 1] = firsts[document]
        for cluster in clusters[document]:
            if cluster >= 0:
                firsts[document + 1] += _size(cluster, own) + _size(cluster, added)
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
                who[at], shared[at], starts[at] = document, blend[1] * of_cluster[document, number], start
                start += _size(cluster, own) + _size(cluster, added)
                ends[cluster] += 1
    return firsts, Visits(ends, who, shared, starts)


@inlined
def _fetch_labels(cluster: int, labels: Labels) -> None:
    """Have the labels of a cluster brought near."""
    first, last = labels.bounds[cluster], labels.bounds[cluster + 1]
    _fetch_rows(labels.weights, first, last)
    _fetch_rows(labels.texts, first, last)
    _fetch_rows(labels.words, first, last)
    _fetch_rows(labels.likeness, first, last)
    _fetch_rows(labels.shares, first, last)
    _fetch_rows(labels.cues, first, last)
    _fetch_rows(labels.cue_weights, first, last)
    _fetch_rows(labels.matches, first, last)


@inlined
def _fetch_rows(rows: NDArray[Any], first: int, last: int) -> None:
    if len(rows):
        wide = rows.shape[1] * rows.itemsize
        fetch(rows, first * wide, (last - first) * wide)


@inlined
def _fetch_planes(vectors: Vectors, vector: int) -> None:
    """The half of a vector's planes that rows of four bits are multiplied with."""
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
            if cluster + 1 < len(visits.ends) and visits.ends[cluster + 1] > begin:
                _fetch_labels(cluster + 1, labels)
            here = (visits, first, begin, met, documents, weights, steps, near, far, blend, scores)
            _meet_in(cluster, labels, changes.hidden, 0, *here)
            if _size(cluster, changes.added.bounds):
                _meet_in(cluster, changes.added, none, _size(cluster, labels.bounds), *here)


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
                _fetch_planes(near, visits.documents[visit + 1])
                _fetch_planes(far, visits.documents[visit + 1])
            _sum_up(documents, document, weights, met)
            _look(place, labels, near, far, document, met.said)
            for at in range(some):
                if not _hidden(hidden, labels.numbers[place + at]):
                    sums = (met.sums[4 * at], met.sums[4 * at + 1], met.sums[4 * at + 2], met.sums[4 * at + 3])
                    score = _score(
                        place + at, labels, met.said[:, at], sums, steps[document], visits.shared[visit], blend
                    )
                    scores[to + at] = score


@inlined
def _collect(place: int, some: int, labels: Labels, met: Met) -> None:
    """Collect the tokens of a few labels from this place on."""
    met.heads[:] = 0
    met.nexts[:] = 0
    met.weights[:] = 0
    count = np.uint32(0)
    for label in range(some if len(labels.words) else 0):
        of, to = np.uint32(place + label), np.uint32(4 * label)
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


@compiled
def _weigh(tokens: Tokens, values: Floats, weights: NDArray[Any]) -> np.float32:
    """What the tokens of a document weigh, in whole numbers or not; the step that makes the document's length one.

    A token that comes again counts the last time alone.
    """
    length, rising = np.float32(0), True
    for at in range(len(values)):
        length += values[at] * values[at]
        rising = rising and (at == 0 or tokens[at - 1] < tokens[at])
    step = put(values, _HEAVIEST if weights.itemsize == 2 else 0, weights)  # or they are floats
    if not rising:
        order = np.argsort(tokens, kind="mergesort")  # of the same ones, in the order in which they come
        for at in range(1, len(order)):
            if tokens[order[at - 1]] == tokens[order[at]]:
                weights[order[at - 1]] = 0
    return np.float32(step / max(math.sqrt(length), 1e-12))


@compiled
def _numbers(clusters: Ints, labels: Labels, added: Labels) -> Ints:
    """The numbers of the labels of these clusters, in order."""
    numbers = np.empty(_listed(clusters, labels.bounds) + _listed(clusters, added.bounds), np.int64)
    count = 0
    for cluster in clusters:
        if cluster >= 0:
            for place in range(labels.bounds[cluster], labels.bounds[cluster + 1]):
                numbers[count] = labels.numbers[place]
                count += 1
            for place in range(added.bounds[cluster], added.bounds[cluster + 1]):
                numbers[count] = added.numbers[place]
                count += 1
    return numbers


@unowned
def _settle(scores: Floats, numbers: Ints, blend: Floats, found: Ints, chances: Floats) -> None:
    """The best labels and the logarithms of their chances, which depend on the company they are in."""
    kept = _best(scores, numbers, found, chances)
    if kept:
        peak, total = chances[0], np.float32(0)
        for score in scores:
            total += math.exp(score - peak)
        company = blend[8] * (peak + math.log(total)) + blend[9]
        for at in range(kept):
            chances[at] = _log_sigmoid(blend[7] * chances[at] + company)


@inlined
def _hidden(hidden: NDArray[np.bool_], number: int) -> bool:
    return len(hidden) > 0 and bool(hidden[number])


@inlined
def _size(cluster: int, bounds: Ints) -> int:
    return int(bounds[cluster + 1] - bounds[cluster])


@unowned
def _listed(clusters: Ints, bounds: Ints) -> int:
    """How many labels these clusters hold together."""
    count = 0
    for cluster in clusters:
        if cluster >= 0:
            count += _size(cluster, bounds)
    return count


@compiled
def answer(
    documents: Documents,
    near: Maker,
    far: Maker,
    search: Search,
    effort: int,
    beam: int,
    labels: Labels,
    changes: Overlay,
    blend: Floats,
    of_near: Vectors,  # room for these and the next
    of_far: Vectors,
    whole: NDArray[np.uint8],
    steps: Floats,
    rough: Floats,
    found: Ints,
    chances: Floats,
) -> None:
    """From documents to their best labels in one go: every call of compiled code has a price."""
    count = len(documents.bounds) - 1
    encode(documents, near, of_near)
    encode(documents, far, of_far)
    clusters, of_cluster = np.full((count, beam), -1, np.int64), np.full((count, beam), -np.inf, np.float32)
    find(of_near, search, effort, whole, steps, rough, clusters, of_cluster)
    rank(documents, of_near, of_far, clusters, of_cluster, labels, changes, blend, found, chances)


@compiled
def rank_apart(
    documents: Documents,
    far: Vectors,
    clusters: Ints,
    of_cluster: Floats,  # logarithms of the clusters' chances
    labels: Labels,
    changes: Overlay,
    found: Ints,
    chances: Floats,
) -> None:
    """The best labels without a blend: a label's chance is its cluster's times its own, as in the paper."""
    for document in range(len(clusters)):
        if documents.bounds[document] == documents.bounds[document + 1]:
            continue
        numbers = _numbers(clusters[document], labels, changes.added)
        scores, count, said = np.full(len(numbers), -np.inf, np.float32), 0, np.empty(TOGETHER, np.float32)
        for number in range(clusters.shape[1]):
            cluster = clusters[document, number]
            if cluster < 0:
                continue
            shared = of_cluster[document, number]
            first = labels.bounds[cluster]
            for place in range(first, labels.bounds[cluster + 1]):
                at = (place - first) % TOGETHER
                if at == 0:
                    products(labels.weights, fours(place, len(labels.numbers)), far, document, said)
                if not _hidden(changes.hidden, numbers[count]):
                    scores[count] = _score_apart(place, labels, said[at] * far.steps[document]) + shared
                count += 1
            for place in range(changes.added.bounds[cluster], changes.added.bounds[cluster + 1]):
                products(changes.added.weights, fours(place, len(changes.added.numbers)), far, document, said)
                scores[count] = _score_apart(place, changes.added, said[0] * far.steps[document]) + shared
                count += 1
        _best(scores, numbers, found[document], chances[document])


@inlined
def _score_apart(place: int, labels: Labels, said: np.float32) -> float:
    """The logarithm of a label's own chance."""
    return _log_sigmoid(said * labels.weight_scales[place] + labels.bias[place])


@unowned
def _best(scores: Floats, labels: Ints, found: Ints, best: Floats) -> int:
    """The largest scores and their labels, in order, into what is there; how many there are. -inf is none."""
    kept, top = 0, len(found)
    for at in range(len(scores)):
        score, label = scores[at], labels[at]
        if score == -np.inf or (kept == top and not _before(score, label, best[top - 1], found[top - 1])):
            continue
        to = min(kept, top - 1)
        while to > 0 and _before(score, label, best[to - 1], found[to - 1]):
            best[to], found[to] = best[to - 1], found[to - 1]
            to -= 1
        best[to], found[to] = score, label
        kept = min(kept + 1, top)
    return kept


@unowned
def _before(score: float, label: int, other: float, other_label: int) -> bool:
    return score > other or (score == other and label > other_label)


@unowned
def _log_sigmoid(score: float) -> float:
    return min(score, 0.0) - math.log1p(math.exp(-abs(score)))
