"""Module I: token embeddings, learned on the texts of labels or, as in the paper, on clusters of labels."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import svds
from torch import Tensor
from torch.nn.functional import normalize, softplus

from decaf.clusters import balanced_clusters
from decaf.config import Config
from decaf.modules.batches import Batch
from decaf.modules.judge import DOCUMENTS, Judge
from decaf.modules.loop import Keeper, Schedule, fit, seeded
from decaf.modules.meta import MetaTask
from decaf.modules.problem import Held, MetaLabels, Problem, label_sums
from decaf.modules.softmax import Candidates, SoftmaxTask
from decaf.networks import FixedBags, FrozenEncoder, LabelTexts, Rows, TextNetwork, token_table, within
from decaf.ranks import Ranks

__all__ = ["TextTask", "Tokens", "learn_tokens", "with_label_texts"]

_TEMPERATURE = 20.0  # at the start
_RELATED = 0.1  # share of a label's company that another must be to be related
_ALIKE = 4  # bits: labels that are hard to tell apart come together by 16 or more
_LISTED = 50  # labels of a held-out document that are looked at
_SQUARE = 1 / 8  # of a component of embeddings that are not learned, in the mean
_LABELS = 1 << 13  # whose company is looked at together
_LONE = Ranks()


@dataclass(frozen=True, eq=False)
class Tokens:
    """What module I learned: token embeddings, and where labels' texts are among documents, if it learned that."""

    table: Tensor  # E, [tokens, dim]
    encoder: FrozenEncoder | None = None  # of documents
    labels: Tensor | None = None  # text vectors times the temperature, [labels, dim]
    texts: LabelTexts | None = None  # what made them of the texts

    def tensors(self) -> dict[str, Tensor]:
        """All arrays by name."""
        if self.encoder is None or self.labels is None or self.texts is None:
            return {"table": self.table}
        named = {f"encoder.{name}": tensor for name, tensor in self.encoder.tensors().items()}
        named |= {f"texts.{name}": tensor for name, tensor in self.texts._asdict().items()}
        return named | {"labels": self.labels}

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Tokens:
        """What is made of these arrays."""
        if "table" in tensors:
            return cls(tensors["table"])
        encoder = FrozenEncoder.of(within("encoder.", tensors))
        return cls(encoder.table, encoder, tensors["labels"], LabelTexts(**within("texts.", tensors)))


