"""Several processes that train one model: who they are, which rows each owns, and what they tell each other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from scipy import sparse
from torch import Tensor

from decaf.devices import choose_device, on_gpu
from decaf.errors import TrainingError

__all__ = ["Ranks", "joined", "launched"]

_PATIENCE = timedelta(hours=24)  # while one rank works alone; one that dies is noticed at once
_LARGE = 1 << 16  # numbers that are summed on their own
_CPU = torch.device("cpu")

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """One of the processes that train together, or the only one; all call the same methods in the same order."""

    number: int = 0
    count: int = 1
    local: int = 1  # processes on this machine

    @property
    def many(self) -> bool:
        """Whether there are others."""
        return self.count > 1

    @property
    def first(self) -> bool:
        """Whether it is this process that logs, keeps and saves."""
        return self.number == 0

    def own(self, total: int, number: int | None = None) -> slice:
        """The rows of so many that this rank, or another, owns: a range as long as everybody's, give or take one."""
        number = self.number if number is None else number
        return slice(number * total // self.count, (number + 1) * total // self.count)

    def own_rows(self, matrix: sparse.csr_array) -> sparse.csr_array:
        """Of a matrix, the rows that this rank owns."""
        return sparse.csr_array(matrix[self.own(matrix.shape[0])]) if self.many else matrix

    def sum(self, tensor: Tensor) -> Tensor:
        """Add up over all ranks, in place."""
        if self.many:
            _tell(dist.all_reduce, tensor)
        return tensor

    def any(self, flag: bool) -> bool:
        """Whether it is so on any rank."""
        return bool(self.sum(torch.tensor([float(flag)]))[0])

    def sum_all(self, tensors: Iterable[Tensor]) -> None:
        """Add up many tensors, in place; the small ones in one go."""
        small = []
        for tensor in tensors:
            if tensor.numel() < _LARGE:
                small.append(tensor)
            else:
                self.sum(tensor)
        if self.many and small:
            together = self.sum(torch.cat([tensor.flatten() for tensor in small]))
            for tensor, part in zip(small, torch.split(together, [tensor.numel() for tensor in small]), strict=True):
                tensor.copy_(part.view_as(tensor))

    def all_rows(self, rows: Tensor, total: int) -> Tensor:
        """Everybody's rows, in order -> [total, ...]; gradients go back to the rank whose rows they are."""
        if not self.many:
            return rows
        every: Tensor = _AllRows.apply(rows, self, total)  # type: ignore[no-untyped-call]
        return every

    def log_sum_exp(self, values: Tensor) -> Tensor:
        """The log-sum-exp over ranks."""
        every = values.new_zeros(self.count, *values.shape)
        every[self.number] = values
        return self.sum(every).logsumexp(dim=0)

    def align(self, tensors: Iterable[Tensor]) -> None:
        """Make these tensors what they are at the first rank."""
        if self.many:
            for tensor in tensors:
                _tell(dist.broadcast, tensor, 0)

    def told(self, make: Callable[[], T]) -> T:
        """What the first rank, and it alone, makes."""
        if not self.many:
            return make()
        found = [make() if self.first else None]
        _tell(dist.broadcast_object_list, found, 0, device=_CPU)
        return found[0]  # type: ignore[return-value]

    def told_tensors(self, make: Callable[[], Mapping[str, Tensor]], device: torch.device) -> dict[str, Tensor]:
        """Tensors by name that the first rank, and it alone, makes."""
        made = {name: tensor.to(device).contiguous() for name, tensor in make().items()} if self.first else {}
        shapes = self.told(lambda: {name: (tensor.shape, tensor.dtype) for name, tensor in made.items()})
        for name, (shape, kind) in shapes.items():
            if not self.first:
                made[name] = torch.empty(shape, dtype=kind, device=device)
            self.align([made[name].view(torch.uint8) if kind == torch.bool else made[name]])
        return made

    def gather(self, rows: Tensor, total: int, behind: int = 0) -> Tensor:
        """Everybody's rows in order, on the first rank's processor, zeros behind them; the others keep theirs."""
        if not self.first:
            _tell(dist.send, rows.detach().cpu().contiguous(), 0)
            return rows
        whole = torch.zeros(total + behind, *rows.shape[1:], dtype=rows.dtype)
        whole[self.own(total)] = rows.detach().cpu()
        for other in range(1, self.count):
            _tell(dist.recv, whole[self.own(total, other)], other)
        return whole

    def scatter(self, whole: Tensor | None, rows: Tensor) -> None:
        """Fill everybody's rows with theirs of a whole that the first rank has."""
        if whole is None:
            received = torch.empty(rows.shape, dtype=rows.dtype)
            _tell(dist.recv, received, 0)
            rows.copy_(received)
            return
        rows.copy_(whole[self.own(len(whole))])
        for other in range(1, self.count):
            _tell(dist.send, whole[self.own(len(whole), other)].contiguous(), other)

    def check_same(self, name: str) -> None:
        """Refuse to begin unless all ranks have the same data and settings, by this name of them."""
        if not self.many:
            return
        names: list[Any] = [None] * self.count
        _tell(dist.all_gather_object, names, name)
        others = [str(rank) for rank in range(self.count) if names[rank] != names[0]]
        if others:
            raise TrainingError(
                f"rank {', '.join(others)} has other data or settings than rank 0; "
                "start the same command on the same files everywhere"
            )

    def wait(self) -> None:
        """Go on when all have come here."""
        self.sum(torch.zeros(1))


def launched() -> tuple[int, int]:
    """The number of this process, and how many torchrun has begun; without it there is only this one."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    return (int(os.environ["RANK"]), count) if count > 1 and "RANK" in os.environ else (0, 1)


@contextmanager
def joined(device: str) -> Iterator[Ranks]:
    """Join the processes that torchrun has begun; they talk by NCCL on GPUs, one each, and by gloo otherwise."""
    if launched() == (0, 1):
        yield Ranks()
        return
    place, local = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    backend = "gloo"
    if on_gpu(choose_device(device)):
        cards = torch.cuda.device_count()
        if cards == 1 and os.environ.get("CUDA_VISIBLE_DEVICES"):
            place = 0  # each rank was shown a card of its own
        elif max(local, place + 1) > cards:
            raise TrainingError(
                f"there are {local} ranks on this machine but {cards} GPU{'s' * (cards > 1)}, and each rank needs one "
                f"of its own; use --nproc-per-node {cards}, or --device cpu"
            )
        backend = "cpu:gloo,cuda:nccl"
        torch.cuda.set_device(place)
    # Its defaults hold on to the group that is there when it is first imported, so there must be none yet.
    import_module("torch.distributed.nn")
    _tell(dist.init_process_group, backend, timeout=_PATIENCE)
    yield Ranks(dist.get_rank(), dist.get_world_size(), local)
    dist.destroy_process_group()


def _tell(function: Callable[..., Any], *arguments: Any, **options: Any) -> None:  # noqa: ANN401
    """Talk to the other ranks; where one of them is gone, say so."""
    try:
        function(*arguments, **options)
    except RuntimeError as error:
        why = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise TrainingError(
            f"another rank has stopped ({why}); see what it says, and run the same command again: "
            "it goes on from the checkpoint"
        ) from error


class _AllRows(torch.autograd.Function):
    """Rows of all ranks; a row's gradient is the sum of what all ranks make of it."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, ranks: Ranks, total: int) -> Tensor:  # noqa: ANN401
        ctx.ranks = ranks
        every = rows.new_zeros(total, *rows.shape[1:])
        every[ranks.own(total)] = rows
        return ranks.sum(every)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:  # noqa: ANN401
        gradient = ctx.ranks.sum(gradients[0].clone(memory_format=torch.contiguous_format))
        return gradient[ctx.ranks.own(len(gradient))], None, None
