"""The only epoch loop: shuffles, steps, halves rates, reports, and can stop and go on at any epoch."""

from __future__ import annotations

import hashlib
import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from decaf.devices import on_gpu
from decaf.modules.batches import Batch, Batches
from decaf.modules.finite import NotFiniteError, finite
from decaf.networks import Rows, RowTable
from decaf.progress import progress
from decaf.ranks import Ranks

__all__ = ["Keeper", "RowAdam", "Schedule", "TableAdam", "Task", "adam", "fit", "seeded"]

log = logging.getLogger(__name__)

_SMALL = 300_000  # parameters
_WORSE = 1.0  # points of P@1 below the best that are no noise, where many documents are held out
_PATIENCE = 2  # epochs in a row that a module may be worse


@dataclass(frozen=True)
class Schedule:
    """How long and how fast a module learns."""

    epochs: int
    batch: int
    rate: float
    halve_at: Sequence[int] = ()  # epochs, from 0, at whose start the rate is halved

    @property
    def settled(self) -> int:
        """The first epoch, from 0, that is not at the full rate, where figures rise and fall as it happens."""
        return next(iter(self.halve_at), 0)

    def rate_at(self, epoch: int) -> float:
        """The rate of an epoch."""
        return float(self.rate * 0.5 ** sum(epoch >= at for at in self.halve_at))


class Task(ABC):
    """What a module learns: its parameters, and the loss of a batch."""

    network: nn.Module  # all that learns
    figure: Callable[[], float] | None = None  # P@1 of held-out documents in percent; None: there are none
    held: int = 0  # how many they are
    ranks: Ranks = Ranks()  # that learn it together

    @abstractmethod
    def loss(self, batch: Batch) -> Tensor:
        """The mean loss of a batch."""

    @abstractmethod
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """One or more optimizers over all parameters that learn."""

    def split(self) -> tuple[list[nn.Parameter], int]:
        """Parameters of which each rank has rows of its own, and how many rows there are on all; the rest is shared."""
        return [], 0

    def order(self, epoch: int, documents: int) -> Tensor:
        """The order in which an epoch goes through the documents."""
        return torch.randperm(documents)


class Keeper(Protocol):
    """Keeps the state of a module after every epoch, so that a stopped run can go on."""

    @property
    def due(self) -> bool:
        """Whether it is time to keep something."""
        ...

    def restore(self, name: str, tensors: dict[str, Tensor]) -> int:
        """Fill the tensors with what was kept; the number of epochs done, 0 where nothing was kept."""
        ...

    def keep(self, name: str, tensors: dict[str, Tensor], epochs: int) -> None:
        """Keep the tensors after so many epochs."""
        ...

    def note(self, **facts: float | str) -> None:
        """Write a line of the run's record."""
        ...

    def broke(self, name: str) -> None:
        """The module cannot go on at its rate."""
        ...


def fit(
    name: str, task: Task, documents: Rows, positives: Rows, schedule: Schedule, *, seed: int, keeper: Keeper
) -> None:
    """Learn for all epochs of the schedule, from wherever the keeper left off."""
    began = time.perf_counter()
    device = documents.columns.device
    optimizers = task.optimizers()
    watch = _Watch(task)
    state = _state(task.network, optimizers) | watch.state
    if task.ranks.many:
        keeper = _KeeperOfRanks(keeper, task.ranks, _names_split(task, optimizers), task.split()[1])
    done = keeper.restore(name, state)
    if done:
        log.info("%s: going on after epoch %d", name, done)
    batches = Batches(documents, positives, schedule.batch)
    task.network.train()
    stepper = _Stepper(task, optimizers, batches, state)
    size = sum(parameter.numel() for parameter in task.network.parameters())
    with progress(name, (schedule.epochs - done) * batches.steps) as advance, _threads_for(size):
        for epoch in range(done, schedule.epochs):
            if watch.over:
                break
            started = time.perf_counter()
            for optimizer in optimizers:
                _set_rate(optimizer, schedule.rate_at(epoch))
            with seeded(seed, name, epoch, device=device):
                loss = stepper.epoch(task.order(epoch, len(documents)).to(device), advance)
            if task.ranks.any(not (math.isfinite(loss) and finite(state))):
                keeper.broke(name)
                raise stepper.found(name, epoch, schedule, seed, keeper)
            seconds = time.perf_counter() - started
            speed = len(documents) / max(seconds, 1e-9)
            found = watch.look(settled=epoch >= schedule.settled)
            progressed = (name, epoch + 1, schedule.epochs, loss, speed)
            held = f", held-out P@1 {found['validation']:.2f}" if found else ""
            log.info("%s: epoch %d of %d, loss %.5g, %.0f docs/s%s", *progressed, held)
            keeper.note(module=name, epoch=epoch + 1, loss=loss, seconds=round(seconds, 3), **found)
            keeper.keep(name, state, epoch + 1)
    watch.finish(name)
    task.network.eval()
    log.info("%s: done in %.1f s", name, time.perf_counter() - began)


