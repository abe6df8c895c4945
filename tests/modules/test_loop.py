"""The epoch loop: optimizers against torch's own, rates, seeds, and that a stopped run goes on bit by bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import Tensor, nn

from decaf.errors import TrainingError
from decaf.modules.batches import Batch
from decaf.modules.checkpoints import Forgetful
from decaf.modules.loop import RowAdam, Schedule, adam, fit, seeded
from decaf.modules.meta import MetaTask
from decaf.modules.ranker import RankTask
from decaf.modules.shortlister import Shortlist
from decaf.networks import FixedBags, FrozenEncoder, Rows, Shortlister, TextNetwork

from . import random_rows, truth_of

CPU = torch.device("cpu")
DOCUMENTS, TOKENS, LABELS = 45, 20, 6
SCHEDULE = Schedule(epochs=4, batch=8, rate=0.02, halve_at=(2,))


class Stopped(Exception):  # noqa: N818 - no error
    """The run ends here."""


class Memory(Forgetful):
    """Keeps what it is given, and stops the run after so many epochs."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.kept: dict[str, Tensor] = {}
        self.epochs = 0
        self.stop_after = stop_after
        self.notes: list[dict[str, float | str]] = []

    def restore(self, name: str, tensors: dict[str, Tensor]) -> int:
        if self.epochs:
            assert self.kept.keys() == tensors.keys()
            with torch.no_grad():
                for key, tensor in tensors.items():
                    tensor.copy_(self.kept[key])
        return self.epochs

    def keep(self, name: str, tensors: dict[str, Tensor], epochs: int) -> None:
        self.kept = {key: tensor.detach().clone() for key, tensor in tensors.items()}
        self.epochs = epochs
        if epochs == self.stop_after:
            raise Stopped

    def note(self, **facts: float | str) -> None:
        self.notes.append(facts)


def uneven_documents() -> sparse.csr_array:
    """Two documents are much longer than the others."""
    short, long = random_rows(DOCUMENTS - 2, TOKENS, seed=1, most=3), random_rows(2, TOKENS, seed=2, least=19, most=20)
    return sparse.csr_array(sparse.vstack([short, long]))


def network() -> TextNetwork:
    torch.manual_seed(3)
    texts = FixedBags(random_rows(LABELS, TOKENS, seed=3), CPU)
    return TextNetwork(torch.randn(TOKENS, 5), texts, 0.3, text=True, refinement="text", learn_table=True)


def meta_task() -> MetaTask:
    return MetaTask(network())


