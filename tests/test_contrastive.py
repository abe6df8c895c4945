"""The default recipe from end to end: it learns, it is the same every time, variants, odd data, and runs that go on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from modules import dataset_of, topics
from scipy import sparse
from test_training import ODD, answers, same, stop

import decaf
from decaf import (
    Config,
    Dataset,
    Model,
    Predictions,
    Predictor,
    Propensity,
    TrainingError,
    evaluate_model,
    with_features,
)
from decaf.config import RECIPES, recipe
from decaf.modules import loop
from decaf.modules.linear import Linear, learn_linear
from decaf.modules.problem import Problem
from decaf.modules.words import label_words
from decaf.networks import Instance, Parts, Rows
from decaf.scoring.exact import ExactScorer
from decaf.training import _why_none_held, _with_sizes, usual_tail

CPU = torch.device("cpu")
EPOCHS = {"tokens": 6, "shortlister": 4, "ranker": 5}
SMALL = recipe("contrastive").with_settings(
    [
        *("model.dim=16", "split.validation=0.25", "tokens.refresh=2"),
        *(f"{stage}.batch=32" for stage in EPOCHS),
        *(f"{stage}.epochs={epochs}" for stage, epochs in EPOCHS.items()),
        *("tokens.rate=0.05", "shortlister.rate=0.02", "ranker.rate=0.02"),
        *("tokens.dropout=0.2", "ranker.dropout=0.2"),
    ]
)


def train(dataset: Dataset, *settings: str, seed: int = 0, folder: Path | None = None) -> Model:
    return decaf.train(dataset, SMALL.with_settings(settings), seed=seed, device="cpu", folder=folder)


def figures(model: Model, dataset: Dataset, tail: float | None = None) -> dict[str, float]:
    return evaluate_model(model, dataset, device="cpu", tail=tail)


def check_chances(found: Predictions) -> None:
    """Descending, and chances."""
    there = found.ids >= 0
    assert there.any()
    assert found.scores[there].min() >= 0
    assert found.scores[there].max() <= 1
    assert np.isneginf(found.scores[~there]).all()
    assert all(np.all(np.diff(row[row >= 0]) <= 0) for row in found.scores)


@pytest.fixture(scope="module", autouse=True)
def no_module_stops_early() -> Iterator[None]:
    """With a dozen held-out documents P@1 jumps about; tests/modules/test_loop.py has the tests of stopping."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "_WORSE", 100.0)
        yield


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return topics()


@pytest.fixture(scope="module")
def model(dataset: Dataset) -> Model:
    return train(dataset)


def noisy() -> Dataset:
    """Two topics in a document of one word each, some of them frequent: there is no being sure."""
    rng = np.random.default_rng(3)
    words = [[f"{letter}{other}word" for other in "pqrst"] for letter in "bcdfghjklmnv"]
    weights = 1 / np.arange(1, 13)

    def part(count: int) -> list[tuple[str, list[int]]]:
        found = []
        for _ in range(count):
            chosen = rng.choice(12, size=2, replace=False, p=weights / weights.sum())
            others = rng.choice(12, size=2)
            text = [words[topic][rng.integers(5)] for topic in (*chosen, *others)]
            found.append((" ".join(rng.permutation(text).tolist()), chosen.tolist()))
        return found

    return dataset_of(part(500), [f"topic {letter}" for letter in "bcdfghjklmnv"], part(300))


@pytest.fixture(scope="module")
def unsure_data() -> Dataset:
    return noisy()


@pytest.fixture(scope="module")
def unsure(unsure_data: Dataset) -> Model:
    return train(unsure_data, "split.validation=0.2")


def test_it_is_the_default_recipe() -> None:
    assert recipe() is recipe("contrastive") is RECIPES["contrastive"]
    default = recipe()
    kinds = ("pairs", "ends", "shapes", "compounds")
    assert all(getattr(default.features, kind) for kind in kinds)
    assert (default.tokens.kind, default.model.loss, default.ensemble.instances) == ("texts", "softmax", 1)
    assert (default.blend.words, default.blend.linear, default.blend.tail) == (True, True, -1)
    assert default.model.precision == "int4"
    assert default.with_settings([f"features.{kind}=false" for kind in kinds]) == Config()


