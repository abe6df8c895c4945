"""Products of vectors with many rows; of half as many bits where that is exact enough and the processor has them."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

__all__ = ["all_products"]


def all_products(vectors: Tensor, rows: Tensor, bias: Tensor | None = None) -> Tensor:
    """Vectors [vectors, dim] times rows [rows, dim], and what is added for each row -> [vectors, rows]."""
    if vectors.device.type == "cpu" and torch.get_float32_matmul_precision() != "highest" and _has_bfloat16():
        result: Tensor = _InFewBits.apply(vectors, rows, bias)  # type: ignore[no-untyped-call]
        return result
    return linear(vectors, rows, bias)


@cache
def _has_bfloat16() -> bool:
    """Whether the processor multiplies numbers of 16 bits faster than those of 32."""
    abilities: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(abilities.get("avx512_bf16") or abilities.get("amx_bf16"))


class _InFewBits(torch.autograd.Function):
    """Factors are rounded to bfloat16, added up in single precision, and the sum is rounded again."""

    @staticmethod
    def forward(ctx: Any, vectors: Tensor, rows: Tensor, bias: Tensor | None) -> Tensor:  # noqa: ANN401
        short = vectors.bfloat16(), rows.bfloat16()
        ctx.save_for_backward(*short)
        found = (short[0] @ short[1].T).float()
        return found if bias is None else found.add_(bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        (vectors, rows), (of_vectors, of_rows, of_bias) = ctx.saved_tensors, ctx.needs_input_grad
        short = gradients[0].bfloat16()
        return (
            (short @ rows).float() if of_vectors else None,
            (short.T @ vectors).float() if of_rows else None,
            gradients[0].sum(dim=0) if of_bias else None,
        )
