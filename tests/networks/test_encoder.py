"""The embedding block against numbers made by hand, its gradients, fixed bags, and the frozen encoder."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from modules import random_rows
from torch import Tensor
from torch.nn.functional import embedding_bag

from decaf.networks import Block, DocumentEncoder, FixedBags, FrozenEncoder, Rows, token_table
from decaf.networks.encoder import Dropout

CPU = torch.device("cpu")


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def set_layer(block: Block, weight: Tensor, bias: Tensor) -> None:
    """Give R this weight, with the singular vectors that its norm is measured along."""
    parametrization = block.linear.parametrizations.weight
    u, _, v = torch.linalg.svd(weight)
    with torch.no_grad():
        parametrization.original.copy_(weight)
        parametrization[0]._u.copy_(u[:, 0])
        parametrization[0]._v.copy_(v[0])
        block.linear.bias.copy_(bias)


def trained_block(dim: int, dropout: float = 0.0) -> Block:
    """A block that is nothing like a new one."""
    torch.manual_seed(1)
    block = Block(dim, dropout)
    set_layer(block, torch.randn(dim, dim), torch.randn(dim))
    with torch.no_grad():
        block.alpha.copy_(torch.randn(dim))
        block.beta.copy_(torch.randn(dim))
    return block


def test_a_new_block_is_half_the_bag_and_half_its_positive_part() -> None:
    found = Block(3, 0.5).eval()(torch.tensor([[2.0, -4.0, 6.0]]))
    assert found[0].tolist() == pytest.approx([2.0, -2.0, 6.0])


def test_a_block_of_known_numbers() -> None:
    block = Block(2, 0.9).eval()
    # The largest singular value of diag(4, 2) is 4: R is diag(1, 1/2).
    set_layer(block, torch.diag(torch.tensor([4.0, 2.0])), torch.tensor([0.25, -0.5]))
    with torch.no_grad():
        block.alpha.copy_(torch.tensor([1.0, -2.0]))
        block.beta.copy_(torch.tensor([0.5, 3.0]))
    found = block(torch.tensor([[3.0, 5.0], [-3.0, 5.0]]))
    second = sigmoid(-2) * 5 + sigmoid(3) * (2.5 - 0.5)
    expected = [
        [sigmoid(1) * 3 + sigmoid(0.5) * (3 + 0.25), second],
        [sigmoid(1) * -3 + sigmoid(0.5) * (0 + 0.25), second],
    ]
    assert found.tolist() == [pytest.approx(row, rel=1e-5) for row in expected]


def test_the_layer_of_a_block_has_a_spectral_norm_of_one() -> None:
    block = trained_block(6).eval()
    assert float(torch.linalg.matrix_norm(block.linear.weight.detach(), 2)) == pytest.approx(1, abs=1e-5)


def test_the_layer_mixes_components_the_right_way_round() -> None:
    block = Block(2, 0.0).eval()
    set_layer(block, torch.tensor([[0.0, 1.0], [0.0, 0.0]]), torch.zeros(2))
    assert block(torch.tensor([[0.0, 2.0]])).tolist() == [pytest.approx([1.0, 1.0])]


def test_dropout_of_a_block_drops_its_positive_part_in_training_alone() -> None:
    torch.manual_seed(2)
    block, bags = Block(8, 0.5), torch.full((40, 8), 2.0)
    assert {round(value, 4) for value in block.eval()(bags).flatten().tolist()} == {2.0}
    # Half the bag, and behind the new layer none or twice the other half.
    assert {round(value, 4) for value in block.train()(bags).flatten().tolist()} == {1.0, 3.0}


def test_dropout_of_an_encoder_drops_components_of_its_vectors_too() -> None:
    torch.manual_seed(2)
    encoder = DocumentEncoder(8, 0.5)
    documents = (torch.zeros(40, dtype=torch.int64), torch.arange(40), torch.ones(40), torch.full((1, 8), 2.0))
    assert {round(value, 4) for value in encoder.eval()(*documents).flatten().tolist()} == {2.0}
    assert {round(value, 4) for value in encoder.train()(*documents).flatten().tolist()} == {0.0, 2.0, 6.0}


def test_gradients_of_a_block_are_those_of_finite_differences() -> None:
    block = trained_block(4).double().eval()
    bags = torch.randn(3, 4, dtype=torch.float64).requires_grad_()
    parameters = dict(block.named_parameters())

    def run(bags: Tensor, *values: Tensor) -> Tensor:
        return torch.func.functional_call(block, dict(zip(parameters, values, strict=True)), (bags,))

    assert len(parameters) == 4  # R, its bias, alpha and beta
    assert torch.autograd.gradcheck(run, (bags, *(p.detach().clone().requires_grad_() for p in parameters.values())))


def test_documents_are_the_relu_of_the_block_of_their_bags() -> None:
    encoder = DocumentEncoder(4, 0.5).eval()
    encoder.block = trained_block(4).eval()
    table = torch.randn(5, 4)
    tokens, starts = torch.tensor([1, 3, 3, 0]), torch.tensor([0, 2, 2])
    weights = torch.tensor([0.5, 2.0, 1.0, 3.0])
    bags = torch.stack([0.5 * table[1] + 2 * table[3], torch.zeros(4), table[3] + 3 * table[0]])
    assert torch.allclose(encoder(tokens, starts, weights, table), encoder.block(bags).relu(), atol=1e-6)


def test_a_frozen_encoder_answers_as_the_encoder_and_keeps_its_numbers() -> None:
    encoder = DocumentEncoder(6, 0.5).eval()
    encoder.block = trained_block(6).eval()
    table = torch.randn(9, 6)
    matrix = random_rows(7, 9, seed=1)
    arguments = (
        torch.as_tensor(matrix.indices.astype(np.int64)),
        torch.as_tensor(matrix.indptr[:-1].astype(np.int64)),
        torch.as_tensor(matrix.data),
    )
    expected = encoder(*arguments, table).detach()
    frozen = encoder.frozen(table)
    assert torch.allclose(frozen(*arguments), expected, atol=1e-5)
    assert bool((expected > 0).any())
    with torch.no_grad():
        table.zero_()
        encoder.block.alpha.zero_()
    assert torch.allclose(frozen(*arguments), expected, atol=1e-5)
    assert not any(array.requires_grad for array in frozen.tensors().values())


def test_fixed_bags_are_a_dense_product_forward_and_backward() -> None:
    matrix = random_rows(6, 9, seed=2, least=0)
    table = torch.randn(9, 4).requires_grad_()
    again = table.detach().clone().requires_grad_()
    pull = torch.randn(6, 4)
    bags = FixedBags(matrix, CPU)
    (bags(table) * pull).sum().backward()
    expected = torch.as_tensor(matrix.toarray()) @ again
    (expected * pull).sum().backward()
    assert bags.count == 6
    assert torch.allclose(bags(table), expected, atol=1e-6)
    assert torch.allclose(table.grad, again.grad, atol=1e-6)


def some_documents(tokens: int = 9) -> tuple[Tensor, Tensor, Tensor]:
    matrix = random_rows(7, tokens, seed=1)
    indices, starts = matrix.indices.astype(np.int64), matrix.indptr[:-1].astype(np.int64)
    return torch.as_tensor(indices), torch.as_tensor(starts), torch.as_tensor(matrix.data)


def unit_encoder(dropout: float = 0.5) -> tuple[DocumentEncoder, Tensor]:
    encoder = DocumentEncoder(6, dropout, unit=True)
    encoder.block = trained_block(6, dropout)
    return encoder, torch.randn(9, 6)


def test_a_unit_encoder_keeps_directions_below_zero_and_has_unit_length() -> None:
    encoder, table = unit_encoder()
    tokens, starts, weights = some_documents()
    bags = torch.nn.functional.embedding_bag(tokens, table, starts, mode="sum", per_sample_weights=weights)
    block = encoder.eval().block(bags)
    vectors = encoder(tokens, starts, weights, table)
    assert torch.allclose(vectors.norm(dim=1), torch.ones(7), atol=1e-6)
    assert torch.allclose(vectors * block.norm(dim=1, keepdim=True), block, atol=1e-5)
    assert bool((vectors < 0).any())
    dropped = encoder.train()(tokens, starts, weights, table)
    assert bool((dropped == 0).any())
    assert torch.allclose(dropped.norm(dim=1), torch.ones(7), atol=1e-6)


def test_a_frozen_unit_encoder_answers_as_the_encoder() -> None:
    encoder, table = unit_encoder()
    expected = encoder.eval()(*some_documents(), table).detach()
    frozen = encoder.frozen(table)
    assert frozen.unit
    assert torch.allclose(frozen(*some_documents()), expected, atol=1e-5)
    assert torch.allclose(frozen(*some_documents()).norm(dim=1), torch.ones(7), atol=1e-6)


@pytest.mark.parametrize("unit", [False, True])
def test_a_frozen_encoder_comes_back_from_its_arrays(unit: bool) -> None:
    encoder, table = unit_encoder()
    frozen = encoder.frozen(table)._replace(unit=unit)
    again = FrozenEncoder.of({name: tensor.clone() for name, tensor in frozen.tensors().items()})
    assert again.unit is unit
    assert torch.equal(again(*some_documents()), frozen(*some_documents()))


@pytest.mark.parametrize("room", [None, 100])  # as many entries as needed, and one shape for all, as on a GPU
def test_bags_beside_documents_are_those_of_both_alone(monkeypatch: pytest.MonkeyPatch, room: int | None) -> None:
    bags = FixedBags(random_rows(6, 9, seed=2, least=0), CPU)
    monkeypatch.setattr(bags, "_room", lambda count: room)
    documents = Rows.of(random_rows(4, 9, seed=3, least=0), CPU)
    table = torch.randn(9, 4).requires_grad_()
    again = table.detach().clone().requires_grad_()
    rows = torch.tensor([4, 0, 6, 4, 6, 3])  # the number behind the last is an empty text
    pull, pull_too = torch.randn(4, 4), torch.randn(6, 4)
    arguments = (documents.columns, documents.starts, documents.values)
    of_documents, of_texts = bags.beside(*arguments, rows, table)
    ((of_documents * pull).sum() + (of_texts * pull_too).sum()).backward()
    everything = torch.cat([bags(again), torch.zeros(1, 4)])[rows]
    alone = embedding_bag(documents.columns, again, documents.starts, mode="sum", per_sample_weights=documents.values)
    ((alone * pull).sum() + (everything * pull_too).sum()).backward()
    assert torch.allclose(of_documents, alone, atol=1e-6)
    assert torch.allclose(of_texts, everything, atol=1e-6)
    assert torch.allclose(table.grad, again.grad, atol=1e-6)


def test_the_room_for_some_texts_is_asked_for_once_where_shapes_are_fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    bags = FixedBags(random_rows(6, 9, seed=2), CPU)
    assert bags._room(3) is None
    expected = bags._rows.room(3)
    monkeypatch.setattr(bags, "_device", torch.device("cuda"))
    assert bags._room(3) == expected
    monkeypatch.setattr(type(bags._rows), "room", lambda *_: pytest.fail("asks again"))
    assert bags._room(3) == expected


@pytest.mark.parametrize("dim", [6, 24, 54])
def test_token_embeddings_begin_uniform_within_the_kaiming_bound(dim: int) -> None:
    table = token_table(500, dim, torch.Generator().manual_seed(3)).detach()
    bound = math.sqrt(6 / dim)
    assert table.shape == (500, dim)
    assert float(table.abs().max()) <= bound
    assert float(table.max()) > 0.98 * bound
    assert float(table.min()) < -0.98 * bound
    assert abs(float(table.mean())) < 0.05 * bound


def test_token_embeddings_follow_their_generator() -> None:
    first, again, other = (token_table(5, 4, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_dropout_on_the_cpu_drops_its_share_and_keeps_the_mean() -> None:
    torch.manual_seed(0)
    layer, ones = Dropout(0.4), torch.ones(100_000, requires_grad=True)
    dropped = layer(ones)
    assert dropped.detach().unique().tolist() == pytest.approx([0, 1 / 0.6])
    assert float((dropped == 0).float().mean()) == pytest.approx(0.4, abs=0.01)
    dropped.sum().backward()
    assert ones.grad is not None
    assert torch.equal(ones.grad, dropped.detach())
    assert layer.eval()(ones) is ones
    assert torch.equal(Dropout(0.0)(ones), ones)
