"""Judging: labels drawn, figures that agree with the ruler's, recall of shortlists counted pair by pair."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from modules import QUICK, QUICK_SETTINGS, random_rows, topics, truth_of

import decaf
from decaf import Dataset, Model, Predictions, evaluate, frequency_quantiles, with_features
from decaf.config import recipe
from decaf.datasets import Items, Part
from decaf.experiments.judging import (
    BEAMS,
    device_title,
    drawn,
    features_of,
    figures_of,
    of_decaf,
    of_match,
    reach,
    settings_of,
)
from decaf.experiments.systems import SYSTEMS, System
from decaf.networks import Rows
from decaf.scoring import LabelTextScorer
from decaf.scoring.exact import ExactScorer
from decaf.training import usual_clusters

LABELS, DOCUMENTS = 14, 40


def mixed() -> Dataset:
    """Documents of no label to three, with filters, texts and features."""
    rng = np.random.default_rng(5)

    def part(name: str, seed: int) -> Part:
        rows = [rng.choice(LABELS, size=rng.integers(0, 4), replace=False).tolist() for _ in range(DOCUMENTS)]
        filters = np.unique(rng.integers(0, [DOCUMENTS, LABELS], size=(60, 2)), axis=0)
        texts = [f"{name} {row}" for row in range(DOCUMENTS)]
        contents = [f"more of {text}" for text in texts]
        features = random_rows(DOCUMENTS, 50, seed=seed)
        items = Items(DOCUMENTS, None, texts, contents, features)
        return Part(items, truth_of(rows, LABELS), filters.astype(np.int64))

    ids, texts = [f"L{label}" for label in range(LABELS)], [f"label {label}" for label in range(LABELS)]
    return Dataset(
        "own", part("training", 1), part("test", 2), Items(LABELS, ids, texts, features=random_rows(LABELS, 50, seed=3))
    )


WHOLE = mixed()


def named(part: Part, labels: Items) -> Mapping[str, tuple[str, list[float], set[str], set[str]]]:
    """Of each document, by its text: its content, its features, its labels and its filtered labels, by their texts."""
    truth, features = part.truth.toarray(), part.documents.need_features().toarray()
    assert part.documents.contents is not None
    return {
        part.documents.text(row): (
            part.documents.contents[row],
            features[row].tolist(),
            {labels.text(label) for label in np.flatnonzero(truth[row]).tolist()},
            {labels.text(label) for document, label in part.filters.tolist() if document == row},
        )
        for row in range(part.documents.count)
    }


@settings(deadline=None, derandomize=True, max_examples=50)
@given(st.integers(1, LABELS - 1), st.integers(0, 10))
def test_documents_keep_what_they_have_of_the_labels_drawn(count: int, seed: int) -> None:
    less = drawn(WHOLE, count, seed)
    kept = [less.labels.text(label) for label in range(less.labels.count)]
    assert len(set(kept)) == count
    rows = [int(text.split()[1]) for text in kept]
    assert [less.labels.id(label) for label in range(count)] == [f"L{row}" for row in rows]
    assert less.labels.need_features().toarray().tolist() == WHOLE.labels.need_features().toarray()[rows].tolist()
    for part, whole in ((less.train, WHOLE.train), (less.test, WHOLE.test)):
        expected = {
            text: (content, features, labels & set(kept), filtered & set(kept))
            for text, (content, features, labels, filtered) in named(whole, WHOLE.labels).items()
            if labels & set(kept)
        }
        assert part.truth.shape == (len(expected), count)
        assert named(part, less.labels) == expected
        assert list(named(part, less.labels)) == list(expected)
    assert (less.name, less.propensity) == (WHOLE.name, WHOLE.propensity)


@pytest.mark.parametrize("count", [0, LABELS, LABELS + 1])
def test_all_labels_are_the_dataset_itself(count: int) -> None:
    assert drawn(WHOLE, count) is WHOLE


def test_the_same_labels_are_drawn_again() -> None:
    def labels(seed: int) -> list[str]:
        return [drawn(WHOLE, 6, seed).labels.text(label) for label in range(6)]

    assert labels(3) == labels(3)
    assert len({tuple(labels(seed)) for seed in range(10)}) > 5


def predictions(dataset: Dataset) -> Predictions:
    rng = np.random.default_rng(8)
    ids = np.stack([rng.permutation(dataset.labels.count) for _ in range(dataset.test.documents.count)])
    return Predictions(ids, np.broadcast_to(-np.arange(ids.shape[1], dtype=np.float32), ids.shape))


def test_figures_are_those_of_the_ruler() -> None:
    found, test = predictions(WHOLE), WHOLE.test
    assert len(test.filters)
    figures = figures_of(found, WHOLE)
    metrics = evaluate(found, test.truth, WHOLE.inverse_propensity, test.filters)
    quantiles = frequency_quantiles(found, test.truth, WHOLE.frequency, test.filters)
    assert figures["metrics"] == pytest.approx(metrics, abs=5e-4)
    assert list(figures["metrics"]) == list(metrics)
    assert figures["quantiles"] == [asdict(quantile) for quantile in quantiles]
    assert json.loads(json.dumps(figures)) == figures


def test_a_quarter_of_the_clusters_that_are_usual_for_the_labels_with_documents_is_filled_in() -> None:
    few = SYSTEMS["paper-few-clusters"]
    for labels in (4, 16, 100):
        found = settings_of(few, topics(labels=labels, train=labels)).shortlister.clusters
        assert found == max(1, usual_clusters(labels) // 4)
    spare = topics(labels=60, train=80, spare=range(20, 60))
    assert np.count_nonzero(spare.frequency) == 20
    expected = recipe("paper").with_settings(["ensemble.instances=1", "shortlister.clusters=1"])  # of 4
    assert settings_of(few, spare) == expected


@pytest.mark.parametrize("name", [name for name, system in SYSTEMS.items() if system.maker == "decaf"])
def test_every_system_of_ours_has_settings_that_exist(name: str) -> None:
    config = settings_of(SYSTEMS[name], WHOLE)
    last = name.rsplit("-", 1)[-1]
    assert config.ensemble.instances == (int(last) if last.isdigit() else 1)
    assert set(config.changed(recipe(SYSTEMS[name].recipe))) <= {
        setting.partition("=")[0] for setting in SYSTEMS[name].settings
    }


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    """Two topics cannot be learned, and every test document has two filtered pairs."""
    made = topics(labels=30, train=112, test=60, spare=[3, 17])
    pairs = np.array([[row, label] for row in range(60) for label in sorted([(row + 1) % 30, (row + 8) % 30])])
    return replace(made, test=replace(made.test, filters=pairs))


@pytest.fixture(scope="module")
def model(dataset: Dataset) -> Model:
    return decaf.train(dataset, QUICK.with_settings(["ranker.epochs=1"]), device="cpu")


def counted(model: Model, part: Part, beams: list[int]) -> list[float]:
    """One true pair after another: is its label in one of the best clusters?"""
    shortlister = model.instances[0].shortlister
    rows = Rows.of(features_of(model, part.documents), torch.device("cpu"))
    with torch.no_grad():
        vectors = shortlister.encoder(rows.columns, rows.starts, rows.values)
        scores = (vectors @ shortlister.weights.T + shortlister.bias).tolist()
    found = []
    for beam in beams:
        hits = []
        for row, label in zip(*part.truth.nonzero(), strict=True):
            best = sorted(range(len(shortlister.bias)), key=lambda cluster: -scores[row][cluster])[:beam]
            among = {
                int(model.kept[member]) for at in best for member in shortlister.members[at].tolist() if member >= 0
            }
            hits.append(int(label) in among)
        found.append(100 * sum(hits) / len(hits))
    return found


def test_reach_is_the_share_of_pairs_counted_one_by_one(model: Model, dataset: Dataset) -> None:
    clusters = model.config.shortlister.clusters
    assert clusters == 8
    for part in (dataset.train, dataset.test):
        documents = features_of(model, part.documents)
        found = reach(model, documents, part.truth, BEAMS, device="cpu")
        assert found == pytest.approx(counted(model, part, [1, 2, 5]))  # those that eight clusters allow
        assert reach(model, documents, part.truth, [3, 8], device="cpu") == pytest.approx(counted(model, part, [3, 8]))
    assert found[-1] < reach(model, documents, part.truth, [8], device="cpu")[0] == pytest.approx(100 * 28 / 30)


def test_without_true_pairs_nothing_is_reached(model: Model, dataset: Dataset) -> None:
    documents = features_of(model, dataset.test.documents)
    assert reach(model, documents, truth_of([[]] * 60, 30), [1, 2], device="cpu") == [0, 0]


def by_hand(model: Model, dataset: Dataset) -> Predictions:
    """All labels ranked, then the filter, then the first 20."""
    found = ExactScorer(model, torch.device("cpu")).top(features_of(model, dataset.test.documents), 30)
    return found.without(dataset.test.filters, 30).take(range(60), 20)


def test_one_of_our_systems_is_trained_and_judged(model: Model, dataset: Dataset) -> None:
    system = System("paper", "", recipe="paper", settings=(*QUICK_SETTINGS, "ranker.epochs=1"))
    found, facts = of_decaf(dataset, system, seed=0, device="cpu", threads=1)
    expected = by_hand(model, dataset)
    assert found.top == 20
    assert bool((found.ids >= 0).all())  # what the filter took is made up for
    assert found.ids[:, :5].tolist() == expected.ids[:, :5].tolist()
    assert not set(map(tuple, np.argwhere(found.to_csr(30).toarray() != 0))) & set(map(tuple, dataset.test.filters))
    assert facts["reach"]["beams"] == [1, 2, 5]
    assert facts["reach"]["test"] == pytest.approx(counted(model, dataset.test, [1, 2, 5]), abs=0.005)
    assert facts["reach"]["training"] == pytest.approx(counted(model, dataset.train, [1, 2, 5]), abs=0.005)
    assert facts["reach"]["labels_in_a_cluster"] == 28 / 8
    assert (facts["clusters"], facts["tokens"]) == (8, model.tokens)
    assert facts["settings"]["ranker.epochs"] == "1"
    assert min(facts["training_seconds"], facts["ms_per_document"], facts["model_mb"]) > 0
    assert "instances" not in facts
    assert json.loads(json.dumps(facts)) == facts


def test_of_an_ensemble_the_first_instances_are_judged_alone(dataset: Dataset) -> None:
    settings = (*QUICK_SETTINGS, "ranker.epochs=1", "ensemble.instances=2")
    found, facts = of_decaf(
        dataset, System("paper-3", "", recipe="paper", settings=settings), seed=0, device="cpu", threads=1
    )
    assert list(facts["instances"]) == ["1", "2"]
    assert facts["instances"]["2"] == figures_of(found, dataset)["metrics"]
    both = decaf.train(dataset, QUICK.with_settings(settings), device="cpu")
    first = replace(both, packed=both.packed[:1])
    assert facts["instances"]["1"] == figures_of(by_hand(first, dataset), dataset)["metrics"]
    assert facts["instances"]["1"] != facts["instances"]["2"]
    assert "reach" not in facts


def test_the_match_is_that_of_the_default_features(dataset: Dataset) -> None:
    found, facts = of_match(dataset)
    ready = with_features(dataset, recipe().features)
    scores = LabelTextScorer(ready.labels.need_features()).top(ready.test.documents.need_features(), 50)
    assert found.ids.tolist() == scores.without(dataset.test.filters, 30).ids.tolist()
    assert facts["settings"] == {}
    assert "model_mb" not in facts


def test_a_device_is_called_by_its_cores() -> None:
    assert device_title("cpu", 1) == "1 CPU core"
    assert device_title("cpu", 2) == "2 CPU cores"
