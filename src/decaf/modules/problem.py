"""What the modules learn from: training documents and labels as sparse features, and the clusters of labels."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor
from torch.nn.functional import embedding_bag

from decaf.datasets.pairs import pair_matrix, reverse_pairs
from decaf.features import unit_values
from decaf.networks import Rows

__all__ = ["ENOUGH_TO_HOLD", "Held", "MetaLabels", "Problem", "label_sums", "weights_of_test"]

_HELD = 2_000  # documents, enough to choose by
ENOUGH_TO_HOLD = 50  # documents, enough to choose by
_TEST_SHARE = 0.3  # of all documents, in the paper's split
_FREQUENCIES = (1, 2, 3, 5, 10, 20, 50, 100)  # training documents of a label up to which it is of one group
_ENOUGH_PAIRS = 10  # of a group, to say how often it comes
_MOST_WEIGHT = 5.0  # of a document
_ROUNDS = 20


@dataclass(frozen=True, eq=False)
class Held:
    """Documents held out of training to choose by."""

    documents: sparse.csr_array  # [documents, tokens]
    truth: sparse.csr_array  # [documents, labels]
    filters: NDArray[np.int64]  # (document, label) pairs that count for nothing
    inverse_propensity: NDArray[np.float64]  # [labels]
    weights: NDArray[np.float64]  # how much each document counts, 1 in the mean


@dataclass(frozen=True, eq=False)
class Problem:
    """Documents that have tokens and labels, and labels that have documents."""

    documents: sparse.csr_array  # [documents, tokens]
    labels: sparse.csr_array  # label texts, [labels, tokens]
    truth: sparse.csr_array  # [documents, labels], ones
    kept: NDArray[np.int64]  # the user's number of each label
    filters: NDArray[np.int64]  # (document, label) pairs that count for nothing, neither right nor wrong
    inverse_propensity: NDArray[np.float64]  # [labels]
    held: Held | None = None
    rows: NDArray[np.int64] | None = None  # the user's number of each document; None: as they are

    @classmethod
    def of(
        cls,
        documents: sparse.csr_array,
        labels: sparse.csr_array,
        truth: sparse.csr_array,
        filters: NDArray[np.int64] | None = None,
        inverse_propensity: NDArray[np.float64] | None = None,
        *,
        hold: float = 0.0,
        seed: int = 0,
    ) -> Problem:
        """Leave out labels without a document, and documents without a token or a label; hold out a share of them."""
        pairs = np.zeros((0, 2), dtype=np.int64) if filters is None else filters
        rows = np.flatnonzero((np.diff(documents.indptr) > 0) & (np.diff(truth.indptr) > 0))
        truth = sparse.csr_array(truth[rows])
        kept = np.flatnonzero(np.bincount(truth.indices, minlength=truth.shape[1]))
        truth = sparse.csr_array(truth[:, kept])
        truth.sort_indices()
        truth.data = np.ones(truth.nnz, dtype=np.float32)
        chances = np.ones(len(kept)) if inverse_propensity is None else inverse_propensity[kept]
        texts, pairs = sparse.csr_array(labels[kept]), _within(pairs, rows, kept)
        documents = sparse.csr_array(documents[rows])
        all_pairs = _pairs(truth)
        judged = _judged_pairs(truth, hold, np.random.default_rng([seed, 3]))
        held = None
        if judged.any():
            # A pair is judged or trained on; it counts for nothing where it is not, or where its reverse is trained on.
            kept_pairs = pair_matrix(all_pairs[~judged], truth.shape)
            reverse = reverse_pairs(pairs, truth.shape[0], kept_pairs, pairs)
            of_held, aside = all_pairs[judged], np.concatenate([pairs, all_pairs[~judged], reverse])
            of_part = _part(documents, truth.shape, of_held, aside)
            trained_on = np.bincount(kept_pairs.indices, minlength=len(kept))
            held = Held(*of_part, chances, weights_of_test(of_part[1], trained_on))
        trained = _part(documents, truth.shape, all_pairs[~judged], np.concatenate([pairs, all_pairs[judged]]))
        numbers = rows[np.unique(all_pairs[~judged, 0])]
        return cls(trained[0], texts, trained[1], kept, trained[2], chances, held, numbers)

    def rarity(self, device: torch.device) -> Tensor:
        """The logarithm of each label's inverse propensity."""
        return torch.as_tensor(np.log(self.inverse_propensity)).float().to(device)

    def whole(self) -> Problem:
        """The same with the documents that are held out behind the others."""
        if self.held is None:
            return self
        documents, truth = (
            sparse.csr_array(sparse.vstack(parts))
            for parts in ((self.documents, self.held.documents), (self.truth, self.held.truth))
        )
        filters = np.concatenate([self.filters, self.held.filters + np.array([self.documents.shape[0], 0])])
        return replace(self, documents=documents, truth=truth, filters=filters, held=None)

    def known(self) -> sparse.csr_array:
        """The pairs that are no negatives: 1 for true ones, -1 for those that count for nothing."""
        neither = pair_matrix(self.filters, self.truth.shape)
        neither.data[:] = 1
        known = sparse.csr_array(self.truth - (neither - neither * self.truth))
        known.eliminate_zeros()
        known.sort_indices()
        return known