def test_without_settings_the_default_recipe_is_trained(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RECIPES, "contrastive", SMALL)
    trained = decaf.train(dataset, device="cpu")
    assert trained.config.tokens == SMALL.tokens
    assert trained.config.features.pairs


def test_it_learns_what_label_texts_do_not_say(dataset: Dataset, model: Model) -> None:
    found = figures(model, dataset)
    assert found["P@1"] > 85
    assert found["PSP@1"] > 85
    check_chances(answers(model, dataset, 24))


def test_labels_of_next_to_no_chance_have_some_and_come_in_the_order_of_their_scores(
    dataset: Dataset, model: Model
) -> None:
    documents = model.features.transform(list(dataset.test.documents.texts or []))
    found = ExactScorer(model, CPU, tail=0.0).top(documents, 24)
    rows = Rows.of(documents, CPU)
    ids, _ = model.instances[0].top(rows.columns, rows.starts, rows.values, 24)
    assert found.scores.min() > 0
    assert np.array_equal(found.ids, ids.numpy())


def test_it_learns_labels_that_are_often_given_together(unsure: Model, unsure_data: Dataset) -> None:
    found = figures(unsure, unsure_data)
    assert found["P@1"] > 55
    assert found["R@20"] == pytest.approx(100)
    check_chances(answers(unsure, unsure_data, 12))


def test_the_same_seed_gives_the_same_model_bit_by_bit_and_another_does_not(dataset: Dataset, model: Model) -> None:
    torch.manual_seed(123)
    again = train(dataset)
    for one, other in zip(model.instances, again.instances, strict=True):
        assert one.tensors().keys() == other.tensors().keys()
        assert all(torch.equal(tensor, other.tensors()[name]) for name, tensor in one.tensors().items())
    assert same(answers(model, dataset), answers(again, dataset))
    assert not same(answers(model, dataset), answers(train(dataset, seed=1), dataset))


def test_another_split_seed_holds_out_other_documents(dataset: Dataset, model: Model) -> None:
    assert not same(answers(model, dataset), answers(train(dataset, "split.seed=1"), dataset))


@pytest.mark.parametrize("negatives", [1, 4, 23])
def test_a_sample_of_negatives_teaches_as_well_as_all(dataset: Dataset, model: Model, negatives: int) -> None:
    sampled = train(dataset, f"ranker.negatives={negatives}", "ranker.hard=2")
    assert figures(sampled, dataset)["P@1"] >= figures(model, dataset)["P@1"] - 5
    assert not torch.equal(sampled.instances[0].ranker.weights, model.instances[0].ranker.weights)


@pytest.mark.parametrize(
    "settings",
    [
        ["tokens.own_texts=false"],
        ["tokens.related=false"],
        ["tokens.refresh=0"],
        ["ranker.hard=0", "ranker.negatives=6"],
        ["ranker.from_text=false"],
        ["model.refinement=false"],
        ["model.refinement=false", "ranker.negatives=6"],
        ["model.text=false"],
        ["model.text=false", "ranker.negatives=6"],
        ["model.lite=true"],
        ["model.loss=logistic"],
        ["shortlister.kind=neighbours"],
        ["shortlister.kind=hnsw"],
        ["shortlister.kind=tree", "shortlister.clusters=64", "shortlister.epochs=30"],
        ["shortlister.clusters=64", "shortlister.beam=4"],
        ["shortlister.clusters=1"],
        ["split.validation=0"],
        ["ensemble.instances=2"],
        ["tokens.kind=clusters"],
        ["tokens.kind=fixed"],
        ["blend.words=false"],
        ["blend.linear=false"],
        ["blend.lean=false"],
        ["model.precision=float32"],
        ["features.pairs=false"],
        ["features.words=true"],
        ["tokens.batch=1", "tokens.epochs=1", "ranker.batch=1", "ranker.epochs=2"],
    ],
    ids=" ".join,
)
def test_every_variant_learns_and_comes_back(dataset: Dataset, tmp_path: Path, settings: list[str]) -> None:
    trained = train(dataset, *settings)
    assert figures(trained, dataset)["P@1"] > 40  # chance is 4
    found = answers(trained, dataset)
    check_chances(found)
    trained.save(tmp_path)
    assert same(answers(Model.load(tmp_path), dataset), found)


