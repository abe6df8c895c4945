"""Predictor: texts in, the best labels out."""

from __future__ import annotations

from collections.abc import Sequence

from decaf.devices import choose_device
from decaf.errors import ModelError
from decaf.model import Model
from decaf.predictions import Predictions
from decaf.scoring.exact import ExactScorer
from decaf.scoring.scorer import Scorer

__all__ = ["Predictor"]


class Predictor:
    """Answers with a trained model."""

    def __init__(self, model: Model, *, device: str = "cpu") -> None:
        self.model = model
        self.scorer: Scorer = ExactScorer(model, choose_device(device))

    def predict(self, texts: Sequence[str], *, top: int = 5) -> Predictions:
        """The most probable labels of each text; rows of `model.labels` and their probabilities."""
        if isinstance(texts, str):
            raise TypeError("predict takes a list of texts; write predict([text])")
        if self.model.features is None:
            raise ModelError("this model was trained on ready features and knows no words; use predictor.scorer")
        return self.scorer.top(self.model.features.transform(texts), top)
