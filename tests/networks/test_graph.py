"""The graph of neighbours against a look at all vectors."""

from __future__ import annotations

import builtins

import pytest
import torch
from torch.nn.functional import normalize

from decaf.errors import ModelError
from decaf.networks.graph import NeighbourGraph


def vectors(count: int, seed: int) -> torch.Tensor:
    return normalize(torch.randn(count, 8, generator=torch.Generator().manual_seed(seed)), dim=1)


@pytest.mark.parametrize("count", [1, 5, 100])
def test_neighbours_are_nearly_all_those_of_a_look_at_all(count: int) -> None:
    known, queries = vectors(1000, 1), vectors(40, 2)
    found, scores = NeighbourGraph(known).search(queries, count)
    expected = (queries @ known.T).topk(count, dim=1)
    shared = [
        len(set(mine) & set(theirs)) for mine, theirs in zip(found.tolist(), expected.indices.tolist(), strict=True)
    ]
    assert sum(shared) >= 0.98 * 40 * count
    assert torch.allclose(scores, (queries @ known.T).gather(1, found), atol=1e-5)
    assert bool((scores.diff(dim=1) <= 1e-6).all())


def test_the_same_vectors_give_the_same_graph() -> None:
    known, queries = vectors(300, 1), vectors(20, 2)
    one, other = (NeighbourGraph(known).search(queries, 10) for _ in range(2))
    assert torch.equal(one[0], other[0])
    assert torch.equal(one[1], other[1])


@pytest.mark.parametrize("count", [1, 2, 7])
def test_a_few_vectors_are_all_found(count: int) -> None:
    found, _ = NeighbourGraph(vectors(count, 1)).search(vectors(5, 2), count)
    assert [sorted(row) for row in found.tolist()] == [list(range(count))] * 5


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    load = builtins.__import__

    def missing(name: str, *rest: object, **named: object) -> object:
        if name == "faiss":
            raise ImportError(name)
        return load(name, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ModelError, match="needs faiss; pip install faiss-cpu"):
        NeighbourGraph(vectors(3, 1))
