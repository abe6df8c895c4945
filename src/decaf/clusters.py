"""Balanced clusters of labels: spherical 2-means, level by level, all clusters of a level at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor
from torch.nn.functional import normalize, one_hot, pad

from decaf.devices import on_gpu
from decaf.features import unit_values
from decaf.networks.encoder import sparse_tensor
from decaf.progress import progress

__all__ = ["balanced_clusters"]

_GAIN = 1e-4  # mean similarity that another round must gain
_ROUNDS = 60  # at the most, for one split
_SPAN = 4096  # rows that a GPU adds up in one go

# Who is in which half of the clusters [clusters, width, 2] -> products of each row with the sums of both halves.
_Products = Callable[[Tensor], Tensor]


def balanced_clusters(
    vectors: NDArray[np.float32] | sparse.csr_array, count: int, *, rng: np.random.Generator, device: torch.device
) -> NDArray[np.int64]:
    """The cluster of each row -> [rows]; `count` is a power of two, and sizes differ by at most one.

    Rows are compared by direction; rows of zeros go where there is room. With more clusters than rows some stay empty.
    """
    levels = count.bit_length() - 1
    if count != 1 << levels:
        raise ValueError(f"the number of clusters must be a power of two, not {count}")
    rows = vectors.shape[0]
    unit = _unit_sparse(vectors) if isinstance(vectors, sparse.csr_array) else _unit_dense(vectors, device)
    generator = torch.Generator(device=device).manual_seed(int(rng.integers(2**62)))
    # Row numbers in cluster order [clusters, width]; the number behind the last stands for nobody, at a cluster's end.
    order = torch.arange(rows, device=device)[None, :]
    with progress("clustering", levels) as advance:
        for _ in range(levels):
            order = _split(unit, order, rows, generator)
            advance(1)
    cluster = torch.empty(rows + 1, dtype=torch.int64, device=device)
    cluster[order] = torch.arange(count, device=device)[:, None]
    return cluster[:rows].cpu().numpy()


def _split(unit: Tensor | sparse.csr_array, order: Tensor, nobody: int, generator: torch.Generator) -> Tensor:
    """Halve every cluster -> row numbers in the order of twice as many clusters."""
    there = order != nobody  # [clusters, width]
    sizes = there.sum(dim=1, keepdim=True)
    products = _dense_products(unit, order) if isinstance(unit, Tensor) else _sparse_products(unit, order)
    # Two random members are the first centres.
    lottery = torch.rand(order.shape, generator=generator, device=order.device).masked_fill_(~there, 2)
    drawn = torch.argsort(torch.argsort(lottery, dim=1), dim=1)
    similarity = products(torch.stack([drawn == 0, drawn == 1], dim=2).float())
    half = _halves(lottery, sizes)
    best = torch.full((len(order),), -torch.inf, device=order.device)
    for _ in range(_ROUNDS):
        preference = (similarity[..., 1] - similarity[..., 0]).masked_fill(~there, torch.inf)
        new_half = _halves(preference, sizes)
        member = one_hot(new_half, 2).float() * there[..., None]
        similarity = products(member)
        # The sum of a half times itself is the sum of its members' products with it.
        norms = (similarity * member).sum(dim=1, keepdim=True).clamp(min=0).sqrt()
        similarity = similarity / norms.clamp(min=1e-12)
        mean = (similarity * member).sum(dim=(1, 2)) / sizes[:, 0].clamp(min=1)
        half = torch.where((mean > best)[:, None], new_half, half)
        gained = bool((mean - best >= _GAIN).any())
        best = torch.maximum(best, mean)
        if not gained:
            break
    return _regroup(order, half, there, nobody)


def _halves(preference: Tensor, sizes: Tensor) -> Tensor:
    """0 for the first half of each cluster by preference (one more where odd), 1 for the rest."""
    rank = torch.argsort(torch.argsort(preference, dim=1, stable=True), dim=1)
    return (rank >= (sizes + 1) // 2).long()


def _regroup(order: Tensor, half: Tensor, there: Tensor, nobody: int) -> Tensor:
    """[clusters, width] -> [2 clusters, about half the width]."""
    width = (order.shape[1] + 1) // 2
    sides = []
    for side in range(2):
        mine = there & (half == side)
        place = torch.argsort((~mine).long(), dim=1, stable=True)[:, :width]
        sides.append(order.masked_fill(~mine, nobody).gather(1, place))
    return torch.stack(sides, dim=1).reshape(2 * len(order), width)


def _unit_dense(vectors: NDArray[np.float32], device: torch.device) -> Tensor:
    """Rows of unit length, and one of zeros for nobody."""
    rows = torch.as_tensor(np.asarray(vectors, dtype=np.float32)).to(device)
    return torch.cat([normalize(rows, dim=1), torch.zeros(1, rows.shape[1], device=device)])


def _unit_sparse(vectors: sparse.csr_array) -> sparse.csr_array:
    """Rows of unit length, and an empty one for nobody."""
    values = unit_values(vectors, vectors.data)
    indptr = np.append(vectors.indptr, vectors.indptr[-1])
    return sparse.csr_array((values, vectors.indices, indptr), shape=(vectors.shape[0] + 1, vectors.shape[1]))


def _dense_products(unit: Tensor, order: Tensor) -> _Products:
    clusters, width = order.shape
    span = _SPAN if on_gpu(order.device) else width
    parts = -(-width // max(1, span))
    if parts <= 1:
        rows = unit[order]  # [clusters, width, dim]
        return lambda member: rows @ (member.transpose(1, 2) @ rows).transpose(1, 2)
    # A sum over very many rows is one long queue on a GPU: it is made of shorter ones, nobody at the end.
    behind = parts * span - width
    rows = unit[pad(order, (0, behind), value=len(unit) - 1)].view(clusters * parts, span, -1)

    def products(member: Tensor) -> Tensor:
        each = pad(member, (0, 0, 0, behind)).view(clusters * parts, span, 2)
        sums = (each.transpose(1, 2) @ rows).view(clusters, parts, 2, -1).sum(dim=1)  # [clusters, 2, dim]
        return (rows.view(clusters, parts * span, -1) @ sums.transpose(1, 2))[:, :width]

    return products


def _sparse_products(unit: sparse.csr_array, order: Tensor) -> _Products:
    """Each cluster gets columns of its own, those that its rows use: one product does them all."""
    rows = unit[order.reshape(-1).cpu().numpy()]
    cluster = np.repeat(np.arange(rows.shape[0]) // order.shape[1], np.diff(rows.indptr))
    keys, columns = np.unique(cluster * unit.shape[1] + rows.indices.astype(np.int64), return_inverse=True)
    own = sparse.csr_array((rows.data, columns.astype(np.int32), rows.indptr), shape=(rows.shape[0], len(keys)))
    forward, backward = sparse_tensor(own, order.device), sparse_tensor(sparse.csr_array(own.T), order.device)
    return lambda member: (forward @ (backward @ member.reshape(-1, 2))).reshape(member.shape)
