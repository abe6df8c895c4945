"""Module I on label texts: which texts are whose, both ways of the loss, the order of documents, arrays out and in."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import Tensor
from torch.nn.functional import softplus

from decaf.modules import tokens as tokens_module
from decaf.modules.batches import Batches
from decaf.modules.loop import seeded
from decaf.modules.problem import Held, Problem
from decaf.modules.tokens import TextTask, Tokens, with_label_texts
from decaf.networks import FixedBags, FrozenEncoder, LabelTexts, Rows, TextNetwork

from . import random_rows, truth_of

CPU = torch.device("cpu")
TOKENS, DIM = 9, 4


def problem_of(
    truth: Sequence[Sequence[int]],
    labels: int,
    *,
    filters: Sequence[tuple[int, int]] = (),
    texts: sparse.csr_array | None = None,
    held: Held | None = None,
) -> Problem:
    pairs = np.array(filters, dtype=np.int64).reshape(-1, 2)
    texts = random_rows(labels, TOKENS, seed=1) if texts is None else texts
    matrix, ones = truth_of(truth, labels), np.ones(labels)
    documents = random_rows(len(truth), TOKENS, seed=2)
    return Problem(documents, texts, matrix, np.arange(labels), pairs, ones, held)


def related_by_hand(truth: Sequence[Sequence[int]], label: int, other: int) -> bool:
    """Whether the other is a tenth or more of the label's company."""
    company = [name for row in truth if label in row for name in row if name != label]
    return other in company and company.count(other) >= 0.1 * len(company)


def test_texts_come_behind_the_documents_each_of_its_own_label() -> None:
    problem = problem_of([[0, 2], [1], [2]], 3, filters=[(1, 0)])
    documents, known = with_label_texts(problem, own=True, related=False)
    assert np.array_equal(documents.toarray(), np.vstack([problem.documents.toarray(), problem.labels.toarray()]))
    assert known.toarray().tolist() == [[1, 0, 1], [-1, 1, 0], [0, 0, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1]]


def test_without_texts_there_are_the_documents_alone() -> None:
    problem = problem_of([[0, 2], [1], [2]], 3, filters=[(1, 0)])
    documents, known = with_label_texts(problem, own=False, related=True)
    assert documents is problem.documents
    assert np.array_equal(known.toarray(), problem.known().toarray())


def test_labels_without_a_text_are_left_out() -> None:
    texts = sparse.csr_array(np.array([[1, 0], [0, 0], [0, 2]], dtype=np.float32))
    problem = Problem(
        sparse.csr_array(np.ones((2, 2), dtype=np.float32)),
        texts,
        truth_of([[0, 1], [1, 2]], 3),
        np.arange(3),
        np.zeros((0, 2), dtype=np.int64),
        np.ones(3),
    )
    documents, known = with_label_texts(problem, own=True, related=True)
    assert documents.toarray()[2:].tolist() == [[1, 0], [0, 2]]
    assert known.toarray()[2:].tolist() == [[1, 1, 0], [0, 1, 1]]  # label 1 is the company of both


def test_a_tenth_of_a_labels_company_is_related() -> None:
    # Of label 0's company of ten, label 1 is nine and label 2 is one: a tenth.
    truth = [[0, 1]] * 9 + [[0, 2]]
    _, known = with_label_texts(problem_of(truth, 3), own=True, related=True)
    assert known.toarray()[10:].tolist() == [[1, 1, 1], [1, 1, 0], [1, 0, 1]]
    # Of eleven, one is less than that; but label 0 is all the company that label 2 has.
    truth = [[0, 1]] * 10 + [[0, 2]]
    _, known = with_label_texts(problem_of(truth, 3), own=True, related=True)
    assert known.toarray()[11:].tolist() == [[1, 1, 0], [1, 1, 0], [1, 0, 1]]


@pytest.mark.parametrize("together", [1, 3, 13, 14, 8192])  # of 14 labels
def test_related_labels_are_those_of_a_plain_loop(monkeypatch: pytest.MonkeyPatch, together: int) -> None:
    monkeypatch.setattr(tokens_module, "_LABELS", together)
    rng = np.random.default_rng(3)
    labels = 14
    weights = 1 / np.arange(1, labels + 1)
    truth = [
        rng.choice(labels, size=rng.integers(1, 5), replace=False, p=weights / weights.sum()).tolist()
        for _ in range(90)
    ]
    _, known = with_label_texts(problem_of(truth, labels), own=True, related=True)
    found = known.toarray()[90:]
    expected = [[float(a == b or related_by_hand(truth, a, b)) for b in range(labels)] for a in range(labels)]
    assert found.tolist() == expected
    assert 0 < found.sum() - labels < labels * (labels - 1)  # some are related, others are not
    assert not np.array_equal(found, found.T)


TRUTH = [[0, 3], [1], [5, 2, 0], [4], [3], [2], [1, 5]]
FILTERS = [(0, 4), (2, 1), (3, 0), (3, 5), (5, 3)]


