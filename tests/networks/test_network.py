"""The text network: its parts, how it begins, and that freezing it changes no score."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from modules import random_rows
from scipy import sparse
from torch import Tensor

from decaf.networks import FixedBags, TextNetwork

CPU = torch.device("cpu")
DIM, TOKENS, LABELS = 6, 10, 8


def make(*, text: bool = True, refinement: str | None = "text", learn_table: bool = True) -> TextNetwork:
    torch.manual_seed(0)
    texts = FixedBags(random_rows(LABELS, TOKENS, seed=3), CPU)
    table = torch.randn(TOKENS, DIM)
    return TextNetwork(table, texts, 0.3, text=text, refinement=refinement, learn_table=learn_table)


def disturb(network: TextNetwork) -> None:
    """Move every parameter, as training would."""
    torch.manual_seed(5)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    network.train()
    for _ in range(20):  # the norm of R is followed step by step
        network(*documents())


def documents() -> tuple[Tensor, Tensor, Tensor]:
    matrix: sparse.csr_array = random_rows(7, TOKENS, seed=4)
    indices, starts = matrix.indices.astype(np.int64), matrix.indptr[:-1].astype(np.int64)
    return torch.as_tensor(indices), torch.as_tensor(starts), torch.as_tensor(matrix.data)


@pytest.mark.parametrize(("text", "refinement"), [(True, "text"), (True, "random"), (True, None), (False, "random")])
def test_the_frozen_network_gives_the_scores_of_the_network(text: bool, refinement: str | None) -> None:
    network = make(text=text, refinement=refinement)
    disturb(network)
    network.eval()
    encoder, weights, bias = network.frozen()
    scores = network(*documents())
    assert torch.allclose(encoder(*documents()) @ weights.T + bias, scores, atol=1e-5)
    assert float(scores.detach().std()) > 0.01
    assert not any(tensor.requires_grad for tensor in (*encoder, weights, bias))


def test_refinement_vectors_begin_as_the_texts() -> None:
    network = make(refinement="text")
    expected = torch.as_tensor(random_rows(LABELS, TOKENS, seed=3).toarray()) @ network.table
    assert network.labels.refinement is not None
    assert torch.allclose(network.labels.refinement, expected, atol=1e-6)


def test_random_refinement_vectors_are_small_and_follow_the_seed() -> None:
    first, again = make(refinement="random").labels.refinement, make(refinement="random").labels.refinement
    assert first is not None
    assert again is not None
    assert torch.equal(first, again)
    assert 0.5 * DIM**-0.5 < float(first.detach().abs().max()) <= DIM**-0.5


def test_the_table_is_a_copy_and_learns_only_where_it_may() -> None:
    table = torch.randn(TOKENS, DIM)
    texts = FixedBags(random_rows(LABELS, TOKENS, seed=3), CPU)
    for learns in (True, False):
        network = TextNetwork(table, texts, 0.0, text=True, refinement=None, learn_table=learns)
        network(*documents()).sum().backward()
        assert network.table.requires_grad is learns
        assert (network.table.grad is not None) is learns
        assert network.table.data_ptr() != table.data_ptr()


def test_every_parameter_that_learns_gets_a_gradient() -> None:
    network = make()
    disturb(network)
    network.eval()
    network(*documents()).square().sum().backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert bool(parameter.grad.any()), name