def weights_of_test(truth: sparse.csr_array, trained: NDArray[np.int64]) -> NDArray[np.float64]:
    """How much each held-out document counts, so that rare labels come as often as in a test part -> [documents].

    A test part asks for every label. Held-out documents ask for one that has a single other document, `trained` on,
    about half as often: had it been held out, there would be nothing to learn it from.
    """
    # Labels with n documents are about one in n: those of a label that are for testing follow, then, a negative
    # binomial distribution, and none is no choice.
    expected = trained * _TEST_SHARE / (1 - _TEST_SHARE) / -np.expm1(trained * np.log1p(-_TEST_SHARE) - 1e-9)
    group = np.searchsorted(_FREQUENCIES, trained)
    of_pairs = group[truth.indices]
    there = np.bincount(of_pairs, minlength=len(_FREQUENCIES) + 1)
    wanted = np.bincount(group, weights=expected, minlength=len(there)) * (there >= _ENOUGH_PAIRS)
    row, each = np.repeat(np.arange(truth.shape[0]), np.diff(truth.indptr)), np.maximum(np.diff(truth.indptr), 1)
    weights = np.ones(truth.shape[0])
    for _ in range(_ROUNDS if wanted.any() else 0):  # a document has labels of several groups
        now = np.bincount(of_pairs, weights=weights[row], minlength=len(there)) * (wanted > 0)
        ratio = np.where(wanted > 0, wanted / wanted.sum() / np.maximum(now / now.sum(), 1e-12), 1.0)
        weights *= np.bincount(row, weights=ratio[of_pairs], minlength=len(weights)) / each
        weights = np.clip(weights / weights.mean(), 1 / _MOST_WEIGHT, _MOST_WEIGHT)
    return weights


def _judged_pairs(truth: sparse.csr_array, share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Which pairs to hold out: those of a share of the documents, but for labels that would keep no pair at all."""
    wanted = min(round(share * truth.shape[0]), _HELD)
    judged = np.zeros(truth.nnz, dtype=bool)
    if wanted >= ENOUGH_TO_HOLD:
        chosen = np.zeros(truth.shape[0], dtype=bool)
        chosen[rng.choice(truth.shape[0], wanted, replace=False)] = True
        judged = np.repeat(chosen, np.diff(truth.indptr))
        left = np.bincount(truth.indices[~judged], minlength=truth.shape[1])
        judged &= left[truth.indices] > 0
        documents = np.count_nonzero(np.bincount(_pairs(truth)[judged, 0]))
        judged &= documents >= ENOUGH_TO_HOLD
    return judged


def _pairs(truth: sparse.csr_array) -> NDArray[np.int64]:
    """The (document, label) pairs of a matrix."""
    rows = np.repeat(np.arange(truth.shape[0]), np.diff(truth.indptr))
    return np.stack([rows, truth.indices.astype(np.int64)], axis=1)


def _part(
    documents: sparse.csr_array, shape: tuple[int, int], pairs: NDArray[np.int64], aside: NDArray[np.int64]
) -> tuple[sparse.csr_array, sparse.csr_array, NDArray[np.int64]]:
    """The documents that these pairs are of, the pairs as a matrix, and which of those set aside are theirs."""
    rows = np.unique(pairs[:, 0])
    truth = sparse.csr_array(pair_matrix(pairs, shape)[rows])
    truth.sort_indices()
    return sparse.csr_array(documents[rows]), truth, _within(aside, rows, np.arange(shape[1]))


def _within(pairs: NDArray[np.int64], rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """The pairs among these rows and columns, by their place there."""
    row, column = np.searchsorted(rows, pairs[:, 0]), np.searchsorted(columns, pairs[:, 1])
    there = (row < len(rows)) & (column < len(columns))
    row, column = row[there], column[there]
    same = (rows[row] == pairs[there, 0]) & (columns[column] == pairs[there, 1])
    found: NDArray[np.int64] = np.unique(np.stack([row[same], column[same]], axis=1), axis=0)
    return found


@dataclass(frozen=True, eq=False)
class MetaLabels:
    """Clusters of labels as labels themselves."""

    cluster: NDArray[np.int64]  # of each label
    texts: sparse.csr_array  # u_m: the labels' texts together, of unit length, [clusters, tokens]
    known: sparse.csr_array  # 1 where one of its labels is true, otherwise -1 where one counts for nothing
    members: NDArray[np.int64]  # labels of each cluster, -1 where it has fewer, [clusters, width]

    @classmethod
    def of(cls, problem: Problem, cluster: NDArray[np.int64], count: int) -> MetaLabels:
        """Put the labels together by cluster."""
        labels = len(cluster)
        ones = np.ones(labels, dtype=np.float32)
        belongs = sparse.csr_array((ones, (np.arange(labels), cluster)), shape=(labels, count))
        known = problem.known()
        known.data[known.data > 0] = labels + 1  # one true label outweighs all that count for nothing
        known = sparse.csr_array(known @ belongs)
        known.sort_indices()
        known.data = np.sign(known.data)
        sizes = np.bincount(cluster, minlength=count)
        members = np.full((count, max(1, int(sizes.max()))), -1, dtype=np.int64)
        order = np.argsort(cluster, kind="stable")
        slot = np.arange(labels) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        members[cluster[order], slot] = order
        texts = sparse.csr_array(belongs.T @ problem.labels)
        texts.data = unit_values(texts, texts.data)
        return cls(cluster, texts, known, members)


def label_sums(
    problem: Problem, vectors: Tensor | NDArray[np.float32] | sparse.csr_array
) -> NDArray[np.float32] | sparse.csr_array:
    """Centroids c_l: the sum of what each label's documents are -> [labels, ...]; of a tensor, on its device."""
    by_label = sparse.csr_array(problem.truth.T)
    if isinstance(vectors, Tensor):
        rows = Rows.of(by_label, vectors.device)
        return embedding_bag(rows.columns, vectors, rows.starts, mode="sum").cpu().numpy()
    sums = by_label @ vectors
    return sparse.csr_array(sums) if sparse.issparse(sums) else np.asarray(sums, dtype=np.float32)
