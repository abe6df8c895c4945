"""Explanations: parts and tokens against an obvious computation, one label and one token after another."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from live_models import uneven
from modules import QUICK_SETTINGS, topics
from numpy.typing import NDArray
from scipy import sparse

import decaf
from decaf import Dataset, Model, ModelError, Predictor
from decaf.config import recipe
from decaf.networks import LEANING, Blend, Instance, Parts, Rows
from decaf.predictions import Match
from decaf.scoring.explain import Explainer, Explanation
from decaf.scoring.fast import FastScorer
from decaf.scoring.scorer import Changes

SETTINGS = [*QUICK_SETTINGS, "model.precision=float32", "shortlister.clusters=8", "shortlister.beam=3"]
SETTINGS += ["features.words=true", "features.vocabulary=60"]
KINDS = ["contrastive", "two instances", "paper", "text alone", "refinement alone"]


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    """Two labels are not trained: a label's row in the model is not its row among the weights."""
    return topics(spare=(0, 5))


@pytest.fixture(scope="module")
def models(dataset: Dataset, exact_products: None) -> dict[str, Model]:
    def train(name: str, *settings: str) -> Model:
        return decaf.train(dataset, recipe(name).with_settings([*SETTINGS, *settings]), device="cpu")

    two = train("contrastive", "split.validation=0.25", "ensemble.instances=2")
    two = replace(two, packed=tuple(map(uneven, two.packed)))
    return {
        "contrastive": replace(two, packed=two.packed[:1]),
        "two instances": two,
        "paper": train("paper"),
        "text alone": train("paper", "model.refinement=false"),
        "refinement alone": train("paper", "model.text=false"),
    }


@pytest.fixture(params=KINDS)
def model(models: dict[str, Model], request: pytest.FixtureRequest) -> Model:
    return models[request.param]


@pytest.fixture(scope="module")
def texts(dataset: Dataset) -> list[str]:
    return ["topic ac", *(dataset.test.documents.texts or [])[1:5]]


def row_of(model: Model, text: str) -> NDArray[np.float32]:
    assert model.features is not None
    return model.features.transform([text]).toarray()[0]


def by_label(instance: Instance, row: NDArray[np.float32]) -> dict[int, dict[str, float]]:
    """The parts of each shortlisted label."""
    rows = Rows.of(sparse.csr_array(row[None]), instance.ranker.weights.device)
    labels, *columns = (column[0].tolist() for column in instance.parts(rows.columns, rows.starts, rows.values))
    values = zip(*columns, strict=True)
    return {
        label: dict(zip(Parts._fields[1:], parts, strict=True))
        for label, parts in zip(labels, values, strict=True)
        if label >= 0
    }


def all_labels(instance: Instance) -> Instance:
    """The same, every cluster looked into."""
    return replace(instance, beam=len(instance.shortlister.bias))


def score(instance: Instance, parts: dict[str, float], tail: float) -> float:
    """What parts sum to."""
    if instance.blend is None:
        return parts["classifier"] + parts["cluster"]
    weights = instance.blend.at(tail)[0]
    plain = sum(w * parts[name] for w, name in zip(weights[:8], Parts._fields[1:], strict=True))
    return plain + parts["rarity"] * sum(w * parts[name] for w, name in zip(weights[8:], LEANING, strict=True))


def text_score(model: Model, instance: Instance, row: NDArray[np.float32], label: int) -> float:
    """The label's text beside the document."""
    assert instance.ranker.texts is not None
    scale, weight, bias, factor, unit = (tensor.numpy() for tensor in instance.ranker.texts)
    bag = row_of(model, model.labels.text(int(model.kept[label]))) @ instance.ranker.encoder.table.numpy()
    vector = scale * bag + weight @ np.maximum(bag, 0) + bias
    if unit[0]:
        vector /= np.linalg.norm(vector)
    rows = Rows.of(sparse.csr_array(row[None]), instance.ranker.weights.device)
    document = instance.ranker.encoder(rows.columns, rows.starts, rows.values)[0].numpy()
    return float(factor * vector @ document)


def obvious_parts(model: Model, instance: Instance, row: NDArray[np.float32], label: int, tail: float) -> list[float]:
    """What each part adds, against its mean over the shortlist; in the order of `NAMES`."""
    everything, listed = by_label(all_labels(instance), row), by_label(instance, row)
    assert len(listed) < len(everything)

    def values(of: int) -> list[float]:
        parts = everything[of]
        own = 0.0 if instance.ranker.texts is None else text_score(model, instance, row, of)
        if instance.blend is None:
            return [own, parts["classifier"] - own, parts["cluster"]]
        weights, rare = instance.blend.at(tail)[0], parts["rarity"]
        classifier, text, cluster, likeness, share, linear, rarity, match = weights[:8]
        by_classifier, by_text, by_cluster, by_share, by_linear = weights[8:]
        words = likeness * parts["likeness"] + (share + by_share * rare) * parts["share"]
        words += (linear + by_linear * rare) * parts["linear"] + match * parts["match"]
        factor = classifier + by_classifier * rare
        return [
            factor * own,
            factor * (parts["classifier"] - own),
            (cluster + by_cluster * rare) * parts["cluster"],
            (text + by_text * rare) * parts["text"],
            words,
            rarity * parts["rarity"],
        ]

    mean = np.mean([values(other) for other in listed], axis=0)
    return (np.array(values(label)) - mean).tolist()


