"""Compiled loops of the fast scorer: from tokens to vectors, and from vectors to the nearest clusters.

Rows of weights come as float32, or as int8, with one scale a row. Nothing here holds the interpreter's lock.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from decaf import packed
from decaf.compiled import compiled, drop_stale, in_any_order, unowned, unowned_in_any_order
from decaf.packed import Clusters, Encoder, Floats, Ints, quantised
from decaf.scoring import arithmetic, lanes
from decaf.scoring.arithmetic import TOGETHER, Vectors, finish, fours, largest_entry, products, put, squares
from decaf.scoring.lanes import (
    LANES,
    Places,
    Table,
    above_by_lanes,
    above_by_loop,
    fetch,
    in_hardware,
    scan_by_lanes,
    scan_by_loop,
    shift,
)

__all__ = ["Documents", "Effort", "Maker", "Room", "Search", "Tokens", "encode", "find"]

_BINS = 512  # in which scores are counted, to tell the best apart
_TWO_BYTES = (1 << 15) - 1  # the largest number of two bytes
_MANY = 4096  # scores of which a part tells enough
_SOME = 1024  # clusters that tell of all
_AHEAD = 8  # clusters whose rows are fetched before their turn
_NEAR = 1 << 23  # bytes that are near anyway
Tokens = NDArray[np.uint32]
_BY_LANES = in_hardware()
scan, above = (scan_by_lanes, above_by_lanes) if _BY_LANES else (scan_by_loop, above_by_loop)
drop_stale(__file__, [packed.__file__, arithmetic.__file__, lanes.__file__])


class Documents(NamedTuple):
    """Rows of features: document i has the tokens and values from bounds[i] to bounds[i + 1]."""

    bounds: Ints
    tokens: Tokens
    values: Floats


class Maker(NamedTuple):
    """An encoder as it is used here."""

    table: NDArray[Any]  # [tokens, dim]
    scales: Floats
    gate: Floats
    columns: NDArray[Any]  # of the matrix, [dim, dim], as whole numbers of two bytes if vectors are
    column_scales: Floats
    bias: Floats
    unit: bool
    largest: int  # how large the whole numbers of the vectors are; 0: vectors are of floats

    @classmethod
    def of(cls, encoder: Encoder) -> Maker:
        """The encoder, ready to be used; vectors are of whole numbers if its table is."""
        largest = largest_entry(len(encoder.gate)) if encoder.table.dtype == np.int8 else 0
        columns, scales = np.ascontiguousarray(encoder.matrix.T), np.ones(len(encoder.gate), dtype=np.float32)
        if largest:  # reading them is what takes time
            scales = np.maximum(np.abs(columns).max(axis=1), np.float32(1e-30)) / np.float32(_TWO_BYTES)
            columns = np.rint(columns / scales[:, None]).astype(np.int16)
        return cls(*encoder[:3], columns, scales, encoder.bias, encoder.unit, largest)


@in_any_order
def encode(documents: Documents, maker: Maker, made: Vectors) -> None:
    """Document vectors into `made`: gate e + R relu(e) + bias, cut at zero or of unit length."""
    dim = len(maker.gate)
    bag, vector, above = np.empty(dim, np.float32), np.empty(dim, np.float32), np.empty(dim, np.int64)
    for document in range(len(documents.bounds) - 1):
        _fetch_rows(documents, document + 1, maker)
        _add_up(documents, document, maker, bag)
        _mix(bag, maker, above, vector)
        made.steps[document] = put(vector, maker.largest, made.values[document])
        if maker.largest:
            finish(made, document)


@unowned_in_any_order
def _fetch_rows(documents: Documents, document: int, maker: Maker) -> None:
    """Have the rows of a document's tokens brought near, if there is one."""
    if document + 1 < len(documents.bounds):
        wide = maker.table.shape[1] * maker.table.itemsize
        for entry in range(documents.bounds[document], documents.bounds[document + 1]):
            fetch(maker.table, documents.tokens[entry] * wide, wide)


@unowned_in_any_order
def _add_up(documents: Documents, document: int, maker: Maker, bag: Floats) -> None:
    """The sum of the rows of a document's tokens."""
    bag[:] = 0
    for entry in range(documents.bounds[document], documents.bounds[document + 1]):
        token = documents.tokens[entry]
        weight = documents.values[entry] * maker.scales[token]
        for at in range(len(bag)):
            bag[at] += weight * maker.table[token, at]


