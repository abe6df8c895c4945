"""The blend: how much label text and cluster weigh beside the classifier, and what chance a score is."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, log_expit
from torch import Tensor

from decaf.modules.judge import Judge, held_parts
from decaf.modules.loop import Keeper
from decaf.modules.problem import Held
from decaf.networks import Blend, Instance, Parts, blended

__all__ = ["fit_chances", "learn_blend", "reliability"]

log = logging.getLogger(__name__)

_TAILS = (0.0, 0.25, 0.5, 0.75, 1.0)
_OF_TEXT = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0)
_OF_CLUSTER = (0.0, 0.1, 0.25, 0.5)
_NOISE = 0.2  # points between two choices that say nothing
_TOP = 20  # labels of a document that chances are fitted on


def learn_blend(name: str, held: Held, instance: Instance, keeper: Keeper, *, tail: float = 0.0) -> Blend:
    """Choose how much text and cluster weigh on the held-out documents, and fit chances from head to tail.

    Towards the tail a label's rarity counts: ranked by chance times inverse propensity, which the tail's end comes to,
    the expected gain of rare labels is largest.
    """
    assert instance.blend is not None  # noqa: S101 - the caller has one to improve
    judge = Judge(held, instance.ranker.weights.device)
    parts = held_parts(held, instance)
    choices = list(itertools.product(_OF_TEXT if instance.blend.texts is not None else (0.0,), _OF_CLUSTER))
    worth = np.array([judge.precision(blended(parts, *choice, 0.0), parts.labels) for choice in choices])
    # Which of those that are as good as the best comes out on top is chance: their mean is a safer choice.
    of_text, of_cluster = (float(value) for value in np.array(choices)[worth >= worth.max() - _NOISE].mean(axis=0))
    chances = [fit_chances(*_examples(judge, parts, (of_text, of_cluster, 0.0)))]
    weights = [(of_text, of_cluster, at / chances[0][0]) for at in _TAILS]
    chances += [fit_chances(*_examples(judge, parts, weighed)) for weighed in weights[1:]]

    def tensor(values: Sequence[float] | Sequence[Sequence[float]]) -> Tensor:
        return torch.tensor(values, dtype=torch.float32, device=judge.device)

    rarity, texts = instance.blend.rarity, instance.blend.texts
    made = Blend(tensor(_TAILS), tensor(weights), tensor(chances), rarity, texts)
    final, _ = made.at(tail)
    scores, error = blended(parts, *final), _error(judge, parts, *made.at(tail))
    figures = judge.precision(scores, parts.labels), judge.rare_precision(scores, parts.labels)
    keeper.note(module=name, text_weight=of_text, cluster_weight=of_cluster, calibration_error=error)
    keeper.note(module=name, tail=tail, **dict(zip(("P@1", "PSP@1"), figures, strict=True)))
    log.info("%s: text weighs %.2f, cluster %.2f; chances are off by %.1f %%", name, of_text, of_cluster, 100 * error)
    log.info("%s: held-out P@1 %.2f, PSP@1 %.2f at tail %g", name, *figures, tail)
    return made


def fit_chances(
    scores: NDArray[np.float64], company: NDArray[np.float64], right: NDArray[np.bool_]
) -> tuple[float, float, float]:
    """Logistic regression of being right on a score and the log-sum-exp of its document's scores."""
    columns = np.stack([scores, company, np.ones_like(scores)], axis=1)
    sign = np.where(right, 1.0, -1.0)

    def cost(values: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        margins = sign * (columns @ values)
        slope = -(sign * expit(-margins)) @ columns / len(scores)
        # The penalty counts as little as one example, and keeps what can be told apart for certain from being certain.
        return float(-log_expit(margins).mean() + values @ values / len(scores)), slope + 2 * values / len(scores)

    bounds = [(1e-3, None), (None, None), (None, None)]  # a higher score is never a lower chance
    found = minimize(cost, np.array([1.0, -1.0, 0.0]), jac=True, method="L-BFGS-B", bounds=bounds)
    slope, of_company, constant = (float(value) for value in found.x)
    return slope, of_company, constant


def reliability(
    chances: NDArray[np.float64], right: NDArray[np.bool_], bins: int = 10
) -> list[tuple[float, float, int]]:
    """Chances in bins of equal width: the mean chance, the share that is right, and how many there are."""
    at = np.minimum((chances * bins).astype(int), bins - 1)
    return [
        (float(chances[at == bin_].mean()), float(right[at == bin_].mean()), int((at == bin_).sum()))
        for bin_ in range(bins)
        if (at == bin_).any()
    ]


def _examples(
    judge: Judge, parts: Parts, weights: Sequence[float]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """Scores of the best labels, the log-sum-exp of their documents' scores, and whether they are right."""
    scores = blended(parts, *weights)
    company = scores.logsumexp(dim=1, keepdim=True)
    best = scores.topk(min(_TOP, scores.shape[1]), dim=1)
    labels = parts.labels.gather(1, best.indices)
    counted = ~judge.ignored(labels)
    values = (best.values, company.expand(best.values.shape), judge.right(labels))
    of_score, of_company, right = (_array(value[counted]) for value in values)
    return of_score, of_company, right > 0


def _error(judge: Judge, parts: Parts, weights: Sequence[float], chances: Sequence[float]) -> float:
    """The mean distance between chance and share that is right, over all bins."""
    scores, company, right = _examples(judge, parts, weights)
    slope, of_company, constant = chances
    bins = reliability(expit(slope * scores + of_company * company + constant), right)
    return round(sum(abs(chance - share) * count for chance, share, count in bins) / max(1, len(right)), 4)


def _array(values: Tensor) -> NDArray[np.float64]:
    return values.double().cpu().numpy()