def test_a_lite_model_keeps_the_token_embeddings_of_module_one(dataset: Dataset) -> None:
    (lite,) = train(dataset, "model.lite=true").instances
    assert torch.equal(lite.shortlister.encoder.table, lite.ranker.encoder.table)
    (full,) = train(dataset).instances
    assert not torch.equal(full.shortlister.encoder.table, full.ranker.encoder.table)


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize(
    "settings",
    [
        [],
        ["ranker.negatives=1", "ranker.hard=1"],
        ["shortlister.clusters=8", "shortlister.beam=1"],
        ["shortlister.kind=hnsw"],
    ],
    ids=" ".join,
)
def test_odd_data_trains_and_predicts(name: str, settings: list[str]) -> None:
    odd = ODD[name]()
    trained = train(odd, *settings)
    found = answers(trained, odd)
    assert set(np.unique(found.ids[found.ids >= 0])) <= set(trained.kept.tolist())
    check_chances(found)
    assert all(bool(torch.isfinite(tensor.float()).all()) for tensor in trained.instances[0].tensors().values())
    if "shortlister.beam=1" not in settings:
        assert all(row for row, text in zip(found, odd.test.documents.texts or [], strict=True) if text != "?!")


def test_zero_epochs_make_a_model_all_the_same(dataset: Dataset) -> None:
    made = train(dataset, *(f"{stage}.epochs=0" for stage in EPOCHS))
    check_chances(answers(made, dataset))


def test_labels_without_training_documents_are_never_predicted() -> None:
    some = topics(spare=(0, 5, 23))
    trained = train(some)
    assert trained.kept.tolist() == [label for label in range(24) if label not in (0, 5, 23)]
    assert not np.isin(answers(trained, some, 24).ids, (0, 5, 23)).any()


def test_the_tail_is_a_matter_of_asking(unsure: Model, unsure_data: Dataset) -> None:
    assert all(figures(unsure, unsure_data, tail)["P@1"] > 50 for tail in (0.0, 1.0))
    documents = unsure.features.transform(list(unsure_data.test.documents.texts or []))
    usual = recipe().blend.tail
    by_tail = {tail: ExactScorer(unsure, CPU, tail=tail).top(documents, 12) for tail in (0.0, usual, 1.0)}
    for predictions in by_tail.values():
        check_chances(predictions)
    assert not same(by_tail[0.0], by_tail[1.0])
    assert same(ExactScorer(unsure, CPU).top(documents, 12), by_tail[usual])
    leaning = replace(unsure, config=unsure.config.with_settings(["blend.tail=1"]))
    assert same(ExactScorer(leaning, CPU).top(documents, 12), by_tail[1.0])
    frequency = unsure_data.frequency
    common, rare = (frequency[by_tail[tail].ids[:, 0]].mean() for tail in (0.0, 1.0))
    assert common > rare
    texts = list(unsure_data.test.documents.texts or [])
    assert same(Predictor(unsure, tail=1.0, fast=False).predict(texts, top=12), by_tail[1.0])