def task_of(
    truth: Sequence[Sequence[int]] = TRUTH,
    labels: int = 6,
    *,
    filters: Sequence[tuple[int, int]] = FILTERS,
    refresh: int = 0,
    held: Held | None = None,
) -> tuple[TextTask, Problem]:
    problem = problem_of(truth, labels, filters=filters, held=held)
    torch.manual_seed(0)
    network = TextNetwork(
        torch.randn(TOKENS, DIM),
        FixedBags(problem.labels, CPU),
        0.0,
        text=True,
        refinement=None,
        learn_table=True,
        temperature=5.0,
    ).eval()  # the norm of R stands still
    return TextTask(network, Rows.of(problem.known(), CPU), problem, refresh=refresh), problem


def slow_loss(scores: Tensor, known: np.ndarray, documents: list[int], drawn: list[int], among: set[int]) -> Tensor:
    """A document's label against the others, and the label's document against the others, one after another."""
    cost = scores.new_zeros(())
    for document in documents:
        label = drawn[document]
        others = [scores[document, other] for other in sorted(among) if known[document, other] == 0]
        rivals = [scores[other, label] for other in documents if known[other, label] == 0]
        for negatives in (others, rivals):
            if negatives:
                cost = cost + softplus(torch.stack(negatives).logsumexp(0) - scores[document, label])
    return cost / (2 * len(documents))


@pytest.mark.parametrize("size", [7, 3, 2, 1])  # one batch for all, padded ones at the end, one at a time
@pytest.mark.parametrize("epoch", [0, 1])
def test_the_loss_goes_both_ways(size: int, epoch: int) -> None:
    task, problem = task_of()
    documents = Rows.of(problem.documents, CPU)
    batches = Batches(documents, Rows.of(problem.known(), CPU), size)
    with seeded(epoch, device=CPU):
        order = task.order(epoch, 7)
    batches.shuffle(order)
    drawn = task._drawn.tolist()
    scores = task.network(documents.columns, documents.starts, documents.values)
    for step in range(batches.steps):
        batch = batches.batch(torch.tensor([step]))
        mine = order[step * size : (step + 1) * size].tolist()
        among = {drawn[document] for document in batch.numbers.tolist()}  # document 0 stands where there is none
        loss = task.loss(batch)
        expected = slow_loss(scores, problem.known().toarray(), mine, drawn, among)
        assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-4, abs=1e-7)
        if expected.requires_grad:
            gradient = torch.autograd.grad(loss, task.network.table)[0]
            wanted = torch.autograd.grad(expected, task.network.table, retain_graph=True)[0]
            assert torch.allclose(gradient, wanted, atol=1e-5)


def test_one_label_alone_costs_nothing_and_breaks_nothing() -> None:
    task, problem = task_of([[0], [0], [0]], 1, filters=[])
    batches = Batches(Rows.of(problem.documents, CPU), Rows.of(problem.known(), CPU), 2)
    batches.shuffle(task.order(0, 3))
    for step in range(2):
        loss = task.loss(batches.batch(torch.tensor([step])))
        assert float(loss.detach()) == 0
        loss.backward()
    assert all(
        parameter.grad is None or bool(torch.isfinite(parameter.grad).all()) for parameter in task.network.parameters()
    )


def test_a_document_is_drawn_one_of_its_true_labels_and_in_time_each() -> None:
    task, _ = task_of()
    seen: list[set[int]] = [set() for _ in TRUTH]
    for epoch in range(60):
        with seeded(epoch, device=CPU):
            order = task.order(epoch, len(TRUTH))
        assert sorted(order.tolist()) == list(range(len(TRUTH)))
        for document, label in enumerate(task._drawn.tolist()):
            seen[document].add(label)
    assert seen == [set(labels) for labels in TRUTH]


MANY, DOCUMENTS = 64, 300


def test_after_a_refresh_documents_whose_labels_are_alike_stand_together() -> None:
    rng = np.random.default_rng(0)
    truth = [rng.choice(MANY, size=rng.integers(1, 4), replace=False).tolist() for _ in range(DOCUMENTS)]
    task, _ = task_of(truth, MANY, filters=[], refresh=2)
    orders = []
    for epoch in range(5):
        with seeded(epoch, device=CPU):
            orders.append(task.order(epoch, DOCUMENTS))
        group: Tensor = task.network.group
        drawn = task._drawn.tolist()
        assert all(label in truth[document] for document, label in enumerate(drawn))
        assert sorted(orders[-1].tolist()) == list(range(DOCUMENTS))
        in_order = group[task._drawn][orders[-1]].tolist()
        if epoch < 2:
            assert set(group.tolist()) == {-1}
        else:
            assert np.bincount(group.numpy()).tolist() == [16] * 4
            assert 1 + sum(a != b for a, b in pairwise(in_order)) == len(set(in_order)) == 4
    assert not torch.equal(orders[2], orders[3])


