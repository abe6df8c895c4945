"""Compiled loops of the fast scorer: from shortlisted labels to the best ones, a document at a time.

Many documents meet at their clusters instead, see `decaf.scoring.meeting`: either way the same sums of whole numbers
are taken, so that the bits of an answer do not depend on the company it is made in. Nothing here holds the
interpreter's lock, and what is not a sum is computed in the order in which it is written.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from decaf import packed
from decaf.compiled import compiled, drop_stale, inlined, unowned
from decaf.networks import words as label_words
from decaf.networks.words import LEAST_SHARE
from decaf.packed import Floats, Ints, Labels, Overlay
from decaf.scoring import arithmetic, lanes, nearest
from decaf.scoring.arithmetic import TOGETHER, Vectors, fours, nothing, products, put, times
from decaf.scoring.lanes import LANES, first_of, same
from decaf.scoring.nearest import Documents, Effort, Maker, Room, Search, Tokens, encode, find

__all__ = [
    "answer",
    "is_hidden",
    "look",
    "numbers_of",
    "rank",
    "rank_apart",
    "score_of",
    "settle",
    "size_of",
    "weigh",
]

_USUAL = 2 * LANES  # words and cues of a label, which are compared at once
_BIT = np.uint64(1)
_LEAST = np.float32(LEAST_SHARE)
_LOG_LEAST = np.float32(math.log(_LEAST))
_HEAVIEST = (1 << 15) - 1  # what the heaviest token of a document weighs in whole numbers
drop_stale(__file__, [packed.__file__, label_words.__file__, arithmetic.__file__, lanes.__file__, nearest.__file__])


@compiled
def rank(
    documents: Documents,
    near: Vectors,  # of the shortlister
    far: Vectors,  # of the ranker
    clusters: Ints,  # [documents, beam], -1 for none
    of_cluster: Floats,  # their scores
    labels: Labels,
    changes: Overlay,
    blend: Floats,  # as `Curve.at` has it: weights of parts, leanings, and what chances are made of
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
        step = weigh(tokens, documents.values[first:last], weights)
        numbers = numbers_of(clusters[document], labels, changes.added)
        scores = np.full(len(numbers), -np.inf, np.float32)
        parts = (tokens, weights, step, near, far, document, of_cluster[document])
        _visit(clusters[document], *parts, labels, changes, blend, numbers, said, scores)
        settle(scores, numbers, blend, found[document], chances[document])


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
        shared = of_cluster[number]
        first = labels.bounds[cluster]
        for place in range(first, labels.bounds[cluster + 1]):
            at = (place - first) % TOGETHER
            if at == 0:
                look(place, labels, near, far, document, said)
            if not is_hidden(changes.hidden, numbers[count]):
                sums = _sums(place, labels, tokens, weights)
                scores[count] = score_of(place, labels, said[:, at], sums, step, shared, blend)
            count += 1
        for place in range(changes.added.bounds[cluster], changes.added.bounds[cluster + 1]):
            look(place, changes.added, near, far, document, said)
            sums = _sums(place, changes.added, tokens, weights)
            scores[count] = score_of(place, changes.added, said[:, 0], sums, step, shared, blend)
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
def look(place: int, labels: Labels, near: Vectors, far: Vectors, document: int, said: Floats) -> None:
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
def score_of(
    place: int,
    labels: Labels,
    said: Floats,  # by its vectors
    sums: tuple[Any, Any, Any, Any],
    step: np.float32,  # of the sums
    shared: np.float32,  # what the cluster scores
    blend: Floats,
) -> np.float32:
    """What all parts together say of a label."""
    rarity = labels.rarity[place]
    score = (blend[0] + blend[8] * rarity) * (said[0] + labels.bias[place]) + blend[6] * rarity
    if len(labels.texts):
        score += (blend[1] + blend[9] * rarity) * said[1]
    if len(labels.words):
        likeness, share = np.float32(sums[0]), np.float32(sums[1])
        linear, match = np.float32(sums[2]), np.float32(sums[3])
        score += blend[3] * (likeness * (labels.likeness_scales[place] * step))
        of_share = _LOG_LEAST
        if share > 0:
            of_share = np.float32(math.log(share * (labels.share_scales[place] * step) + _LEAST))
        score += (blend[4] + blend[11] * rarity) * of_share
        of_linear = linear * (labels.cue_scales[place] * step) + labels.cue_bias[place]
        score += (blend[5] + blend[12] * rarity) * of_linear
        score += blend[7] * (match * (labels.match_scales[place] * step))
    return np.float32(score + (blend[2] + blend[10] * rarity) * shared)


@compiled
def weigh(tokens: Tokens, values: Floats, weights: NDArray[Any]) -> np.float32:
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
def numbers_of(clusters: Ints, labels: Labels, added: Labels) -> Ints:
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
def settle(scores: Floats, numbers: Ints, blend: Floats, found: Ints, chances: Floats) -> None:
    """The best labels and the logarithms of their chances, which depend on the company they are in."""
    kept = _best(scores, numbers, found, chances)
    if kept:
        peak, total = chances[0], np.float32(0)
        for score in scores:
            total += math.exp(score - peak)
        company = blend[14] * (peak + math.log(total)) + blend[15]
        for at in range(kept):
            chances[at] = _log_sigmoid(blend[13] * chances[at] + company)


@inlined
def is_hidden(hidden: NDArray[np.bool_], number: int) -> bool:
    return len(hidden) > 0 and bool(hidden[number])


@inlined
def size_of(cluster: int, bounds: Ints) -> int:
    return int(bounds[cluster + 1] - bounds[cluster])


@unowned
def _listed(clusters: Ints, bounds: Ints) -> int:
    """How many labels these clusters hold together."""
    count = 0
    for cluster in clusters:
        if cluster >= 0:
            count += size_of(cluster, bounds)
    return count


@compiled
def answer(
    documents: Documents,
    near: Maker,
    far: Maker,
    search: Search,
    effort: Effort,
    beam: int,
    labels: Labels,
    changes: Overlay,
    blend: Floats,
    of_near: Vectors,  # room for these and the next
    of_far: Vectors,
    room: Room,
    found: Ints,
    chances: Floats,
) -> None:
    """From documents to their best labels in one go: every call of compiled code has a price."""
    count = len(documents.bounds) - 1
    encode(documents, near, of_near)
    encode(documents, far, of_far)
    clusters, of_cluster = np.full((count, beam), -1, np.int64), np.full((count, beam), -np.inf, np.float32)
    find(of_near, search, effort, room, clusters, of_cluster)
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
        numbers = numbers_of(clusters[document], labels, changes.added)
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
                if not is_hidden(changes.hidden, numbers[count]):
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
    for at in range(len(scores) if top else 0):
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
