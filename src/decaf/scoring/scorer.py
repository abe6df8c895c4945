"""What every scorer does: feature rows in, the best labels out."""

from __future__ import annotations

from typing import Protocol

from scipy import sparse

from decaf.predictions import Predictions

__all__ = ["Scorer", "check_tokens"]


class Scorer(Protocol):
    """Finds the labels that belong to documents."""

    @property
    def labels(self) -> int:
        """How many labels there are to choose from."""
        ...

    def top(self, documents: sparse.csr_array, top: int) -> Predictions:
        """The best labels of each feature row -> [documents, top], best first.

        An empty row has no labels. Of equal scores the label with the higher number goes first. A row's answer does not
        depend on the rows beside it.
        """
        ...


def check_tokens(documents: sparse.csr_array, tokens: int) -> None:
    """Refuse feature rows that are not those of the model."""
    if documents.shape[1] != tokens:
        raise ValueError(f"dimension mismatch: rows of {documents.shape[1]} tokens, expected {tokens}")
