"""Predictor: texts in, the best labels out."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cached_property

from decaf.devices import choose_device, on_gpu
from decaf.errors import ModelError
from decaf.model import Model
from decaf.predictions import Match, Predictions
from decaf.scoring.exact import ExactScorer
from decaf.scoring.explain import Explainer, Explanation
from decaf.scoring.scorer import Scorer

__all__ = ["Predictor"]

log = logging.getLogger(__name__)


class Predictor:
    """Answers with a trained model.

    `tail` leans from frequent labels (0) to rare ones (1); None: as the model was made. On the CPU answers come from
    compiled loops (`fast`), with so many threads where there are many texts; on a GPU, or with `fast=False`, every
    cluster is looked at.
    """

    def __init__(
        self,
        model: Model,
        *,
        device: str = "cpu",
        tail: float | None = None,
        fast: bool | None = None,
        threads: int = 1,
    ) -> None:
        self.model = model
        self._tail = tail
        self._trusted = bool(model.about.get("calibrated", False))
        where = choose_device(device)
        self.scorer: Scorer
        if not on_gpu(where) if fast is None else fast:
            from decaf.scoring.fast import FastScorer  # compiled when first used

            self.scorer = FastScorer(model, tail=tail, threads=threads)
        else:
            self.scorer = ExactScorer(model, where, tail=tail)

    def predict(self, texts: Sequence[str], *, top: int = 5, threshold: float = 0.0) -> Predictions:
        """The labels of each text that are most likely, and at least as likely as the threshold.

        Labels are rows of `model.labels`; scores are chances.
        """
        if isinstance(texts, str):
            raise TypeError("predict takes a list of texts; write predict([text])")
        if threshold > 0 and not self._trusted:
            self._trusted = True  # said once
            log.warning("the chances of this model were not measured on held-out documents; a threshold says little")
        if self.model.features is None:
            raise ModelError("this model was trained on ready features and knows no words; use predictor.scorer")
        return self.scorer.top(self.model.features.transform(texts), top).above(threshold)

    def explain(self, text: str, matches: Sequence[Match] | None = None) -> list[Explanation]:
        """Why these labels, or those that `predict` finds, belong to a text: by parts of the score and by tokens."""
        if matches is None:
            (matches,) = self.predict([text])
        return self._explainer.explain(text, matches)

    @cached_property
    def _explainer(self) -> Explainer:
        return Explainer(self.model, tail=self._tail)