def test_a_threshold_drops_what_is_less_likely(unsure: Model, unsure_data: Dataset) -> None:
    texts = list(unsure_data.test.documents.texts or [])
    predictor = Predictor(unsure)
    everything = predictor.predict(texts, top=12)
    assert same(predictor.predict(texts, top=12, threshold=0.0), everything)
    for threshold in (0.1, 0.5):
        found = predictor.predict(texts, top=12, threshold=threshold)
        assert found.ids.shape == everything.ids.shape
        for kept, before in zip(found, everything, strict=True):
            assert kept == [match for match in before if match.score >= threshold]
        assert 0 < (found.ids >= 0).sum() < (everything.ids >= 0).sum()
    assert not (predictor.predict(texts, threshold=1.0).ids >= 0).any()


def test_chances_are_about_right(unsure: Model, unsure_data: Dataset) -> None:
    documents = unsure.features.transform(list(unsure_data.test.documents.texts or []))
    for tail in (0.0, 1.0):
        found = ExactScorer(unsure, CPU, tail=tail).top(documents, 12)
        right = unsure_data.test.truth.toarray()[np.arange(300)[:, None], found.ids] > 0
        assert float(found.scores.mean()) == pytest.approx(float(right.mean()), abs=0.05)
        likely = found.scores > 0.5
        assert not likely.any() or right[likely].mean() > 0.4


def test_what_was_chosen_is_noted(dataset: Dataset, tmp_path: Path) -> None:
    train(dataset, folder=tmp_path)
    notes = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    epochs = [(note["module"], note["epoch"]) for note in notes if "epoch" in note]
    names = {"tokens": "module I", "shortlister": "module II", "ranker": "module IV"}
    assert epochs == [(names[stage], epoch) for stage, last in EPOCHS.items() for epoch in range(1, last + 1)]
    watched = {note["module"] for note in notes if "validation" in note}
    assert watched == {"module I", "module IV"}
    (blend,) = (note for note in notes if "calibration_error" in note)
    assert (blend["module"], blend["tail"]) == ("blend", 0.45)
    assert 0 <= blend["calibration_error"] < 0.2
    (instance,) = Model.load(tmp_path).instances
    parts = ("classifier", "text", "cluster", "likeness", "share", "linear", "rarity", "match")
    leaning = [f"{part} by rarity" for part in ("classifier", "text", "cluster", "share", "linear")]
    assert [blend[part] for part in (*parts, *leaning)] == pytest.approx(instance.blend.at(0.45)[0], abs=1e-4)
    assert 0 < blend["PSP@1"] <= 100
    assert 0 < blend["P@1"] <= 100


@pytest.fixture(scope="module")
def unrounded(dataset: Dataset) -> Model:
    return train(dataset, "model.precision=float32")


def problem_of(dataset: Dataset, model: Model) -> Problem:
    whole = with_features(dataset, model.config.features, model.features)
    given = (whole.train.documents.need_features(), whole.labels.need_features(), dataset.train.truth)
    return Problem.of(*given, hold=0.25)


def linear_of(problem: Problem, instance: Instance) -> Linear:
    """The linear classifiers of this instance's clusters."""
    rows, members = Rows.of(problem.documents, CPU), instance.shortlister.members.tolist()
    cluster = [next(at for at, row in enumerate(members) if label in row) for label in range(len(problem.kept))]
    shortlists, _ = instance.shortlister.top(rows.columns, rows.starts, rows.values, instance.beam)
    return learn_linear(problem, np.array(cluster), shortlists.numpy(), cues=256)


def test_a_model_has_the_words_of_its_labels_unless_it_is_to_have_none(dataset: Dataset, unrounded: Model) -> None:
    problem = problem_of(dataset, unrounded).whole()  # documents that were held out are known to the words in the end
    (instance,) = unrounded.instances
    expected = label_words(problem, linear_of(problem, instance), CPU)
    assert all(torch.equal(found, wanted) for found, wanted in zip(instance.blend.words, expected, strict=True))
    weights = dict(zip(Parts._fields[1:], instance.blend.at(0.0)[0], strict=False))
    assert weights["likeness"] > 0 < weights["linear"]
    assert bool(instance.blend.words.cue_weights.any(dim=1).all())  # every label has a classifier
    (without,) = train(dataset, "model.precision=float32", "blend.words=false").instances
    assert without.blend.words is None
    assert not any("words" in name for name in without.tensors())
    assert torch.equal(without.ranker.weights, instance.ranker.weights)
    (words_alone,) = train(dataset, "model.precision=float32", "blend.linear=false").instances
    expected = label_words(problem, None, CPU)
    assert all(torch.equal(one, other) for one, other in zip(words_alone.blend.words, expected, strict=True))
    assert train(dataset, "split.validation=0").instances[0].blend.words is not None
    assert train(dataset, "model.loss=logistic").instances[0].blend is None


