"""Modules III and IV: a classifier for every label, begun from its text and learned on the shortlists."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, softplus

from decaf.config import Config
from decaf.modules.batches import Batch
from decaf.modules.judge import Judge, held_parts
from decaf.modules.loop import Keeper, RowAdam, Schedule, Task, adam, fit, seeded
from decaf.modules.meta import no_negatives
from decaf.modules.problem import Held, Problem
from decaf.modules.shortlister import Shortlist
from decaf.modules.softmax import Candidates, SoftmaxTask
from decaf.networks import FixedBags, Instance, Ranker, Rows, RowTable, TextNetwork, first_blend
from decaf.ranks import Ranks

__all__ = ["ChoiceTask", "RankTask", "learn_ranker"]

_TEMPERATURE = 40.0  # at the start; text and refinement vectors of unit length weigh a half each
_FIRST = 16  # clusters of a shortlist that hard negatives come from
_LONE = Ranks()


def learn_ranker(
    name: str,
    problem: Problem,
    shortlist: Shortlist,
    config: Config,
    *,
    seed: int,
    keeper: Keeper,
    ranks: Ranks = _LONE,
) -> Ranker:
    """Begin the classifiers from the labels' texts (module III), then learn them on the shortlists (module IV).

    On several ranks each learns those of its own labels; they come together at the first.
    """
    settings, model, device = config.ranker, config.model, shortlist.table.device
    own = ranks.own(len(problem.kept))
    softmax = model.loss == "softmax"
    start: str | Tensor | None = None
    if model.refinement:
        start = "text" if settings.from_text and model.text else "random"
        if start == "text" and shortlist.texts is not None:
            start = normalize(shortlist.texts[own], dim=1)
    few = softmax and settings.negatives < len(problem.kept)
    apart = (ranks.number,) if start == "random" and ranks.number else ()
    with seeded(seed, name, *apart, device=device):
        network = TextNetwork(
            shortlist.table,
            FixedBags(ranks.own_rows(problem.labels), device, recorded=not ranks.many),
            settings.dropout,
            text=model.text,
            refinement=start,
            learn_table=config.learns_tokens,
            temperature=_TEMPERATURE if softmax else None,
            by_rows=few,
        )
    task: Task
    if softmax:
        negatives = settings.negatives if few else 0
        task = ChoiceTask(network, shortlist, problem, negatives=negatives, hard=settings.hard, ranks=ranks)
    else:
        task = RankTask(network, shortlist, forced=settings.forced)
    schedule = Schedule(settings.epochs, settings.batch, settings.rate, (settings.epochs // 2,))
    documents, positives = Rows.of(problem.documents, device), Rows.of(problem.known(), device)
    fit(name, task, documents, positives, schedule, seed=seed, keeper=keeper)
    encoder, weights, bias = network.frozen()
    if ranks.many:
        weights, bias = (ranks.gather(rows, len(problem.kept)).to(device) for rows in (weights, bias))
    return Ranker(encoder, weights, bias, network.frozen_texts())


class ChoiceTask(SoftmaxTask):
    """True labels against all others, or against those of the batch, some of the shortlists and some at random."""

    network: TextNetwork

    def __init__(
        self,
        network: TextNetwork,
        shortlist: Shortlist,
        problem: Problem,
        *,
        negatives: int,
        hard: int,
        ranks: Ranks = _LONE,
    ) -> None:
        self.network, self.ranks = network, ranks
        self._negatives, self._hard = negatives, hard
        self._labels, self._own = len(problem.kept), ranks.own(len(problem.kept))
        self.first = self._own.start
        self._clusters, self._members = shortlist.clusters[:, :_FIRST], shortlist.shortlister.members
        if problem.held is not None:
            lists = _HeldLists(problem, problem.held, shortlist)
            self.figure = lambda: lists.precision(self._ranker())
            self.held = problem.held.documents.shape[0]

    def split(self) -> tuple[list[nn.Parameter], int]:
        """Refinement vectors and biases belong to the rank that owns the label."""
        own = (self.network.labels.refinement, self.network.labels.bias)
        values = [table.values if isinstance(table, RowTable) else table for table in own if table is not None]
        return values, self._labels

    def _ranker(self) -> Ranker:
        frozen = self.network.frozen()
        return _RankerOfRanks(*frozen, ranks=self.ranks, first=self.first) if self.ranks.many else Ranker(*frozen)

    def candidates(self, batch: Batch) -> Candidates:
        """All labels; or of the batch, of the first clusters of its documents' shortlists, and at random."""
        count, device = self._labels, batch.columns.device
        if not self._negatives:
            return Candidates.all(self.network.count, device)
        clusters, members = self._clusters, self._members
        size = (len(batch.numbers), self._hard)
        drawn = torch.randint(clusters.shape[1], size, device=device)
        slots = torch.randint(members.shape[1], size, device=device)
        listed = members[clusters[batch.numbers].long().gather(1, drawn), slots].flatten()
        others = torch.randint(count, (self._negatives,), device=device)
        named = torch.cat([batch.columns, listed.masked_fill(listed < 0, count), others])
        candidates = Candidates.of(named, count, drawn=self._negatives)
        return candidates.among(self._own) if self.ranks.many else candidates

    def scores(self, batch: Batch, labels: Tensor | None) -> Tensor:
        """Scores of classifiers."""
        company = partial(self.ranks.all_rows, total=len(batch.there))
        logits: Tensor = self.network(*batch.documents(self.ranks), labels, company)
        return logits


