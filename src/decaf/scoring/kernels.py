"""Compiled loops of the fast scorer: from tokens to vectors, and from shortlisted labels to the best ones.

Rows of weights come as float32, or as int8, with one scale a row. Nothing here holds the interpreter's lock.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from decaf import packed
from decaf.compiled import drop_stale, in_any_order, inlined
from decaf.networks.words import LEAST_SHARE
from decaf.packed import Clusters, Encoder, Floats, Ints, Labels, Overlay

__all__ = ["Documents", "answer", "choose", "compare", "encode", "rank", "rank_apart", "turn"]

_LEAST = np.float32(LEAST_SHARE)
_BINS = 512  # in which scores are counted, to tell the best apart
_MANY = 4096  # scores of which a part tells enough
drop_stale(__file__, [packed.__file__])


class Documents(NamedTuple):
    """Rows of features: document i has the tokens and values from bounds[i] to bounds[i + 1]."""

    bounds: Ints
    tokens: Ints
    values: Floats


@in_any_order
def encode(documents: Documents, encoder: Encoder, out: Floats) -> None:
    """Document vectors [documents, dim] into `out`: gate e + R relu(e) + bias, cut at zero or of unit length."""
    dim = out.shape[1]
    bag, cut = np.empty(dim, np.float32), np.empty(dim, np.float32)
    for document in range(len(documents.bounds) - 1):
        bag[:] = 0
        for entry in range(documents.bounds[document], documents.bounds[document + 1]):
            token = documents.tokens[entry]
            row, weight = encoder.table[token], documents.values[entry] * encoder.scales[token]
            for at in range(dim):
                bag[at] += weight * row[at]
        for at in range(dim):
            cut[at] = max(bag[at], np.float32(0))
        length = np.float32(0)
        for to in range(dim):
            value = encoder.gate[to] * bag[to] + _product(encoder.matrix[to], cut) + encoder.bias[to]
            out[document, to] = value if encoder.unit else max(value, np.float32(0))
            length += value * value
        if encoder.unit:
            out[document] *= np.float32(1 / max(math.sqrt(length), 1e-12))


@in_any_order
def turn(vectors: Floats, search: Clusters, whole: NDArray[np.int8], steps: Floats) -> None:
    """Vectors along the few directions of the clusters, in whole numbers [documents, narrow] of so large steps."""
    narrow = len(search.rotation)
    turned = np.empty(narrow, np.float32)
    for document in range(len(vectors)):
        largest = np.float32(1e-30)
        for to in range(narrow):
            turned[to] = _product(search.rotation[to], vectors[document])
            largest = max(largest, abs(turned[to]))
        steps[document] = largest / np.float32(127)
        for to in range(narrow):
            whole[document, to] = np.int8(round(turned[to] / steps[document]))


@in_any_order
def compare(whole: NDArray[np.int8], search: Clusters, totals: NDArray[np.int32]) -> None:
    """The products of documents with all clusters in whole numbers -> [documents, clusters]."""
    for document in range(len(whole)):
        for cluster in range(len(search.first)):
            total = np.int32(0)
            for at in range(whole.shape[1]):
                total += np.int32(search.first[cluster, at]) * np.int32(whole[document, at])
            totals[document, cluster] = total


@in_any_order
def choose(
    vectors: Floats,
    search: Clusters,
    totals: NDArray[np.int32],  # [documents, clusters]
    steps: Floats,
    effort: int,
    clusters: Ints,  # the best [documents, beam], -1 for none
    of_cluster: Floats,  # their scores
) -> None:
    """Look in full at the clusters that are best in whole numbers."""
    count, beam = len(search.bias), clusters.shape[1]
    rough, scores, places = np.empty(count, np.float32), np.empty(count, np.float32), np.empty(count, np.int64)
    for document in range(len(vectors)):
        for cluster in range(count):
            rough[cluster] = totals[document, cluster] * (steps[document] * search.first_scales[cluster])
            rough[cluster] += search.bias[cluster]
        kept = _promising(rough, effort, beam, places)
        for at in range(kept):
            cluster = places[at]
            score = _product(search.weights[cluster], vectors[document]) * search.scales[cluster]
            scores[at] = score + search.bias[cluster]
        _best(scores[:kept], places, clusters[document], of_cluster[document])


@in_any_order
def _promising(scores: Floats, wanted: int, needed: int, places: Ints) -> int:
    """The places of about so many best scores, and at least of those needed; how many there are.

    Of many scores every eighth says where the best begin.
    """
    if len(scores) >= _MANY:
        kept = _above(scores, _reached(scores[::8], wanted // 8), places)
        if kept >= needed:
            return kept
    return _above(scores, _reached(scores, wanted), places)


@in_any_order
def _above(scores: Floats, least: float, places: Ints) -> int:
    """The places of the scores that are not less; how many there are."""
    kept = 0
    for at in range(len(scores)):
        if scores[at] >= least:
            places[kept] = at
            kept += 1
    return kept


@in_any_order
def _reached(scores: Floats, wanted: int) -> float:
    """A score that at least so many reach, and hardly more."""
    low, high = float(scores[0]), float(scores[0])
    for score in scores:
        low, high = min(low, score), max(high, score)
    if wanted >= len(scores) or not high > low:
        return low
    bins = np.zeros(_BINS, np.int64)
    step = (_BINS - 1) / (high - low)
    for score in scores:
        at = (score - low) * step
        if 0 <= at < _BINS:  # or it is no number
            bins[int(at)] += 1
    bin_, reached = _BINS, 0
    while reached < wanted and bin_:
        bin_ -= 1
        reached += bins[bin_]
    return low + (bin_ - 1) / step if bin_ else low


@in_any_order
def rank(
    documents: Documents,
    near: Floats,  # vectors of the shortlister
    far: Floats,  # vectors of the ranker
    clusters: Ints,  # [documents, beam], best first, -1 for none
    of_cluster: Floats,  # their scores
    labels: Labels,
    changes: Overlay,
    blend: Floats,  # weights of the parts beside the classifier, in order; slope, company, constant of chances
    weighs: Floats,  # room for what each token weighs in a document, zeros before and after; empty without words
    found: Ints,  # the best labels [documents, top], -1 for none
    chances: Floats,  # the logarithms of their chances
) -> None:
    """Find the best labels of the shortlisted clusters; of equal ones the higher number goes first."""
    for document in range(len(clusters)):
        if documents.bounds[document] == documents.bounds[document + 1]:
            continue  # an empty text has no labels
        if len(labels.words):
            _spread(documents, document, weighs)
        most = _listed(clusters[document], labels.bounds) + _listed(clusters[document], changes.added.bounds)
        scores, numbers, count = np.empty(most, np.float32), np.empty(most, np.int64), 0
        for number in range(clusters.shape[1]):
            cluster = clusters[document, number]
            if cluster < 0:
                continue
            shared = blend[1] * of_cluster[document, number]
            for place in range(labels.bounds[cluster], labels.bounds[cluster + 1]):
                if not _hidden(changes, labels.numbers[place]):
                    score = _score(place, labels, near[document], far[document], weighs, blend)
                    scores[count], numbers[count] = score + shared, labels.numbers[place]
                    count += 1
            for place in range(changes.added.bounds[cluster], changes.added.bounds[cluster + 1]):
                score = _score(place, changes.added, near[document], far[document], weighs, blend)
                scores[count], numbers[count] = score + shared, changes.added.numbers[place]
                count += 1
        if len(labels.words):
            for entry in range(documents.bounds[document], documents.bounds[document + 1]):
                weighs[documents.tokens[entry]] = 0
        kept = _best(scores[:count], numbers, found[document], chances[document])
        if kept:
            peak, total = chances[document, 0], np.float32(0)
            for at in range(count):
                total += math.exp(scores[at] - peak)
            company = blend[8] * (peak + math.log(total)) + blend[9]
            for at in range(kept):
                chances[document, at] = _log_sigmoid(blend[7] * chances[document, at] + company)


@inlined
def _score(place: int, labels: Labels, near: Floats, far: Floats, weighs: Floats, blend: Floats) -> float:
    """What all parts but the cluster's say of a label."""
    score = _product(labels.weights[place], far) * labels.weight_scales[place]
    score += labels.bias[place] + blend[5] * labels.rarity[place]
    if len(labels.texts):
        score += blend[0] * labels.text_scales[place] * _product(labels.texts[place], near)
    if len(labels.words):
        likeness, share, linear, match = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
        for at in range(labels.words.shape[1]):
            weight = weighs[labels.words[place, at]]
            likeness += weight * labels.likeness[place, at]
            share += weight * labels.shares[place, at]
        for at in range(labels.cues.shape[1]):
            weight = weighs[labels.cues[place, at]]
            linear += weight * labels.cue_weights[place, at]
            match += weight * labels.matches[place, at]
        score += blend[2] * labels.likeness_scales[place] * likeness
        score += blend[3] * math.log(max(share * labels.share_scales[place], np.float32(0)) + _LEAST)
        score += blend[4] * (labels.cue_scales[place] * linear + labels.cue_bias[place])
        score += blend[6] * labels.match_scales[place] * match
    return float(score)


