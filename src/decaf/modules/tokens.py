"""Module I: token embeddings, learned by telling clusters of labels apart by their text alone."""

from __future__ import annotations

import numpy as np
import torch
from scipy import sparse
from scipy.sparse.linalg import svds
from torch import Tensor
from torch.nn.functional import normalize

from decaf.clusters import balanced_clusters
from decaf.config import Config
from decaf.modules.loop import Keeper, Schedule, fit, seeded
from decaf.modules.meta import MetaTask
from decaf.modules.problem import MetaLabels, Problem, label_sums
from decaf.networks import FixedBags, Rows, TextNetwork, token_table

__all__ = ["learn_tokens"]


def learn_tokens(problem: Problem, config: Config, *, seed: int, device: torch.device, keeper: Keeper) -> Tensor:
    """Token embeddings E -> [tokens, dim]."""
    name, settings, count = "module I", config.tokens, config.shortlister.clusters
    if not settings.learned:
        return _fixed_tokens(problem, config.model.dim, seed).to(device)
    rng = np.random.default_rng([seed, 1])
    cluster = balanced_clusters(label_sums(problem, problem.documents), count, rng=rng, device=device)
    meta = MetaLabels.of(problem, cluster, count)
    start = token_table(problem.documents.shape[1], config.model.dim, torch.Generator().manual_seed(seed)).to(device)
    texts = FixedBags(meta.texts, device)
    with seeded(seed, name, device=device):
        network = TextNetwork(start, texts, settings.dropout, text=True, refinement=None, learn_table=True)
    halve_at = (settings.epochs // 2, settings.epochs * 3 // 4)
    schedule = Schedule(settings.epochs, settings.batch, settings.rate, halve_at)
    documents, positives = Rows.of(problem.documents, device), Rows.of(meta.truth, device)
    fit(name, MetaTask(network), documents, positives, schedule, seed=seed, keeper=keeper)
    return network.table.detach()


def _fixed_tokens(problem: Problem, dim: int, seed: int) -> Tensor:
    """Embeddings made from the texts alone: where each token lies among the directions of most variance."""
    texts = sparse.csr_array(sparse.vstack([problem.documents, problem.labels]))
    rank = min(dim, min(texts.shape) - 1)
    table = np.zeros((texts.shape[1], dim), dtype=np.float32)
    if rank:
        _, sizes, directions = svds(texts.astype(np.float64), k=rank, rng=np.random.default_rng(seed))
        table[:, :rank] = directions.T * np.sqrt(sizes)
    else:
        table[:, 0] = 1  # a single token
    return normalize(torch.as_tensor(table), dim=1)
