"""The fast scorer beside the exact one: the same answers where nothing is rounded or passed over, close ones else."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from instances import SMALL, instance, mixed, searched, tree
from numpy.typing import NDArray
from scipy import sparse

from decaf import Config, Model, Predictions
from decaf import packed as packed_module
from decaf.compiled import compiled
from decaf.datasets import Items
from decaf.errors import ModelError
from decaf.networks import Instance, Rows
from decaf.packed import Labels, Overlay, Packed, whole
from decaf.scoring import arithmetic, fast, lanes, meeting, nearest, ranking
from decaf.scoring.exact import ExactScorer
from decaf.scoring.fast import FastScorer
from decaf.scoring.scorer import Changes

CPU = torch.device("cpu")


def model(*instances: Instance, precision: str = "float32") -> Model:
    kept = np.arange(SMALL.labels) * 2 + 1  # every other label of the dataset was trained
    packed = tuple(Packed.of(instance, precision) for instance in instances)
    return Model(Config(), None, Items(2 * SMALL.labels + 1), kept, packed, {})


def documents(count: int = 40, seed: int = 0, tokens: int = SMALL.tokens) -> sparse.csr_array:
    rng = np.random.default_rng(seed)
    dense = rng.random((count, tokens)) * (rng.random((count, tokens)) < 0.1)
    dense[3] = 0
    return sparse.csr_array(dense.astype(np.float32))


def close(found: Predictions, expected: Predictions, tolerance: float = 1e-4) -> bool:
    """The fast scorer rounds documents to whole numbers where labels are; next to equal ones may change places."""
    scores = np.maximum(expected.scores, -1e9)
    gaps = np.abs(np.diff(scores, axis=1, prepend=np.inf, append=-np.inf)) < tolerance / 10
    same = (found.ids == expected.ids) | gaps[:, 1:] | gaps[:, :-1]
    return bool(same.all()) and np.allclose(found.scores, expected.scores, atol=tolerance)


@pytest.mark.parametrize("texts", [True, False])
@pytest.mark.parametrize("words", [True, False])
@pytest.mark.parametrize("tail", [0.0, 0.4])
@pytest.mark.parametrize("precision", ["int4", "int8", "float32"])
def test_a_blend_gives_what_the_exact_scorer_gives(texts: bool, words: bool, tail: float, precision: str) -> None:
    made = model(instance(mixed=mixed(texts=texts, words=words)), precision=precision)
    expected = ExactScorer(made, CPU, tail=tail).top(documents(), 7)
    assert close(FastScorer(made, tail=tail).top(documents(), 7), expected)
    assert (expected.ids[3] == -1).all()
    assert (expected.ids[[0, 1, 2]] >= 0).all()


@pytest.mark.parametrize(("width", "tokens"), [(32, 60), (40, 60), (300, 60), (32, 9000)])  # 9,000: some share a chain
@pytest.mark.parametrize("precision", ["int4", "int8", "float32"])
def test_labels_of_many_words_too_alone_and_in_company(width: int, tokens: int, precision: str) -> None:
    size = SMALL._replace(width=width, tokens=tokens)
    made, rows = model(instance(size=size, mixed=mixed(size=size)), precision=precision), documents(tokens=tokens)
    expected, scorer = ExactScorer(made, CPU).top(rows, 7), FastScorer(made)
    found = scorer.top(rows, 7)
    assert close(found, expected)
    for at in range(40):
        alone = scorer.top(rows[at : at + 1], 7)
        if precision != "float32":
            assert np.array_equal(alone.scores[0], found.scores[at])
        assert close(alone, Predictions(expected.ids[at : at + 1], expected.scores[at : at + 1]))


@pytest.mark.parametrize("unit", [True, False])
@pytest.mark.parametrize("count", [1, 2])
def test_without_a_blend_and_with_several_instances_too(unit: bool, count: int) -> None:
    made = model(*(instance(seed, unit=unit) for seed in range(count)))
    assert close(FastScorer(made).top(documents(), 7), ExactScorer(made, CPU).top(documents(), 7))


@pytest.mark.parametrize("precision", ["float32", "int4"])
@pytest.mark.parametrize("top", [0, 1, 5, 27, 200])
def test_any_number_of_labels_may_be_asked_for(top: int, precision: str) -> None:
    made = model(instance(mixed=mixed()), precision=precision)
    expected, scorer = ExactScorer(made, CPU).top(documents(), top), FastScorer(made)
    assert close(scorer.top(documents(), top), expected)
    assert scorer.top(documents()[:1], top).ids.shape == (1, top)


def test_what_a_token_weighs_in_the_widest_labels_fits() -> None:
    size = SMALL._replace(width=meeting.WIDEST, tokens=9)
    blend = mixed(size=size)
    assert blend.words is not None
    same, ones = torch.full_like(blend.words.tokens, 7), torch.ones_like(blend.words.weights)
    words = blend.words._replace(tokens=same, weights=ones, shares=ones, cues=same, cue_weights=-ones, matches=ones)
    made = model(instance(size=size, mixed=replace(blend, words=words)), precision="int8")
    rows, scorer = documents(tokens=9), FastScorer(made)
    assert scorer._instances[0]._meeting
    found = scorer.top(rows, 5)
    assert close(found, ExactScorer(made, CPU).top(rows, 5))
    for at in range(40):
        assert np.array_equal(scorer.top(rows[at : at + 1], 5).scores[0], found.scores[at])


@pytest.mark.parametrize(
    "made",
    [tree(), searched(), tree(mixed()), searched(mixed())],
    ids=["tree", "graph", "tree with a blend", "graph with a blend"],
)
def test_other_shortlisters_are_asked_as_they_are(made: Instance) -> None:
    found = FastScorer(model(made)).top(documents(), 7)
    assert close(found, ExactScorer(model(made), CPU).top(documents(), 7))


def test_rough_scores_choose_what_is_looked_at_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_module, "_NARROW", ((SMALL.clusters, 4),))
    rows, made = documents(300), model(instance(mixed=mixed(), beam=3))
    expected = ExactScorer(made, CPU).top(rows, 5)
    shares = []
    for effort in (3, 8, SMALL.clusters):
        found = FastScorer(made, effort=effort).top(rows, 5)
        shares.append(np.mean(found.ids == expected.ids))
    assert shares[0] < shares[1] < shares[2] == 1


@pytest.mark.parametrize(("precision", "same", "apart"), [("int8", 0.95, 0.02), ("int4", 0.85, 0.1)])
def test_few_bits_are_close(precision: str, same: float, apart: float) -> None:
    of_instance, rows = instance(mixed=mixed()), documents(600)
    found, expected = (ExactScorer(model(of_instance, precision=p), CPU).top(rows, 5) for p in (precision, "float32"))
    there = expected.ids >= 0
    agree = [len({*one} & {*other}) / 5 for one, other in zip(found.ids, expected.ids, strict=True) if other[0] >= 0]
    assert np.mean(agree) > same
    assert not np.array_equal(found.scores, expected.scores)  # something is rounded
    assert np.quantile(np.abs(found.scores[there] - expected.scores[there]), 0.95) < apart


@pytest.mark.parametrize("precision", ["float32", "int4"])
@pytest.mark.parametrize("size", [1, 40, fast._FEW, fast._FEW + 1, fast._PART + 5])
def test_threads_and_company_change_nothing(size: int, precision: str) -> None:
    made, rows = model(instance(mixed=mixed()), precision=precision), documents(size + 5)[2:-3]
    one, many = FastScorer(made), FastScorer(made, threads=4)
    expected = one.top(rows, 5)
    found = many.top(rows, 5)
    assert np.array_equal(found.ids, expected.ids)
    assert np.array_equal(found.scores, expected.scores)
    with ThreadPoolExecutor(4) as pool:
        alone = list(pool.map(lambda at: one.top(rows[at : at + 1], 5), range(min(size, 40))))
    for at, answer in enumerate(alone):
        assert np.array_equal(answer.ids[0], expected.ids[at])
        assert np.array_equal(answer.scores[0], expected.scores[at])


@pytest.mark.parametrize("made", [instance(mixed=mixed()), instance(), tree()], ids=["blend", "paper", "tree"])
def test_a_scorer_that_was_never_used_answers_no_rows_too(made: Instance) -> None:
    for precision in ("int4", "int8", "float32"):
        found = FastScorer(model(made, precision=precision)).top(documents()[:0], 5)
        assert found.ids.shape == found.scores.shape == (0, 5)


def test_what_scorers_of_a_model_share_is_made_once_and_goes_with_it() -> None:
    made = model(instance(mixed=mixed()), precision="int8")
    one, other = (FastScorer(made)._instances[0] for _ in range(2))
    assert one._search is other._search
    assert one._near is other._near
    gc.collect()
    there = len(fast._READY)
    del made, one, other
    gc.collect()
    assert len(fast._READY) == there - 1


def test_where_clusters_are_large_fewer_documents_are_taken_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    trained, sizes = model(instance(mixed=mixed()), precision="int4"), []
    whole = FastScorer(trained, threads=2)
    monkeypatch.setattr(fast, "_SCORES", whole._instances[0].listed * 20)
    made, expected = FastScorer(trained, threads=2), whole.top(documents(), 5)
    answered = made._top
    monkeypatch.setattr(made, "_top", lambda some, *rest: sizes.append(len(some.bounds) - 1) or answered(some, *rest))
    found = made.top(documents(), 5)
    assert sizes == [20, 20]
    assert np.array_equal(found.ids, expected.ids)
    assert np.array_equal(found.scores, expected.scores)


def test_what_cannot_be_is_said() -> None:
    with pytest.raises(ValueError, match="threads begin at 1, not 0"):
        FastScorer(model(instance()), threads=0)
    with pytest.raises(ModelError, match="only models of the contrastive recipe can lean from head to tail"):
        FastScorer(model(instance()), tail=0.5)
    with pytest.raises(ValueError, match="dimension mismatch"):
        FastScorer(model(instance())).top(sparse.csr_array((2, SMALL.tokens + 1), dtype=np.float32), 5)


@pytest.mark.parametrize(("clusters", "dim"), [(1, 1), (16, 4), (70, 30), (64, 128), (129, 5)])
@pytest.mark.parametrize("count", [1, 3, 4, 11])
def test_clusters_are_scanned_the_same_by_lanes_and_by_a_loop(clusters: int, dim: int, count: int) -> None:
    rng = np.random.default_rng(clusters + count)
    rows, whole = (rng.integers(-127, 128, (size, dim), dtype=np.int8) for size in (clusters, count))
    scales, bias, steps = (rng.random(size).astype(np.float32) for size in (clusters, clusters, count))
    shifted = np.full((count, lanes.width(dim)), 77, dtype=np.uint8)  # what fills up may be anything
    for vector, to in zip(whole, shifted, strict=True):
        lanes.shift(vector, to)
    found = []
    for by_lanes in (False, True):
        if by_lanes and not lanes.in_hardware():
            continue
        table = lanes.Table.of(rows, scales, bias, by_lanes=by_lanes)
        scores = np.full((count, table.starts.size), np.nan, dtype=np.float32)
        (lanes.scan_by_lanes if by_lanes else lanes.scan_by_loop)(shifted, steps, table, scores)
        assert (scores[:, clusters:] == -np.inf).all()
        found.append(scores)
    totals = (whole.astype(np.int32) @ rows.T.astype(np.int32)).astype(np.float32)
    expected = totals * (steps[:, None] * scales) + bias
    assert all(np.array_equal(scores[:, :clusters], expected) for scores in found)


def test_the_instruction_is_named_only_where_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    features = {"avx512vnni": True}
    monkeypatch.setattr(lanes.llvmlite.binding, "get_host_cpu_features", lambda: features)
    monkeypatch.setattr(lanes.numba.config, "CPU_NAME", None)
    monkeypatch.setattr(lanes.numba.config, "CPU_FEATURES", None)
    assert lanes.in_hardware()
    features.clear()
    assert not lanes.in_hardware()
    features["avx512vnni"] = True
    monkeypatch.setattr(lanes.numba.config, "CPU_NAME", "generic")  # numba is told of another processor
    assert not lanes.in_hardware()


def vectors_of(dim: int, count: int = 3) -> arithmetic.Vectors:
    """Vectors of whole numbers, the last as large as they get."""
    most, vectors = arithmetic.largest_entry(dim), arithmetic.blank(count, dim, whole=True)
    vectors.values[:, :dim] = np.random.default_rng(dim).integers(-most, most + 1, (count, dim))
    vectors.values[-1, :dim] = most
    for vector in range(count):
        arithmetic.finish(vectors, vector)
    return vectors


@pytest.mark.parametrize("dim", [2, 40, 64, 128, 130, 300, 1000])
@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_products_of_whole_numbers_are_exact_at_the_edges_too(dim: int, kind: type[np.int8 | np.uint8]) -> None:
    rng, vectors = np.random.default_rng(dim), vectors_of(dim)
    if kind is np.int8:
        rows = rng.integers(-127, 128, (9, dim)).astype(kind)
        rows[8], rows[7] = 127, -127
        worth = rows.astype(np.int64)
    else:
        rows = rng.integers(0, 256, (9, dim // 2)).astype(kind)
        rows[8], rows[7] = 0xFF, 0x11
        worth = whole(rows, np.ones(9, dtype=np.float32)).astype(np.int64)
    found = np.empty((3, 4), dtype=np.float32)
    for first in range(9):
        four = arithmetic.fours(first, 9)
        for vector in range(3):
            exact = (worth[list(four)] @ vectors.values[vector, :dim].astype(np.int64)).astype(np.float32)
            _products(rows, four, vectors, vector, found[0])  # as the processor has it
            if kind is np.int8:
                arithmetic.of_bytes(rows, four, vectors.values, vector, found[1])
            else:
                arithmetic.of_halves(rows, four, vectors.values, vector, vectors.sums[vector], found[1])
            arithmetic.products(rows, four, vectors, vector, found[2])  # as Python has it
            assert np.array_equal(found, np.stack([exact] * 3))


@compiled
def _products(
    rows: NDArray[Any], four: lanes.Four, vectors: arithmetic.Vectors, vector: int, found: NDArray[np.float32]
) -> None:
    arithmetic.products(rows, four, vectors, vector, found)


def test_products_of_floats_are_as_numpy_has_them() -> None:
    rng, vectors = np.random.default_rng(3), arithmetic.blank(2, 30, whole=False)
    rows = rng.standard_normal((6, 30)).astype(np.float32)
    vectors.values[:] = rng.standard_normal((2, 30))
    found = np.empty(4, dtype=np.float32)
    _products(rows, (5, 0, 2, 2), vectors, 1, found)
    assert np.allclose(found, rows[[5, 0, 2, 2]] @ vectors.values[1], atol=1e-5)


@pytest.mark.parametrize("dim", [1, 2, 63, 128, 129, 300])
def test_planes_hold_the_numbers_that_were_cut(dim: int) -> None:
    values = vectors_of(dim).values[:, :dim]
    for row in (*values, -values[-1], np.arange(dim, dtype=np.int16) * 64 - 128):
        planes = np.zeros(lanes.planes_of(dim), dtype=np.int8)
        lanes.cut(row, planes)
        low, high, even_and_odd, their_high = planes.reshape(4, -1).astype(np.int32)
        all_ = low + 256 * high
        assert np.array_equal(all_[:dim], row)
        assert not all_[dim:].any()
        even, odd = (even_and_odd + 256 * their_high).reshape(2, -1)
        assert np.array_equal(even[: len(row[::2])][: dim // 2], row[::2][: dim // 2])
        assert np.array_equal(odd[: dim // 2], row[1::2][: dim // 2])


@pytest.mark.parametrize("count", [1, 2, 50, 400])
def test_the_largest_scores_are_brought_to_the_front(count: int) -> None:
    rng = np.random.default_rng(count)
    for wanted in {1, count // 3, count - 1, count, count + 5}:
        for scores in (rng.normal(size=count), rng.integers(0, 3, count), np.full(count, np.nan)):
            given, places = scores.astype(np.float32), np.arange(count, dtype=np.int32)
            nearest._largest_first(given, places, wanted)
            assert np.array_equal(given, scores.astype(np.float32)[places], equal_nan=True)
            assert sorted(places) == list(range(count))
            if 0 < wanted < count and not np.isnan(given).any():
                assert given[:wanted].min() >= given[wanted:].max()


@pytest.mark.parametrize("precision", ["int4", "int8", "float32"])
def test_tokens_that_come_again_count_the_last_time_whatever_the_company(precision: str) -> None:
    made = FastScorer(model(instance(mixed=mixed()), precision=precision))
    tokens, values = [5, 9, 5, 21, 9, 5], np.array([3, 1, 2, 1, 4, 0.5], dtype=np.float32)
    row = sparse.csr_array((values, tokens, [0, len(tokens)]), shape=(1, SMALL.tokens))
    many = sparse.csr_array((np.tile(values, 20), tokens * 20, np.arange(21) * 6), shape=(20, SMALL.tokens))
    one, all_ = made.top(row, 5), made.top(many, 5)
    assert (one.ids >= 0).all()
    assert np.array_equal(all_.ids, np.repeat(one.ids, 20, axis=0))
    assert np.array_equal(all_.scores, np.repeat(one.scores, 20, axis=0))


@pytest.mark.parametrize("words", [True, False])
@pytest.mark.parametrize("size", [1, 15, 16, 39])
def test_documents_that_meet_at_clusters_are_answered_as_if_alone(words: bool, size: int) -> None:
    packed = Packed.of(instance(mixed=mixed(words=words)), "int8")
    rows = documents()[:size]
    given, overlay = fast._documents(rows), moved(packed, [*range(0, 60, 7)], list(range(SMALL.labels)))[0]
    scorer = fast._Instance(packed, overlay, None)
    near, far = (scorer._encoded(given, maker) for maker in (scorer._near, scorer._far))
    listed = (given, near, far, *scorer._nearest(near), packed.labels, overlay, scorer._blend(0.3))
    found = []
    for kernel in (ranking.rank, meeting.rank_together):
        ids, chances = np.full((size, 9), -1), np.full((size, 9), -np.inf, dtype=np.float32)
        kernel(*listed, ids, chances)
        found.append((ids, chances))
    assert (found[0][0] >= 0).any()
    assert all(np.array_equal(one, other) for one, other in zip(*found, strict=True))


def room_of(rough: NDArray[np.float32], spread: float = 0.0) -> nearest.Room:
    """Documents with these rough scores, along 128 directions."""
    steps, count = np.ones(len(rough), dtype=np.float32), len(rough)
    return nearest.Room(np.zeros((count, lanes.width(128)), dtype=np.uint8), steps, steps * np.float32(spread), rough)


@pytest.mark.parametrize("count", [5000, 300])
def test_about_as_many_clusters_as_wanted_are_looked_at_and_never_fewer_than_the_beam(count: int) -> None:
    scores = np.random.default_rng(2).normal(size=(3, count)).astype(np.float32)
    places = np.empty(count + lanes.LANES, dtype=np.int32)
    bins = np.empty(nearest._BINS, dtype=np.int64)
    for wanted, beam in ((600, 50), (100, 100), (60, 50), (count, 10)):
        kept = nearest._promising(room_of(scores, 9), 1, count, fast._effort(count, beam, wanted), beam, places, bins)
        assert beam <= kept <= 2 * wanted + 100
        assert sorted(places[:kept]) == sorted(np.argsort(-scores[1])[:kept])
    peaked = np.zeros((1, count), dtype=np.float32)
    peaked[:, 1::8] = 1  # what every eighth does not show
    assert nearest._promising(room_of(peaked), 0, count, fast._effort(count, 60, 40), 60, places, bins) >= 60


def test_the_further_scores_may_be_off_the_more_clusters_are_looked_at() -> None:
    count, beam = 9000, 50
    scores = np.random.default_rng(2).normal(size=(1, count)).astype(np.float32)
    places, bins = np.empty(count + lanes.LANES, dtype=np.int32), np.empty(nearest._BINS, dtype=np.int64)
    effort, last = nearest.Effort(100, 2000, np.float32(2)), float(np.sort(scores[0])[-beam])
    kept = [
        nearest._promising(room_of(scores, spread), 0, count, effort, beam, places, bins)
        for spread in (0.0, 0.3, 0.4, 5.0)
    ]
    assert kept[0] == pytest.approx(effort.least, rel=0.4)
    for spread, found in ((0.3, kept[1]), (0.4, kept[2])):
        assert found == pytest.approx((scores[0] >= last - 2 * spread).sum(), rel=0.4)
    assert kept[3] == pytest.approx(effort.most, rel=0.2)


def flat(count: int, dim: int) -> packed_module.Clusters:
    """Clusters that differ as much in every direction."""
    rng = np.random.default_rng(4)
    weights = (10 * rng.normal(size=(count, dim))).astype(np.float32)
    rotation, first = packed_module.narrowed(weights)
    rows = packed_module.quantised(first, "int8"), packed_module.quantised(weights, "int8")
    return packed_module.Clusters(rotation, *rows[0], *rows[1], rng.normal(size=count).astype(np.float32))


def test_what_few_directions_leave_out_is_known_beforehand() -> None:
    clusters, vectors = flat(5000, 300), vectors_of(300, 20)
    search, room = nearest.Search.of(clusters), room_of(np.zeros((20, 1), dtype=np.float32))
    nearest.turn(vectors, search, room)
    documents = vectors.floats(300)
    along = (documents @ clusters.rotation.T) @ whole(clusters.first, clusters.first_scales).T
    missing = documents @ whole(clusters.weights, clusters.scales).T - along
    assert np.allclose(room.spreads, missing.std(axis=1), rtol=0.1)


@pytest.mark.parametrize("scale", [3e38, 0.0])
def test_clusters_of_any_length_are_made_ready(scale: float) -> None:
    clusters = flat(300, 200)
    search = nearest.Search.of(clusters._replace(scales=np.full_like(clusters.scales, scale)))
    assert search.spread == 0


def test_the_best_clusters_are_found_where_few_directions_tell_little() -> None:
    count, dim, beam = 5000, 300, 20
    clusters, vectors = flat(count, dim), vectors_of(dim, 40)
    exact = vectors.floats(dim) @ whole(clusters.weights, clusters.scales).T + clusters.bias
    wanted = np.argsort(-exact, axis=1)[:, :beam]
    search, shares = nearest.Search.of(clusters), []
    for effort in (fast._effort(count, beam, 60), fast._effort(count, beam, None)):
        found, scores = np.full((40, beam), -1), np.full((40, beam), -np.inf, dtype=np.float32)
        room = room_of(np.empty((32, search.first.starts.size), dtype=np.float32))
        nearest.find(vectors, search, effort, room, found, scores)
        assert np.allclose(scores, np.take_along_axis(exact, found, axis=1), rtol=1e-3, atol=1e-2)
        shares.append(np.mean([len(set(one) & set(other)) / beam for one, other in zip(found, wanted, strict=True)]))
    assert shares[0] < 0.6  # so it is not easy
    assert shares[1] > 0.9


def test_a_cluster_is_found_among_many_that_differ_from_it_in_other_directions_alone() -> None:
    rng, groups, siblings, dim, beam = np.random.default_rng(6), 32, 150, 300, 20
    shared = np.repeat(np.eye(groups, dim), siblings, axis=0)
    apart, noise = np.zeros((groups * siblings, dim)), np.zeros((groups * siblings, dim))
    apart[:, 128:] = 0.08 * rng.normal(size=(len(apart), dim - 128))
    noise[:, :128] = 0.05 * rng.normal(size=(len(apart), 128))  # which documents know nothing of
    weights = (20 * (shared + apart + noise)).astype(np.float32)
    rotation = np.eye(128, dim, dtype=np.float32)
    rows = packed_module.quantised(weights @ rotation.T, "int8"), packed_module.quantised(weights, "int8")
    clusters = packed_module.Clusters(rotation, *rows[0], *rows[1], np.zeros(len(weights), dtype=np.float32))
    wanted, vectors = np.arange(7, len(weights), 48), arithmetic.blank(100, dim, whole=True)
    for document, cluster in enumerate(wanted):
        told = (shared[cluster] + apart[cluster] + 0.04 * rng.normal(size=dim)).astype(np.float32)
        vectors.steps[document] = arithmetic.put(told, arithmetic.largest_entry(dim), vectors.values[document])
        arithmetic.finish(vectors, document)
    search, found = nearest.Search.of(clusters), np.full((100, beam), -1)
    room = room_of(np.empty((32, search.first.starts.size), dtype=np.float32))
    scores, effort = np.full((100, beam), -np.inf, dtype=np.float32), fast._effort(len(weights), beam, None)
    nearest.find(vectors, search, effort, room, found, scores)
    best = found[np.arange(100), scores.argmax(axis=1)]
    assert (best == wanted).mean() > 0.97
    nearest.find(vectors, search, fast._effort(len(weights), beam, 2 * beam), room, found, scores)
    assert np.mean([cluster in of for cluster, of in zip(wanted, found, strict=True)]) < 0.9  # so it is not easy


@compiled
def squares_of(values: NDArray[Any]) -> float:
    return arithmetic.squares(values)


@pytest.mark.parametrize("kind", [np.int8, np.int16, np.float32])
def test_squares_are_added_up_without_overflow(kind: type) -> None:
    values = np.array([100, -128, 3] * 200) * (256 if kind is np.int16 else 1)
    values = np.clip(values, -(1 << 15), (1 << 15) - 1).astype(kind)
    expected = float(np.square(values.astype(np.float64)).sum())
    assert squares_of(values) == arithmetic.squares(values) == expected


@pytest.mark.parametrize("count", [1, 15, 16, 17, 100])
def test_scores_that_are_not_less_are_found_by_lanes_and_by_a_loop(count: int) -> None:
    rng = np.random.default_rng(count)
    scores = rng.integers(0, 5, (3, -(-count // 64) * 64)).astype(np.float32)
    scores[1, count // 2], scores[:, count:] = np.nan, 9  # what is behind does not count
    ways = [lanes.above_by_loop, *([lanes.above_by_lanes] if lanes.in_hardware() else [])]
    for least in (-np.inf, 0, 3, 4, 7):
        expected = np.flatnonzero(scores[1, :count] >= least)
        for way in ways:
            places = np.full(count + lanes.LANES, -1, dtype=np.int32)
            assert way(scores, 1, count, np.float32(least), places) == len(expected)
            assert np.array_equal(places[: len(expected)], expected)


def moved(packed: Packed, numbers: list[int], rows: list[int]) -> tuple[Overlay, list[int]]:
    """These labels are hidden and come back as new ones, in the same clusters; and the rows of the new ones."""
    nothing, none = Overlay.nothing(packed.labels), np.zeros(0, dtype=np.int64)
    places, clusters = zip(*(packed.place(nothing, number) for number in numbers), strict=True)
    parts = [packed.labels.take(np.array([place]), none, none) for place in places]
    added = Labels.joined(parts, np.array(clusters), len(packed.clusters.bias), SMALL.labels)
    return Overlay(added, np.isin(np.arange(SMALL.labels), numbers)), [rows[number] for number in numbers]


@pytest.mark.parametrize("precision", ["int4", "int8", "float32"])
@pytest.mark.parametrize(
    "instances",
    [
        [instance(mixed=mixed())],
        [instance(mixed=mixed(texts=False))],
        [instance(mixed=mixed(words=False))],
        [instance(seed, mixed=mixed()) for seed in range(2)],
        [instance(unit=False)],
        [tree(mixed())],
        [tree()],
        [searched(mixed())],
    ],
    ids=["blend", "no texts", "no words", "two instances", "paper", "tree with a blend", "tree", "graph"],
)
def test_labels_that_are_hidden_and_come_back_as_new_ones_change_nothing(
    instances: list[Instance], precision: str
) -> None:
    made, numbers = model(*instances, precision=precision), [*range(0, 90, 7), 89, 40, 3]
    given = [moved(packed, numbers, made.kept.tolist()) for packed in made.packed]
    rows = np.concatenate([made.kept, given[0][1]])
    changes = Changes(tuple(overlay for overlay, _ in given), rows, made.labels.count)
    expected = ExactScorer(made, CPU).top(documents(), 12)
    assert len({*expected.ids.ravel()} & {*given[0][1]}) > len(numbers) / 2
    for scorer in (FastScorer(made, changes=changes), ExactScorer(made, CPU, changes=changes)):
        assert close(scorer.top(documents(), 12), expected)
        for at in range(0, 40, 9):
            one = Predictions(expected.ids[at : at + 1], expected.scores[at : at + 1])
            assert close(scorer.top(documents()[at : at + 1], 12), one)


@pytest.mark.parametrize("fast", [True, False])
def test_the_tail_of_a_call_counts_for_it_alone(fast: bool) -> None:
    made = model(instance(mixed=mixed()))

    def scorer(tail: float | None) -> FastScorer | ExactScorer:
        return FastScorer(made, tail=tail) if fast else ExactScorer(made, CPU, tail=tail)

    one, rows = scorer(0.2), documents()
    before = one.top(rows, 5)
    for tail in (0.0, 0.2, 0.7, 1.0):
        expected = scorer(tail).top(rows, 5)
        found = one.top(rows, 5, tail=tail)
        assert np.array_equal(found.ids, expected.ids)
        assert np.array_equal(found.scores, expected.scores)
        assert np.array_equal(found.scores, before.scores) == (tail == 0.2)
    assert np.array_equal(one.top(rows, 5).scores, before.scores)
    with pytest.raises(ModelError, match="leave the tail out"):
        FastScorer(model(instance())).top(rows, 5, tail=0.5)
    with pytest.raises(ModelError, match="leave the tail out"):
        ExactScorer(model(instance()), CPU).top(rows, 5, tail=0.5)


def test_the_clusters_of_a_document_are_those_of_the_shortlister_and_the_nearest_is_the_best() -> None:
    for made in (instance(mixed=mixed()), instance(unit=False), tree(), searched()):
        given, shortlister = FastScorer(model(made)), made.shortlister
        rows = documents(12)[[0, 1, 2, 4, 5, 6]]
        tokens = Rows.of(rows, CPU)
        vectors = shortlister.encoder(tokens.columns, tokens.starts, tokens.values)
        clusters, scores = shortlister.nearest(vectors, made.beam)
        for at in range(6):
            (found,) = given.clusters(rows[at : at + 1])
            assert found.tolist() == sorted(clusters[at].tolist())
        best = clusters.gather(1, scores.argmax(dim=1, keepdim=True))[:, 0]
        assert given.nearest(0, rows).tolist() == best.tolist()