class _Watch:
    """Watches held-out documents: a module that gets clearly worse stops, and goes back to when it was best."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._names: dict[str, Tensor] = {}
        self.state: dict[str, Tensor] = {}
        if task.figure is not None:
            self._names = dict(task.network.state_dict())
            self.state = {f"best.{name}": tensor.clone() for name, tensor in self._names.items()}
            # The best figure, the last, and how often in a row it was far below.
            self.state["best"] = torch.zeros(3, dtype=torch.float64)
        # Of few documents one standard error, at its largest, is more.
        self._worse = max(_WORSE, 50 / math.sqrt(task.held)) if task.held else _WORSE

    @property
    def over(self) -> bool:
        """Whether there is no point in going on."""
        return bool(self.state) and float(self.state["best"][2]) >= _PATIENCE

    @torch.no_grad()
    def look(self, *, settled: bool) -> dict[str, float]:
        """Note how the held-out documents fare; only what has settled may be far below the best."""
        if self._task.figure is None:
            return {}
        self._task.network.eval()
        figure = self._task.figure()
        figure = self._task.ranks.told(lambda: figure)
        self._task.network.train()
        best, _, worse = self.state["best"].tolist()
        if figure >= best:
            for name, tensor in self._names.items():
                self.state[f"best.{name}"].copy_(tensor)
        worse = worse + 1 if settled and figure < best - self._worse else 0
        self.state["best"].copy_(torch.tensor([max(best, figure), figure, worse], dtype=torch.float64))
        return {"validation": round(figure, 2)}

    @torch.no_grad()
    def finish(self, name: str) -> None:
        """Go back to the best state where the last is clearly worse."""
        if self.state and float(self.state["best"][1]) < float(self.state["best"][0]) - self._worse:
            log.info("%s: going back to where held-out documents fared best, P@1 %.2f", name, self.state["best"][0])
            for key, tensor in self._names.items():
                tensor.copy_(self.state[f"best.{key}"])


@contextmanager
def _threads_for(parameters: int) -> Iterator[None]:
    """One processor thread for a small network, whose steps are shorter than the threads' waiting for each other."""
    before = torch.get_num_threads()
    if parameters < _SMALL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class _Stepper:
    """Goes through epochs; on a GPU a step is recorded once and replayed: launching it costs more than it does."""

    def __init__(
        self, task: Task, optimizers: list[torch.optim.Optimizer], batches: Batches, state: dict[str, Tensor]
    ) -> None:
        self._task, self._optimizers, self._batches, self._state = task, optimizers, batches, state
        self._step = torch.zeros(1, dtype=torch.int64, device=batches.device)
        self._total = torch.zeros((), device=batches.device)
        self._losses = torch.zeros(batches.steps, device=batches.device)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._records = on_gpu(batches.device) and not task.ranks.many
        split = {id(parameter) for parameter in task.split()[0]}
        self._shared = [p for p in task.network.parameters() if p.requires_grad and id(p) not in split]

    def epoch(self, order: Tensor, advance: Callable[[int], None]) -> float:
        """All documents once, in this order -> the mean loss of a document."""
        grown = self._batches.shuffle(order)
        if self._records and (grown or self._graph is None):
            self._graph = self._record()
        self._step.zero_()
        self._total.zero_()
        for _ in range(self._batches.steps):
            if self._graph is None:
                self._run()
            else:
                self._graph.replay()
            advance(1)
        return float(self._task.ranks.sum(self._total)) / len(self._batches)

    def _run(self) -> None:
        batch = self._batches.batch(self._step)
        for optimizer in self._optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss = self._task.loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        if self._task.ranks.many:
            self._task.ranks.sum_all(p.grad for p in self._shared if p.grad is not None)
        for optimizer in self._optimizers:
            optimizer.step()
        self._total += loss.detach() * batch.count
        self._losses.index_copy_(0, self._step, loss.detach().reshape(1))
        self._step += 1

    def found(self, name: str, epoch: int, schedule: Schedule, seed: int, keeper: Keeper) -> NotFiniteError:
        """What is not finite after this epoch, and since which step: seen again from the last state that was kept."""
        bad = (~self._losses.isfinite()).nonzero().flatten().tolist()
        what, place = ("the loss is", (epoch, bad[0])) if bad else ("weights are", (epoch, self._batches.steps - 1))
        documents = self._batches.numbers(place[1])
        if self._task.ranks.many:  # each of which saw something else
            return NotFiniteError(name, what, (*place, self._batches.steps), documents, 0, sure=False)
        sure = finite(self._state) or bad[:1] == [0]  # an epoch begins with weights that are finite
        kept = keeper.restore(name, self._state)
        for again in range(kept, epoch + 1) if finite(self._state) and not sure else ():
            for optimizer in self._optimizers:
                _set_rate(optimizer, schedule.rate_at(again))
            with seeded(seed, name, again, device=self._batches.device):
                seen = self._look(self._task.order(again, len(self._batches)).to(self._batches.device))
            if seen is not None:
                sure, what, place = True, seen[0], (again, seen[1])
                documents = self._batches.numbers(place[1])
                break
        return NotFiniteError(name, what, (*place, self._batches.steps), documents, kept, sure=sure)

    def _look(self, order: Tensor) -> tuple[str, int] | None:
        """Go through an epoch and look at every step -> what is not finite, and since which."""
        self._batches.shuffle(order)
        self._step.zero_()
        for step in range(self._batches.steps):
            self._run()
            if not math.isfinite(self._losses[step]):
                return "the loss is", step
            if not finite(self._state):
                return "weights are", step
        return None

    def _record(self) -> torch.cuda.CUDAGraph:
        """Record a step on the first batch, after a few to warm up, and undo what they taught."""
        before = {name: tensor.clone() for name, tensor in self._state.items()}
        device = self._batches.device
        with seeded("recording", device=device):
            aside = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            aside.wait_stream(torch.cuda.current_stream(device))
            with torch.cuda.stream(aside):
                for _ in range(3):
                    self._step.zero_()
                    self._run()
            torch.cuda.current_stream(device).wait_stream(aside)
            self._step.zero_()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self._run()
        with torch.no_grad():
            for name, tensor in self._state.items():
                tensor.copy_(before[name])
        return graph