def test_weights_of_eight_bits_are_those_of_single_precision_rounded(
    dataset: Dataset, model: Model, unrounded: Model
) -> None:
    (one,), (other,) = model.instances, unrounded.instances
    assert one.tensors().keys() == other.tensors().keys()
    for name, tensor in one.tensors().items():
        whole = other.tensors()[name]
        assert tensor.dtype == whole.dtype
        steps = 7 if name in ("ranker.weights", "blend.texts") else 127
        largest = float(whole.float().abs().max())
        assert torch.allclose(tensor.float(), whole.float(), rtol=0, atol=0.504 / steps * largest)
    assert not torch.equal(one.ranker.weights, other.ranker.weights)
    assert figures(model, dataset)["P@1"] == pytest.approx(figures(unrounded, dataset)["P@1"], abs=2)
    assert (model.facts()["precision"], unrounded.facts()["precision"]) == ("int4", "float32")
    assert model.facts()["bytes"] < unrounded.facts()["bytes"] / 2


@pytest.mark.parametrize("stop_at", [("module I", 3), ("module II", 2), ("module IV", 1), ("module IV", 5)])
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(
    dataset: Dataset, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_at: tuple[str, int]
) -> None:
    stop(monkeypatch, stop_at, lambda: train(dataset, folder=tmp_path))
    assert not (tmp_path / "model.json").exists()
    torch.manual_seed(99)
    again = train(dataset, folder=tmp_path)
    (one,), (other,) = model.instances, again.instances
    assert all(torch.equal(tensor, other.tensors()[name]) for name, tensor in one.tensors().items())
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len([line for line in lines if "epoch" in line]) == sum(EPOCHS.values())  # none was learned twice
    assert not (tmp_path / "checkpoint").exists()


@pytest.mark.parametrize(("given", "expected"), [(0, 24), (5, 5), (1000, 24)])
def test_negatives_are_all_labels_where_there_are_few(dataset: Dataset, given: int, expected: int) -> None:
    epochs = [f"{stage}.epochs=0" for stage in EPOCHS]
    assert train(dataset, f"ranker.negatives={given}", *epochs).config.ranker.negatives == expected


@pytest.mark.parametrize(
    ("device", "labels", "sampled"),
    [("cpu", 1000, False), ("cpu", 50_000, True), ("cuda", 50_000, False), ("cuda", 200_000, True)],
)
def test_sizes_follow_the_data_and_the_device(device: str, labels: int, sampled: bool) -> None:
    class Sized:
        kept = np.arange(labels)
        documents = np.zeros((100_000, 0))
        truth = sparse.csr_array((100_000, labels))

    found = _with_sizes(recipe(), Sized(), torch.device(device))  # type: ignore[arg-type]
    assert (found.ranker.negatives < labels) == sampled
    assert 1000 <= found.ranker.negatives <= labels
    assert found.model.dim == 300
    assert found.shortlister.clusters == 1 << round(np.log2(labels / 4))
    assert all(stage.batch in (1024, 2048, 4096) for stage in (found.tokens, found.shortlister, found.ranker))


