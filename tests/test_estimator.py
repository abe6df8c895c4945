"""The scikit-learn face: matrices in and out, its conventions, and the same answers as the model's own."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from modules import QUICK_SETTINGS, topics
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from decaf import DataError, DecafClassifier, Predictor

DATASET = topics(labels=24, train=240, test=60)
TEXTS, LABELS = list(DATASET.train.documents.texts or []), list(DATASET.labels.texts or [])
NEW = list(DATASET.test.documents.texts or [])


def quick(**options: Any) -> DecafClassifier:  # noqa: ANN401 - those of the constructor
    return DecafClassifier("paper", settings=QUICK_SETTINGS, device="cpu", **options)


@pytest.fixture(scope="module")
def fitted() -> DecafClassifier:
    return quick(top=5, threshold=0.3).fit(TEXTS, DATASET.train.truth, LABELS)


def test_chances_are_those_of_the_predictor(fitted: DecafClassifier) -> None:
    chances = fitted.predict_proba(NEW)
    assert isinstance(chances, sparse.csr_array)
    assert chances.shape == (60, 24)
    wanted = Predictor(fitted.model_).predict(NEW, top=5)
    assert (chances != wanted.to_csr(24)).nnz == 0
    assert chances.nnz == 300


def test_labels_of_at_least_the_threshold_are_named(fitted: DecafClassifier) -> None:
    chances, named = fitted.predict_proba(NEW).toarray(), fitted.predict(NEW).toarray()
    assert np.array_equal(named, (chances >= 0.3).astype(int))
    assert 0 < named.sum() < 300


def test_the_score_is_how_often_the_best_label_is_right(fitted: DecafClassifier) -> None:
    best = fitted.predict_proba(NEW).toarray().argmax(axis=1)
    right = [DATASET.test.truth[row, label] > 0 for row, label in enumerate(best)]
    assert fitted.score(NEW, DATASET.test.truth) == pytest.approx(np.mean(right))
    assert fitted.score(NEW, DATASET.test.truth.toarray()) == pytest.approx(np.mean(right))
    assert np.mean(right) > 0.5


def test_a_dense_matrix_of_booleans_teaches_the_same(fitted: DecafClassifier) -> None:
    again = clone(fitted).fit(np.array(TEXTS), DATASET.train.truth.toarray() > 0, LABELS)
    assert (again.predict_proba(NEW) != fitted.predict_proba(NEW)).nnz == 0


def test_options_are_read_set_and_cloned() -> None:
    model = quick(top=7, tail=0.2, random_state=3)
    assert model.get_params()["top"] == 7
    copy = clone(model).set_params(threshold=0.9)
    assert copy.get_params() == model.get_params() | {"threshold": 0.9}
    assert model.threshold == 0.5


def test_it_is_searched_and_piped_like_any_other() -> None:
    def folds() -> list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
        half = np.arange(120)
        return [(half, half + 120), (half + 120, half)]

    search = GridSearchCV(quick(top=3), {"random_state": [0, 1]}, cv=folds(), error_score="raise")
    search.fit(TEXTS, DATASET.train.truth, label_texts=LABELS)
    assert search.best_score_ > 0.3
    lower = make_pipeline(FunctionTransformer(lambda texts: [text.lower() for text in texts]), quick(top=3))
    lower.fit(TEXTS, DATASET.train.truth, decafclassifier__label_texts=LABELS)
    assert lower.predict_proba([NEW[0].upper()]).nnz == 3


def test_a_kept_model_becomes_a_classifier_again(fitted: DecafClassifier, tmp_path: Path) -> None:
    fitted.model_.save(tmp_path / "model")
    again = DecafClassifier.of(tmp_path / "model", top=5)
    assert (again.predict_proba(NEW) != fitted.predict_proba(NEW)).nnz == 0
    assert again.classes_.tolist() == list(range(24))


def test_it_goes_to_other_processes(fitted: DecafClassifier) -> None:
    again = pickle.loads(pickle.dumps(fitted))  # noqa: S301 - our own
    assert (again.predict_proba(NEW) != fitted.predict_proba(NEW)).nnz == 0


def test_what_is_not_fitted_says_so() -> None:
    with pytest.raises(NotFittedError):
        quick().predict(NEW)


@pytest.mark.parametrize(
    ("texts", "truth", "labels", "said"),
    [
        ("a text", [[1]], ["a"], r"expected a list of texts, found one text; write \[text\]"),
        (["a", None], [[1], [1]], ["a"], "expected texts, found None in row 1"),
        (["a"], [[1], [1]], ["a"], "1 texts and 2 rows of Y"),
        (["a"], [[1, 0]], ["a"], "1 label texts for 2 columns of Y"),
    ],
)
def test_bad_input_says_what_is_wrong(texts: Any, truth: Any, labels: list[str], said: str) -> None:  # noqa: ANN401
    with pytest.raises(DataError, match=said):
        quick().fit(texts, truth, labels)
