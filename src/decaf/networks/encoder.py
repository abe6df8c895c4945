"""From bags of tokens to vectors: token embeddings, the embedding block, document and label-text vectors."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn
from torch.nn.functional import embedding_bag, normalize
from torch.nn.utils.parametrizations import spectral_norm

from decaf.devices import on_gpu
from decaf.networks.products import all_products
from decaf.networks.rows import Rows

__all__ = ["Block", "DocumentEncoder", "FixedBags", "FrozenEncoder", "sparse_tensor", "token_table"]


def token_table(tokens: int, dim: int, generator: torch.Generator) -> nn.Parameter:
    """Token embeddings E, Kaiming-uniform -> [tokens, dim]."""
    bound = math.sqrt(6 / dim)
    return nn.Parameter(torch.empty(tokens, dim).uniform_(-bound, bound, generator=generator))


class Dropout(nn.Dropout):
    """Torch's dropout; on the CPU from random numbers that are quicker to draw."""

    def forward(self, input: Tensor) -> Tensor:
        """Drop a share of the values while training, and scale up the others."""
        if not self.training or not self.p or on_gpu(input.device):
            return super().forward(input)
        return input * torch.rand_like(input).ge_(self.p).mul_(1 / (1 - self.p))


class Block(nn.Module):
    """The embedding block: sigmoid(alpha) e + sigmoid(beta) R relu(e), R spectral-normed, identity at the start."""

    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        linear = nn.Linear(dim, dim)
        nn.init.eye_(linear.weight)
        nn.init.zeros_(linear.bias)
        spectral_norm(linear)
        self.linear = linear  # R
        self.dropout = Dropout(dropout)
        self.alpha = nn.Parameter(torch.zeros(dim))
        self.beta = nn.Parameter(torch.zeros(dim))

    def forward(self, bags: Tensor) -> Tensor:
        """Bag embeddings -> [bags, dim]."""
        residual = all_products(self.dropout(bags.relu()), self.linear.weight, self.linear.bias)
        return self.alpha.sigmoid() * bags + self.beta.sigmoid() * residual

    def folded(self) -> tuple[Tensor, Tensor, Tensor]:
        """For prediction: scale, weight and bias, so that the block is scale e + weight relu(e) + bias."""
        beta = self.beta.sigmoid()
        arrays = (self.alpha.sigmoid(), beta[:, None] * self.linear.weight, beta * self.linear.bias)
        scale, weight, bias = (array.detach().clone().contiguous() for array in arrays)
        return scale, weight, bias


class DocumentEncoder(nn.Module):
    """Document vectors: the block over bag embeddings, then cut at zero (relu) or scaled to unit length."""

    def __init__(self, dim: int, dropout: float, *, unit: bool = False) -> None:
        super().__init__()
        self.block = Block(dim, dropout)
        self.dropout = Dropout(dropout)
        self.unit = unit

    def forward(self, tokens: Tensor, starts: Tensor, weights: Tensor, table: Tensor) -> Tensor:
        """Tokens of all documents one after another, where each begins, and their weights -> [documents, dim]."""
        return self.of_bags(embedding_bag(tokens, table, starts, mode="sum", per_sample_weights=weights))

    def of_bags(self, bags: Tensor) -> Tensor:
        """Bag embeddings of documents -> [documents, dim]."""
        vectors: Tensor = self.block(bags)
        dropped: Tensor = self.dropout(vectors if self.unit else vectors.relu())
        return normalize(dropped, dim=1) if self.unit else dropped

    def frozen(self, table: Tensor) -> FrozenEncoder:
        """The encoder for prediction, its scales folded into the layer."""
        return FrozenEncoder(table.detach().clone().contiguous(), *self.block.folded(), self.unit)


