"""Predictor: texts in, the best labels out."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from copy import copy
from functools import cached_property
from pathlib import Path

from decaf.devices import choose_device, on_gpu
from decaf.errors import ModelError
from decaf.live import LabelView, Live
from decaf.model import Model
from decaf.predictions import Match, Predictions
from decaf.scoring.exact import ExactScorer
from decaf.scoring.explain import Explainer, Explanation
from decaf.scoring.fast import FastScorer
from decaf.stores import Change

__all__ = ["Predictor"]

log = logging.getLogger(__name__)


class Predictor:
    """Answers with a trained model, or the one in a folder.

    `tail` leans from frequent labels (0) to rare ones (1); None: as the model was made. On the CPU answers come from
    compiled loops (`fast`), with so many threads where there are many texts; on a GPU, or with `fast=False`, every
    cluster is looked at. `changes` are labels that were added, changed or hidden since the model was trained.
    """

    def __init__(
        self,
        model: Model | str | Path,
        *,
        device: str = "cpu",
        tail: float | None = None,
        fast: bool | None = None,
        threads: int = 1,
        changes: Sequence[Change] = (),
    ) -> None:
        self._device, self._tail, self._threads = choose_device(device), tail, threads
        self._fast = not on_gpu(self._device) if fast is None else fast
        model = model if isinstance(model, Model) else Model.load(model)
        self._trusted = bool(model.about.get("calibrated", False))
        self._begin(Live(model, changes))

    def _begin(self, live: Live) -> None:
        self._live, self.model = live, live.model
        self.scorer: FastScorer | ExactScorer
        if self._fast:
            self.scorer = FastScorer(self.model, tail=self._tail, threads=self._threads, changes=live.changes)
        else:
            changed = live.changes if live.labels.changed else None
            self.scorer = ExactScorer(self.model, self._device, tail=self._tail, changes=changed)

    def updated(self, changes: Sequence[Change]) -> Predictor:
        """The same predictor with these changes of labels in place of those before."""
        other = copy(self)
        other.__dict__.pop("_explainer", None)
        other._begin(self._live.updated(changes))
        return other

    @property
    def labels(self) -> LabelView:
        """What labels are called; those that were added too."""
        return self._live.labels

    @property
    def uncalibrated(self) -> bool:
        """Whether chances would be measured by this recipe, but no documents were held out to do so."""
        return self.model.config.model.loss == "softmax" and not self.model.about.get("calibrated", False)

    def knows(self, text: str) -> bool:
        """Whether a label of this text could ever be predicted."""
        return self._live.knows(text)

    def predict(
        self, texts: Sequence[str], *, top: int = 5, threshold: float = 0.0, tail: float | None = None
    ) -> Predictions:
        """The labels of each text that are most likely, and at least as likely as the threshold.

        Labels are rows of `labels`; scores are chances. `tail` leans as it does above, for these texts alone.
        """
        if isinstance(texts, str):
            raise TypeError("predict takes a list of texts; write predict([text])")
        texts = list(texts)
        if odd := [text for text in texts if not isinstance(text, str)]:
            raise TypeError(f"predict takes texts, and {odd[0]!r} is none; leave it out or write ''")
        if threshold > 0 and not self._trusted:
            self._trusted = True  # said once
            log.warning("the chances of this model were not measured on held-out documents; a threshold says little")
        if self.model.features is None:
            raise ModelError("this model was trained on ready features and knows no words; use predictor.scorer")
        return self.scorer.top(self.model.features.transform(texts), top, tail=tail).above(threshold)

    def explain(
        self, text: str, matches: Sequence[Match] | None = None, *, tail: float | None = None
    ) -> list[Explanation]:
        """Why these labels, or those that `predict` finds, belong to a text: by parts of the score and by tokens."""
        if matches is None:
            (matches,) = self.predict([text], tail=tail)
        return self._explainer.explain(text, matches, tail=self._tail if tail is None else tail)

    @cached_property
    def _explainer(self) -> Explainer:
        changes, scorer = self._live.changes, self.scorer
        fast = scorer if isinstance(scorer, FastScorer) else FastScorer(self.model, changes=changes)
        return Explainer(self.model, fast, changes, self.labels.text)
