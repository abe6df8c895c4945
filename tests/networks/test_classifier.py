"""Classifiers: w = sigmoid(alpha) z1 + sigmoid(beta) z2, and what is left when one of the two is missing."""

from __future__ import annotations

import torch
from torch import Tensor

from decaf.networks import Classifier


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