class FrozenEncoder(NamedTuple):
    """A document encoder for prediction: scale e + R relu(e) + bias, cut at zero or of unit length."""

    table: Tensor  # E, [tokens, dim]
    scale: Tensor  # [dim]
    weight: Tensor  # R, [dim, dim]
    bias: Tensor  # [dim]
    unit: bool = False

    def __call__(self, tokens: Tensor, starts: Tensor, weights: Tensor) -> Tensor:
        """Tokens of all documents one after another, where each begins, and their weights -> [documents, dim]."""
        bags = embedding_bag(tokens, self.table, starts, mode="sum", per_sample_weights=weights)
        vectors = torch.addmm(self.scale * bags + self.bias, bags.relu(), self.weight.T)
        return normalize(vectors, dim=1) if self.unit else vectors.relu()

    def tensors(self) -> dict[str, Tensor]:
        """All arrays by name."""
        arrays = {name: tensor for name, tensor in self._asdict().items() if isinstance(tensor, Tensor)}
        return arrays | {"unit": torch.tensor([self.unit])}

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> FrozenEncoder:
        """The encoder made of these arrays."""
        unit = "unit" in tensors and bool(tensors["unit"][0])
        return cls(tensors["table"], tensors["scale"], tensors["weight"], tensors["bias"], unit)


class FixedBags:
    """Bag embeddings of texts that stay the same in every step, such as all labels, or of some of them.

    On a GPU as many texts take as much room in every step, where steps are `recorded`.
    """

    def __init__(self, weights: sparse.csr_array, device: torch.device, *, recorded: bool = True) -> None:
        self.count = weights.shape[0]
        self._weights, self._device, self._recorded = weights, device, recorded
        self._rooms: dict[int, int] = {}

    def __call__(self, table: Tensor) -> Tensor:
        """Of all texts, by one sparse product each way -> [texts, dim]."""
        forward, backward = self._matrices
        bags: Tensor = _Product.apply(forward, backward, table)  # type: ignore[no-untyped-call]
        return bags

    def beside(
        self, tokens: Tensor, starts: Tensor, weights: Tensor, rows: Tensor, table: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Of documents, and of these texts alone, in one go -> [documents, dim] and [rows, dim].

        The number behind the last text stands for an empty one.
        """
        own = self._rows.padded(rows, self._room(len(rows)))
        entries = zip((tokens, starts, weights), (own[0], own[1] + len(tokens), own[2]), strict=True)
        tokens, all_starts, weights = (torch.cat(both) for both in entries)
        bags = embedding_bag(tokens, table, all_starts, mode="sum", per_sample_weights=weights)
        return bags[: len(starts)], bags[len(starts) :]

    @cached_property
    def _matrices(self) -> tuple[Tensor, Tensor]:
        by_token = sparse.csr_array(self._weights.T)
        return sparse_tensor(self._weights, self._device), sparse_tensor(by_token, self._device)

    @cached_property
    def _rows(self) -> Rows:
        indptr = np.append(self._weights.indptr, self._weights.indptr[-1])
        shape = (self.count + 1, self._weights.shape[1])
        return Rows.of(sparse.csr_array((self._weights.data, self._weights.indices, indptr), shape=shape), self._device)

    def _room(self, count: int) -> int | None:
        """Entries that so many texts hardly ever exceed, where tensors must have one shape; None where any will do."""
        if not (self._recorded and on_gpu(self._device)):
            return None
        if count not in self._rooms:  # looked up once: a step that is being recorded may not ask the device
            self._rooms[count] = self._rows.room(count)
        return self._rooms[count]


class _Product(torch.autograd.Function):
    """A constant sparse matrix times a dense one; its gradient is the transpose times the gradient."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, transposed: Tensor, table: Tensor) -> Tensor:  # noqa: ANN401
        ctx.transposed = transposed
        return matrix @ table

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, Tensor]:  # noqa: ANN401
        return None, None, ctx.transposed @ gradients[0]


def sparse_tensor(matrix: sparse.csr_array, device: torch.device) -> Tensor:
    """A scipy matrix as a torch one."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta state")
        return torch.sparse_csr_tensor(
            torch.as_tensor(matrix.indptr.astype(np.int64)),
            torch.as_tensor(matrix.indices.astype(np.int64)),
            torch.as_tensor(matrix.data.astype(np.float32)),
            size=matrix.shape,
            device=device,
            check_invariants=False,
        )