NAMES = ["label text", "refinement", "shortlister", "text likeness", "words", "rarity"]


def explained(model: Model, texts: list[str], tail: float | None = None) -> list[tuple[str, int, Explanation]]:
    """Texts, the rows of labels among the weights, and why."""
    predictor = Predictor(model, tail=tail)
    found = [(text, reason) for text in texts for reason in predictor.explain(text)]
    assert len(found) == 5 * len(texts)
    return [(text, model.kept.tolist().index(reason.label), reason) for text, reason in found]


def tails(model: Model) -> list[float | None]:
    return [None, 1.0] if model.instances[0].blend is not None else [None]


def test_every_part_is_the_obvious_one(model: Model, texts: list[str]) -> None:
    for tail in tails(model):
        for text, label, reason in explained(model, texts, tail):
            each = [obvious_parts(model, one, row_of(model, text), label, model.tail(tail)) for one in model.instances]
            expected = dict(zip(NAMES, np.mean(each, axis=0).tolist(), strict=False))
            if model.instances[0].ranker.texts is None:
                del expected["label text"]
            assert reason.parts == pytest.approx(expected, abs=1e-4)


def test_parts_sum_to_the_score_above_the_mean_of_the_shortlist(model: Model, texts: list[str]) -> None:
    for tail in tails(model):
        for text, label, reason in explained(model, texts, tail):
            row, above = row_of(model, text), []
            for instance in model.instances:
                own = score(instance, by_label(all_labels(instance), row)[label], model.tail(tail))
                others = [score(instance, parts, model.tail(tail)) for parts in by_label(instance, row).values()]
                above.append(own - sum(others) / len(others))
            assert sum(reason.parts.values()) == pytest.approx(np.mean(above), abs=1e-4)


def test_another_tail_weighs_parts_and_tokens_otherwise(models: dict[str, Model], texts: list[str]) -> None:
    model = models["contrastive"]
    head, usual, tail = (Predictor(model, tail=tail) for tail in (0.0, None, 1.0))
    curve, rarity = model.packed[0].curve, Parts._fields.index("rarity") - 1
    assert curve is not None
    times = curve.weights[-1, rarity] / curve.weights[0, rarity]
    assert times > 2
    for text in texts:
        (matches,) = usual.predict([text])
        for one, other in zip(head.explain(text, matches), tail.explain(text, matches), strict=True):
            assert other.parts["rarity"] == pytest.approx(times * one.parts["rarity"], rel=1e-3)
            assert abs(one.parts["rarity"]) > 1e-3
            assert one.tokens != pytest.approx(other.tokens, abs=1e-2)
        leaning = Predictor(model, tail=model.config.blend.tail)
        assert usual.explain(text, matches) == leaning.explain(text, matches)


def test_label_text_and_refinement_are_the_score_of_the_classifier(model: Model, texts: list[str]) -> None:
    for text, label, reason in explained(model, texts):
        row, above = row_of(model, text), []
        for instance in model.instances:

            def weighed(parts: dict[str, float], blend: Blend | None = instance.blend) -> float:
                weights = [1.0] + [0.0] * 12 if blend is None else blend.at(model.tail(None))[0]
                return (weights[0] + weights[8] * parts["rarity"]) * parts["classifier"]

            others = [weighed(parts) for parts in by_label(instance, row).values()]
            above.append(weighed(by_label(all_labels(instance), row)[label]) - sum(others) / len(others))
        found = reason.parts.get("label text", 0.0) + reason.parts["refinement"]
        assert found == pytest.approx(np.mean(above), abs=1e-4)


def test_where_the_text_is_the_classifier_nothing_is_refined(models: dict[str, Model], texts: list[str]) -> None:
    for _, _, reason in explained(models["text alone"], texts):
        assert reason.parts["refinement"] == pytest.approx(0, abs=1e-4)
        assert abs(reason.parts["label text"]) > 1e-3
    for _, _, reason in explained(models["refinement alone"], texts):
        assert set(reason.parts) == {"refinement", "shortlister"}


def log_sigmoid(value: float) -> float:
    return -math.log1p(math.exp(-value))


def test_a_token_carries_what_the_score_falls_by_without_it(model: Model, texts: list[str]) -> None:
    assert model.features is not None
    for text, label, reason in explained(model, texts[:3]):
        whole, falls = row_of(model, text), {}

        def mean_score(row: NDArray[np.float32], label: int = label) -> float:
            found = []
            for instance in model.instances:
                parts = by_label(all_labels(instance), row)[label]
                if instance.blend is None:
                    found.append(log_sigmoid(parts["classifier"]) + log_sigmoid(parts["cluster"]))
                else:
                    found.append(score(instance, parts, model.tail(None)))
            return float(np.mean(found))

        for token in np.flatnonzero(whole):
            without = np.where(np.arange(len(whole)) == token, 0, whole)
            without /= np.linalg.norm(without) or 1
            name = model.features.vocabulary[token].removeprefix("word:").removeprefix("pair:")
            falls[name] = mean_score(whole) - mean_score(without.astype(np.float32))
        assert len(falls) == np.count_nonzero(whole)
        assert reason.tokens == pytest.approx(falls, abs=1e-4)
        assert max(abs(fall) for fall in falls.values()) > 0.01


