"""Products of all with all, exact and in few bits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear

from decaf.networks import all_products, products


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As while training, on a processor that has bfloat16; torch knows how to do without."""
    monkeypatch.setattr(products, "_has_bfloat16", lambda: True)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision(before)


def factors(*, bias: bool = True) -> list[Tensor | None]:
    """Vectors [7, 16], rows [11, 16] and a bias, all of which learn."""
    random = torch.Generator().manual_seed(1)
    made = [torch.randn(*shape, generator=random).requires_grad_() for shape in ((7, 16), (11, 16), (11,))]
    return [*made[:2], made[2] if bias else None]


def slopes(result: Tensor, given: list[Tensor | None]) -> list[Tensor]:
    """The gradients of what learns, pulled at at random."""
    pull = torch.randn(result.shape, generator=torch.Generator().manual_seed(2))
    return list(torch.autograd.grad((result * pull).sum(), [part for part in given if part is not None]))


def test_by_default_products_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_has_bfloat16", lambda: True)
    given = factors()
    result = all_products(*given)
    assert torch.equal(result, linear(*given))
    assert all(map(torch.equal, slopes(result, given), slopes(linear(*given), given)))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.usefixtures("quick")
def test_where_it_is_quick_factors_are_rounded(bias: bool) -> None:
    given = factors(bias=bias)
    short = [None if part is None else part.detach().bfloat16().float() for part in given[:2]]
    result = all_products(*given)
    exact, pull = linear(*given), torch.randn(7, 11, generator=torch.Generator().manual_seed(2)).bfloat16().float()
    of_short = linear(short[0], short[1])
    torch.testing.assert_close(result - (0 if given[2] is None else given[2]), of_short, rtol=2**-8, atol=1e-5)
    assert not torch.equal(result, exact)
    found, of_exact = slopes(result, given), slopes(exact, given)
    # One factor is what the other's gradient is made of; both are rounded to eight bits, and so is what comes out.
    torch.testing.assert_close(found[0], pull @ short[1], rtol=2**-8, atol=1e-5)
    torch.testing.assert_close(found[1], pull.T @ short[0], rtol=2**-8, atol=1e-5)
    assert not torch.equal(found[0], of_exact[0])
    if bias:
        torch.testing.assert_close(found[2], of_exact[2])


@pytest.mark.usefixtures("quick")
def test_what_does_not_learn_has_no_gradient() -> None:
    vectors, rows, bias = factors()
    assert vectors is not None
    result = all_products(vectors.detach(), rows, bias)  # type: ignore[arg-type]
    result.sum().backward()
    assert vectors.grad is None
    assert rows is not None
    assert rows.grad is not None
