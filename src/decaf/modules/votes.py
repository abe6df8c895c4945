"""The training documents that vote for their labels, for the blend."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from decaf.modules.problem import Problem
from decaf.modules.shortlister import Shortlist
from decaf.networks import Ranker, Rows, Votes

__all__ = ["voters"]

_MOST = 1 << 19  # documents that may vote
_OF_CLUSTER = 1024  # of them that look into one cluster first
_DOCUMENTS = 4096  # encoded at a time


@torch.no_grad()
def voters(problem: Problem, shortlist: Shortlist, ranker: Ranker, *, seed: int) -> Votes:
    """Training documents by the cluster they look into first; a sample of them where there are too many.

    A document that has labels among those held out does not vote: it would speak against them.
    """
    device = ranker.weights.device
    first = shortlist.clusters[:, 0].cpu().numpy().astype(np.int64)
    chosen = _chosen(first, ~problem.shared, np.random.default_rng([seed, 5]))
    bounds = np.searchsorted(first[chosen], np.arange(len(shortlist.shortlister.bias) + 1))
    documents, truth = (sparse.csr_array(matrix[chosen]) for matrix in (problem.documents, problem.truth))
    parts = Rows.in_parts(documents, _DOCUMENTS, device)
    vectors = [ranker.encoder(rows.columns, rows.starts, rows.values) for rows in parts]
    empty = torch.zeros(0, ranker.weights.shape[1], device=device)
    arrays = (bounds.astype(np.int64), truth.indptr.astype(np.int64), truth.indices.astype(np.int32))
    of_cluster, of_voter, labels = (torch.as_tensor(array).to(device) for array in arrays)
    return Votes(of_cluster, torch.cat([empty, *vectors]), of_voter, labels)


def _chosen(first: NDArray[np.int64], allowed: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.int64]:
    """Documents in the order of their first cluster, at random among those of one, as many as may vote."""
    drawn = rng.permutation(len(first))
    drawn = drawn[allowed[drawn]]
    order = drawn[np.argsort(first[drawn], kind="stable")]
    rank = np.arange(len(order)) - np.searchsorted(first[order], first[order])
    order = order[rank < _OF_CLUSTER]
    if len(order) > _MOST:
        order = order[np.sort(rng.choice(len(order), _MOST, replace=False))]
    return order
