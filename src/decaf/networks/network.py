"""What modules I, II and IV learn: token embeddings, a document encoder, and classifiers of labels or clusters."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from decaf.networks.classifier import Classifier, LabelTexts
from decaf.networks.encoder import DocumentEncoder, FixedBags, FrozenEncoder
from decaf.networks.products import all_products

__all__ = ["TextNetwork"]


class TextNetwork(nn.Module):
    """Scores documents against all labels (or clusters, or some), whose texts are fixed bags of the same tokens.

    `refinement` says how the labels' own vectors begin: with these values, as their text, at random, or not at all.
    With a temperature, document and label-text vectors are of unit length, and their products times the temperature,
    which learns, are the scores.
    """

    def __init__(
        self,
        table: Tensor,
        texts: FixedBags,
        dropout: float,
        *,
        text: bool,
        refinement: str | Tensor | None,
        learn_table: bool,
        temperature: float | None = None,
        by_rows: bool = False,
    ) -> None:
        super().__init__()
        dim, unit = table.shape[1], temperature is not None
        self.table = nn.Parameter(table.detach().clone(), requires_grad=learn_table)  # E
        self._texts = texts
        start = refinement if isinstance(refinement, Tensor) else None
        if refinement == "text":
            start = texts(self.table).detach()
        elif refinement == "random":
            start = torch.empty(texts.count, dim, device=table.device).uniform_(-(dim**-0.5), dim**-0.5)
        self.documents = DocumentEncoder(dim, dropout, unit=unit)
        self.labels = Classifier(dim, dropout, start, text=text, unit=unit, by_rows=by_rows)
        self.temperature = nn.Parameter(torch.tensor(math.log(temperature))) if temperature is not None else None
        self.to(table.device)

    @property
    def count(self) -> int:
        """How many labels there are."""
        return self._texts.count

    def vectors(self, tokens: Tensor, starts: Tensor, weights: Tensor) -> Tensor:
        """Tokens of all documents one after another, where each begins, and their weights -> [documents, dim]."""
        return self._scaled(self.documents(tokens, starts, weights, self.table))

    def classifiers(self) -> tuple[Tensor, Tensor | None]:
        """Weights [labels, dim] and biases of all labels."""
        return self.labels.weights(self.table.new_zeros(0) if self.labels.block is None else self._texts(self.table))

    def forward(
        self,
        tokens: Tensor,
        starts: Tensor,
        weights: Tensor,
        labels: Tensor | None = None,
        company: Callable[[Tensor], Tensor] | None = None,
    ) -> Tensor:
        """Scores of these labels, or of all -> [documents, labels]; `company` adds vectors of other documents."""
        if labels is None:
            classifiers, bias = self.classifiers()
            vectors = self.vectors(tokens, starts, weights)
        else:
            documents, texts = self._texts.beside(tokens, starts, weights, labels, self.table)
            classifiers, bias = self.labels.weights(texts, labels)
            vectors = self._scaled(self.documents.of_bags(documents))
        vectors = vectors if company is None else company(vectors)
        return all_products(vectors, classifiers, bias)

    def _scaled(self, vectors: Tensor) -> Tensor:
        return vectors if self.temperature is None else self.temperature.exp() * vectors

    @torch.no_grad()
    def frozen(self) -> tuple[FrozenEncoder, Tensor, Tensor]:
        """For prediction: the document encoder, the labels' classifiers [labels, dim] and their biases."""
        classifiers, bias = self.classifiers()
        bias = classifiers.new_zeros(len(classifiers)) if bias is None else bias
        return self.documents.frozen(self.table), (self._scale() * classifiers).clone(), bias.detach().clone()

    @torch.no_grad()
    def frozen_texts(self) -> LabelTexts | None:
        """For prediction: what label texts add to the classifiers."""
        return self.labels.frozen_texts(self._scale())

    def _scale(self) -> Tensor:
        return self.table.new_ones(()) if self.temperature is None else self.temperature.exp()