def test_the_only_token_of_a_text_carries_what_it_has_over_no_text(models: dict[str, Model]) -> None:
    model = models["contrastive"]
    (instance,) = model.instances
    assert model.features is not None
    known = filter(str.isalpha, model.features.vocabulary)
    single = next(word for word in known if np.count_nonzero(row_of(model, word)) == 1)
    _, label, reason = explained(model, [single])[0]
    nothing, row = np.zeros(model.tokens, dtype=np.float32), row_of(model, single)
    with_it, without = (
        score(instance, by_label(all_labels(instance), given)[label], model.tail(None)) for given in (row, nothing)
    )
    assert reason.tokens == pytest.approx({single: with_it - without}, abs=1e-4)


def test_words_and_pairs_are_named_as_they_are_written(models: dict[str, Model], dataset: Dataset) -> None:
    features = models["contrastive"].features
    assert features is not None
    text = next(t for t in dataset.train.documents.texts or [] if any(pair in t for pair in features.pairs))
    pair = next(pair for pair in features.pairs if pair in text)
    first = next(word for word in text.split() if word in features.words)
    for _, _, reason in explained(models["contrastive"], [text]):
        assert {pair, first} <= set(reason.tokens)
        assert not any(":" in name.removeprefix("shape:") for name in reason.tokens)
        assert any(name.startswith("##") for name in reason.tokens)


def test_labels_and_scores_are_those_of_predict(model: Model, texts: list[str]) -> None:
    for fast in (True, False):
        predictor = Predictor(model, fast=fast)
        for text in texts:
            (expected,) = predictor.predict([text])
            assert [Match(reason.label, reason.score) for reason in predictor.explain(text)] == expected


def test_given_labels_are_explained_in_their_order(models: dict[str, Model], texts: list[str]) -> None:
    predictor = Predictor(models["contrastive"])
    (matches,) = predictor.predict(texts[:1], top=3)
    expected = predictor.explain(texts[0], matches)
    for places in ([2, 1, 0], [1], [2, 0]):
        found = predictor.explain(texts[0], [matches[at] for at in places])
        for reason, wanted in zip(found, [expected[at] for at in places], strict=True):
            assert (reason.label, reason.score) == (wanted.label, wanted.score)
            assert reason.parts == pytest.approx(wanted.parts, abs=1e-4)
            assert reason.tokens == pytest.approx(wanted.tokens, abs=1e-4)
    assert predictor.explain(texts[0], []) == []


def explainer(model: Model) -> Explainer:
    return Explainer(model, FastScorer(model), Changes.none(model), model.labels.text)


@pytest.mark.parametrize("text", ["", "?!", "漢"])
def test_a_text_without_a_known_token_has_no_explanation(model: Model, text: str) -> None:
    assert Predictor(model).explain(text) == []
    assert explainer(model).explain(text, [Match(int(model.kept[0]), 0.5)]) == []


def test_a_model_of_ready_features_cannot_explain_itself(models: dict[str, Model]) -> None:
    knows_no_words = replace(models["paper"], features=None)
    with pytest.raises(ModelError, match="knows no words; it cannot explain itself"):
        explainer(knows_no_words)
    with pytest.raises(ModelError, match="knows no words"):
        Predictor(knows_no_words).explain("topic ac", [Match(1, 0.5)])


def test_a_model_without_a_blend_has_no_tail(models: dict[str, Model]) -> None:
    with pytest.raises(ModelError, match="leave the tail out"):
        explainer(models["paper"]).explain("topic ac", [Match(1, 0.5)], tail=0.5)
    with pytest.raises(ModelError, match="leave the tail out"):
        Predictor(models["paper"]).explain("topic ac", tail=0.5)


@pytest.mark.parametrize("label", [0, 5, 24, 99])
def test_labels_that_were_not_trained_have_nothing_to_explain(models: dict[str, Model], label: int) -> None:
    assert label not in models["paper"].kept
    with pytest.raises(ValueError, match="was not trained"):
        explainer(models["paper"]).explain("topic ac", [Match(label, 0.5)])


def test_classifiers_of_longer_texts_than_the_model_knows_are_not_split(models: dict[str, Model]) -> None:
    model = models["contrastive"]
    longer = replace(model, config=model.config.with_settings(["features.content=true"]))
    (one, *_), (other, *_) = (Predictor(given).explain("topic ac") for given in (model, longer))
    assert "label text" not in other.parts
    assert other.parts["classifier"] == pytest.approx(one.parts["label text"] + one.parts["refinement"], abs=1e-4)