@pytest.mark.parametrize(
    ("rare", "tail"),
    [(0, 0.0), (0.04, 0.18), (0.1, 0.45), (0.2, 0.45), (1, 0.45)],
)
def test_the_tail_follows_how_many_pairs_are_of_rare_labels(rare: float, tail: float) -> None:
    """A label of ten documents is rare, one of eleven is not."""
    pairs = 4_400
    of_rare = round(rare * pairs / 10)
    columns = np.concatenate([np.repeat(np.arange(of_rare), 10), 500 + np.arange(pairs - 10 * of_rare) // 11])

    class Sized:
        kept = np.arange(1_000)
        documents = np.zeros((pairs, 0))
        truth = sparse.csr_array((np.ones(pairs), (np.arange(pairs), columns)), shape=(pairs, 1_000))

    assert usual_tail(Sized()) == pytest.approx(tail, abs=0.02)  # type: ignore[arg-type]


def test_a_model_says_where_it_stands_and_other_data_are_told_from_another_tail(tmp_path: Path) -> None:
    train(topics(), "split.validation=0", folder=tmp_path)
    assert Model.load(tmp_path).config.blend.tail == 0.45
    other = replace(topics(), labels=replace(topics().labels, texts=["another"] * topics().labels.count))
    with pytest.raises(TrainingError, match="of other data, or"):
        train(other, "split.validation=0", folder=tmp_path)
    with pytest.raises(TrainingError, match=r"other settings \(blend\.tail\)"):
        train(topics(), "split.validation=0", "blend.tail=0.9", folder=tmp_path)
    assert train(topics(), "blend.tail=0.15").config.blend.tail == 0.15


def test_filters_of_training_documents_are_no_negatives(dataset: Dataset) -> None:
    """Pairs that count for nothing change what is learned."""
    pairs = np.array([[row, (row + 1) % 24] for row in range(240)])
    filtered = replace(dataset, train=replace(dataset.train, filters=pairs))
    one, other = train(dataset), train(filtered)
    assert not torch.equal(one.instances[0].ranker.weights, other.instances[0].ranker.weights)
    assert figures(other, dataset)["P@1"] > 85


def test_a_finished_folder_is_refused_for_another_propensity(dataset: Dataset, tmp_path: Path) -> None:
    """It is part of the model: the tail leans by it."""
    train(dataset, folder=tmp_path)
    other = replace(dataset, propensity=Propensity(A=1.1, B=1.5))
    with pytest.raises(TrainingError, match="choose another folder"):
        train(other, folder=tmp_path)


def test_a_finished_folder_is_refused_for_other_filters_of_held_out_documents(dataset: Dataset, tmp_path: Path) -> None:
    """They are part of the model: blend and chances are chosen on what they leave."""
    train(dataset, folder=tmp_path)
    whole = with_features(dataset, SMALL.features)
    given = (whole.train.documents.need_features(), whole.labels.need_features(), dataset.train.truth)
    trained = {row.tobytes() for row in Problem.of(*given, hold=0.25).documents.toarray()}
    held = next(row for row, values in enumerate(given[0].toarray()) if values.tobytes() not in trained)
    pairs = np.array([[held, dataset.train.truth.indices[held]]])
    other = replace(dataset, train=replace(dataset.train, filters=pairs))
    with pytest.raises(TrainingError, match="choose another folder"):
        train(other, folder=tmp_path)


@pytest.mark.parametrize(
    ("share", "count", "said"),
    [
        (0.2, 200, "no documents are held out, 50 are needed (--set split.validation=0.25 or more)"),
        (0.05, 333, "no documents are held out, 50 are needed (--set split.validation=0.16 or more)"),
        (0.0, 333, "no documents are held out"),
        (0.9, 60, "no documents are held out"),
    ],
)
def test_it_says_why_no_documents_are_held_out(share: float, count: int, said: str) -> None:
    problem = Problem.of(
        sparse.csr_array(np.ones((count, 1), dtype=np.float32)),
        sparse.csr_array(np.ones((1, 1), dtype=np.float32)),
        sparse.csr_array(np.ones((count, 1), dtype=np.float32)),
    )
    assert _why_none_held(problem, recipe().with_settings([f"split.validation={share}"])) == said
