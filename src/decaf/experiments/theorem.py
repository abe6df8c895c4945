"""The paper's theorem, checked: what learning on shortlists costs in likelihood, beside the bound on it.

Classifiers learned on shortlists (loss over the labels of B of K clusters) are compared with classifiers learned over
all labels, both from the same token embeddings and shortlister. With sparsity s (share of all pairs that are true) and
recall r (share of the true pairs that are shortlisted), the loss over all pairs may exceed the best one by no more than
the order of s(1-r) ln(1/(s(1-r))). As in the paper's proof, a pair that is not shortlisted gets one small chance eta,
the best there is; what the classifiers' own scores would say of these pairs, which they never learned, is told too.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softplus

from decaf.config import recipe
from decaf.datasets import Dataset
from decaf.devices import choose_device
from decaf.modules.checkpoints import Forgetful
from decaf.modules.problem import Problem
from decaf.modules.ranker import learn_ranker
from decaf.modules.shortlister import Shortlist, learn_shortlister, retrieve
from decaf.modules.tokens import learn_tokens
from decaf.networks import Ranker, Rows
from decaf.training import prepared

__all__ = ["Losses", "bound", "check_theorem", "losses", "missed", "residual"]

_BEAMS = (1, 2, 4, 8, 16, 32)
_DOCUMENTS = 512  # scored at a time


class Losses(NamedTuple):
    """Logistic losses of all pairs, added up, and how many pairs there are of a kind."""

    listed: float  # of the shortlisted pairs
    others: float  # of the others, by the classifiers' own scores
    pairs: int
    true: int
    found: int  # true and shortlisted
    unlisted: int

    @property
    def own(self) -> float:
        """The loss of all pairs by the classifiers' own scores."""
        return self.listed + self.others


def check_theorem(dataset: Dataset, *, seed: int, device: str) -> dict[str, Any]:
    """Losses a document after learning on shortlists of several beams and over all labels, and the bound."""
    where = choose_device(device)
    _, problem, config = prepared(dataset, recipe("paper").with_settings(["ensemble.instances=1"]), where)
    keeper = Forgetful()
    tokens = learn_tokens(problem, config, seed=seed, device=where, keeper=keeper)
    shortlist = learn_shortlister("module II", problem, tokens, config, seed=seed, keeper=keeper)
    clusters = config.shortlister.clusters
    beams = [beam for beam in _BEAMS if beam < clusters]

    def learned(beam: int) -> Losses:
        some = _with_beam(shortlist, problem, beam)
        ranker = learn_ranker("module IV", problem, some, config, seed=seed, keeper=keeper)
        return losses(ranker, some, problem)

    documents, labels = problem.truth.shape
    return {
        "documents": documents,
        "labels": labels,
        "clusters": clusters,
        "sparsity": problem.truth.nnz / (documents * labels),
        "full": learned(clusters).own / documents,
        "beams": [{"beam": beam, **_line(learned(beam), documents)} for beam in beams],
    }


def _line(of: Losses, documents: int) -> dict[str, float]:
    """What one beam gives, in nats a document."""
    return {
        "recall": of.found / max(1, of.true),
        "shortlist": (of.listed + residual(of) * of.pairs) / documents,
        "own_scores": of.own / documents,
        "bound": bound(of) * of.pairs / documents,
    }


def missed(of: Losses) -> float:
    """s(1-r): the share of all pairs that is true and not shortlisted."""
    return (of.true - of.found) / of.pairs


def bound(of: Losses) -> float:
    """s(1-r) ln(1/(s(1-r))), for a pair."""
    share = missed(of)
    return share * math.log(1 / share) if share else 0.0


def residual(of: Losses) -> float:
    """The loss of the pairs that are not shortlisted, each with the one chance that is best for all, for a pair."""
    false_negative = missed(of)
    true_negative = of.unlisted / of.pairs - false_negative
    if not false_negative or true_negative <= 0:
        return 0.0
    chance = false_negative / (false_negative + true_negative)
    return -false_negative * math.log(chance) - true_negative * math.log1p(-chance)


def _with_beam(shortlist: Shortlist, problem: Problem, beam: int) -> Shortlist:
    """The same shortlister with so many clusters for every document."""
    count = len(shortlist.shortlister.bias)
    if beam < count:
        return dataclasses.replace(shortlist, clusters=retrieve(shortlist.shortlister, problem.documents, beam))
    everything = torch.arange(count, dtype=torch.int32, device=shortlist.table.device)
    return dataclasses.replace(shortlist, clusters=everything.expand(problem.documents.shape[0], count))


@torch.no_grad()
def losses(ranker: Ranker, shortlist: Shortlist, problem: Problem) -> Losses:
    """The logistic loss of every pair of a training document and a label."""
    device = shortlist.table.device
    documents, labels = problem.truth.shape
    of_listed = of_others = 0.0
    found = unlisted = 0
    for start in range(0, documents, _DOCUMENTS):
        part = slice(start, start + _DOCUMENTS)
        rows = Rows.of(problem.documents[part], device)
        vectors = ranker.encoder(rows.columns, rows.starts, rows.values)
        scores = torch.addmm(ranker.bias, vectors, ranker.weights.T)  # [documents, labels]
        true = torch.as_tensor(problem.truth[part].toarray() > 0).to(device)
        listed = _listed(shortlist, part, labels)
        loss = softplus(scores) - scores * true
        of_listed += float((loss * listed).sum(dtype=torch.float64))
        of_others += float((loss * ~listed).sum(dtype=torch.float64))
        found += int((true & listed).sum())
        unlisted += int((~listed).sum())
    return Losses(of_listed, of_others, documents * labels, problem.truth.nnz, found, unlisted)


def _listed(shortlist: Shortlist, part: slice, labels: int) -> Tensor:
    """Which labels are shortlisted -> [documents, labels]."""
    clusters = shortlist.clusters[part].long()
    members = shortlist.shortlister.members[clusters].flatten(1)
    listed = torch.zeros(len(clusters), labels + 1, dtype=torch.bool, device=members.device)
    listed.scatter_(1, torch.where(members < 0, labels, members), value=True)
    return listed[:, :labels]
