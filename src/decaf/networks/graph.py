"""A search down a graph of neighbours (HNSW): the paper's rival to clusters, on the CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from decaf.errors import ModelError

__all__ = ["NOBODY", "NeighbourGraph"]

_LINKS = 32  # of a vector to its neighbours
_BUILT = 200  # candidates looked at for each new vector
_SEARCHED = 300  # candidates looked at for each query, at the least
NOBODY = -1e4  # the score of a neighbour that was not found


class NeighbourGraph:
    """An index of vectors by inner product; built on one thread, so that the same vectors give the same graph."""

    def __init__(self, vectors: Tensor) -> None:
        self._faiss: Any = _library()
        threads = self._faiss.omp_get_max_threads()
        self._faiss.omp_set_num_threads(1)
        try:
            self._index = self._faiss.IndexHNSWFlat(vectors.shape[1], _LINKS, self._faiss.METRIC_INNER_PRODUCT)
            self._index.hnsw.efConstruction = _BUILT
            self._index.add(vectors.detach().cpu().contiguous().numpy())
        finally:
            self._faiss.omp_set_num_threads(threads)

    def search(self, queries: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """The nearest vectors and their products with the queries -> [queries, count] each."""
        wanted = self._faiss.SearchParametersHNSW(efSearch=max(_SEARCHED, count))
        scores, numbers = self._index.search(queries.cpu().contiguous().numpy(), count, params=wanted)
        found = torch.as_tensor(numbers)
        values = torch.as_tensor(scores).masked_fill(found < 0, NOBODY)
        return found.clamp(min=0).to(queries.device), values.to(queries.device)


def _library() -> Any:  # noqa: ANN401 - faiss has no types
    try:
        import faiss
    except ImportError as error:
        raise ModelError("shortlister.kind=hnsw needs faiss; pip install faiss-cpu") from error
    return faiss
