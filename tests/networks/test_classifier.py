"""Classifiers: w = sigmoid(alpha) z1 + sigmoid(beta) z2, and what is left when one of the two is missing."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from decaf.networks import Classifier, LabelTexts, RowTable


def refinements() -> Tensor:
    return torch.arange(12, dtype=torch.float32).view(4, 3)


def test_text_and_refinement_are_combined_by_component() -> None:
    classifier = Classifier(3, 0.5, refinements()).eval()
    assert classifier.alpha is not None
    assert classifier.beta is not None
    assert classifier.bias is not None
    with torch.no_grad():
        classifier.alpha.copy_(torch.tensor([1.0, -1.0, 0.5]))
        classifier.beta.copy_(torch.tensor([-2.0, 2.0, 0.0]))
        classifier.bias.copy_(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    bags = torch.randn(4, 3)
    weights, bias = classifier.weights(bags)
    text = bags / 2 + bags.relu() / 2  # a new block
    alpha, beta = torch.tensor([1.0, -1.0, 0.5]).sigmoid(), torch.tensor([-2.0, 2.0, 0.0]).sigmoid()
    assert torch.allclose(weights, alpha * text + beta * refinements(), atol=1e-6)
    assert bias is not None
    assert bias.tolist() == [1, 2, 3, 4]


def test_some_rows_alone_are_those_rows_of_all() -> None:
    classifier = Classifier(3, 0.0, refinements()).eval()
    bags, rows = torch.randn(4, 3), torch.tensor([2, 0, 2])
    everything, bias = classifier.weights(bags)
    some, some_bias = classifier.weights(bags[rows], rows)
    assert bias is not None
    assert some_bias is not None
    assert torch.allclose(some, everything[rows], atol=1e-6)
    assert torch.equal(some_bias, bias[rows])


def test_without_refinement_the_text_is_the_classifier() -> None:
    classifier = Classifier(3, 0.5, None).eval()
    bags = torch.randn(4, 3)
    weights, bias = classifier.weights(bags)
    assert torch.allclose(weights, bags / 2 + bags.relu() / 2, atol=1e-6)
    assert bias is None
    assert not {name.split(".")[0] for name, _ in classifier.named_parameters()} - {"block"}


def test_without_text_the_refinement_is_the_classifier() -> None:
    classifier = Classifier(3, 0.5, refinements(), text=False)
    weights, bias = classifier.weights(torch.randn(4, 3))
    assert torch.equal(weights, refinements())
    assert bias is not None
    assert bias.tolist() == [0] * 4
    assert {name for name, _ in classifier.named_parameters()} == {"refinement", "bias"}


def test_refinements_are_learned_on_a_copy() -> None:
    start = refinements()
    classifier = Classifier(3, 0.0, start)
    assert classifier.refinement is not None
    with torch.no_grad():
        classifier.refinement.zero_()
    assert torch.equal(start, refinements())


def test_texts_have_unit_length_where_asked_and_refinements_stay() -> None:
    classifier = Classifier(3, 0.0, refinements(), unit=True).eval()
    bags = torch.randn(4, 3)
    weights, _ = classifier.weights(bags)
    text = normalize(bags + bags.relu(), dim=1)
    assert torch.allclose(weights, text / 2 + refinements() / 2, atol=1e-6)
    alone, _ = Classifier(3, 0.0, None, unit=True).eval().weights(bags)
    assert torch.allclose(alone.norm(dim=1), torch.ones(4), atol=1e-6)


@pytest.mark.parametrize("start", [refinements(), torch.arange(4.0)], ids=["vectors", "numbers"])
def test_a_row_table_reads_the_rows_it_is_asked_for_and_zeros_for_nobody(start: Tensor) -> None:
    table = RowTable(start)
    assert table.values.shape == (5, *start.shape[1:])
    rows = torch.tensor([2, 4, 0, 4])
    read = table(rows)
    assert torch.equal(read[[0, 2]], start[[2, 0]])
    assert not read[[1, 3]].any()
    read.square().sum().backward()
    assert table.read is read
    assert torch.equal(read.grad, 2 * read.detach())
    assert table.values.grad is None
    assert not table.values.requires_grad
    assert [name for name, _ in table.named_parameters()] == ["values"]


def test_a_row_table_is_a_copy() -> None:
    start = refinements()
    table = RowTable(start)
    with torch.no_grad():
        table.values.zero_()
    assert torch.equal(start, refinements())


@pytest.mark.parametrize("text", [True, False])
def test_classifiers_by_rows_are_those_of_a_parameter(text: bool) -> None:
    torch.manual_seed(1)
    plain = Classifier(3, 0.0, refinements(), text=text).eval()
    by_rows = Classifier(3, 0.0, refinements(), text=text, by_rows=True).eval()
    bags, rows = torch.randn(4, 3), torch.tensor([3, 1])
    for expected, found in zip(plain.weights(bags), by_rows.weights(bags), strict=True):
        assert torch.equal(expected, found)
    for expected, found in zip(plain.weights(bags[rows], rows), by_rows.weights(bags[rows], rows), strict=True):
        assert torch.equal(expected, found)
    weights, bias = by_rows.weights(torch.zeros(1, 3), torch.tensor([4]))  # nobody
    assert not weights.any()
    assert not bias.any()


def moved(classifier: Classifier) -> Classifier:
    """Every parameter is moved, as training would."""
    torch.manual_seed(4)
    with torch.no_grad():
        for parameter in classifier.parameters():
            parameter.add_(0.4 * torch.randn_like(parameter))
    return classifier.eval()


@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("scale", [1.0, 7.0])
@pytest.mark.parametrize("refined", [True, False])
def test_frozen_texts_are_the_part_of_the_weights_that_is_text(refined: bool, scale: float, unit: bool) -> None:
    classifier = moved(Classifier(3, 0.5, refinements() if refined else None, unit=unit))
    bags = torch.randn(4, 3)
    expected = scale * classifier.weights(bags)[0]
    if refined:
        expected = expected - scale * classifier.beta.sigmoid() * classifier.refinement
    texts = classifier.frozen_texts(torch.tensor(scale))
    assert torch.allclose(texts(bags), expected, atol=1e-5)
    assert texts.unit.tolist() == [unit]
    assert not any(tensor.requires_grad for tensor in texts)


def test_frozen_texts_by_hand() -> None:
    texts = LabelTexts(
        scale=torch.tensor([2.0, 1.0]),
        weight=torch.tensor([[1.0, 0.0], [3.0, 1.0]]),
        bias=torch.tensor([0.0, 1.0]),
        factor=torch.tensor([10.0, 100.0]),
        unit=torch.tensor([False]),
    )
    bags = torch.tensor([[1.0, -5.0]])
    assert texts(bags).tolist() == [[30, -100]]  # (2 + 1, -5 + 3 + 1) times the factor
    length = 10**0.5
    assert texts._replace(unit=torch.tensor([True]))(bags)[0].tolist() == pytest.approx([30 / length, -100 / length])


def test_without_text_there_are_no_frozen_texts() -> None:
    assert Classifier(3, 0.5, refinements(), text=False).frozen_texts(torch.tensor(1.0)) is None