@dataclass(frozen=True, eq=False)
class _RankerOfRanks(Ranker):
    """Scores labels each on the rank that owns it."""

    ranks: Ranks = _LONE
    first: int = 0  # of the labels that this rank owns

    def scores(self, vectors: Tensor, labels: Tensor) -> Tensor:
        """Scores of these labels [documents, listed] for document vectors; -1 stands for none."""
        own = labels - self.first
        mine = (own >= 0) & (own < len(self.bias))
        return self.ranks.sum(super().scores(vectors, own.masked_fill(~mine, -1)) * mine)


class _HeldLists:
    """The held-out documents on their shortlists."""

    def __init__(self, problem: Problem, held: Held, shortlist: Shortlist) -> None:
        self._held, self._shortlister, self._beam = held, shortlist.shortlister, shortlist.clusters.shape[1]
        self._blend = first_blend(problem.rarity(shortlist.table.device), shortlist.texts)
        self._judge = Judge(held, shortlist.table.device)

    def precision(self, ranker: Ranker) -> float:
        """P@1 with these classifiers and half the label text, in percent."""
        instance = Instance(self._shortlister, ranker, self._beam, self._blend)
        parts = held_parts(self._held, instance)
        return self._judge.precision(instance.chances(parts, 0.0), parts.labels)


class RankTask(Task):
    """Logistic classifiers of labels, each document against the labels of its shortlisted clusters."""

    network: TextNetwork

    def __init__(self, network: TextNetwork, shortlist: Shortlist, *, forced: bool) -> None:
        self.network = network
        self._shortlist, self._forced = shortlist, forced

    def loss(self, batch: Batch) -> Tensor:
        """Logistic loss, the mean over the shortlisted labels of the documents."""
        logits: Tensor = self.network(batch.tokens, batch.starts, batch.weights)  # [documents, labels]
        clusters = self._shortlist.clusters[batch.numbers].long()  # [documents, beam]
        labels = self._shortlist.shortlister.members[clusters].flatten(1)  # [documents, beam * width]
        listed = (labels >= 0) * batch.there[:, None]
        negatives = softplus(logits.gather(1, labels.clamp(min=0))) * listed
        inside = batch.there.new_zeros(len(clusters), len(self._shortlist.shortlister.members), dtype=torch.bool)
        inside.scatter_(1, clusters, True)  # [documents, clusters]
        found = inside[batch.rows, self._shortlist.cluster[batch.columns]]  # [pairs]
        scores = logits[batch.rows, batch.columns]
        extra = no_negatives(scores, batch.true * found)
        if self._forced:  # a label that the shortlist missed joins it: what it would cost as a negative, less its score
            extra = extra + (softplus(scores) - scores) * batch.true.clamp(min=0) * ~found
        return (negatives.sum() + extra.sum()) / listed.sum().clamp(min=1)

    def optimizers(self) -> list[torch.optim.Optimizer]:
        """Adam by rows for refinement vectors and biases, plain Adam for the rest."""
        labels = self.network.labels
        own = [values for values in (labels.refinement, labels.bias) if isinstance(values, nn.Parameter)]
        others = [p for p in self.network.parameters() if p.requires_grad and all(p is not mine for mine in own)]
        return [adam(others), *([RowAdam(own)] if own else [])]