def rank_task() -> RankTask:
    nothing = torch.zeros(0)
    members = torch.tensor([[0, 1], [2, 3], [4, 5]])
    shortlister = Shortlister(FrozenEncoder(nothing, nothing, nothing, nothing), nothing, nothing, members)
    clusters = torch.tensor([[row % 3, (row + 1) % 3] for row in range(DOCUMENTS)], dtype=torch.int32)
    return RankTask(network(), Shortlist(shortlister, torch.arange(LABELS) // 2, nothing, clusters), forced=False)


def learn(
    task: MetaTask | RankTask, *, seed: int = 0, keeper: Memory | Forgetful | None = None, schedule: Schedule = SCHEDULE
) -> dict[str, Tensor]:
    documents = Rows.of(uneven_documents(), CPU)
    positives = Rows.of(truth_of([[row % LABELS] for row in range(DOCUMENTS)], LABELS), CPU)
    fit("module I", task, documents, positives, schedule, seed=seed, keeper=keeper or Forgetful())
    return {name: tensor.detach().clone() for name, tensor in task.network.state_dict().items()}


def same(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    assert left.keys() == right.keys()
    return all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize("make", [meta_task, rank_task])
def test_the_same_seed_gives_the_same_bits_and_another_does_not(make: type[MetaTask]) -> None:
    first = learn(make(), seed=1)
    assert same(first, learn(make(), seed=1))
    assert not same(first, learn(make(), seed=2))


@pytest.mark.parametrize("make", [meta_task, rank_task])
@pytest.mark.parametrize("stop_after", [1, 2, 3])
def test_a_stopped_run_goes_on_to_the_same_bits(make: type[MetaTask], stop_after: int) -> None:
    keeper = Memory(stop_after)
    with pytest.raises(Stopped):
        learn(make(), keeper=keeper)
    torch.manual_seed(99)  # another process
    keeper.stop_after = None
    task = make()
    assert same(learn(task, keeper=keeper), learn(make()))
    assert [note["epoch"] for note in keeper.notes] == [1, 2, 3, 4]


def test_every_epoch_has_all_documents_in_an_order_of_its_own() -> None:
    seen: list[int] = []

    class Watched(MetaTask):
        def loss(self, batch: Batch) -> Tensor:
            seen.extend(batch.numbers[: int(batch.count)].tolist())
            return super().loss(batch)

    learn(Watched(network()))
    epochs = [tuple(seen[start : start + DOCUMENTS]) for start in range(0, len(seen), DOCUMENTS)]
    assert len(epochs) == len(set(epochs)) == SCHEDULE.epochs
    assert all(sorted(epoch) == list(range(DOCUMENTS)) for epoch in epochs)


def test_a_finished_module_learns_no_more() -> None:
    keeper = Memory()
    first = learn(meta_task(), keeper=keeper)
    assert same(first, learn(meta_task(), keeper=keeper))
    assert len(keeper.notes) == SCHEDULE.epochs


def test_the_loss_falls_and_is_noted_for_every_epoch() -> None:
    keeper = Memory()
    learn(meta_task(), keeper=keeper, schedule=Schedule(12, 8, 0.05))
    losses = [float(note["loss"]) for note in keeper.notes]
    assert len(losses) == 12
    assert losses[-1] < losses[0] / 2
    assert all(note["module"] == "module I" and float(note["seconds"]) >= 0 for note in keeper.notes)


def test_the_noted_loss_is_the_mean_over_documents() -> None:
    keeper = Memory()
    schedule = Schedule(1, 8, 0.0)  # nothing moves, and nothing is dropped
    task = meta_task()
    task.network.apply(lambda layer: setattr(layer, "p", 0.0) if isinstance(layer, nn.Dropout) else None)
    learn(task, keeper=keeper, schedule=schedule)
    documents = Rows.of(uneven_documents(), CPU)
    logits = task.network(documents.columns, documents.starts, documents.values)
    targets = torch.as_tensor(truth_of([[row % LABELS] for row in range(DOCUMENTS)], LABELS).toarray())
    expected = nn.functional.binary_cross_entropy_with_logits(logits, targets)
    assert keeper.notes[0]["loss"] == pytest.approx(float(expected.detach()), rel=1e-3)


def test_no_epochs_change_nothing() -> None:
    task = meta_task()
    before = {name: tensor.clone() for name, tensor in task.network.state_dict().items()}
    assert same(before, learn(task, schedule=Schedule(0, 8, 0.1)))
    assert not task.network.training


def test_a_loss_that_is_not_finite_stops_the_run_and_is_not_kept() -> None:
    class Broken(MetaTask):
        def loss(self, batch: Batch) -> Tensor:
            return super().loss(batch) * torch.inf

    keeper = Memory()
    with pytest.raises(TrainingError, match="module I: the loss of epoch 1 is not finite; lower its rate"):
        learn(Broken(network()), keeper=keeper)
    assert keeper.epochs == 0


def test_the_number_of_threads_is_as_before() -> None:
    before = torch.get_num_threads()
    learn(meta_task(), schedule=Schedule(1, 8, 0.1))
    assert torch.get_num_threads() == before


def test_random_numbers_depend_on_the_parts_alone_and_leave_the_outside_untouched() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    drawn = []
    for parts in ((0, "a"), (0, "a"), (1, "a"), (0, "b"), (0, "a", 1)):
        with seeded(*parts, device=CPU):
            drawn.append(tuple(torch.rand(4).tolist()))
        assert torch.equal(torch.get_rng_state(), before)
    assert drawn[0] == drawn[1]
    assert len(set(drawn)) == 4


def test_learning_leaves_the_random_numbers_outside_untouched() -> None:
    task = meta_task()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    numpy_before = np.random.get_state()[1].tolist()
    learn(task, schedule=Schedule(2, 8, 0.1))
    assert torch.equal(torch.get_rng_state(), before)
    assert np.random.get_state()[1].tolist() == numpy_before


def test_rates_are_halved_at_the_start_of_the_named_epochs() -> None:
    schedule = Schedule(8, 32, 0.8, (2, 5))
    assert [schedule.rate_at(epoch) for epoch in range(8)] == [0.8, 0.8, 0.4, 0.4, 0.4, 0.2, 0.2, 0.2]
    assert Schedule(1, 32, 0.8, (0,)).rate_at(0) == 0.4


def rated(optimizer: torch.optim.Optimizer, rate: float) -> torch.optim.Optimizer:
    for group in optimizer.param_groups:
        group["lr"] = rate
    return optimizer


@pytest.mark.parametrize("shape", [(12, 3), (12, 1)])
def test_adam_by_rows_is_sparse_adam_step_by_step(shape: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(1)
    start = torch.randn(shape, generator=generator)
    ours, theirs = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    by_rows, reference = RowAdam([ours]), torch.optim.SparseAdam([theirs], lr=0.01)
    for step in range(30):
        rate = 0.01 if step < 20 else 0.005
        touched = torch.randperm(12, generator=generator)[: 1 + step % 5]
        gradient = torch.zeros(shape)
        gradient[touched] = torch.randn((len(touched), shape[1]), generator=generator)
        ours.grad = gradient.clone()
        theirs.grad = torch.sparse_coo_tensor(touched[None], gradient[touched], shape, check_invariants=True)
        rated(by_rows, rate).step()
        rated(reference, rate).step()
        assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-6), step


def test_adam_by_rows_moves_single_numbers_too_and_passes_over_what_has_no_gradient() -> None:
    bias, idle = nn.Parameter(torch.zeros(4)), nn.Parameter(torch.ones(4))
    optimizer = rated(RowAdam([bias, idle]), 0.1)
    bias.grad = torch.tensor([1.0, 0.0, -2.0, 0.0])
    optimizer.step()
    assert bias.tolist() == pytest.approx([-0.1, 0, 0.1, 0], rel=1e-4)
    assert idle.tolist() == [1] * 4


def test_plain_adam_is_adam() -> None:
    generator = torch.Generator().manual_seed(1)
    start = torch.randn(6, 3, generator=generator)
    ours, theirs = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    mine, reference = adam([ours]), torch.optim.Adam([theirs], lr=0.01)
    for _ in range(20):
        ours.grad = torch.randn(6, 3, generator=generator)
        theirs.grad = ours.grad.clone()
        rated(mine, 0.01).step()
        reference.step()
        assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-7)