@contextmanager
def seeded(*parts: object, device: torch.device) -> Iterator[None]:
    """Random numbers inside the block depend on these parts alone; outside, nothing has changed."""
    number = int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:7], "big")
    with torch.random.fork_rng(devices=[device] if on_gpu(device) else []):
        torch.manual_seed(number)
        yield


class RowAdam(torch.optim.Optimizer):
    """Adam that moves only the rows which a step touched, as sparse Adam does: the others keep their averages."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        super().__init__(list(parameters), {"betas": (0.9, 0.999), "eps": 1e-8})
        _prepare(self)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Move the rows whose gradient is not zero."""
        for group in self.param_groups:
            first, second = group["betas"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                memory = self.state[parameter]
                memory["step"] += 1
                gradient, mean, square = parameter.grad, memory["exp_avg"], memory["exp_avg_sq"]
                touched = (gradient != 0).reshape(len(gradient), -1).any(dim=1)
                touched = touched.reshape(-1, *[1] * (gradient.dim() - 1)).to(gradient.dtype)
                mean.add_((gradient - mean) * touched, alpha=1 - first)
                square.add_((gradient**2 - square) * touched, alpha=1 - second)
                size = group["lr"] * (1 - second ** memory["step"]).sqrt() / (1 - first ** memory["step"])
                parameter.sub_(size * touched * mean / (square.sqrt() + group["eps"]))


class TableAdam(torch.optim.Optimizer):
    """Adam on tables of which a step reads some rows: time and memory of a step depend on those rows alone."""

    def __init__(self, tables: Sequence[RowTable]) -> None:
        super().__init__([table.values for table in tables], {"betas": (0.9, 0.999), "eps": 1e-8})
        self._tables = tables
        _prepare(self)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Move the rows that were read."""
        (group,) = self.param_groups
        first, second = group["betas"]
        for table in self._tables:
            if table.rows is None or table.read is None or table.read.grad is None:
                continue
            memory, rows, gradient = self.state[table.values], table.rows, table.read.grad
            memory["step"] += 1
            mean = memory["exp_avg"][rows].lerp(gradient, 1 - first)
            square = memory["exp_avg_sq"][rows].lerp(gradient**2, 1 - second)
            memory["exp_avg"].index_copy_(0, rows, mean)
            memory["exp_avg_sq"].index_copy_(0, rows, square)
            size = group["lr"] * (1 - second ** memory["step"]).sqrt() / (1 - first ** memory["step"])
            table.values.index_copy_(0, rows, table.read - size * mean / (square.sqrt() + group["eps"]))
            table.rows = table.read = None


def adam(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Plain Adam, all parameters in one kernel."""
    parameters = list(parameters)
    on_gpu = any(parameter.is_cuda for parameter in parameters)
    optimizer = torch.optim.Adam(parameters, lr=0.0, fused=True, capturable=on_gpu)
    _prepare(optimizer)
    return optimizer


def _prepare(optimizer: torch.optim.Optimizer) -> None:
    """Make the optimizer's memory beforehand, so that a kept one can be filled in; rates are tensors on a GPU."""
    for group in optimizer.param_groups:
        device = group["params"][0].device
        group["lr"] = torch.zeros((), device=device) if on_gpu(device) else 0.0
        for parameter in group["params"]:
            empty = torch.zeros_like(parameter, requires_grad=False)
            optimizer.state[parameter] = {
                "step": torch.zeros((), device=device),
                "exp_avg": empty,
                "exp_avg_sq": empty.clone(),
            }


def _set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)  # in place: a recorded step reads it there
        else:
            group["lr"] = rate


