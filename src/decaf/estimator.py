"""The scikit-learn face: texts and a matrix of labels in, a matrix of chances out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from decaf.config import recipe
from decaf.datasets import Dataset, Items, Part
from decaf.datasets.parts import empty_part, no_pairs
from decaf.errors import ConfigError, DataError
from decaf.metrics import evaluate
from decaf.model import Model
from decaf.predictions import Predictions
from decaf.predictor import Predictor
from decaf.training import train

__all__ = ["DecafClassifier"]


class DecafClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A multi-label classifier of short texts whose labels have texts of their own.

    Labels are the columns of `Y`. `recipe` and `settings` (`stage.key=value`) as for `decaf train`; `tail` leans from
    frequent labels (0) to rare ones (1); None: as the recipe does. `top` labels of a text have a chance, all others 0;
    `predict` names those of at least `threshold`. After `fit`, `model_` is the model, and `classes_` are the columns.
    """

    def __init__(
        self,
        recipe: str = "contrastive",
        *,
        settings: Sequence[str] = (),
        tail: float | None = None,
        top: int = 20,
        threshold: float = 0.5,
        device: str = "auto",
        threads: int = 1,
        random_state: int = 0,
    ) -> None:
        self.recipe = recipe
        self.settings = settings
        self.tail = tail
        self.top = top
        self.threshold = threshold
        self.device = device
        self.threads = threads
        self.random_state = random_state

    def fit(self, X: Sequence[str], Y: ArrayLike | sparse.sparray, label_texts: Sequence[str]) -> Self:
        """Learn from texts, the labels of each as a row of ones [texts, labels], and the texts of the labels."""
        if not 0 <= self.threshold <= 1:
            raise ConfigError(f"threshold must be from 0 to 1, not {self.threshold!r}")
        texts, truth = _texts(X), _truth(Y, len(X))
        if len(label_texts) != truth.shape[1]:
            raise DataError(
                f"{len(label_texts)} label texts for {truth.shape[1]} columns of Y; there must be one for each"
            )
        part = Part(Items(len(texts), None, texts), truth, no_pairs())
        labels = Items(len(label_texts), None, list(label_texts))
        dataset = Dataset("texts", part, empty_part(len(label_texts)), labels)
        config = recipe(self.recipe).with_settings(self.settings)
        return self._with(train(dataset, config, seed=self.random_state, device=self.device))

    @classmethod
    def of(cls, model: Model | str | Path, **options: Any) -> Self:  # noqa: ANN401 - those of the constructor
        """A fitted classifier out of a model, or of the folder that `model_.save` or `decaf train` wrote."""
        loaded = model if isinstance(model, Model) else Model.load(model)
        return cls(**options)._with(loaded)

    def _with(self, model: Model) -> Self:
        self.model_ = model
        self.classes_: NDArray[np.int64] = np.arange(model.labels.count)
        self.n_features_in_ = 1
        return self

    def predict_proba(self, X: Sequence[str]) -> sparse.csr_array:
        """The chances of the best labels of each text -> [texts, labels]; what is not stored has no chance."""
        return self._best(X).to_csr(len(self.classes_))

    def predict(self, X: Sequence[str]) -> sparse.csr_array:
        """Ones where a label's chance is at least the threshold -> [texts, labels]."""
        found = self._best(X).above(self.threshold).to_csr(len(self.classes_))
        found.data = np.ones_like(found.data, dtype=np.int64)
        return found

    def score(self, X: Sequence[str], Y: ArrayLike | sparse.sparray, sample_weight: None = None) -> float:
        """P@1: how often the best label of a text is one of its own, from 0 to 1."""
        if sample_weight is not None:
            raise DataError("texts cannot be weighted; leave sample_weight out")
        truth = _truth(Y, len(X))
        return evaluate(self._best(X), truth, np.ones(truth.shape[1]), no_pairs())["P@1"] / 100

    def _best(self, X: Sequence[str]) -> Predictions:
        check_is_fitted(self, "model_")
        predictor = Predictor(self.model_, device=self._device(), tail=self.tail, threads=self.threads)
        return predictor.predict(_texts(X), top=min(self.top, len(self.classes_)))

    def _device(self) -> str:
        return "cpu" if self.device == "auto" else self.device  # a few texts are answered faster there

    def __sklearn_tags__(self) -> Any:  # noqa: ANN401 - scikit-learn's own type
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.target_tags.multi_output = True
        tags.classifier_tags.multi_label = True
        return tags


def _texts(given: Sequence[str]) -> list[str]:
    if isinstance(given, str):
        raise DataError("expected a list of texts, found one text; write [text]")
    texts = [str(text) if isinstance(text, np.str_) else text for text in given]
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise DataError(f"expected texts, found {text!r} in row {row}")
    return texts


def _truth(given: ArrayLike | sparse.sparray, rows: int) -> sparse.csr_array:
    """The labels of each text as a matrix of ones."""
    try:
        matrix = sparse.csr_array(given if sparse.issparse(given) else np.asarray(given)).astype(np.float32)
    except (TypeError, ValueError) as error:
        advice = "expected ones and zeros [texts, labels]; sklearn's MultiLabelBinarizer makes them of lists of labels"
        raise DataError(f"Y is no matrix of numbers; {advice}") from error
    if matrix.ndim != 2:
        raise DataError("Y has one dimension; expected ones and zeros [texts, labels]")
    if matrix.shape[0] != rows:
        raise DataError(f"{rows} texts and {matrix.shape[0]} rows of Y; there must be one for each")
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    matrix.data = np.ones_like(matrix.data)
    return matrix
