"""The epoch loop: optimizers against torch's own, rates, seeds, and that a stopped run goes on bit by bit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import Tensor, nn

from decaf.errors import TrainingError
from decaf.modules import checkpoints
from decaf.modules.batches import Batch
from decaf.modules.checkpoints import Checkpoint, Forgetful
from decaf.modules.finite import NotFiniteError, finite
from decaf.modules.loop import RowAdam, Schedule, TableAdam, Task, adam, fit, seeded
from decaf.modules.meta import MetaTask
from decaf.modules.ranker import RankTask
from decaf.modules.shortlister import Shortlist
from decaf.networks import FixedBags, FrozenEncoder, Rows, RowTable, Shortlister, TextNetwork

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
        self.broken: list[str] = []

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

    def broke(self, name: str) -> None:
        self.broken.append(name)


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
    task: Task, *, seed: int = 0, keeper: Checkpoint | Forgetful | None = None, schedule: Schedule = SCHEDULE
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
    said = r"module I: the loss is not finite in epoch 1, step 1 of 6, with documents \d+(, \d+){7}; lower its rate"
    with pytest.raises(TrainingError, match=said):
        learn(Broken(network()), keeper=keeper)
    assert keeper.epochs == 0


class Poisoned(MetaTask):
    """From some epoch on a document makes the loss, or the gradient alone, something that is not finite."""

    def __init__(self, document: int, epoch: int, *, gradient: bool = False) -> None:
        super().__init__(network())
        self._document, self._from, self._gradient = document, epoch, gradient
        self._epoch = self._step = 0
        self.batch: list[int] = []  # that broke first
        self.place = (0, 0)  # its epoch and step

    def order(self, epoch: int, documents: int) -> Tensor:
        self._epoch, self._step = epoch, 0
        return super().order(epoch, documents)

    def loss(self, batch: Batch) -> Tensor:
        self._step += 1
        loss, numbers = super().loss(batch), batch.numbers[batch.there > 0].tolist()
        if self._epoch < self._from or self._document not in numbers:
            return loss
        if not self.batch:
            self.batch, self.place = numbers, (self._epoch, self._step)
        return loss + (_broken_gradient(self.network) if self._gradient else torch.inf)


def _broken_gradient(network: nn.Module) -> Tensor:
    """Nothing, but for its gradient."""
    return (next(network.parameters()).sum() * 0).sqrt()


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("epoch", [1, 3])
def test_the_documents_that_numbers_broke_with_are_named_and_what_was_kept_is_whole(epoch: int, gradient: bool) -> None:
    keeper, task = Memory(), Poisoned(7, epoch, gradient=gradient)
    with pytest.raises(NotFiniteError) as caught:
        learn(task, keeper=keeper)
    assert task.place[0] == epoch
    assert 7 in task.batch
    assert caught.value.documents == task.batch
    assert (caught.value.epoch, caught.value.step) == (epoch + 1, task.place[1])
    named = ", ".join(str(number) for number in task.batch[:8])
    what = "weights are" if gradient else "the loss is"
    where = f"in epoch {epoch + 1}, step {task.place[1]} of 6, with documents {named}"
    again = f"lower its rate and run again: it goes on after epoch {epoch}"
    assert str(caught.value) == f"module I: {what} not finite {where}; {again}"
    assert keeper.epochs == epoch
    assert all(bool(tensor.isfinite().all()) for tensor in keeper.kept.values())
    assert keeper.broken == ["module I"]


def test_what_breaks_later_than_it_was_kept_is_found_all_the_same() -> None:
    class Seldom(Memory):
        def keep(self, name: str, tensors: dict[str, Tensor], epochs: int) -> None:
            if epochs == 1:
                super().keep(name, tensors, epochs)

    task = Poisoned(7, 2, gradient=True)
    with pytest.raises(NotFiniteError, match="it goes on after epoch 1") as caught:
        learn(task, keeper=Seldom())
    assert (caught.value.epoch, caught.value.step) == (3, task.place[1])
    assert caught.value.documents == task.batch


def test_without_anything_kept_the_step_is_where_it_was_seen() -> None:
    task = Poisoned(7, 0)
    with pytest.raises(NotFiniteError, match=r"the loss is not finite in epoch 1, step [2-6] of 6, with") as caught:
        learn(task)  # weights stay as they should be
    assert caught.value.documents == task.batch
    with pytest.raises(NotFiniteError, match=r"the loss is not finite in epoch 1, step [2-6] of 6 or a step before"):
        learn(Poisoned(7, 0, gradient=True))
    with pytest.raises(NotFiniteError, match="weights are not finite in epoch 4, step 6 of 6 or a step before"):
        learn(Last())


class Last(MetaTask):
    """The very last step breaks the weights; no loss ever says so."""

    def __init__(self) -> None:
        super().__init__(network())
        self._steps = 0

    def loss(self, batch: Batch) -> Tensor:
        self._steps += 1
        loss = super().loss(batch)
        return loss + _broken_gradient(self.network) if self._steps == SCHEDULE.epochs * 6 else loss


def test_numbers_are_finite_or_not() -> None:
    whole = {"a": torch.ones(3, 2), "numbers": torch.arange(4), "nothing": torch.zeros(0), "one": torch.tensor(2.0)}
    assert finite(whole)
    for bad in (torch.nan, torch.inf, -torch.inf):
        assert not finite(whole | {"a": torch.tensor([1.0, bad, 2.0])})


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


def moments(table: Tensor) -> tuple[Tensor, Tensor]:
    return torch.zeros_like(table), torch.zeros_like(table)


@pytest.mark.parametrize(
    "start", [torch.arange(24.0).view(8, 3).sin(), torch.arange(8.0).cos()], ids=["vectors", "numbers"]
)
def test_adam_on_a_table_is_adam_by_hand_on_the_rows_that_were_read(start: Tensor) -> None:
    table = RowTable(start)
    optimizer = TableAdam([table])
    values = table.values.detach().double().clone()
    mean, square = moments(values)
    generator = torch.Generator().manual_seed(1)
    for step in range(1, 26):
        rate = 0.05 if step < 15 else 0.02
        rows = torch.randperm(8, generator=generator)[: 1 + step % 4]
        pull = torch.randn((len(rows), *start.shape[1:]), generator=generator)
        optimizer.zero_grad(set_to_none=True)
        (table(rows).sin() * pull).sum().backward()
        rated(optimizer, rate).step()
        for row, force in zip(rows.tolist(), pull.double(), strict=True):
            gradient = values[row].cos() * force
            mean[row] = 0.9 * mean[row] + 0.1 * gradient
            square[row] = 0.999 * square[row] + 0.001 * gradient**2
            corrected = (square[row] / (1 - 0.999**step)).sqrt() + 1e-8 / (1 - 0.999**step) ** 0.5
            values[row] -= rate * mean[row] / (1 - 0.9**step) / corrected
        assert torch.allclose(table.values.double(), values, rtol=1e-4, atol=1e-5), step


def test_adam_on_a_table_is_dense_adam_where_every_row_is_read() -> None:
    start = torch.randn(6, 3, generator=torch.Generator().manual_seed(2))
    table, dense = RowTable(start), nn.Parameter(start.clone())
    ours, theirs = TableAdam([table]), torch.optim.Adam([dense], lr=0.02)
    generator = torch.Generator().manual_seed(1)
    for _ in range(20):
        rows, pull = torch.randperm(6, generator=generator), torch.randn(6, 3, generator=generator)
        (table(rows).exp() * pull[rows]).sum().backward()
        rated(ours, 0.02).step()
        theirs.zero_grad()
        (dense.exp() * pull).sum().backward()
        theirs.step()
        assert torch.allclose(table.values[:-1], dense, rtol=1e-4, atol=1e-6)


def test_nobodys_row_may_be_read_many_times_and_harms_no_other() -> None:
    start = torch.randn(5, 2, generator=torch.Generator().manual_seed(3))
    tables = [RowTable(start), RowTable(start)]
    rows = ([2, 4], [2, 5, 4, 5, 5])
    for table, named in zip(tables, rows, strict=True):
        optimizer = TableAdam([table])
        for _ in range(5):
            read = table(torch.tensor(named))
            (read.square() * (torch.tensor(named) != 5)[:, None]).sum().backward()
            rated(optimizer, 0.1).step()
    assert torch.equal(tables[0].values, tables[1].values)
    assert not tables[1].values[-1].any()
    assert torch.equal(tables[1].values[[0, 1, 3]], start[[0, 1, 3]])


def test_a_table_that_was_not_read_stays_and_a_step_is_taken_once() -> None:
    table, idle = RowTable(torch.ones(3, 2)), RowTable(torch.ones(3, 2))
    optimizer = rated(TableAdam([table, idle]), 0.1)
    table(torch.tensor([1])).sum().backward()
    optimizer.step()
    after = table.values.detach().clone()
    assert after[1].tolist() == pytest.approx([0.9, 0.9])
    optimizer.step()  # nothing was read since
    assert torch.equal(table.values, after)
    assert torch.equal(idle.values[:-1], torch.ones(3, 2))


class Told(MetaTask):
    """A task that is told how its held-out documents fare after each epoch."""

    def __init__(self, figures: Sequence[float]) -> None:
        super().__init__(network())
        self.figures = figures
        self.seen: list[dict[str, Tensor]] = []
        self.modes: list[bool] = []

    def figure(self) -> float:
        self.modes.append(self.network.training)
        self.seen.append({name: tensor.detach().clone() for name, tensor in self.network.state_dict().items()})
        return self.figures[len(self.seen) - 1]


FALLING = Schedule(8, 8, 0.02)


@pytest.mark.parametrize(
    ("figures", "epochs", "best"),
    [
        ([50, 60, 58.9, 58.9, 70, 80, 90, 95], 4, 2),  # far below twice in a row: it stops, and goes back
        ([50, 60, 58.9, 60, 58.9, 58.9, 90, 95], 6, 4),  # once, and then twice; of equals the later is the best
        ([50, 60, 58.9, 59.6, 58.9, 59.6, 58.9, 59.6], 8, 8),  # never twice in a row, and the last is near the best
        ([50, 60, 59.6, 59.5, 59.5, 59.7, 59.5, 59.5], 8, 8),  # small dips are noise
        ([50, 60, 59.6, 61, 61, 61.2, 61.1, 60.1], 8, 6),  # the last alone is clearly worse
        ([10, 20, 30, 40, 50, 60, 70, 80], 8, 8),
        ([0, 0, 0, 0, 0, 0, 0, 0], 8, 8),
    ],
)
def test_a_module_that_gets_clearly_worse_stops_and_goes_back(figures: list[float], epochs: int, best: int) -> None:
    task, keeper = Told(figures), Memory()
    learned = learn(task, keeper=keeper, schedule=FALLING)
    assert len(task.seen) == len(keeper.notes) == epochs
    assert same(learned, task.seen[best - 1])
    assert not same(learned, task.seen[best - 2])
    assert [note["validation"] for note in keeper.notes] == figures[:epochs]
    assert task.modes == [False] * epochs
    assert not task.network.training


@pytest.mark.parametrize(("halve_at", "epochs"), [((), 4), ((4, 6), 6), ((6,), 8)])
def test_nothing_stops_before_the_rate_is_halved(halve_at: tuple[int, ...], epochs: int) -> None:
    task = Told([50, 60, 58.9, 58.9, 58.9, 58.9, 58.9, 59.5])
    learn(task, schedule=replace(FALLING, halve_at=halve_at))
    assert len(task.seen) == epochs


@pytest.mark.parametrize(("held", "epochs"), [(0, 4), (2500, 4), (50, 8), (10_000, 4)])
def test_what_few_documents_say_is_noise(held: int, epochs: int) -> None:
    task = Told([50, 60, 58.9, 58.9, 95, 96, 97, 98])
    task.held = held
    learn(task, schedule=FALLING)
    assert len(task.seen) == epochs


def test_watching_changes_nothing_that_is_learned() -> None:
    unwatched = learn(meta_task(), schedule=FALLING)
    assert same(learn(Told([10, 20, 30, 40, 50, 60, 70, 80]), schedule=FALLING), unwatched)


@pytest.mark.parametrize("stop_after", range(1, 5))
def test_a_watched_run_that_was_stopped_goes_on_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_after: int
) -> None:
    monkeypatch.setattr(checkpoints, "_SHARE", float("inf"))
    figures = [50, 60, 58.9, 58.9, 95, 95, 95, 95]
    expected = learn(Told(figures), schedule=FALLING)

    class Stopping(Checkpoint):
        def keep(self, name: str, tensors: dict[str, Tensor], epochs: int) -> None:
            super().keep(name, tensors, epochs)
            if epochs == stop_after:
                raise Stopped

    with pytest.raises(Stopped):
        learn(Told(figures), keeper=Stopping(tmp_path, "run", CPU), schedule=FALLING)
    torch.manual_seed(99)  # another process
    task = Told(figures[stop_after:])
    assert same(learn(task, keeper=Checkpoint(tmp_path, "run", CPU), schedule=FALLING), expected)
    assert len(task.seen) == 4 - stop_after  # the fourth was the last, and is not learned again


def test_a_task_says_in_which_order_an_epoch_goes_through_the_documents() -> None:
    seen: list[int] = []

    class Backwards(MetaTask):
        def order(self, epoch: int, documents: int) -> Tensor:
            return torch.arange(documents).flip(0).roll(epoch)

        def loss(self, batch: Batch) -> Tensor:
            seen.extend(batch.numbers[: int(batch.count)].tolist())
            return super().loss(batch)

    learn(Backwards(network()), schedule=Schedule(2, 8, 0.01))
    backwards = list(range(DOCUMENTS))[::-1]
    assert seen == [*backwards, backwards[-1], *backwards[:-1]]