def test_groups_are_of_labels_whose_texts_are_alike() -> None:
    """Labels of four kinds, each with words of its own."""
    kinds = np.repeat(np.arange(4), 16)
    texts = np.zeros((MANY, TOKENS), dtype=np.float32)
    texts[np.arange(MANY), kinds * 2] = 1
    texts[np.arange(MANY), kinds * 2 + 1] = np.linspace(0.1, 0.3, MANY)
    task, _ = task_of([[label] for label in range(MANY)], MANY, filters=[], refresh=1)
    task.network._texts = FixedBags(sparse.csr_array(texts), CPU)
    with torch.no_grad():
        task.network.table.copy_(torch.eye(TOKENS)[:, :DIM] + 0.01)
        task.network.table[2 * np.arange(4)] = torch.eye(4)
    task.order(1, MANY)
    group = task.network.group.numpy()
    assert [len(set(group[kinds == kind].tolist())) for kind in range(4)] == [1] * 4
    assert len(set(group.tolist())) == 4


@pytest.mark.parametrize(("refresh", "epochs"), [(0, []), (3, [3, 6]), (2, [2, 4, 6])])
def test_labels_are_grouped_every_few_epochs(monkeypatch: pytest.MonkeyPatch, refresh: int, epochs: list[int]) -> None:
    task, _ = task_of(refresh=refresh)
    grouped = []

    def group(epoch: int) -> Tensor:
        grouped.append(epoch)
        return torch.zeros(6, dtype=torch.int64)

    monkeypatch.setattr(task, "_groups", group)
    for epoch in range(8):
        task.order(epoch, 7)
    assert grouped == epochs


def test_the_groups_are_kept_with_the_network() -> None:
    task, _ = task_of(refresh=1)
    task.network.train()
    assert task.network.state_dict()["group"].tolist() == [-1] * 6
    task.order(1, 7)
    assert task.network.state_dict()["group"].tolist() == [0] * 6  # few labels are one group
    assert task.network.training


def test_the_figure_is_the_share_of_held_out_documents_whose_best_label_by_text_is_right() -> None:
    documents = random_rows(5, TOKENS, seed=4)
    rows = Rows.of(documents, CPU)
    task, _ = task_of()
    assert task.figure is None
    best = task.network(rows.columns, rows.starts, rows.values).argsort(dim=1, descending=True).tolist()
    # Right at first sight; wrong; right once the filter has taken what is before it; wrong again.
    truth = [[best[0][0]], [best[1][1]], [best[2][1]], [best[3][0]], [best[4][5]]]
    filters = np.array([[2, best[2][0]], [3, best[3][0]]])
    held = Held(documents, truth_of(truth, 6), filters, np.ones(6), np.ones(len(truth)))
    task, _ = task_of(held=held)
    assert task.figure is not None
    assert task.figure() == pytest.approx(40)


def test_tokens_come_back_from_their_arrays() -> None:
    table = torch.randn(TOKENS, DIM)
    alone = Tokens.of(Tokens(table).tensors())
    assert torch.equal(alone.table, table)
    assert alone.encoder is None
    assert alone.labels is None
    assert alone.texts is None
    encoder = FrozenEncoder(table, torch.ones(DIM), torch.randn(DIM, DIM), torch.randn(DIM), True)
    texts = LabelTexts(*(torch.randn(shape) for shape in ((DIM,), (DIM, DIM), (DIM,), (DIM,))), torch.tensor([True]))
    again = Tokens.of(Tokens(table, encoder, torch.randn(3, DIM), texts).tensors())
    assert again.encoder is not None
    assert again.texts is not None
    assert all(torch.equal(found, given) for found, given in zip(again.texts, texts, strict=True))
    assert again.encoder.unit
    assert torch.equal(again.table, table)
    assert torch.equal(again.encoder.weight, encoder.weight)
    assert again.labels.shape == (3, DIM)


@pytest.mark.parametrize("dim", [3, 6, 20])
def test_fixed_tokens_lie_as_a_decomposition_of_the_texts_has_them(dim: int) -> None:
    """Angles between tokens are those of a plain decomposition; all are of one length, and no direction is empty."""
    rng = np.random.default_rng(0)
    documents, labels = (np.abs(rng.normal(size=(count, 7))).astype(np.float32) for count in (30, 8))
    problem = Problem.of(
        sparse.csr_array(documents), sparse.csr_array(labels), truth_of([[row % 8] for row in range(30)], 8)
    )
    table = tokens_module._fixed_tokens(problem, dim, seed=1)
    assert table.shape == (7, dim)
    torch.testing.assert_close(table.norm(dim=1), torch.full((7,), (dim / 8) ** 0.5))
    _, sizes, directions = np.linalg.svd(np.concatenate([documents, labels]).astype(np.float64), full_matrices=False)
    rank = min(dim, 6)
    plain = directions[:rank].T * np.sqrt(sizes[:rank])
    plain /= np.linalg.norm(plain, axis=1, keepdims=True)
    np.testing.assert_allclose(table @ table.T / (dim / 8), plain @ plain.T, atol=1e-4)
    assert (table.abs().amax(dim=0) > 0.1).all()
    assert torch.equal(table, tokens_module._fixed_tokens(problem, dim, seed=1))
