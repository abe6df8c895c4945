"""The text network: its parts, how it begins, and that freezing it changes no score."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from modules import random_rows
from scipy import sparse
from torch import Tensor

from decaf.networks import FixedBags, TextNetwork

CPU = torch.device("cpu")
DIM, TOKENS, LABELS = 6, 10, 8


def make(
    *,
    text: bool = True,
    refinement: str | Tensor | None = "text",
    learn_table: bool = True,
    temperature: float | None = None,
    by_rows: bool = False,
) -> TextNetwork:
    torch.manual_seed(0)
    texts = FixedBags(random_rows(LABELS, TOKENS, seed=3), CPU)
    table = torch.randn(TOKENS, DIM)
    settings = {"learn_table": learn_table, "temperature": temperature, "by_rows": by_rows}
    return TextNetwork(table, texts, 0.3, text=text, refinement=refinement, **settings)


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


PARTS = [(True, "text"), (True, "random"), (True, None), (False, "random")]


@pytest.mark.parametrize(("text", "refinement"), PARTS)
@pytest.mark.parametrize("temperature", [None, 20.0])
@pytest.mark.parametrize("by_rows", [False, True])
def test_the_frozen_network_gives_the_scores_of_the_network(
    text: bool, refinement: str | None, temperature: float | None, by_rows: bool
) -> None:
    network = make(text=text, refinement=refinement, temperature=temperature, by_rows=by_rows)
    disturb(network)
    network.eval()
    encoder, weights, bias = network.frozen()
    scores = network(*documents())
    assert torch.allclose(encoder(*documents()) @ weights.T + bias, scores, rtol=1e-4, atol=1e-5)
    assert float(scores.detach().std()) > 0.01
    assert not any(tensor.requires_grad for tensor in (*encoder.tensors().values(), weights, bias))


@pytest.mark.parametrize("refinement", ["text", "random", None])
@pytest.mark.parametrize("temperature", [None, 20.0])
@pytest.mark.parametrize("by_rows", [False, True])
def test_frozen_texts_and_refinements_are_the_frozen_classifiers(
    refinement: str | None, temperature: float | None, by_rows: bool
) -> None:
    network = make(refinement=refinement, temperature=temperature, by_rows=by_rows)
    disturb(network)
    network.eval()
    (encoder, weights, _), texts = network.frozen(), network.frozen_texts()
    assert texts is not None
    bags = torch.as_tensor(random_rows(LABELS, TOKENS, seed=3).toarray()) @ encoder.table
    expected = texts(bags)
    if refinement is not None:
        own = network.labels.refinement.values[:-1] if by_rows else network.labels.refinement
        scale = 1.0 if temperature is None else float(network.temperature.exp().detach())
        expected = expected + scale * network.labels.beta.sigmoid() * own
    assert torch.allclose(expected, weights, rtol=1e-4, atol=1e-5)
    assert bool(texts.unit) is (temperature is not None)
    assert not any(tensor.requires_grad for tensor in texts)


def test_a_network_without_texts_freezes_none() -> None:
    assert make(text=False, refinement="random").frozen_texts() is None


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


@pytest.mark.parametrize(("text", "refinement"), PARTS)
@pytest.mark.parametrize("temperature", [None, 20.0])
@pytest.mark.parametrize("by_rows", [False, True])
def test_scores_of_some_labels_are_columns_of_all(
    text: bool, refinement: str | None, temperature: float | None, by_rows: bool
) -> None:
    network = make(text=text, refinement=refinement, temperature=temperature, by_rows=by_rows)
    disturb(network)
    network.eval()
    labels = torch.tensor([6, 0, 3])
    everything = network(*documents())
    assert everything.shape == (7, LABELS)
    assert torch.allclose(network(*documents(), labels), everything[:, labels], rtol=1e-4, atol=1e-5)


def test_nobody_is_scored_beside_others_and_changes_nothing() -> None:
    network = make(temperature=20.0, by_rows=True)
    disturb(network)
    with torch.no_grad():
        network.labels.refinement.values[-1].zero_()
        network.labels.bias.values[-1].zero_()
    network.eval()
    labels = torch.tensor([6, LABELS, 3, LABELS])
    found = network(*documents(), labels)
    assert torch.allclose(found[:, [0, 2]], network(*documents())[:, [6, 3]], rtol=1e-4, atol=1e-5)
    assert bool(torch.isfinite(found).all())


def test_with_a_temperature_scores_are_products_of_unit_vectors_times_it() -> None:
    network = make(refinement=None, temperature=20.0)
    disturb(network)
    network.eval()
    with torch.no_grad():
        network.temperature.fill_(math.log(7.0))
    scores = network(*documents()).detach()
    assert float(scores.abs().max()) <= 7.0 + 1e-4
    vectors, (classifiers, bias) = network.vectors(*documents()), network.classifiers()
    assert bias is None
    assert torch.allclose(vectors.norm(dim=1), torch.full((7,), 7.0), rtol=1e-5)
    assert torch.allclose(classifiers.norm(dim=1), torch.ones(LABELS), rtol=1e-5)
    assert torch.allclose(vectors @ classifiers.T, scores, rtol=1e-4, atol=1e-5)


def test_a_temperature_begins_as_given_and_learns() -> None:
    network = make(temperature=20.0)
    assert float(network.temperature.exp().detach()) == pytest.approx(20)
    network(*documents()).square().sum().backward()
    assert bool(network.temperature.grad.any())
    assert make().temperature is None


def test_refinements_can_begin_with_given_values() -> None:
    start = torch.randn(LABELS, DIM)
    for by_rows in (False, True):
        network = make(refinement=start, by_rows=by_rows)
        refinement = network.labels.refinement
        assert torch.equal(refinement.values[:-1] if by_rows else refinement, start)