@unowned_in_any_order
def _mix(bag: Floats, maker: Maker, above: Ints, vector: Floats) -> None:
    """The vector of a bag: the columns of the places that are above zero are added, four at a time."""
    count, dim = 0, len(bag)
    for at in range(dim):
        above[count] = at  # written over by the next if it is not above: a branch would cost more
        count += bag[at] > 0
    for at in range(dim):
        vector[at] = maker.gate[at] * bag[at] + maker.bias[at]
    fours = count // 4 * 4
    for at in range(0, fours, 4):
        first, second, third, fourth = above[at], above[at + 1], above[at + 2], above[at + 3]
        of_first, of_second = bag[first] * maker.column_scales[first], bag[second] * maker.column_scales[second]
        of_third, of_fourth = bag[third] * maker.column_scales[third], bag[fourth] * maker.column_scales[fourth]
        for to in range(dim):
            left = of_first * maker.columns[first, to] + of_second * maker.columns[second, to]
            vector[to] += left + (of_third * maker.columns[third, to] + of_fourth * maker.columns[fourth, to])
    for at in range(fours, count):
        weight = bag[above[at]] * maker.column_scales[above[at]]
        for to in range(dim):
            vector[to] += weight * maker.columns[above[at], to]
    length = np.float32(0)
    for at in range(dim):
        length += vector[at] * vector[at]
    scale = np.float32(1 / max(math.sqrt(length), 1e-12)) if maker.unit else np.float32(1)
    for at in range(dim):
        vector[at] = vector[at] * scale if maker.unit else max(vector[at], np.float32(0))


class Effort(NamedTuple):
    """Which clusters are looked at in full: about so many at least and at most whose rough scores are best.

    Between them, those that may be among the best in full, by so many standard deviations of what few directions leave
    out.
    """

    least: int
    most: int
    sure: np.float32


class Search(NamedTuple):
    """Clusters as they are looked for: first along few directions, then the best of them in full."""

    rotation: NDArray[Any]  # the directions, [narrow, dim]
    rotation_scales: Floats
    first: Table
    weights: NDArray[Any]  # [clusters, dim]
    scales: Floats
    bias: Floats
    spread: np.float32  # of the scores that the other directions add, for a document whose length along them is 1

    @classmethod
    def of(cls, clusters: Clusters) -> Search:
        """The clusters, ready to be looked for."""
        precision = "int8" if clusters.weights.dtype == np.int8 else "float32"
        first = Table.of(clusters.first, clusters.first_scales, clusters.bias, by_lanes=_BY_LANES)
        in_full = (clusters.weights, clusters.scales, clusters.bias)
        return cls(*quantised(clusters.rotation, precision), first, *in_full, _spread(clusters))


