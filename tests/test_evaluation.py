"""Judging a model: the figures are those of its predictions, the filter applied."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from modules import QUICK, topics

import decaf
from decaf import DataError, Dataset, Model, Predictor, evaluate, evaluate_model, with_features
from decaf.errors import DecafError
from decaf.evaluation import evaluation_of, keep_evaluation, kept_evaluation
from decaf.metrics import frequency_quantiles
from decaf.scoring.exact import ExactScorer

FIGURES = [f"{name}@{k}" for name in ("P", "N", "PSP", "PSN") for k in (1, 3, 5)] + ["R@20", "C@20"]


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return topics(labels=30, train=150, test=60)


@pytest.fixture(scope="module")
def model(dataset: Dataset) -> Model:
    return decaf.train(dataset, QUICK.with_settings(["ranker.epochs=2"]), device="cpu")


def by_hand(model: Model, dataset: Dataset) -> dict[str, float]:
    """All labels ranked, then the filter, then the figures."""
    documents = with_features(dataset, model.config.features, model.features).test.documents.need_features()
    found = ExactScorer(model, torch.device("cpu")).top(documents, dataset.labels.count)
    return evaluate(found, dataset.test.truth, dataset.inverse_propensity, dataset.test.filters)


def test_the_figures_are_those_of_the_predictions(model: Model, dataset: Dataset) -> None:
    figures = evaluate_model(model, dataset, device="cpu")
    assert set(figures) == {*FIGURES, "ms_per_document"}
    assert figures.pop("ms_per_document") > 0
    assert figures == pytest.approx(by_hand(model, dataset))
    assert 10 < figures["P@1"] < 100


def test_filtered_pairs_make_room_for_others(model: Model, dataset: Dataset) -> None:
    documents = with_features(dataset, model.config.features, model.features).test.documents.need_features()
    best = ExactScorer(model, torch.device("cpu")).top(documents, 20).ids
    pairs = np.array([[row, label] for row in range(60) for label in best[row] if dataset.test.truth[row, label] == 0])
    filtered = replace(dataset, test=replace(dataset.test, filters=pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]))
    figures = evaluate_model(model, filtered, device="cpu")
    figures.pop("ms_per_document")
    assert figures == pytest.approx(by_hand(model, filtered))
    assert figures["R@20"] == 100  # 30 labels, of which the wrong ones among the best 20 went


def test_another_number_of_labels_is_a_data_error(model: Model) -> None:
    with pytest.raises(DataError, match="own has 8 labels and the model 30"):
        evaluate_model(model, topics(labels=8, train=16, test=8), device="cpu")


def test_no_test_documents_are_a_data_error(model: Model, dataset: Dataset) -> None:
    empty = replace(dataset, test=dataset.test.take(np.array([], dtype=np.int64)))
    with pytest.raises(DataError, match="own: has no test documents; make some with decaf split"):
        evaluate_model(model, empty, device="cpu")


def test_ready_features_of_another_width_are_an_error_of_ours(model: Model, dataset: Dataset) -> None:
    ready = with_features(dataset, model.config.features, model.features)
    bare = replace(model, features=None)
    figures = evaluate_model(bare, ready, device="cpu")
    assert figures["P@1"] == pytest.approx(by_hand(model, dataset)["P@1"])
    for part in (slice(5), slice(None)):
        features = ready.test.documents.need_features()
        wide = type(features)(np.hstack([features.toarray(), np.ones((60, 3), np.float32)])[:, part])
        other = replace(ready, test=replace(ready.test, documents=replace(ready.test.documents, features=wide)))
        with pytest.raises(DecafError, match="token"):
            evaluate_model(bare, other, device="cpu")


def test_labels_of_the_same_number_but_other_names_are_refused(model: Model, dataset: Dataset) -> None:
    ids = list(dataset.labels.ids or [])
    ids[3], ids[4] = ids[4], ids[3]
    moved = replace(dataset, labels=replace(dataset.labels, ids=ids))
    with pytest.raises(DataError, match="other labels: in row 3, 'L4' and 'L3'"):
        evaluate_model(model, moved, device="cpu")


def test_an_evaluation_says_how_much_comes_from_rare_labels(model: Model, dataset: Dataset) -> None:
    evaluation = evaluation_of(Predictor(model, fast=False), dataset)
    assert evaluation.dataset == "own"
    assert {**evaluation.metrics, "ms_per_document": 0} == pytest.approx(
        {**by_hand(model, dataset), "ms_per_document": 0}
    )
    documents = with_features(dataset, model.config.features, model.features).test.documents.need_features()
    found = ExactScorer(model, torch.device("cpu")).top(documents, 20)
    expected = frequency_quantiles(found, dataset.test.truth, dataset.frequency, dataset.test.filters)
    assert evaluation.quantiles == expected


def test_a_kept_evaluation_is_read_as_it_was(model: Model, dataset: Dataset, tmp_path: Path) -> None:
    assert kept_evaluation(tmp_path) is None
    evaluation = evaluation_of(Predictor(model), dataset)
    keep_evaluation(evaluation, tmp_path)
    assert kept_evaluation(tmp_path) == evaluation
    assert [path.name for path in tmp_path.iterdir()] == ["evaluation.json"]
    other = replace(evaluation, dataset="other")
    keep_evaluation(other, tmp_path)
    assert kept_evaluation(tmp_path) == other
    keep_evaluation(evaluation, tmp_path / "missing")  # it is left out
    assert not (tmp_path / "missing").exists()


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", "null", '{"dataset": 1, "metrics": [], "quantiles": []}', "[" * 100_000, "\xff"]
)
def test_an_evaluation_that_cannot_be_read_is_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "evaluation.json").write_text(content, encoding="latin-1")
    assert kept_evaluation(tmp_path) is None
    whole = {"dataset": "own", "metrics": {"P@1": 1.0}, "quantiles": []}
    (tmp_path / "evaluation.json").write_text(json.dumps(whole | {"quantiles": [{"unknown": 1}]}))
    assert kept_evaluation(tmp_path) is None
    (tmp_path / "evaluation.json").write_text(json.dumps(whole))
    found = kept_evaluation(tmp_path)
    assert found is not None
    assert found.metrics == {"P@1": 1.0}
