"""Clusters among document vectors: the loss against a plain loop, and the classifiers that come out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize, softplus

from decaf.config import recipe
from decaf.modules import shortlister
from decaf.modules.batches import Batches
from decaf.modules.checkpoints import Forgetful
from decaf.modules.problem import Held, Problem
from decaf.modules.shortlister import ClusterTask, _widened, learn_shortlister
from decaf.modules.tokens import Tokens
from decaf.networks import FrozenEncoder, Rows, Shortlister

from . import random_rows, truth_of

CPU = torch.device("cpu")
TRUTH = [[0, 3], [1], [3, 2, 0], [2], [3], [2], [1, 0]]


def task() -> ClusterTask:
    generator = torch.Generator().manual_seed(1)
    vectors = normalize(torch.randn(7, 5, generator=generator), dim=1)
    made = ClusterTask(vectors, normalize(torch.randn(4, 5, generator=generator), dim=1), 6.0)
    with torch.no_grad():
        made.network.bias.copy_(torch.randn(4, generator=generator))
    return made


@pytest.mark.parametrize("size", [7, 3])
def test_true_clusters_are_set_against_all_others(size: int) -> None:
    made = task()
    batches = Batches(Rows.of(random_rows(7, 9, seed=2), CPU), Rows.of(truth_of(TRUTH, 4), CPU), size)
    order = [3, 0, 6, 1, 5, 2, 4]
    batches.shuffle(torch.tensor(order))
    scores = 6.0 * made._vectors @ made.network.weight.T + made.network.bias
    for step in range(batches.steps):
        cost, documents = scores.new_zeros(()), order[step * size : (step + 1) * size]
        for document in documents:
            others = torch.stack([scores[document, m] for m in range(4) if m not in TRUTH[document]]).logsumexp(0)
            for cluster in TRUTH[document]:
                cost = cost + softplus(others - scores[document, cluster])
        loss = made.loss(batches.batch(torch.tensor([step])))
        assert float(loss.detach()) == pytest.approx(float(cost.detach()) / len(documents), rel=1e-5)


def test_the_classifiers_give_the_scores_of_the_task() -> None:
    made = task()
    weights, bias = made.classifiers()
    batches = Batches(Rows.of(random_rows(7, 9, seed=2), CPU), Rows.of(truth_of(TRUTH, 4), CPU), 7)
    batches.shuffle(torch.arange(7))
    scores = made.scores(batches.batch(torch.tensor([0])), None)
    assert torch.allclose(made._vectors @ weights.T + bias, scores, atol=1e-5)
    assert not weights.requires_grad
    assert not bias.requires_grad
    with torch.no_grad():
        made.network.bias.zero_()
    assert bool(bias.any())


def test_centres_and_biases_learn_and_the_vectors_stay() -> None:
    made = task()
    (only,) = made.optimizers()
    assert {id(p) for p in only.param_groups[0]["params"]} == {id(made.network.weight), id(made.network.bias)}
    assert not made._vectors.requires_grad


@pytest.mark.parametrize("compared", [1, 7, 1 << 25])
def test_the_recall_of_shortlists_is_that_of_a_plain_count(monkeypatch: pytest.MonkeyPatch, compared: int) -> None:
    class Noted(Forgetful):
        recall = 0.0

        def note(self, **facts: float | str) -> None:
            self.recall = float(facts.get("recall", self.recall))

    monkeypatch.setattr(shortlister, "_COMPARED", compared)
    truth = truth_of([[row % 8, 3 * row % 8, 5 * row % 8] for row in range(30)], 8)
    problem = Problem.of(random_rows(30, 12, seed=1), random_rows(8, 12, seed=2), truth)
    settings = ["shortlister.clusters=4", "shortlister.beam=2", "shortlister.batch=8", "shortlister.epochs=1"]
    config, keeper = recipe("paper").with_settings(["model.dim=4", *settings]), Noted()
    tokens = Tokens(torch.randn(12, 4, generator=torch.Generator().manual_seed(3)))
    found = learn_shortlister("module II", problem, tokens, config, seed=0, keeper=keeper)
    pairs = problem.truth.tocoo()
    hits = [int(found.cluster[label]) in found.clusters[row].tolist() for row, label in zip(*pairs.coords, strict=True)]
    assert 0 < sum(hits) < len(hits)
    assert keeper.recall == round(100 * sum(hits) / len(hits), 2)


def looking_in_order(clusters: int) -> Shortlister:
    """Every document looks into cluster 0 first, then 1, then 2; a label is a cluster of its own."""
    encoder = FrozenEncoder(torch.ones(1, 1), torch.ones(1), torch.zeros(1, 1), torch.zeros(1))
    members = torch.arange(clusters)[:, None]
    return Shortlister(encoder, torch.zeros(clusters, 1), -torch.arange(clusters).float(), members)


@pytest.mark.parametrize(
    ("true", "beam", "wide"),
    [
        (range(10), 16, 16),  # all are found
        ([*range(9), 17], 16, 32),  # nine of ten are not enough
        ([*range(9), 60], 16, 64),
        ([*range(18), 40, 50], 16, 64),  # 18 of 20 are found by 32, which is nine of ten again
        ([*range(19), 110], 16, 32),  # 19 of 20 are, and the rest is not looked for
        ([*range(8), 110, 115], 16, 100),  # no beam will do: as wide as is cheap
        ([*range(8), 110, 115], 200, 200),  # and never narrower
    ],
)
def test_the_beam_is_doubled_until_held_out_documents_find_their_labels(
    true: Sequence[int], beam: int, wide: int
) -> None:
    none = np.zeros((0, 2), dtype=np.int64)
    held = Held(random_rows(1, 1, seed=1), truth_of([true], 120), none, np.ones(120), np.ones(1))
    assert _widened(looking_in_order(120), held, torch.arange(120), beam) == wide