@inlined
def _hidden(changes: Overlay, number: int) -> bool:
    return len(changes.hidden) > 0 and bool(changes.hidden[number])


@in_any_order
def _listed(clusters: Ints, bounds: Ints) -> int:
    """How many labels these clusters hold together."""
    count = 0
    for cluster in clusters:
        if cluster >= 0:
            count += bounds[cluster + 1] - bounds[cluster]
    return count


@in_any_order
def answer(
    documents: Documents,
    near: Encoder,
    far: Encoder,
    search: Clusters,
    effort: int,
    beam: int,
    labels: Labels,
    changes: Overlay,
    blend: Floats,
    weighs: Floats,
    found: Ints,
    chances: Floats,
) -> None:
    """From documents to their best labels in one go: every call of compiled code has a price."""
    count, dim = len(documents.bounds) - 1, len(near.gate)
    of_near, of_far = np.empty((count, dim), np.float32), np.empty((count, dim), np.float32)
    encode(documents, near, of_near)
    encode(documents, far, of_far)
    clusters, of_cluster = np.full((count, beam), -1, np.int64), np.full((count, beam), -np.inf, np.float32)
    whole, steps = np.empty((count, len(search.rotation)), np.int8), np.empty(count, np.float32)
    totals = np.empty((count, len(search.bias)), np.int32)
    turn(of_near, search, whole, steps)
    compare(whole, search, totals)
    choose(of_near, search, totals, steps, effort, clusters, of_cluster)
    rank(documents, of_near, of_far, clusters, of_cluster, labels, changes, blend, weighs, found, chances)


