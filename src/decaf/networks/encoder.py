"""From bags of tokens to vectors: token embeddings, the embedding block, document and label-text vectors."""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn
from torch.nn.functional import embedding_bag
from torch.nn.utils.parametrizations import spectral_norm

__all__ = ["Block", "DocumentEncoder", "FixedBags", "FrozenEncoder", "sparse_tensor", "token_table"]


def token_table(tokens: int, dim: int, generator: torch.Generator) -> nn.Parameter:
    """Token embeddings E, Kaiming-uniform -> [tokens, dim]."""
    bound = math.sqrt(6 / dim)
    return nn.Parameter(torch.empty(tokens, dim).uniform_(-bound, bound, generator=generator))


class Block(nn.Module):
    """The embedding block: sigmoid(alpha) e + sigmoid(beta) R relu(e), R spectral-normed, identity at the start."""

    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        linear = nn.Linear(dim, dim)
        nn.init.eye_(linear.weight)
        nn.init.zeros_(linear.bias)
        self.linear = spectral_norm(linear)  # R
        self.dropout = nn.Dropout(dropout)
        self.alpha = nn.Parameter(torch.zeros(dim))
        self.beta = nn.Parameter(torch.zeros(dim))

    def forward(self, bags: Tensor) -> Tensor:
        """Bag embeddings -> [bags, dim]."""
        residual: Tensor = self.linear(self.dropout(bags.relu()))
        return self.alpha.sigmoid() * bags + self.beta.sigmoid() * residual


class DocumentEncoder(nn.Module):
    """Document vectors: relu of the block over bag embeddings."""

    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        self.block = Block(dim, dropout)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor, starts: Tensor, weights: Tensor, table: Tensor) -> Tensor:
        """Tokens of all documents one after another, where each begins, and their weights -> [documents, dim]."""
        bags = embedding_bag(tokens, table, starts, mode="sum", per_sample_weights=weights)
        vectors: Tensor = self.dropout(self.block(bags).relu())
        return vectors

    def frozen(self, table: Tensor) -> FrozenEncoder:
        """The encoder for prediction, its scales folded into the layer."""
        block, beta = self.block, self.block.beta.sigmoid()
        weight, bias = beta[:, None] * block.linear.weight, beta * block.linear.bias  # type: ignore[operator]
        arrays = (table, block.alpha.sigmoid(), weight, bias)
        return FrozenEncoder(*(array.detach().clone().contiguous() for array in arrays))


class FrozenEncoder(NamedTuple):
    """A document encoder for prediction: relu(scale e + R relu(e) + bias)."""

    table: Tensor  # E, [tokens, dim]
    scale: Tensor  # [dim]
    weight: Tensor  # R, [dim, dim]
    bias: Tensor  # [dim]

    def __call__(self, tokens: Tensor, starts: Tensor, weights: Tensor) -> Tensor:
        """Tokens of all documents one after another, where each begins, and their weights -> [documents, dim]."""
        bags = embedding_bag(tokens, self.table, starts, mode="sum", per_sample_weights=weights)
        return torch.addmm(self.scale * bags + self.bias, bags.relu(), self.weight.T).relu()


class FixedBags:
    """Bag embeddings of texts that stay the same in every step, such as all labels: one sparse product each way."""

    def __init__(self, weights: sparse.csr_array, device: torch.device) -> None:
        self.count = weights.shape[0]
        self._forward = sparse_tensor(weights, device)
        self._backward = sparse_tensor(sparse.csr_array(weights.T), device)

    def __call__(self, table: Tensor) -> Tensor:
        """Token embeddings -> [texts, dim]."""
        bags: Tensor = _Product.apply(self._forward, self._backward, table)  # type: ignore[no-untyped-call]
        return bags


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