def _state(network: nn.Module, optimizers: list[torch.optim.Optimizer]) -> dict[str, Tensor]:
    """All that a stopped module needs to go on: parameters, buffers and what its optimizers remember."""
    tensors = {f"network.{name}": tensor for name, tensor in network.state_dict().items()}
    for number, optimizer in enumerate(optimizers):
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        for at, parameter in enumerate(parameters):
            for key, tensor in optimizer.state[parameter].items():
                tensors[f"optimizer.{number}.{at}.{key}"] = tensor
    return tensors


def _names_split(task: Task, optimizers: list[torch.optim.Optimizer]) -> set[str]:
    """The names, in the state, of what each rank has rows of its own of."""
    split = {id(parameter) for parameter in task.split()[0]}
    names = [name for name, parameter in task.network.named_parameters() if id(parameter) in split]
    found = {f"{where}.{name}" for name in names for where in ("network", "best")}
    for number, optimizer in enumerate(optimizers):
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        places = [at for at, parameter in enumerate(parameters) if id(parameter) in split]
        found |= {f"optimizer.{number}.{at}.{key}" for at in places for key in ("exp_avg", "exp_avg_sq")}
    return found


class _KeeperOfRanks:
    """Keeps what several ranks learn as one process would, at the first of them: any number of ranks can go on."""

    def __init__(self, keeper: Keeper, ranks: Ranks, split: Collection[str], rows: int) -> None:
        self._keeper, self._ranks, self._split, self._rows = keeper, ranks, split, rows

    @property
    def due(self) -> bool:
        """Whether the first rank says that it is time."""
        return self._ranks.told(lambda: self._keeper.due)

    @torch.no_grad()
    def restore(self, name: str, tensors: dict[str, Tensor]) -> int:
        """Hand out what the first rank finds; where that is nothing, what is shared begins as it does there."""
        whole = {key: self._room(key, tensor) for key, tensor in tensors.items()} if self._ranks.first else {}
        done = self._ranks.told(lambda: self._keeper.restore(name, whole))
        for key, tensor in tensors.items():
            if key not in self._split:
                self._ranks.align([tensor])
            elif done:
                self._ranks.scatter(whole[key][: self._rows] if whole else None, self._own(tensor))
        return done

    def keep(self, name: str, tensors: dict[str, Tensor], epochs: int) -> None:
        """Gather at the first rank what is split, and keep it there."""
        if self.due:
            whole = {key: self._gathered(tensor) if key in self._split else tensor for key, tensor in tensors.items()}
            self._keeper.keep(name, whole, epochs)

    def note(self, **facts: float | str) -> None:
        """Write a line of the run's record."""
        self._keeper.note(**facts)

    def broke(self, name: str) -> None:
        """The module cannot go on at its rate."""
        self._keeper.broke(name)

    def _own(self, tensor: Tensor) -> Tensor:
        """The rows of labels; behind them may be nobody's, which is zero."""
        own = self._ranks.own(self._rows)
        return tensor[: own.stop - own.start]

    def _room(self, key: str, tensor: Tensor) -> Tensor:
        if key not in self._split:
            return tensor
        return torch.zeros(self._rows + self._behind(tensor), *tensor.shape[1:], dtype=tensor.dtype)

    def _gathered(self, tensor: Tensor) -> Tensor:
        return self._ranks.gather(self._own(tensor), self._rows, self._behind(tensor))

    def _behind(self, tensor: Tensor) -> int:
        return len(tensor) - len(self._own(tensor))