def _spread(clusters: Clusters) -> np.float32:
    """How long clusters are along the directions that are left out: the root of the mean square of one direction."""
    narrow, dim = clusters.rotation.shape
    some = slice(None, None, max(1, len(clusters.bias) // _SOME))  # reading all would take the time of loading them
    with np.errstate(over="ignore", invalid="ignore"):  # a stranger's model may hold anything
        lengths = [
            np.square(packed.whole(rows[some], scales[some])).sum(axis=1)
            for rows, scales in ((clusters.weights, clusters.scales), (clusters.first, clusters.first_scales))
        ]
        left = float((lengths[0] - lengths[1]).mean()) / max(dim - narrow, 1)
    return np.float32(math.sqrt(left) if 0 < left < math.inf else 0)


class Room(NamedTuple):
    """Room to compare documents with all clusters along few directions."""

    whole: NDArray[np.uint8]  # documents in bytes
    steps: Floats  # of the bytes
    spreads: Floats  # of the scores that the other directions add
    rough: Floats  # scores, [documents, clusters or more]


@compiled
def find(
    vectors: Vectors,
    search: Search,
    effort: Effort,
    room: Room,  # for so many documents as are compared at a time
    clusters: Ints,  # the best [documents, beam], -1 for none, in no order
    of_cluster: Floats,  # their scores
) -> None:
    """The best clusters of documents."""
    for first in range(0, len(clusters), max(len(room.steps), 1)):
        last = min(first + len(room.steps), len(clusters))
        some, count = slice(first, last), last - first
        given = Vectors(vectors.values[some], vectors.steps[some], vectors.sums[some], vectors.planes[some])
        here = Room(room.whole[:count], room.steps[:count], room.spreads[:count], room.rough[:count])
        turn(given, search, here)
        scan(here.whole, here.steps, search.first, here.rough)
        choose(given, search, here, effort, clusters[some], of_cluster[some])


@compiled
def turn(vectors: Vectors, search: Search, room: Room) -> None:
    """Vectors along the few directions of the clusters, and how far scores spread along the others."""
    narrow = len(search.rotation)
    turned, rounded = np.empty(narrow + TOGETHER, np.float32), np.empty(narrow, np.int8)
    for document in range(len(room.steps)):
        for first in range(0, narrow, TOGETHER):
            products(search.rotation, fours(first, narrow), vectors, document, turned[first : first + TOGETHER])
        for to in range(narrow):
            turned[to] *= search.rotation_scales[to]
        step = put(turned[:narrow], 127, rounded)
        room.steps[document] = step * vectors.steps[document]
        shift(rounded, room.whole[document])
        length = _left_out(vectors.values[document], rounded, step)
        room.spreads[document] = length * vectors.steps[document] * search.spread


@unowned
def _left_out(vector: NDArray[Any], turned: NDArray[np.int8], step: np.float32) -> np.float32:
    """The length of a vector along all directions but those in which it is so many steps long."""
    return np.float32(math.sqrt(max(squares(vector) - squares(turned) * float(step) * float(step), 0.0)))


@in_any_order
def choose(vectors: Vectors, search: Search, room: Room, effort: Effort, clusters: Ints, of_cluster: Floats) -> None:
    """Look in full at the clusters whose rough scores are best."""
    count, beam = len(search.bias), clusters.shape[1]
    scores, places = np.empty(count + LANES, np.float32), np.empty(count + LANES, np.int32)
    bins = np.empty(_BINS, np.int64)
    for document in range(len(room.rough)):
        kept = _promising(room, document, count, effort, beam, places, bins)
        _look(vectors, document, search, places[:kept], scores)
        if kept > 2 * beam:
            kept = _narrow(scores[:kept], places, _reached(_counted(scores[:kept], bins), beam, bins))
        _largest_first(scores[:kept], places[:kept], beam)
        for at in range(min(kept, beam)):
            clusters[document, at], of_cluster[document, at] = places[at], scores[at]


@unowned
def _look(vectors: Vectors, document: int, search: Search, places: Places, scores: Floats) -> None:
    """The scores of these clusters in full; there is room for a few more."""
    count, wide = len(places), search.weights.shape[1] * search.weights.itemsize
    far = search.weights.nbytes > _NEAR
    for first in range(0, count, TOGETHER):
        if far:
            for ahead in range(first + _AHEAD, min(first + _AHEAD + TOGETHER, count)):
                fetch(search.weights, places[ahead] * wide, wide)
        one, two, three, four = fours(first, count)
        rows = (int(places[one]), int(places[two]), int(places[three]), int(places[four]))
        products(search.weights, rows, vectors, document, scores[first : first + TOGETHER])
    step = vectors.steps[document]
    for at in range(count):
        place = np.uint32(places[at])
        scores[at] = scores[at] * (search.scales[place] * step) + search.bias[place]


@unowned_in_any_order
def _narrow(scores: Floats, places: Places, bound: np.float32) -> int:
    """Bring the scores that are not less to the front, and their places with them; how many there are."""
    kept = 0
    for at in range(len(scores)):
        there = scores[at] >= bound
        scores[kept], places[kept] = scores[at], places[at]  # a branch would cost more
        kept += there
    return kept


@unowned_in_any_order
def _largest_first(scores: Floats, places: Places, wanted: int) -> None:
    """Bring so many largest scores to the front, in no order, and their places with them."""
    low, high = 0, len(scores) - 1
    while low < high:
        pivot, left, right = scores[(low + high) // 2], low, high
        while left <= right:
            while scores[left] > pivot:
                left += 1
            while scores[right] < pivot:
                right -= 1
            if left <= right:
                scores[left], scores[right] = scores[right], scores[left]
                places[left], places[right] = places[right], places[left]
                left, right = left + 1, right - 1
        if wanted <= right + 1:
            high = right
        elif wanted > left:
            low = left
        else:
            return


@unowned_in_any_order
def _promising(room: Room, document: int, count: int, effort: Effort, beam: int, places: Places, bins: Ints) -> int:
    """The places of a document's best scores, at least of the beam; how many there are.

    Of many scores every eighth says where the best begin.
    """
    scores, spread = room.rough[document, :count], room.spreads[document]
    if count >= _MANY:
        kept = above(room.rough, document, count, _bound(scores[::8], 8, effort, spread, beam, bins), places)
        if kept >= beam:
            return kept
    return above(room.rough, document, count, _bound(scores, 1, effort, spread, beam, bins), places)


@unowned
def _bound(scores: Floats, each: int, effort: Effort, spread: np.float32, beam: int, bins: Ints) -> np.float32:
    """Where promising scores begin, if each of these stands for so many."""
    counted = _counted(scores, bins)
    close = _reached(counted, -(-beam // each), bins)
    if effort.sure > 0:
        close -= effort.sure * spread
    close = min(close, _reached(counted, effort.least // each, bins))
    return max(close, _reached(counted, effort.most // each, bins))


@unowned_in_any_order
def _counted(scores: Floats, bins: Ints) -> tuple[np.float32, np.float32]:
    """Count scores in bins -> where the first bin begins, and how many bins there are for a difference of one."""
    low = high = scores[0]
    for score in scores:
        low, high = min(low, score), max(high, score)
    bins[:] = 0
    step = np.float32(_BINS - 1) / (high - low) if high > low else np.float32(0)
    for score in scores:
        at = (score - low) * step
        if 0 <= at < _BINS:  # or it is no number
            bins[np.uint64(np.int64(at))] += 1
    return low, step


@unowned
def _reached(counted: tuple[np.float32, np.float32], wanted: int, bins: Ints) -> np.float32:
    """A score that at least so many reach, and hardly more."""
    low, step = counted
    bin_, reached = _BINS, 0
    while reached < wanted and bin_:
        bin_ -= 1
        reached += bins[bin_]
    return low + np.float32(bin_ - 1) / step if bin_ and step > 0 else low
