"""The weights of a blend: those that put the right labels of held-out documents on top, from head to tail."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softplus

from decaf.modules.judge import Judge
from decaf.networks import LEANING, Parts

__all__ = ["Lists", "first_in_part", "fit_weights"]

_NAMES = Parts._fields[1:]
_DEPTHS = (1, 5)  # of the figures
_TEMPERATURE = 0.3  # points of score that a label is half in, half out of the best in
_CAUTION = 0.2  # documents' worth of doubt that it takes to leave what serves most data well
_LIKELY, _CLIMB = 25, 50  # steps
_RATE = 0.05
_HALVINGS = 10  # until it is known where the best end
_NOTHING = 1e-6  # how little a part differs that is not there
_NEXT_TO_NOTHING = -1e4  # points of score


class Lists(NamedTuple):
    """Labels of documents, what their scores are made of, and what they are worth."""

    parts: Tensor  # of scores, the rarity among them, [documents, listed, parts]
    ignored: Tensor  # [documents, listed]
    right: Tensor  # what a right label is worth: as much as its document, [documents, listed]
    gains: Tensor  # the same times its inverse propensity, [documents, listed]
    most: Tensor  # the gains that could be had at each depth, [documents, depths]
    worth: Tensor  # of each document

    @classmethod
    def of(cls, judge: Judge, parts: Parts) -> Lists:
        """What the judge says of these labels."""
        ignored, worth = judge.ignored(parts.labels), judge.worth[:, None]
        right = judge.right(parts.labels) * ~ignored * worth
        most = torch.stack([judge.attainable[:, :depth].sum(dim=1) for depth in _DEPTHS], dim=1)
        columns = torch.stack(parts[1:], dim=2)
        return cls(columns, ignored, right, right * judge.gains(parts.labels), most * worth, judge.worth)

    def take(self, documents: Tensor) -> Lists:
        """The lists of these documents alone."""
        return Lists(*(column[documents] for column in self))


class _Task(NamedTuple):
    """What the weights are learned from, and where they begin."""

    columns: Tensor  # what is weighed, of variance one, [documents, listed, weights]
    lists: Lists
    begin: Tensor

    def scores(self, weights: Tensor) -> Tensor:
        """The scores of all labels; of those that count for nothing next to nothing."""
        scores: Tensor = self.columns @ weights
        return scores.masked_fill(self.lists.ignored, _NEXT_TO_NOTHING)

    def doubt(self, weights: Tensor) -> Tensor:
        """What it costs to be far from the beginning."""
        doubt: Tensor = _CAUTION / len(self.columns) * ((weights - self.begin) ** 2).sum()
        return doubt


def fit_weights(
    lists: Lists, start: Sequence[float], tails: Sequence[float], *, lean: bool = True
) -> list[list[float]]:
    """The weights of the parts and their leanings at each place between head and tail.

    A blend is worth (1 - tail) times P@1 + P@5 and tail times PSP@1 + PSP@5. These figures have no slope; so a label
    near the edge of the best counts in part. The fewer documents there are, the nearer to `start` the weights stay.
    """
    usual = _usual_rarity(lists)
    rarer = lists.parts[:, :, [_NAMES.index("rarity")]] - usual
    leaning = lists.parts[:, :, [_NAMES.index(name) for name in LEANING]] * rarer
    columns = torch.cat([lists.parts, leaning], dim=2)
    spread = columns.std(dim=(0, 1), correction=0)
    there = spread > _NOTHING
    there[len(_NAMES) :] &= lean
    spread = torch.where(there, spread, 1.0)
    task = _Task(columns / spread * there, lists, torch.tensor(start, device=columns.device) * spread * there)
    made = [_climbed(task, _likely(task, tail), tail) / spread * there for tail in tails]
    return [_uncentred(weights.tolist(), usual) for weights in made]


def first_in_part(lists: Lists, scores: Tensor) -> Tensor:
    """What the first label of each document is worth; of labels that are next to it each in part -> [documents].

    The mean over documents is P@1, but for single documents that fall to one side or the other.
    """
    if scores.shape[1] < 2:
        return lists.right.sum(dim=1)
    among = _among_best(scores.masked_fill(lists.ignored, _NEXT_TO_NOTHING), (1,))
    worth: Tensor = (among[0] * lists.right).sum(dim=1)
    return worth


def _usual_rarity(lists: Lists) -> float:
    """The mean over the right labels: a leaning is by how much a label is rarer than that."""
    right = lists.right > 0
    return float((lists.parts[:, :, _NAMES.index("rarity")] * right).sum() / right.sum().clamp(min=1))


def _uncentred(weights: list[float], usual: float) -> list[float]:
    """The same weights where a leaning is by rarity itself."""
    plain, leans = weights[: len(_NAMES)], weights[len(_NAMES) :]
    for name, lean in zip(LEANING, leans, strict=True):
        plain[_NAMES.index(name)] -= usual * lean
    return plain + leans


def _likely(task: _Task, tail: float) -> Tensor:
    """The weights by which every right label is likely to be above all wrong ones: a place to climb from."""
    weights, lists = task.begin.clone().requires_grad_(), task.lists
    worth = (1 - tail) * lists.right / lists.right.sum().clamp(min=1e-9)
    worth = worth + tail * lists.gains / lists.gains.sum().clamp(min=1e-9)
    optimizer = torch.optim.LBFGS([weights], max_iter=_LIKELY, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        scores = task.scores(weights)
        wrong = scores.masked_fill(lists.right > 0, _NEXT_TO_NOTHING).logsumexp(dim=1, keepdim=True)
        cost: Tensor = (worth * softplus(wrong - scores)).sum() + task.doubt(weights)
        cost.backward()  # type: ignore[no-untyped-call]
        return cost

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    return weights.detach()


def _climbed(task: _Task, weights: Tensor, tail: float) -> Tensor:
    """The weights once more, as the figures want them."""
    weights = weights.clone().requires_grad_()
    optimizer = torch.optim.Adam([weights], lr=_RATE)
    slower = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, _CLIMB)
    for _ in range(_CLIMB):
        optimizer.zero_grad()
        cost = task.doubt(weights) - _worth(task.lists, task.scores(weights), tail)
        cost.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        slower.step()
    return weights.detach()


def _worth(lists: Lists, scores: Tensor, tail: float) -> Tensor:
    """P and PSP at each depth, between head and tail, of labels that are among the best in part."""
    depths = [depth for depth in _DEPTHS if depth < scores.shape[1]]  # of fewer all are among the best
    if not depths:
        return scores.sum() * 0
    among = _among_best(scores, depths)
    precise, gained = ((among * worth).sum(dim=(1, 2)) for worth in (lists.right, lists.gains))
    most = lists.most[:, : len(depths)].sum(dim=0).clamp(min=1e-9)
    shown = lists.worth.sum() * torch.tensor(depths, device=scores.device)
    worth: Tensor = ((1 - tail) * precise / shown + tail * gained / most).sum()
    return worth


def _among_best(scores: Tensor, depths: Sequence[int]) -> Tensor:
    """By how much each label is among the best -> [depths, documents, listed].

    It is a logistic of the distance to an edge, which is where these parts sum to the depth.
    """
    wanted = torch.tensor(depths, device=scores.device, dtype=scores.dtype)[:, None, None]
    with torch.no_grad():
        top = scores.topk(max(depths) + 1, dim=1).values
        low = torch.stack([top[:, depth, None] - _TEMPERATURE * math.log(max(depth, 2)) for depth in depths])
        high = torch.stack([top[:, depth - 1, None] for depth in depths]) + _TEMPERATURE * math.log(scores.shape[1])
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            above = ((scores - middle) / _TEMPERATURE).sigmoid().sum(dim=2, keepdim=True) > wanted
            low, high = torch.where(above, middle, low), torch.where(above, high, middle)
        edge = (low + high) / 2
        near = ((scores - edge) / _TEMPERATURE).sigmoid()
        pull = near * (1 - near)
        pull = pull / pull.sum(dim=2, keepdim=True).clamp(min=1e-9)
    # The edge moves with the scores around it: the sum stays what it is.
    edge = edge + (pull * (scores - scores.detach())).sum(dim=2, keepdim=True)
    return ((scores - edge) / _TEMPERATURE).sigmoid()
