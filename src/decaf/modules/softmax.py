"""The decoupled softmax: each true label of a document against the labels that are not its own."""

from __future__ import annotations

import math
from abc import abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from decaf.devices import on_gpu
from decaf.modules.batches import Batch
from decaf.modules.loop import TableAdam, Task, adam, seeded
from decaf.networks import RowTable
from decaf.ranks import Ranks

__all__ = ["Candidates", "Compared", "SoftmaxTask"]

_OUT = 1e4  # taken off a score, it can win nothing and teaches nothing
_NEVER = 1 << 62  # the number of no label
_LONE = Ranks()


class Candidates(NamedTuple):
    """The labels that the documents of a step are compared with."""

    labels: Tensor | None  # [candidates]; a label that was named before is replaced by nobody. None: all
    in_order: Tensor  # [candidates], as they were named
    weight: Tensor  # [candidates], the logarithm of how many labels each stands for as a negative

    @classmethod
    def all(cls, count: int, device: torch.device) -> Candidates:
        """Every label."""
        return cls(None, torch.arange(count, device=device), torch.zeros(count, device=device))

    @classmethod
    def of(cls, named: Tensor, nobody: int, drawn: int = 0) -> Candidates:
        """These labels, each once; the last ones were drawn at random, and stand for all that no one named."""
        weight = torch.zeros(len(named), device=named.device)
        weight[len(named) - drawn :] = math.log(max(1.0, nobody / max(1, drawn)))
        if not on_gpu(named.device):  # where shapes may change from step to step, the fewer the better
            labels, at = torch.unique(named, return_inverse=True)
            least = torch.full((len(labels),), torch.inf).scatter_reduce_(0, at, weight, "amin")
            return cls(labels, labels, least.masked_fill_(labels == nobody, -_OUT))
        in_order, origin = named.sort(stable=True)
        again = in_order == nobody
        again[1:] |= in_order[1:] == in_order[:-1]
        return cls(in_order.masked_fill(again, nobody), in_order, weight[origin].masked_fill(again, -_OUT))

    def among(self, own: slice) -> Candidates:
        """Those of these labels alone, counted from the first of them, and nobody, so that there always is one."""
        assert self.labels is not None  # noqa: S101 - who compares with all owns all that are there
        mine = (self.in_order >= own.start) & (self.in_order < own.stop)
        labels, in_order = self.labels[mine] - own.start, self.in_order[mine] - own.start
        nobody = own.stop - own.start
        return Candidates(
            torch.cat([labels.clamp(max=nobody), labels.new_tensor([nobody])]),
            torch.cat([in_order, in_order.new_tensor([_NEVER])]),
            torch.cat([self.weight[mine], self.weight.new_tensor([-_OUT])]),
        )

    def find(self, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Where these labels are among the candidates, and whether they are there at all."""
        at = torch.searchsorted(self.in_order, labels).clamp(max=len(self.in_order) - 1)
        return at, self.in_order[at] == labels


class Compared(NamedTuple):
    """How true labels fare against negatives."""

    own: Tensor  # the true labels' scores, [pairs]
    by_document: Tensor  # log-sum-exp over the negatives of a document, [documents]
    by_label: Tensor  # and over the documents that are no label's, [candidates]


class SoftmaxTask(Task):
    """True labels against candidates; other true labels, and pairs that count for nothing, are no negatives.

    On several ranks each has the scores of all documents of a step for the candidates among its own labels.
    """

    first: int = 0  # of the labels that this rank owns

    @abstractmethod
    def candidates(self, batch: Batch) -> Candidates:
        """The labels of a step, or those of them that this rank owns, counted from its first."""

    @abstractmethod
    def scores(self, batch: Batch, labels: Tensor | None) -> Tensor:
        """Scores of the documents of a step for these labels, or for all."""

    def targets(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """The true pairs to learn: documents of the batch, labels, weights."""
        return batch.rows, batch.columns, batch.true.clamp(min=0)

    def compare(self, batch: Batch, *, both: bool = False) -> tuple[Compared, Tensor, Tensor, Tensor]:
        """Score the documents of a step -> how its true pairs fare, their documents, places and weights."""
        candidates = self.candidates(batch)
        at, there = candidates.find(self._from_first(batch.columns))
        rows, labels, weights = self.targets(batch)
        places, mine = candidates.find(self._from_first(labels))
        weights = weights * mine if self.ranks.many else weights
        with self._own_randomness(batch):
            logits = self.scores(batch, candidates.labels)
        known, weight = (batch.rows, at, batch.true.abs() * there), (candidates.weight, 1 - batch.there)
        results = _Contest.apply(logits, *known, *weight, rows, places, both, self.ranks)  # type: ignore[no-untyped-call]
        compared = Compared(*results)
        return compared, rows, places, weights

    def _from_first(self, labels: Tensor) -> Tensor:
        return labels - self.first if self.first else labels

    def _own_randomness(self, batch: Batch) -> AbstractContextManager[None]:
        """Ranks draw candidates alike, and drop components each by itself."""
        if not self.ranks.many:
            return nullcontext()
        parts = (torch.initial_seed(), int(batch.numbers[0]), self.ranks.number)
        return seeded(*parts, device=batch.numbers.device)

    def loss(self, batch: Batch) -> Tensor:
        """For each true label, softplus(log-sum-exp of the negatives' scores - its own); the mean over documents."""
        compared, rows, _, weights = self.compare(batch)
        return (softplus(compared.by_document[rows] - compared.own) * weights).sum() / batch.count

    def optimizers(self) -> list[torch.optim.Optimizer]:
        """Adam for all that learns; on tables that are read by rows, for those rows alone."""
        tables = [module for module in self.network.modules() if isinstance(module, RowTable)]
        learning: list[nn.Parameter] = [p for p in self.network.parameters() if p.requires_grad]
        return [*([adam(learning)] if learning else []), *([TableAdam(tables)] if tables else [])]


class _Contest(torch.autograd.Function):
    """Scores of true pairs, and log-sum-exps of the negatives: as autograd would have it, in fewer passes."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        logits: Tensor,  # [documents, candidates]
        known_rows: Tensor,
        known_places: Tensor,
        known: Tensor,  # 1 for a pair that is no negative
        weight: Tensor,  # [candidates], added to the scores of negatives
        no_document: Tensor,  # [documents], 1 for one that does not count
        rows: Tensor,
        places: Tensor,
        both: bool,
        ranks: Ranks = _LONE,
    ) -> tuple[Tensor, Tensor, Tensor]:
        own = logits[rows, places]
        scores = logits + weight
        scores.index_put_((known_rows, known_places), -_OUT * known, accumulate=True)
        by_label, columns, column_sums = own.new_zeros(0), own.new_zeros(0), own.new_zeros(0)
        if both:
            columns = scores.sub(no_document[:, None], alpha=_OUT)
            by_label, column_sums = _log_sum_exp_(columns, 0)
        by_document, row_sums = _log_sum_exp_(scores, 1)
        if ranks.many:
            of_all = ranks.log_sum_exp(by_document)
            by_document, row_sums = of_all, row_sums * (of_all - by_document).exp()
        ctx.ranks = ranks
        ctx.save_for_backward(scores, row_sums, columns, column_sums, rows, places)
        return own, by_document[:, 0], by_label.flatten()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        of_own, of_document, of_label = gradients
        scores, row_sums, columns, column_sums, rows, places = ctx.saved_tensors
        if ctx.ranks.many:  # true labels of other ranks pull too
            of_document = ctx.ranks.sum(of_document.clone())
        gradient = scores.mul_(of_document[:, None] / row_sums)
        if len(columns):
            gradient.addcmul_(columns, (of_label / column_sums).expand_as(columns))
        gradient.index_put_((rows, places), of_own, accumulate=True)
        return gradient, *[None] * 9


def _log_sum_exp_(scores: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """The log-sum-exp, and the sum of what the scores become in place: their exponentials, the largest 1."""
    most = scores.amax(dim=dim, keepdim=True)
    sums = scores.sub_(most).exp_().sum(dim=dim, keepdim=True)
    return most + sums.log(), sums
