"""What the modules learn from: training documents and labels as sparse features, and the clusters of labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from decaf.features import unit_values

__all__ = ["MetaLabels", "Problem", "label_sums"]


@dataclass(frozen=True, eq=False)
class Problem:
    """Documents that have tokens and labels, and labels that have documents."""

    documents: sparse.csr_array  # [documents, tokens]
    labels: sparse.csr_array  # label texts, [labels, tokens]
    truth: sparse.csr_array  # [documents, labels], ones
    kept: NDArray[np.int64]  # the user's number of each label

    @classmethod
    def of(cls, documents: sparse.csr_array, labels: sparse.csr_array, truth: sparse.csr_array) -> Problem:
        """Leave out labels without a document, and documents without a token or a label."""
        rows = np.flatnonzero((np.diff(documents.indptr) > 0) & (np.diff(truth.indptr) > 0))
        truth = sparse.csr_array(truth[rows])
        kept = np.flatnonzero(np.bincount(truth.indices, minlength=truth.shape[1]))
        truth = sparse.csr_array(truth[:, kept])
        truth.sort_indices()
        truth.data = np.ones(truth.nnz, dtype=np.float32)
        return cls(sparse.csr_array(documents[rows]), sparse.csr_array(labels[kept]), truth, kept)


@dataclass(frozen=True, eq=False)
class MetaLabels:
    """Clusters of labels as labels themselves."""

    cluster: NDArray[np.int64]  # of each label
    texts: sparse.csr_array  # u_m: the labels' texts together, of unit length, [clusters, tokens]
    truth: sparse.csr_array  # a cluster is true where one of its labels is, [documents, clusters]
    members: NDArray[np.int64]  # labels of each cluster, -1 where it has fewer, [clusters, width]

    @classmethod
    def of(cls, problem: Problem, cluster: NDArray[np.int64], count: int) -> MetaLabels:
        """Put the labels together by cluster."""
        labels = len(cluster)
        ones = np.ones(labels, dtype=np.float32)
        belongs = sparse.csr_array((ones, (np.arange(labels), cluster)), shape=(labels, count))
        truth = sparse.csr_array(problem.truth @ belongs)
        truth.sort_indices()
        truth.data = np.ones(truth.nnz, dtype=np.float32)
        sizes = np.bincount(cluster, minlength=count)
        members = np.full((count, max(1, int(sizes.max()))), -1, dtype=np.int64)
        order = np.argsort(cluster, kind="stable")
        slot = np.arange(labels) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        members[cluster[order], slot] = order
        texts = sparse.csr_array(belongs.T @ problem.labels)
        texts.data = unit_values(texts, texts.data)
        return cls(cluster, texts, truth, members)


def label_sums(
    problem: Problem, vectors: NDArray[np.float32] | sparse.csr_array
) -> NDArray[np.float32] | sparse.csr_array:
    """Centroids c_l: the sum of what each label's documents are -> [labels, ...]."""
    sums = sparse.csr_array(problem.truth.T) @ vectors
    return sparse.csr_array(sums) if sparse.issparse(sums) else np.asarray(sums, dtype=np.float32)