@in_any_order
def rank_apart(
    documents: Documents,
    far: Floats,
    clusters: Ints,
    of_cluster: Floats,  # logarithms of the clusters' chances
    labels: Labels,
    changes: Overlay,
    found: Ints,
    chances: Floats,
) -> None:
    """The same without a blend: a label's chance is its cluster's times its own, as in the paper."""
    for document in range(len(clusters)):
        if documents.bounds[document] == documents.bounds[document + 1]:
            continue
        most = _listed(clusters[document], labels.bounds) + _listed(clusters[document], changes.added.bounds)
        scores, numbers, count = np.empty(most, np.float32), np.empty(most, np.int64), 0
        for number in range(clusters.shape[1]):
            cluster = clusters[document, number]
            if cluster < 0:
                continue
            shared = of_cluster[document, number]
            for place in range(labels.bounds[cluster], labels.bounds[cluster + 1]):
                if not _hidden(changes, labels.numbers[place]):
                    scores[count] = _score_apart(place, labels, far[document]) + shared
                    numbers[count] = labels.numbers[place]
                    count += 1
            for place in range(changes.added.bounds[cluster], changes.added.bounds[cluster + 1]):
                scores[count] = _score_apart(place, changes.added, far[document]) + shared
                numbers[count] = changes.added.numbers[place]
                count += 1
        _best(scores[:count], numbers, found[document], chances[document])


@inlined
def _score_apart(place: int, labels: Labels, far: Floats) -> float:
    """The logarithm of a label's own chance."""
    score = _product(labels.weights[place], far) * labels.weight_scales[place]
    return _log_sigmoid(score + labels.bias[place])


@in_any_order
def _product(row: NDArray[Any], vector: Floats) -> np.float32:
    total = np.float32(0)
    for at in range(len(vector)):
        total += row[at] * vector[at]
    return total


@in_any_order
def _spread(documents: Documents, document: int, weighs: Floats) -> None:
    """What the tokens of a document weigh, its length being one, into a place for each token."""
    first, last = documents.bounds[document], documents.bounds[document + 1]
    length = np.float32(0)
    for entry in range(first, last):
        length += documents.values[entry] * documents.values[entry]
    shrink = np.float32(1 / max(math.sqrt(length), 1e-12))
    for entry in range(first, last):
        weighs[documents.tokens[entry]] = documents.values[entry] * shrink


@in_any_order
def _best(scores: Floats, labels: Ints, found: Ints, best: Floats) -> int:
    """The largest scores and their labels, in order, into what is there; how many there are."""
    kept, top = 0, len(found)
    for at in range(len(scores)):
        score, label = scores[at], labels[at]
        if kept == top and not _before(score, label, best[top - 1], found[top - 1]):
            continue
        to = min(kept, top - 1)
        while to > 0 and _before(score, label, best[to - 1], found[to - 1]):
            best[to], found[to] = best[to - 1], found[to - 1]
            to -= 1
        best[to], found[to] = score, label
        kept = min(kept + 1, top)
    return kept


@in_any_order
def _before(score: float, label: int, other: float, other_label: int) -> bool:
    return score > other or (score == other and label > other_label)


@in_any_order
def _log_sigmoid(score: float) -> float:
    return min(score, 0.0) - math.log1p(math.exp(-abs(score)))
