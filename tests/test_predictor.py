"""Texts in, labels out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from live_models import changes_of, model_of
from modules import QUICK, topics

import decaf
from decaf import Dataset, Model, ModelError, Predictor
from decaf.errors import DecafError


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return topics(labels=8, train=80, test=16)


@pytest.fixture(scope="module")
def model(dataset: Dataset) -> Model:
    return decaf.train(dataset, QUICK.with_settings(["tokens.epochs=15", "ranker.epochs=15"]), device="cpu")


def test_texts_get_their_labels_best_first(model: Model, dataset: Dataset) -> None:
    texts = list(dataset.test.documents.texts or [])
    found = Predictor(model).predict(texts, top=8)
    assert len(found) == 16
    assert (found.ids[:, 0] == dataset.test.truth.indices).mean() > 0.6  # chance is an eighth
    assert np.all(np.diff(found.scores, axis=1) <= 0)
    assert found.scores.min() > 0
    assert found.scores.max() <= 1
    assert all(sorted(row) == list(range(8)) for row in found.ids.tolist())


def test_fast_answers_are_those_of_the_exact_scorer_but_for_rounding(model: Model, dataset: Dataset) -> None:
    texts = list(dataset.test.documents.texts or [])
    exact, fast = (Predictor(model, fast=fast, threads=2).predict(texts, top=3) for fast in (False, True))
    assert (exact.ids[:, 0] == fast.ids[:, 0]).all()
    assert np.allclose(exact.scores, fast.scores, atol=0.01)
    assert not np.array_equal(exact.scores, fast.scores)


def test_the_model_says_whose_a_row_is(model: Model, dataset: Dataset) -> None:
    predictor = Predictor(model)
    best = predictor.predict([(dataset.test.documents.texts or [])[3]], top=1)[0][0]
    assert predictor.model.labels.id(best.label) == "L3"


def test_a_folder_is_as_good_as_its_model(model: Model, dataset: Dataset, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    texts = list(dataset.test.documents.texts or [])
    expected = Predictor(model).predict(texts)
    for folder in (tmp_path / "model", str(tmp_path / "model")):
        found = Predictor(folder).predict(texts)
        assert found.ids.tolist() == expected.ids.tolist()
        assert found.scores.tolist() == expected.scores.tolist()
    with pytest.raises(ModelError, match="holds no model"):
        Predictor(tmp_path)


@pytest.mark.parametrize("text", ["", "   ", "?!", "漢"])
def test_a_text_without_known_tokens_has_no_labels(model: Model, text: str) -> None:
    assert list(Predictor(model).predict([text, text])) == [[], []]


def test_a_text_without_tokens_leaves_the_others_alone(model: Model, dataset: Dataset) -> None:
    texts = list(dataset.test.documents.texts or [])[:3]
    alone, between = Predictor(model).predict(texts), Predictor(model).predict([texts[0], "", *texts[1:], ""])
    assert np.allclose(between.scores[[0, 2, 3]], alone.scores, atol=1e-6)
    assert between.ids[[0, 2, 3]].tolist() == alone.ids.tolist()
    assert between.ids[[1, 4]].tolist() == [[-1] * 5] * 2


def test_no_texts_have_no_answers(model: Model) -> None:
    assert Predictor(model).predict([]).ids.shape == (0, 5)


def test_more_labels_than_there_are_leave_gaps(model: Model) -> None:
    found = Predictor(model).predict(["topic aa"], top=300)
    assert found.ids.shape == (1, 300)
    assert (found.ids >= 0).sum() == 8


def test_one_text_instead_of_a_list_is_a_type_error(model: Model) -> None:
    with pytest.raises(TypeError, match=r"predict takes a list of texts; write predict\(\[text\]\)"):
        Predictor(model).predict("some text")


@pytest.mark.parametrize("odd", [None, 5, b"topic", ["topic"]])
def test_what_is_no_text_is_a_type_error(model: Model, odd: object) -> None:
    with pytest.raises(TypeError, match="is none; leave it out"):
        Predictor(model).predict(["topic", odd])  # type: ignore[list-item]


def test_a_model_of_ready_features_knows_no_words(model: Model) -> None:
    with pytest.raises(ModelError, match=r"trained on ready features and knows no words"):
        Predictor(replace(model, features=None)).predict(["topic aa"])


def test_every_device_of_the_command_line_is_understood(model: Model) -> None:
    assert Predictor(model, device="auto").predict(["topic aa"]).ids.tolist() == (
        Predictor(model, device="cpu").predict(["topic aa"]).ids.tolist()
    )


@pytest.mark.parametrize("device", ["cuda", "nonsense"])
def test_a_device_that_is_not_there_is_an_error_of_ours(
    model: Model, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(DecafError, match="cpu"):
        Predictor(model, device=device)


def test_only_labels_that_are_likely_enough_are_named(model: Model, dataset: Dataset) -> None:
    texts = list(dataset.test.documents.texts or [])
    predictor = Predictor(model)
    everything = predictor.predict(texts, top=8)
    threshold = float(np.median(everything.scores))
    found = predictor.predict(texts, top=8, threshold=threshold)
    assert [list(row) for row in found] == [[match for match in row if match.score >= threshold] for row in everything]
    assert 0 < (found.ids >= 0).sum() < everything.ids.size


def test_a_model_without_a_blend_has_no_tail(model: Model) -> None:
    with pytest.raises(ModelError, match="only models of the contrastive recipe can lean from head to tail"):
        Predictor(model, tail=0.0)


@pytest.mark.parametrize(("calibrated", "threshold", "warned"), [(True, 0.2, 0), (False, 0.2, 1), (False, 0.0, 0)])
def test_a_threshold_on_chances_that_were_not_measured_is_warned_of(
    model: Model, caplog: pytest.LogCaptureFixture, calibrated: bool, threshold: float, warned: int
) -> None:
    known = replace(model, about=model.about | {"calibrated": calibrated})
    predictor = Predictor(known)
    for _ in range(2):  # it is said once
        predictor.predict(["topic aa"], threshold=threshold)
    assert [record.message for record in caplog.records] == [
        "the chances of this model were not measured on held-out documents; a threshold says little"
    ] * warned


@pytest.fixture(scope="module")
def leaning() -> Model:
    """One whose answers depend on the tail."""
    return model_of("contrastive")


@pytest.mark.parametrize("fast", [True, False])
def test_the_tail_of_a_call_counts_for_it_alone(leaning: Model, dataset: Dataset, fast: bool) -> None:
    texts = list(dataset.test.documents.texts or [])
    predictor = Predictor(leaning, tail=0.1, fast=fast)
    before, explained = predictor.predict(texts), predictor.explain(texts[0])
    for tail in (0.0, 0.1, 1.0):
        other = Predictor(leaning, tail=tail, fast=fast)
        found, expected = predictor.predict(texts, tail=tail), other.predict(texts)
        assert np.array_equal(found.ids, expected.ids)
        assert np.array_equal(found.scores, expected.scores)
        assert np.array_equal(found.scores, before.scores) == (tail == 0.1)
        assert predictor.explain(texts[0], tail=tail) == other.explain(texts[0])
        assert predictor.explain(texts[0], before[0], tail=tail) == other.explain(texts[0], before[0])
    assert np.array_equal(predictor.predict(texts).scores, before.scores)
    assert predictor.explain(texts[0]) == explained


def test_a_call_on_a_model_without_a_blend_has_no_tail(model: Model) -> None:
    for fast in (True, False):
        with pytest.raises(ModelError, match="only models of the contrastive recipe can lean from head to tail"):
            Predictor(model, fast=fast).predict(["topic aa"], tail=0.0)


def test_an_update_keeps_the_tail_and_the_scorer(leaning: Model) -> None:
    for fast in (True, False):
        predictor = Predictor(leaning, tail=0.9, fast=fast, threads=2)
        updated = predictor.updated(changes_of({"new": "topic zq"}))
        expected = Predictor(leaning, tail=0.9, fast=fast, changes=changes_of({"new": "topic zq"}))
        assert type(updated.scorer) is type(predictor.scorer)
        found, wanted = updated.predict(["topic zq"]), expected.predict(["topic zq"])
        assert np.array_equal(found.ids, wanted.ids)
        assert np.array_equal(found.scores, wanted.scores)
        assert updated.explain("topic zq") == expected.explain("topic zq")
        assert updated.labels.id(int(found.ids[0, 0])) == "new"
        assert predictor.labels.count == 24
        assert updated.knows("topic")
        assert not updated.knows("漢")


def test_a_warning_that_was_given_is_not_repeated_after_an_update(
    leaning: Model, caplog: pytest.LogCaptureFixture
) -> None:
    predictor = Predictor(replace(leaning, about=leaning.about | {"calibrated": False}))
    predictor.predict(["topic aa"], threshold=0.2)
    predictor.updated([]).predict(["topic aa"], threshold=0.2)
    assert len(caplog.records) == 1
