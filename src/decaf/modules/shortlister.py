"""Module II: clusters anew, on what module I learned, and classifiers that name the clusters of a document."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn
from torch.nn.functional import normalize

from decaf.clusters import balanced_clusters
from decaf.config import Config
from decaf.modules.batches import Batch
from decaf.modules.loop import Keeper, Schedule, Task, fit, seeded
from decaf.modules.meta import MetaTask
from decaf.modules.problem import Held, MetaLabels, Problem, label_sums
from decaf.modules.softmax import Candidates, SoftmaxTask
from decaf.modules.tokens import Tokens
from decaf.networks import FixedBags, FrozenEncoder, Level, Rows, Shortlister, TextNetwork, all_products
from decaf.ranks import Ranks

__all__ = ["ClusterTask", "Shortlist", "learn_shortlister", "retrieve"]

log = logging.getLogger(__name__)

_DOCUMENTS = 4096  # retrieved at a time
_COMPARED = 1 << 25  # pairs of a true cluster and a retrieved one that are looked at together
_RECALL = 0.85  # of the training pairs that the beam must reach
_HELD_RECALL = 0.9  # of the held-out pairs, as far as a beam of
_AFFORDABLE = 100  # clusters goes
_ENOUGH = 1 << 18  # documents, enough to tell how wide the beam must be
_FAN_OUT = 5  # bits: children of a node in a tree
_LONE = Ranks()


@dataclass(frozen=True, eq=False)
class Shortlist:
    """A shortlister, the cluster of each label, and which clusters the training documents look into."""

    shortlister: Shortlister
    cluster: Tensor  # [labels]
    table: Tensor  # token embeddings as fine-tuned, [tokens, dim]
    clusters: Tensor  # [documents, beam], best first
    texts: Tensor | None = None  # label texts among the documents that the shortlister's encoder makes, [labels, dim]

    def tensors(self) -> dict[str, Tensor]:
        """All arrays by name."""
        own = {f"shortlister.{name}": tensor for name, tensor in self.shortlister.tensors().items()}
        texts = {} if self.texts is None else {"texts": self.texts}
        return own | {"cluster": self.cluster, "table": self.table, "clusters": self.clusters} | texts

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Shortlist:
        """The shortlist made of these arrays."""
        own = {name.removeprefix("shortlister."): tensor for name, tensor in tensors.items() if "." in name}
        arrays = (tensors["cluster"], tensors["table"], tensors["clusters"], tensors.get("texts"))
        return cls(Shortlister.of(own), *arrays)


def learn_shortlister(
    name: str, problem: Problem, tokens: Tokens, config: Config, *, seed: int, keeper: Keeper, ranks: Ranks = _LONE
) -> Shortlist:
    """Learn to name clusters, and retrieve the shortlist of every training document."""
    settings = config.shortlister
    most = 200 if settings.clusters < 1 << 17 else 100  # as in the paper
    beam = settings.beam or max(16, min(most, settings.clusters * 200 >> 15))
    texts = tokens.labels
    if settings.kind in ("neighbours", "hnsw"):
        made = _neighbours(problem, tokens, searched=settings.kind == "hnsw")
        beam *= -(-len(problem.kept) // settings.clusters)  # as many labels as that many clusters hold
    elif settings.kind == "tree":
        made, texts = _tree(name, problem, tokens.table, config, seed=seed, keeper=keeper), None
    elif tokens.encoder is None:
        made = _clusters(name, problem, tokens.table, config, seed=seed, keeper=keeper)
    else:
        made = _clusters_of_texts(name, problem, tokens, config, seed=seed, keeper=keeper, ranks=ranks)
    shortlister, cluster, table = made
    if problem.held is not None and not settings.beam:
        held = problem.held
        beam = ranks.told(lambda: _widened(shortlister, held, cluster, beam))
    clusters, recall = _reach(shortlister, problem, cluster, beam, fixed=bool(settings.beam), ranks=ranks)
    keeper.note(module=name, beam=clusters.shape[1], recall=round(100 * recall, 2))
    log.info(
        "%s: %d of %d clusters hold %.1f %% of the training pairs",
        name,
        clusters.shape[1],
        len(shortlister.bias),
        100 * recall,
    )
    return Shortlist(shortlister, cluster, table, clusters, texts)


_Learned = tuple[Shortlister, Tensor, Tensor]  # the shortlister, the cluster of each label, token embeddings


def _clusters(name: str, problem: Problem, table: Tensor, config: Config, *, seed: int, keeper: Keeper) -> _Learned:
    """The paper's own: one classifier for each of K clusters, text and refinement; everything is fine-tuned."""
    settings, model, device = config.shortlister, config.model, table.device
    sums = label_sums(problem, problem.documents @ table.cpu().numpy())
    cluster = _cluster_labels(sums, settings.clusters, seed, device)
    meta = MetaLabels.of(problem, cluster, settings.clusters)
    start = None if not model.refinement else "text" if model.text else "random"
    with seeded(seed, name, device=device):
        network = TextNetwork(
            table,
            FixedBags(meta.texts, device),
            settings.dropout,
            text=model.text,
            refinement=start,
            learn_table=config.learns_tokens,
        )
    _fit(name, MetaTask(network), problem, meta, config, seed=seed, keeper=keeper)
    shortlister = Shortlister(*network.frozen(), torch.as_tensor(meta.members).to(device))
    return shortlister, torch.as_tensor(cluster).to(device), network.table.detach()


