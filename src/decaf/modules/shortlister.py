"""Module II: clusters anew, on what module I learned, and classifiers that name the clusters of a document."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from decaf.clusters import balanced_clusters
from decaf.config import Config
from decaf.modules.batches import Rows
from decaf.modules.loop import Keeper, Schedule, fit, seeded
from decaf.modules.meta import MetaTask
from decaf.modules.problem import MetaLabels, Problem, label_sums
from decaf.networks import FixedBags, Shortlister, TextNetwork

__all__ = ["Shortlist", "learn_shortlister", "retrieve"]

_DOCUMENTS = 4096  # retrieved at a time
_RECALL = 0.85  # of the training pairs that the beam must reach


class Shortlist(NamedTuple):
    """A shortlister, the cluster of each label, and which clusters the training documents look into."""

    shortlister: Shortlister
    cluster: Tensor  # [labels]
    table: Tensor  # token embeddings as fine-tuned, [tokens, dim]
    clusters: Tensor  # [documents, beam], best first


def learn_shortlister(
    name: str, problem: Problem, table: Tensor, config: Config, *, seed: int, keeper: Keeper
) -> Shortlist:
    """Cluster, learn, and retrieve the shortlist of every training document."""
    settings, model, device = config.shortlister, config.model, table.device
    rng = np.random.default_rng([seed, 2])
    embedded = problem.documents @ table.cpu().numpy()
    cluster = balanced_clusters(label_sums(problem, embedded), settings.clusters, rng=rng, device=device)
    meta = MetaLabels.of(problem, cluster, settings.clusters)
    start = None if not model.refinement else "text" if model.text else "random"
    with seeded(seed, name, device=device):
        network = TextNetwork(
            table,
            FixedBags(meta.texts, device),
            settings.dropout,
            text=model.text,
            refinement=start,
            learn_table=not model.lite,
        )
    schedule = Schedule(settings.epochs, settings.batch, settings.rate, (settings.epochs // 2,))
    documents, positives = Rows.of(problem.documents, device), Rows.of(meta.truth, device)
    fit(name, MetaTask(network), documents, positives, schedule, seed=seed, keeper=keeper)
    shortlister = Shortlister(*network.frozen(), torch.as_tensor(meta.members).to(device))
    labels_cluster = torch.as_tensor(cluster).to(device)
    clusters, recall = _beam(shortlister, problem, labels_cluster, settings.beam)
    keeper.note(module=name, beam=clusters.shape[1], recall=round(100 * recall, 2))
    return Shortlist(shortlister, labels_cluster, network.table.detach(), clusters)


def retrieve(shortlister: Shortlister, documents: sparse.csr_array, beam: int) -> Tensor:
    """The clusters that documents look into -> [documents, beam], best first."""
    found = []
    with torch.no_grad():
        for start in range(0, documents.shape[0], _DOCUMENTS):
            rows = Rows.of(documents[start : start + _DOCUMENTS], shortlister.weights.device)
            found.append(shortlister.top(rows.columns, rows.starts, rows.values, beam)[0].int())
    return torch.cat(found)


def _beam(shortlister: Shortlister, problem: Problem, cluster: Tensor, beam: int) -> tuple[Tensor, float]:
    """The shortlists of the training documents, doubled in length until they hold 85 % of the pairs."""
    count = len(shortlister.bias)
    fixed, beam = bool(beam), beam or max(16, min(200, count * 200 >> 15))
    pairs = problem.truth.tocoo()
    rows = torch.as_tensor(pairs.row.astype(np.int64)).to(cluster.device)
    wanted = cluster[torch.as_tensor(pairs.col.astype(np.int64)).to(cluster.device)].int()
    while True:
        clusters = retrieve(shortlister, problem.documents, beam)
        hits = [
            (clusters[part_rows] == part_wanted[:, None]).any(dim=1).sum()
            for part_rows, part_wanted in zip(torch.split(rows, 1 << 18), torch.split(wanted, 1 << 18), strict=True)
        ]
        recall = float(torch.stack(hits).sum()) / len(rows)
        if fixed or recall > _RECALL or beam >= count:
            return clusters, recall
        beam = min(2 * beam, count)
