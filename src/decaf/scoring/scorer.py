"""What every scorer does: feature rows in, the best labels out."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from scipy import sparse

from decaf.model import Model
from decaf.packed import Ints, Overlay
from decaf.predictions import Predictions

__all__ = ["Changes", "Scorer", "check_tokens"]


class Changes(NamedTuple):
    """What was changed in a model's labels since it was trained."""

    overlays: tuple[Overlay, ...]  # of each instance
    rows: Ints  # the user's row of each label, by number
    labels: int  # how many there are, with those that were not trained

    @classmethod
    def none(cls, model: Model) -> Changes:
        """No change."""
        return cls(tuple(Overlay.nothing(one.labels) for one in model.packed), model.kept, model.labels.count)


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