def _clusters_of_texts(
    name: str, problem: Problem, tokens: Tokens, config: Config, *, seed: int, keeper: Keeper, ranks: Ranks
) -> _Learned:
    """One vector for each of K clusters among the documents as module I places them; only these vectors learn."""
    assert tokens.encoder is not None  # noqa: S101 - the caller has looked
    assert tokens.labels is not None  # noqa: S101 - the caller has looked
    settings, device, texts = config.shortlister, tokens.table.device, tokens.labels
    vectors = ranks.all_rows(_encoded(tokens.encoder, ranks.own_rows(problem.documents)), problem.documents.shape[0])

    def begun() -> dict[str, Tensor]:
        sums = label_sums(problem, vectors) + normalize(texts, dim=1).cpu().numpy()
        cluster = torch.as_tensor(_cluster_labels(sums, settings.clusters, seed, device)).to(device)
        centres = torch.zeros(settings.clusters, vectors.shape[1], device=device)
        return {"cluster": cluster, "centres": centres.index_add_(0, cluster, torch.as_tensor(sums).to(device))}

    start = ranks.told_tensors(begun, device)
    meta = MetaLabels.of(problem, start["cluster"].cpu().numpy(), settings.clusters)
    task = ClusterTask(vectors, normalize(start["centres"], dim=1), float(texts.norm(dim=1).max()), ranks)
    _fit(name, task, problem, meta, config, seed=seed, keeper=keeper)
    members = torch.as_tensor(meta.members).to(device)
    shortlister = Shortlister(tokens.encoder, *task.classifiers(), members, texts=tokens.texts)
    return shortlister, start["cluster"], tokens.table


class ClusterTask(SoftmaxTask):
    """True clusters of a document against all others, its vector as it is."""

    network: nn.Linear

    def __init__(self, vectors: Tensor, start: Tensor, temperature: float, ranks: Ranks = _LONE) -> None:
        self._vectors, self._temperature, self.ranks = vectors, temperature, ranks
        self._count, own = len(start), ranks.own(len(start))
        self.first = own.start
        self.network = nn.Linear(start.shape[1], own.stop - own.start, device=start.device)
        with torch.no_grad():
            self.network.weight.copy_(start[own])
            self.network.bias.zero_()

    def split(self) -> tuple[list[nn.Parameter], int]:
        """Each rank has clusters of its own."""
        return list(self.network.parameters()), self._count

    def candidates(self, batch: Batch) -> Candidates:
        """All clusters, or all that this rank has."""
        return Candidates.all(len(self.network.bias), self._vectors.device)

    def scores(self, batch: Batch, labels: Tensor | None) -> Tensor:
        """Scores of these clusters."""
        vectors = self._temperature * self._vectors[batch.numbers]
        return all_products(vectors, self.network.weight, self.network.bias)

    def classifiers(self) -> tuple[Tensor, Tensor]:
        """Weights and biases, for prediction."""
        own = (self._temperature * self.network.weight).detach(), self.network.bias.detach().clone()
        weights, bias = (self.ranks.all_rows(rows, self._count) for rows in own)
        return weights, bias


def _neighbours(problem: Problem, tokens: Tokens, *, searched: bool) -> _Learned:
    """The labels whose documents are most like this one, found by a graph or by looking at all."""
    table, encoder, labels = tokens.table, tokens.encoder, len(problem.kept)
    device, dim = table.device, table.shape[1]
    if encoder is None:
        nothing = torch.zeros(dim, dim, device=device)
        encoder = FrozenEncoder(table, torch.ones(dim, device=device), nothing, torch.zeros(dim, device=device))
    vectors = normalize(_encoded(encoder, problem.documents), dim=1)
    centres = normalize(torch.as_tensor(label_sums(problem, vectors)), dim=1).to(device)
    each = torch.arange(labels, device=device)
    shortlister = Shortlister(
        encoder, centres, torch.zeros(labels, device=device), each[:, None], (), searched, tokens.texts
    )
    return shortlister, each, table


@torch.no_grad()
def _encoded(encoder: FrozenEncoder, documents: sparse.csr_array) -> Tensor:
    """Vectors of documents."""
    parts = Rows.in_parts(documents, _DOCUMENTS, encoder.table.device)
    return torch.cat([encoder(rows.columns, rows.starts, rows.values) for rows in parts])


