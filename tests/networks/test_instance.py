"""Instances: the best labels against an obvious, slow computation, and arrays out and in again."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from modules import random_rows
from scipy import sparse
from torch import Tensor

from decaf.networks import FrozenEncoder, Instance, Level, Ranker, Shortlister

DIM, TOKENS = 5, 12
Documents = tuple[Tensor, Tensor, Tensor]


def encoder(seed: int) -> FrozenEncoder:
    generator = torch.Generator().manual_seed(seed)
    shapes = ((TOKENS, DIM), (DIM,), (DIM, DIM), (DIM,))
    return FrozenEncoder(*(torch.randn(shape, generator=generator) for shape in shapes))


def make(*, labels: int = 22, clusters: int = 8, beam: int = 3) -> Instance:
    """Clusters of three labels or two."""
    generator = torch.Generator().manual_seed(9)
    members = torch.full((clusters, -(-labels // clusters)), -1)
    for label, place in enumerate(torch.randperm(labels, generator=generator).tolist()):
        members[label % clusters, label // clusters] = place
    shortlister = Shortlister(
        encoder(1),
        torch.randn(clusters, DIM, generator=generator),
        torch.randn(clusters, generator=generator),
        members,
    )
    weights, bias = torch.randn(labels, DIM, generator=generator), torch.randn(labels, generator=generator)
    return Instance(shortlister, Ranker(encoder(2), weights, bias), beam)


def documents(rows: int = 9) -> tuple[sparse.csr_array, Documents]:
    matrix = random_rows(rows, TOKENS, seed=6)
    indices, starts = matrix.indices.astype(np.int64), matrix.indptr[:-1].astype(np.int64)
    return matrix, (torch.as_tensor(indices), torch.as_tensor(starts), torch.as_tensor(matrix.data))


def log_sigmoid(value: float) -> float:
    return -math.log1p(math.exp(-value))


def obvious_vectors(frozen: FrozenEncoder, matrix: sparse.csr_array) -> np.ndarray:
    table, scale, weight, bias = (array.double().numpy() for array in frozen)
    bags = matrix.toarray().astype(np.float64) @ table
    return np.maximum(0, scale * bags + np.maximum(0, bags) @ weight.T + bias)


def obvious_top(instance: Instance, matrix: sparse.csr_array, top: int) -> list[list[tuple[int, float]]]:
    """log sigmoid(w.x + b) + log sigmoid(h.x + b), one label after another."""
    found = []
    shortlister, ranker = instance.shortlister, instance.ranker
    of_cluster = obvious_vectors(shortlister.encoder, matrix) @ shortlister.weights.double().numpy().T
    of_label = obvious_vectors(ranker.encoder, matrix) @ ranker.weights.double().numpy().T
    for row in range(matrix.shape[0]):
        clusters = {m: float(of_cluster[row, m] + shortlister.bias[m]) for m in range(len(shortlister.bias))}
        chances = {}
        for cluster in sorted(clusters, key=clusters.__getitem__, reverse=True)[: instance.beam]:
            for label in shortlister.members[cluster].tolist():
                if label >= 0:
                    logit = float(of_label[row, label] + ranker.bias[label])
                    chances[label] = log_sigmoid(logit) + log_sigmoid(clusters[cluster])
        found.append(sorted(chances.items(), key=lambda item: -item[1])[:top])
    return found


@pytest.mark.parametrize("labels", [22, 400])
@pytest.mark.parametrize("beam", [1, 3, 8, 50])
def test_the_best_labels_are_the_obvious_ones(labels: int, beam: int) -> None:
    instance = make(labels=labels, beam=beam)
    matrix, arguments = documents()
    ids, scores = instance.top(*arguments, 5)
    for row, expected in enumerate(obvious_top(instance, matrix, 5)):
        there = torch.isfinite(scores[row])
        assert ids[row][there].tolist() == [label for label, _ in expected]
        assert scores[row][there].tolist() == pytest.approx([score for _, score in expected], rel=1e-4)


def test_fewer_labels_than_asked_for_are_all_the_shortlist_has() -> None:
    ids, scores = make(labels=5, clusters=2, beam=1).top(*documents()[1], 10)
    assert ids.shape == scores.shape == (9, 3)  # one cluster of three, or of two and nobody
    assert torch.equal(ids < 0, torch.isneginf(scores))


def test_a_shortlist_is_best_first_with_the_logarithms_of_its_chances() -> None:
    instance = make()
    matrix, arguments = documents()
    clusters, chances = instance.shortlister.top(*arguments, 3)
    logits = obvious_vectors(instance.shortlister.encoder, matrix) @ instance.shortlister.weights.double().numpy().T
    logits += instance.shortlister.bias.double().numpy()
    assert clusters.tolist() == np.argsort(-logits, axis=1)[:, :3].tolist()
    expected = [[log_sigmoid(value) for value in sorted(row, reverse=True)[:3]] for row in logits.tolist()]
    assert chances.tolist() == [pytest.approx(row, rel=1e-4) for row in expected]


def test_labels_are_scored_alike_few_at_a_time_and_all_at_once() -> None:
    ranker = make(labels=400).ranker
    _, arguments = documents()
    generator = torch.Generator().manual_seed(0)
    listed = torch.randint(-1, 400, (9, 60), generator=generator)  # so many that all labels are scored
    together = ranker.scores(*arguments, listed)
    pieces = torch.cat([ranker.scores(*arguments, piece) for piece in listed.split(6, dim=1)], dim=1)
    assert torch.allclose(together, pieces, atol=1e-5)
    assert torch.equal(torch.isneginf(together), listed < 0)


def test_arrays_make_the_same_instance_again() -> None:
    instance = make()
    again = Instance.of(instance.tensors())
    assert again.beam == instance.beam
    assert all(torch.equal(tensor, again.tensors()[name]) for name, tensor in instance.tensors().items())
    _, arguments = documents()
    for found, expected in zip(again.top(*arguments, 4), instance.top(*arguments, 4), strict=True):
        assert torch.equal(found, expected)
    moved = instance.to(torch.device("cpu"))
    assert all(torch.equal(tensor, moved.tensors()[name]) for name, tensor in instance.tensors().items())


@pytest.mark.parametrize("name", ["ranker.encoder.scale", "ranker.bias", "shortlister.members"])
def test_a_missing_array_makes_no_instance(name: str) -> None:
    tensors = make().tensors()
    del tensors[name]
    with pytest.raises((KeyError, TypeError), match=name.split(".")[-1]):
        Instance.of(tensors)


def test_a_search_down_a_tree_multiplies_probabilities_and_follows_only_the_best(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("decaf.networks.instance._TREE_BEAM", 2)
    flat = make().shortlister  # 8 clusters below 4 nodes, two under each
    generator = torch.Generator().manual_seed(3)
    level = Level(torch.randn(4, DIM, generator=generator), torch.randn(4, generator=generator))
    tree = Shortlister(flat.encoder, flat.weights, flat.bias, flat.members, (level,))
    matrix, inputs = documents()
    clusters, scores = tree.top(*inputs, 3)
    for row, vector in enumerate(obvious_vectors(flat.encoder, matrix)):
        above = [log_sigmoid(float(vector @ w.double().numpy()) + float(b)) for w, b in zip(*level, strict=True)]
        followed = sorted(range(4), key=lambda node: -above[node])[:2]
        paths = {
            cluster: above[cluster // 2]
            + log_sigmoid(float(vector @ flat.weights[cluster].double().numpy()) + float(flat.bias[cluster]))
            for node in followed
            for cluster in (2 * node, 2 * node + 1)
        }
        expected = sorted(paths, key=lambda cluster: -paths[cluster])[:3]
        assert clusters[row].tolist() == expected
        np.testing.assert_allclose(scores[row].numpy(), [paths[cluster] for cluster in expected], rtol=1e-4, atol=1e-5)


def test_a_tree_survives_as_arrays() -> None:
    made = make()
    level = Level(torch.ones(4, DIM), torch.zeros(4))
    tree = Shortlister(
        made.shortlister.encoder,
        made.shortlister.weights,
        made.shortlister.bias,
        made.shortlister.members,
        (level, level),
    )
    again = Instance.of(Instance(tree, made.ranker, 3).tensors())
    assert len(again.shortlister.above) == 2
    assert torch.equal(again.shortlister.above[1].weights, level.weights)