def learn_tokens(
    problem: Problem, config: Config, *, seed: int, device: torch.device, keeper: Keeper, ranks: Ranks = _LONE
) -> Tokens:
    """Learn token embeddings the way the settings say."""
    name, settings = "module I", config.tokens
    if settings.kind == "fixed":
        return Tokens(_fixed_tokens(problem, config.model.dim, seed).to(device))
    start = token_table(problem.documents.shape[1], config.model.dim, torch.Generator().manual_seed(seed)).to(device)
    begin = partial(_against_texts, ranks=ranks) if settings.kind == "texts" else _against_clusters
    task, documents, positives = begin(name, problem, start, config, seed)
    halve_at = (settings.epochs // 2, settings.epochs * 3 // 4)
    schedule = Schedule(settings.epochs, settings.batch, settings.rate, halve_at)
    fit(name, task, documents, positives, schedule, seed=seed, keeper=keeper)
    if settings.kind == "clusters":
        return Tokens(task.network.table.detach())
    encoder, labels, _ = task.network.frozen()
    labels = ranks.all_rows(labels, len(problem.kept))
    return Tokens(encoder.table, encoder, labels, task.network.frozen_texts())


_Begun = tuple["TextTask | MetaTask", Rows, Rows]  # the task, documents, what is known of them


def _against_texts(name: str, problem: Problem, table: Tensor, config: Config, seed: int, *, ranks: Ranks) -> _Begun:
    """Documents and label texts, both ways."""
    settings, device = config.tokens, table.device
    texts, known = with_label_texts(problem, own=settings.own_texts, related=settings.related)
    bags = FixedBags(ranks.own_rows(problem.labels), device, recorded=not ranks.many)
    network = _network(name, table, bags, settings.dropout, seed, temperature=_TEMPERATURE)
    documents, positives = Rows.of(texts, device), Rows.of(known, device)
    return TextTask(network, positives, problem, refresh=settings.refresh, ranks=ranks), documents, positives


def _against_clusters(name: str, problem: Problem, table: Tensor, config: Config, seed: int) -> _Begun:
    """As in the paper: documents and clusters of labels, by the clusters' texts."""
    count, device, rng = config.shortlister.clusters, table.device, np.random.default_rng([seed, 1])
    cluster = balanced_clusters(label_sums(problem, problem.documents), count, rng=rng, device=device)
    meta = MetaLabels.of(problem, cluster, count)
    network = _network(name, table, FixedBags(meta.texts, device), config.tokens.dropout, seed)
    return MetaTask(network), Rows.of(problem.documents, device), Rows.of(meta.known, device)


def _network(
    name: str,
    table: Tensor,
    bags: FixedBags,
    dropout: float,
    seed: int,
    *,
    temperature: float | None = None,
) -> TextNetwork:
    with seeded(seed, name, device=table.device):
        return TextNetwork(table, bags, dropout, text=True, refinement=None, learn_table=True, temperature=temperature)


def with_label_texts(problem: Problem, *, own: bool, related: bool) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Documents and known pairs, and behind them labels' texts, each of its label and related ones.

    Labels are related where one makes up a tenth or more of the company that the other has on documents.
    """
    known = problem.known()
    if not own:
        return problem.documents, known
    filled = np.flatnonzero(np.diff(problem.labels.indptr) > 0)  # labels that have a text
    true = sparse.csr_array(sparse.eye_array(len(problem.kept), dtype=np.float32))
    if related:
        true = sparse.csr_array(true + _related(problem.truth))
    pairs = sparse.csr_array(sparse.vstack([known, true[filled]]))
    pairs.sort_indices()
    return sparse.csr_array(sparse.vstack([problem.documents, problem.labels[filled]])), pairs


def _related(truth: sparse.csr_array) -> sparse.csr_array:
    """Labels that are a tenth or more of the company that each has on documents -> [labels, labels], ones."""
    count, by_label = truth.shape[1], sparse.csr_array(truth.T)
    total = by_label @ (np.diff(truth.indptr) - 1.0)
    # A label whose documents have more than eleven labels on average has none that is related, and may have a million
    # others as company.
    some = np.flatnonzero(np.diff(by_label.indptr) >= _RELATED * total * (1 - 1e-9))

    def close(labels: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        company = sparse.coo_array(by_label[labels] @ truth)
        row, column = labels[company.row], company.col.astype(np.int64)
        there = (row != column) & (company.data >= _RELATED * total[row])
        return row[there], column[there]

    parts = np.split(some, range(_LABELS, len(some), _LABELS))  # all company at once can be a billion pairs
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        row, column = (np.concatenate(places) for places in zip(*pool.map(close, parts), strict=True))
    return sparse.csr_array((np.ones(len(row), dtype=np.float32), (row, column)), shape=(count, count))


class TextTask(SoftmaxTask):
    """A document and one of its labels against the others of the batch, both ways, by their texts alone.

    Every few epochs labels are clustered by their text vectors, and documents whose labels are alike come into the
    same batch: they are the hard negatives.
    """

    network: TextNetwork

    def __init__(
        self, network: TextNetwork, positives: Rows, problem: Problem, *, refresh: int, ranks: Ranks = _LONE
    ) -> None:
        self.network, self.ranks = network, ranks
        self._refresh = refresh
        self._count, self._own = len(problem.kept), ranks.own(len(problem.kept))
        self.first = self._own.start
        self._device = positives.columns.device
        # The true pairs alone, to draw one a document from.
        true = positives.values > 0
        counts = torch.zeros(len(positives), dtype=torch.int64, device=self._device)
        row = torch.repeat_interleave(torch.arange(len(positives), device=self._device), positives.bounds.diff())
        self._counts = counts.index_add_(0, row[true], torch.ones_like(row[true]))
        self._starts = self._counts.cumsum(0) - self._counts
        self._labels = positives.columns[true]
        self._drawn = self._labels[self._starts]
        network.register_buffer("group", torch.full((self._count,), -1, device=self._device))
        if problem.held is not None:
            self.figure = partial(self._precision, problem.held, Judge(problem.held, self._device))
            self.held = problem.held.documents.shape[0]

    def order(self, epoch: int, documents: int) -> Tensor:
        """Draw one label for each document; documents whose labels are of one group stand together."""
        group: Tensor = self.network.group  # type: ignore[assignment]
        draw = (torch.rand(documents).to(self._device) * self._counts).long()
        self._drawn.copy_(self._labels[self._starts + draw.clamp(max=self._counts - 1)])
        if self._refresh and epoch and epoch % self._refresh == 0:
            group.copy_(self._groups(epoch))
        if bool((group < 0).any()):
            return torch.randperm(documents)
        lottery = torch.randperm(int(group.max()) + 1).to(self._device)
        return (lottery[group[self._drawn]] + torch.rand(documents, dtype=torch.float64).to(self._device)).argsort()

    def candidates(self, batch: Batch) -> Candidates:
        """The labels drawn for the documents of the batch."""
        candidates = Candidates.of(self._drawn[batch.numbers], self._count)
        return candidates.among(self._own) if self.ranks.many else candidates

    def scores(self, batch: Batch, labels: Tensor | None) -> Tensor:
        """Products of documents and label texts."""
        company = partial(self.ranks.all_rows, total=len(batch.there))
        logits: Tensor = self.network(*batch.documents(self.ranks), labels, company)
        return logits

    def targets(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Each document and the label drawn for it."""
        return torch.arange(len(batch.there), device=self._device), self._drawn[batch.numbers], batch.there

    def loss(self, batch: Batch) -> Tensor:
        """The mean of both ways: labels against each other for a document, documents for a label."""
        (own, by_document, by_label), rows, places, weights = self.compare(batch, both=True)
        costs = softplus(by_document[rows] - own) + softplus(by_label[places] - own)
        return (costs * weights).sum() / (2 * batch.count)

    @torch.no_grad()
    def _precision(self, held: Held, judge: Judge) -> float:
        """P@1 of the held-out documents by label text alone."""
        classifiers, _ = self.network.classifiers()
        listed = min(_LISTED, self._count // self.ranks.count)  # of each rank's labels
        found = []
        for rows in Rows.in_parts(held.documents, DOCUMENTS, self._device):
            scores = self.network.vectors(rows.columns, rows.starts, rows.values) @ classifiers.T
            found.append(scores.topk(listed, dim=1))
        scores, labels = torch.cat([best.values for best in found]), torch.cat([best.indices for best in found])
        if self.ranks.many:  # side by side
            best = (scores, labels + self.first)
            scores, labels = (self.ranks.all_rows(of.T, listed * self.ranks.count).T.contiguous() for of in best)
        return judge.precision(scores, labels)

    @torch.no_grad()
    def _groups(self, epoch: int) -> Tensor:
        """Labels that are alike by their text vectors, 16 to 32 together."""
        self.network.eval()
        vectors = self.ranks.gather(self.network.classifiers()[0], self._count).numpy()
        self.network.train()
        count = 1 << max(0, (self._count >> _ALIKE).bit_length() - 1)
        rng = np.random.default_rng([epoch, 5])

        def made() -> dict[str, Tensor]:
            return {"group": torch.as_tensor(balanced_clusters(vectors, count, rng=rng, device=self._device))}

        return self.ranks.told_tensors(made, self._device)["group"]


def _fixed_tokens(problem: Problem, dim: int, seed: int) -> Tensor:
    """Embeddings made from the texts alone: where each token lies among the directions of most variance.

    They are turned at random, for what is cut at zero would else be whole directions, and as long as logits need.
    """
    texts = sparse.csr_array(sparse.vstack([problem.documents, problem.labels]))
    rank = min(dim, min(texts.shape) - 1)
    table = np.zeros((texts.shape[1], dim), dtype=np.float32)
    if rank:
        _, sizes, directions = svds(texts.astype(np.float64), k=rank, rng=np.random.default_rng(seed))
        table[:, :rank] = directions.T * np.sqrt(sizes)
    else:
        table[:, 0] = 1  # a single token
    turn: Tensor = torch.linalg.qr(torch.randn(dim, dim, generator=torch.Generator().manual_seed(seed))).Q
    return math.sqrt(_SQUARE * dim) * normalize(torch.as_tensor(table), dim=1) @ turn