def _tree(name: str, problem: Problem, table: Tensor, config: Config, *, seed: int, keeper: Keeper) -> _Learned:
    """A tree of small fan-out over fixed document vectors: classifiers on every level, the best nodes followed down."""
    settings, device = config.shortlister, table.device
    sums = label_sums(problem, problem.documents @ table.cpu().numpy())
    cluster = _cluster_labels(sums, settings.clusters, seed, device)
    depth = settings.clusters.bit_length() - 1
    levels: list[Level] = []
    for bits in [*range(_FAN_OUT, depth, _FAN_OUT), depth]:
        meta = MetaLabels.of(problem, cluster >> (depth - bits), 1 << bits)
        title = f"{name}, level {len(levels) + 1}"
        with seeded(seed, title, device=device):
            network = TextNetwork(
                table,
                FixedBags(meta.texts, device),
                settings.dropout,
                text=False,
                refinement="random",
                learn_table=False,
            )
        network.documents.requires_grad_(False)
        _fit(title, MetaTask(network), problem, meta, config, seed=seed, keeper=keeper)
        encoder, weights, bias = network.frozen()
        levels.append(Level(weights, bias))
    members = torch.as_tensor(meta.members).to(device)
    shortlister = Shortlister(encoder, *levels[-1], members, tuple(levels[:-1]))
    return shortlister, torch.as_tensor(cluster).to(device), table


def _cluster_labels(
    vectors: NDArray[np.float32] | sparse.csr_array, count: int, seed: int, device: torch.device
) -> NDArray[np.int64]:
    return balanced_clusters(vectors, count, rng=np.random.default_rng([seed, 2]), device=device)


def _fit(
    name: str, task: Task, problem: Problem, meta: MetaLabels, config: Config, *, seed: int, keeper: Keeper
) -> None:
    settings = config.shortlister
    device = next(task.network.parameters()).device
    schedule = Schedule(settings.epochs, settings.batch, settings.rate, (settings.epochs // 2,))
    documents, positives = Rows.of(problem.documents, device), Rows.of(meta.known, device)
    fit(name, task, documents, positives, schedule, seed=seed, keeper=keeper)


@torch.no_grad()
def retrieve(shortlister: Shortlister, documents: sparse.csr_array, beam: int) -> Tensor:
    """The clusters that documents look into -> [documents, beam], best first."""
    parts = Rows.in_parts(documents, _DOCUMENTS, shortlister.weights.device)
    return torch.cat([shortlister.top(rows.columns, rows.starts, rows.values, beam)[0].int() for rows in parts])


def _recall(clusters: Tensor, truth: sparse.csr_array, cluster: Tensor) -> float:
    """The share of the pairs whose label is of one of the document's clusters [documents, beam]."""
    pairs = truth.tocoo()
    rows = torch.as_tensor(pairs.row.astype(np.int64)).to(cluster.device)
    wanted = cluster[torch.as_tensor(pairs.col.astype(np.int64)).to(cluster.device)].int()
    size, hits = max(1, _COMPARED // clusters.shape[1]), torch.zeros((), dtype=torch.int64, device=rows.device)
    for part_rows, part_wanted in zip(torch.split(rows, size), torch.split(wanted, size), strict=True):
        hits += (clusters[part_rows] == part_wanted[:, None]).any(dim=1).sum()
    return float(hits) / max(1, len(rows))


def _widened(shortlister: Shortlister, held: Held, cluster: Tensor, beam: int) -> int:
    """The beam, doubled until held-out documents find 90 % of their pairs, or as far as it is cheap."""
    clusters = retrieve(shortlister, held.documents, _AFFORDABLE)
    while beam < _AFFORDABLE and _recall(clusters[:, :beam], held.truth, cluster) <= _HELD_RECALL:
        beam = min(2 * beam, _AFFORDABLE)
    return beam


def _reach(
    shortlister: Shortlister, problem: Problem, cluster: Tensor, beam: int, *, fixed: bool, ranks: Ranks
) -> tuple[Tensor, float]:
    """The shortlists of the training documents and their recall; unless fixed, doubled until they reach 85 %.

    Where there are many documents, how often to double is found on some of them.
    """
    count, documents = len(shortlister.bias), problem.documents.shape[0]
    if not fixed and documents > _ENOUGH:
        some = np.linspace(0, documents - 1, _ENOUGH).astype(np.int64)
        part = replace(problem, documents=problem.documents[some], truth=problem.truth[some])
        clusters, _ = _reach(shortlister, part, cluster, beam, fixed=False, ranks=ranks)
        beam, fixed = clusters.shape[1], True
    while True:
        clusters = retrieve(shortlister, ranks.own_rows(problem.documents), beam)
        clusters = ranks.all_rows(clusters, problem.documents.shape[0])
        recall = _recall(clusters, problem.truth, cluster)
        if fixed or recall > _RECALL or beam >= count:
            return clusters, recall
        if clusters.shape[1] < beam:  # a tree has no more to give
            return clusters, recall
        beam = min(2 * beam, count)
