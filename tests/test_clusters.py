"""Balanced clusters: sizes, seeds, odd vectors, and that they put together what belongs together."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse

from decaf import clusters as clusters_module
from decaf.clusters import balanced_clusters

CPU = torch.device("cpu")
Vectors = NDArray[np.float32] | sparse.csr_array


def clusters(vectors: Vectors, count: int, *, seed: int = 0) -> NDArray[np.int64]:
    return balanced_clusters(vectors, count, rng=np.random.default_rng(seed), device=CPU)


def normal(rows: int, dim: int, *, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((rows, dim)).astype(np.float32)


def groups(count: int, size: int, *, seed: int = 0) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Vectors around `count` axes, and the axis of each, in random order."""
    rng = np.random.default_rng(seed)
    belongs = rng.permutation(np.repeat(np.arange(count), size))
    noise = 0.1 * rng.random((len(belongs), count))
    return (np.eye(count)[belongs] + noise).astype(np.float32), belongs


def partition(cluster: NDArray[np.int64]) -> set[frozenset[int]]:
    return {frozenset(np.flatnonzero(cluster == name).tolist()) for name in np.unique(cluster)}


def mean_similarity(vectors: NDArray[np.float32], cluster: NDArray[np.int64]) -> float:
    """Of each vector with the centre of its cluster."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    sums = np.stack([unit[cluster == name].sum(axis=0) for name in range(cluster.max() + 1)])
    centres = sums / np.linalg.norm(sums, axis=1, keepdims=True)
    return float((unit * centres[cluster]).sum(axis=1).mean())


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(rows=st.integers(1, 70), levels=st.integers(0, 6), as_sparse=st.booleans(), empty=st.booleans())
def test_sizes_differ_by_at_most_one(rows: int, levels: int, as_sparse: bool, empty: bool) -> None:
    dense = normal(rows, 5, seed=rows)
    if empty:
        dense[::2] = 0
    found = clusters(sparse.csr_array(dense) if as_sparse else dense, 1 << levels)
    assert found.shape == (rows,)
    assert found.min() >= 0
    sizes = np.bincount(found, minlength=1 << levels)
    assert len(sizes) == 1 << levels
    assert sizes.max() - sizes.min() <= 1


@pytest.mark.parametrize("vectors", [np.ones((10, 3), np.float32), np.zeros((10, 3), np.float32)])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_vectors_that_say_nothing_are_shared_out_evenly(vectors: NDArray[np.float32], form: type) -> None:
    assert sorted(np.bincount(clusters(form(vectors), 4), minlength=4)) == [2, 2, 3, 3]


def test_more_clusters_than_rows_leave_some_empty() -> None:
    sizes = np.bincount(clusters(normal(5, 4), 16), minlength=16)
    assert sorted(sizes) == [0] * 11 + [1] * 5


def test_one_cluster_holds_all() -> None:
    assert clusters(normal(5, 4), 1).tolist() == [0] * 5


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_the_same_seed_gives_the_same_clusters(form: type) -> None:
    vectors = form(normal(60, 8))
    first = clusters(vectors, 8, seed=3)
    assert np.array_equal(first, clusters(vectors, 8, seed=3))
    assert any(not np.array_equal(first, clusters(vectors, 8, seed=seed)) for seed in range(4, 8))


def test_the_vectors_are_left_as_they_are() -> None:
    dense = normal(20, 4)
    kept, matrix = dense.copy(), sparse.csr_array(dense)
    clusters(dense, 4)
    clusters(matrix, 4)
    assert np.array_equal(dense, kept)
    assert np.array_equal(matrix.toarray(), kept)


@pytest.mark.parametrize("seed", range(3))
def test_two_groups_are_told_apart_dense_and_sparse_alike(seed: int) -> None:
    vectors, belongs = groups(2, 20, seed=seed)
    assert partition(clusters(vectors, 2, seed=seed)) == partition(belongs)
    assert partition(clusters(sparse.csr_array(vectors), 2, seed=seed)) == partition(belongs)


def test_rows_are_compared_by_direction_not_by_length() -> None:
    vectors, belongs = groups(2, 20)
    lengths = np.random.default_rng(1).choice([0.01, 1, 100], size=(40, 1)).astype(np.float32)
    assert partition(clusters(vectors * lengths, 2)) == partition(belongs)
    assert partition(clusters(sparse.csr_array(vectors * lengths), 2)) == partition(belongs)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_lengths_change_nothing(form: type) -> None:
    vectors = normal(60, 8)
    lengths = (2.0 ** np.random.default_rng(1).integers(-6, 7, size=(60, 1))).astype(np.float32)
    assert np.array_equal(clusters(form(vectors * lengths), 8), clusters(form(vectors), 8))


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_clusters_are_much_closer_than_chance(form: type) -> None:
    vectors, _ = groups(8, 12)
    found = clusters(form(vectors), 8)
    shuffled = np.random.default_rng(0).permutation(found)
    assert mean_similarity(vectors, found) > mean_similarity(vectors, shuffled) + 0.2


def test_a_split_is_at_least_as_close_as_any_of_many_random_ones() -> None:
    vectors, _ = groups(4, 10, seed=2)
    best = mean_similarity(vectors, clusters(vectors, 2))
    rng = np.random.default_rng(0)
    halves = np.repeat([0, 1], 20)
    assert all(best >= mean_similarity(vectors, rng.permutation(halves)) for _ in range(200))


@pytest.mark.parametrize("count", [3, 6, 12])
def test_a_number_of_clusters_that_is_no_power_of_two_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match=f"power of two, not {count}"):
        clusters(normal(20, 4), count)


@pytest.mark.parametrize("span", [1, 7, 16, 99, 100, 4096])  # of 100 rows
def test_sums_of_a_gpu_are_made_of_shorter_ones(monkeypatch: pytest.MonkeyPatch, span: int) -> None:
    vectors, _ = groups(4, 25)
    expected = partition(clusters(vectors, 4))
    monkeypatch.setattr(clusters_module, "on_gpu", lambda device: True)
    monkeypatch.setattr(clusters_module, "_SPAN", span)
    assert partition(clusters(vectors, 4)) == expected
    assert sorted(np.bincount(clusters(normal(101, 8), 8), minlength=8)) == [12] * 3 + [13] * 5
