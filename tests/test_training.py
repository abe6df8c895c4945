"""Training from end to end: it learns, it is the same every time, odd data and odd settings, and runs that go on."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from modules import QUICK, dataset_of, topics, truth_of
from scipy import sparse
from torch import Tensor

import decaf
from decaf import Dataset, LabelTextScorer, Model, Predictions, TrainingError, evaluate, evaluate_model, with_features
from decaf import model as model_module
from decaf import training as training_module
from decaf.config import RECIPES, recipe
from decaf.devices import choose_device
from decaf.errors import ConfigError, DataError, DecafError, ModelError
from decaf.modules import checkpoints
from decaf.modules import shortlister as shortlister_module
from decaf.modules.checkpoints import Checkpoint
from decaf.networks import Shortlister
from decaf.scoring.exact import ExactScorer
from decaf.training import memory_needed

CPU = torch.device("cpu")
FRUIT = ["red apple", "green pear"]


def train(dataset: Dataset, *settings: str, seed: int = 0, folder: Path | None = None) -> Model:
    return decaf.train(dataset, QUICK.with_settings(settings), seed=seed, device="cpu", folder=folder)


def answers(model: Model, dataset: Dataset, top: int = 5) -> Predictions:
    documents = with_features(dataset, model.config.features, model.features).test.documents
    return ExactScorer(model, CPU).top(documents.need_features(), top)


def same(left: Predictions, right: Predictions) -> bool:
    return np.array_equal(left.ids, right.ids) and np.array_equal(left.scores, right.scores)


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return topics()


@pytest.fixture(scope="module")
def model(dataset: Dataset) -> Model:
    return train(dataset)


def test_training_learns_what_label_texts_do_not_say(dataset: Dataset, model: Model) -> None:
    ready = with_features(dataset, model.config.features)
    matched = LabelTextScorer(ready.labels.need_features()).top(ready.test.documents.need_features(), 5)
    by_text = evaluate(matched, dataset.test.truth, dataset.inverse_propensity, dataset.test.filters)
    learned = evaluate_model(model, dataset, device="cpu")
    assert by_text["P@1"] < 30
    assert learned["P@1"] > 85
    assert learned["PSP@1"] > 85


def test_the_same_seed_gives_the_same_model_bit_by_bit(dataset: Dataset, model: Model) -> None:
    torch.manual_seed(123)
    again = train(dataset)
    for one, other in zip(model.instances, again.instances, strict=True):
        assert all(torch.equal(tensor, other.tensors()[name]) for name, tensor in one.tensors().items())
    assert same(answers(model, dataset), answers(again, dataset))


def test_another_seed_gives_another_model(dataset: Dataset, model: Model) -> None:
    assert not same(answers(model, dataset), answers(train(dataset, seed=1), dataset))


def test_a_model_knows_where_it_comes_from(model: Model) -> None:
    facts = model.facts()
    assert (facts["dataset"], facts["seed"], facts["labels"], facts["trained_labels"]) == ("own", 0, 24, 24)
    assert (facts["instances"], facts["dim"], facts["clusters"]) == (1, 16, 8)  # about four labels in a cluster
    assert facts["tokens"] == model.features.count if model.features else False
    assert len(facts["beam"]) == 1


@pytest.mark.parametrize(
    "settings",
    [
        ["model.lite=true"],
        ["ranker.from_text=false"],
        ["model.refinement=false"],
        ["model.text=false"],
        ["tokens.kind=fixed"],
        ["shortlister.clusters=2", "ranker.epochs=30"],
        ["shortlister.beam=1"],
        ["shortlister.clusters=64", "shortlister.beam=4"],
        ["ensemble.instances=3"],
        ["ranker.forced=true", "shortlister.beam=1"],
        ["shortlister.kind=neighbours"],
        ["shortlister.kind=tree", "shortlister.clusters=64", "shortlister.epochs=30"],
        ["tokens.batch=1000", "shortlister.batch=1000", "ranker.batch=1000", "ranker.epochs=20", "tokens.epochs=20"],
    ],
    ids=" ".join,
)
def test_every_variant_learns(dataset: Dataset, settings: list[str]) -> None:
    trained = train(dataset, *settings)
    figures = evaluate_model(trained, dataset, device="cpu")
    assert figures["P@1"] > 40  # chance is 4
    found = answers(trained, dataset)
    there = found.ids >= 0
    assert bool(there[:, 0].all())
    assert found.scores[there].min() > 0
    assert found.scores[there].max() <= 1


def test_a_lite_model_shares_its_token_embeddings(dataset: Dataset) -> None:
    lite = train(dataset, "model.lite=true", "ensemble.instances=2").instances
    tables = [part.encoder.table for instance in lite for part in (instance.shortlister, instance.ranker)]
    assert all(torch.equal(table, tables[0]) for table in tables)
    full = train(dataset, "ensemble.instances=2").instances
    assert not torch.equal(full[0].shortlister.encoder.table, full[0].ranker.encoder.table)
    assert not torch.equal(full[0].ranker.encoder.table, full[1].ranker.encoder.table)


def test_instances_differ_in_clusters_and_classifiers(dataset: Dataset) -> None:
    one, other = train(dataset, "ensemble.instances=2").instances
    assert not torch.equal(one.shortlister.members, other.shortlister.members)
    assert not torch.equal(one.ranker.weights, other.ranker.weights)


def test_instances_answer_with_the_mean_of_their_chances(dataset: Dataset) -> None:
    together = train(dataset, "ensemble.instances=3", "shortlister.beam=8")
    alone = [answers(replace(together, packed=(packed,)), dataset, 24) for packed in together.packed]
    mean = sum(predictions.to_csr(24).toarray() for predictions in alone) / 3
    assert np.allclose(answers(together, dataset, 24).to_csr(24).toarray(), mean, atol=1e-6)


def test_the_beam_grows_until_it_holds_most_of_the_training_pairs(dataset: Dataset, tmp_path: Path) -> None:
    train(dataset, "shortlister.clusters=64", "shortlister.epochs=0", folder=tmp_path / "model")
    lines = [json.loads(line) for line in (tmp_path / "model" / "metrics.jsonl").read_text().splitlines()]
    beam, recall = next((line["beam"], line["recall"]) for line in lines if "beam" in line)
    assert beam in (16, 32, 64)
    assert recall > 85


def test_of_many_documents_some_say_how_wide_the_beam_must_be(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, retrieve = [], shortlister_module.retrieve

    def noted(shortlister: Shortlister, documents: sparse.csr_array, beam: int) -> Tensor:
        asked.append((documents.shape[0], beam))
        return retrieve(shortlister, documents, beam)

    monkeypatch.setattr(shortlister_module, "retrieve", noted)
    settings = ("shortlister.clusters=64", "shortlister.epochs=0")
    train(dataset, *settings)
    (documents, widest), before = asked[-1], list(asked)
    asked.clear()
    monkeypatch.setattr(shortlister_module, "_ENOUGH", documents // 2)
    train(dataset, *settings)
    assert asked[-1] == (documents, widest)  # all of them once, as wide as before
    assert asked[:-1] == [(documents // 2, beam) for _, beam in before]
    assert len(before) > 1


def test_labels_without_training_documents_are_never_predicted_and_ids_map_back() -> None:
    spare = (0, 5, 23)
    some = topics(spare=spare)
    trained = train(some, "ranker.epochs=10")
    assert trained.kept.tolist() == [label for label in range(24) if label not in spare]
    found = answers(trained, some, 24)
    assert not np.isin(found.ids, spare).any()
    wanted = some.test.truth.indices
    reachable = ~np.isin(wanted, spare)
    assert (found.ids[:, 0] == wanted)[reachable].mean() > 0.8


ODD: dict[str, Callable[[], Dataset]] = {
    "one label": lambda: dataset_of([("red apple", [0]), ("apple pie", [0])], ["red apple"]),
    "one document": lambda: dataset_of([("red apple", [0, 1])], FRUIT),
    "one document, one label, one word": lambda: dataset_of([("apple", [0])], ["apple"]),
    "two labels": lambda: dataset_of([("red apple", [0]), ("green pear", [1])], FRUIT),
    "three labels": lambda: dataset_of([("a b", [0]), ("c d", [1]), ("e f", [2])], ["a", "c", "e"]),
    "a label without text": lambda: dataset_of([("red apple", [0]), ("green pear", [1])], ["", "green pear"]),
    "no label with text": lambda: dataset_of([("red apple", [0]), ("green pear", [1])], ["", ""]),
    "a document without tokens": lambda: dataset_of([("red apple", [0]), ("?!", [1]), ("green pear", [1])], FRUIT),
    "a document without labels": lambda: dataset_of([("red apple", [0]), ("pie", []), ("green pear", [1])], FRUIT),
    "every label on every document": lambda: dataset_of([("red apple", [0, 1]), ("green pear", [0, 1])], FRUIT),
    "the same text with other labels": lambda: dataset_of([("red apple", [0]), ("red apple", [1])], FRUIT),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("settings", [[], ["tokens.kind=fixed"], ["shortlister.clusters=8", "shortlister.beam=1"]])
def test_odd_data_trains_and_predicts(name: str, settings: list[str]) -> None:
    odd = ODD[name]()
    trained = train(odd, *settings)
    found = answers(trained, odd)
    assert set(np.unique(found.ids[found.ids >= 0])) <= set(trained.kept.tolist())
    assert np.isfinite(found.scores[found.ids >= 0]).all()
    if not settings:
        assert all(row for row, text in zip(found, odd.test.documents.texts or [], strict=True) if text != "?!")


@pytest.mark.parametrize("kind", ["neighbours", "tree"])
def test_a_rival_shortlist_survives_its_folder(dataset: Dataset, tmp_path: Path, kind: str) -> None:
    settings = QUICK.with_settings([f"shortlister.kind={kind}", "shortlister.clusters=64"])
    trained = decaf.train(dataset, settings, device="cpu", folder=tmp_path / "model")
    loaded = Model.load(tmp_path / "model")
    assert len(loaded.instances[0].shortlister.above) == (kind == "tree")
    np.testing.assert_array_equal(answers(loaded, dataset).ids, answers(trained, dataset).ids)


def test_shortlists_of_empty_clusters_do_not_stop_training() -> None:
    small = dataset_of([(f"word{chr(97 + row)} thing", [row % 5]) for row in range(10)], list("vwxyz"))
    trained = train(small, "shortlister.clusters=64", "shortlister.beam=1", "shortlister.epochs=0", "ranker.batch=1")
    assert bool(torch.isfinite(trained.instances[0].ranker.weights).all())


@pytest.mark.parametrize("documents", [[("?!", [0])], [("red apple", [])]])
def test_nothing_to_learn_from_is_a_training_error(documents: list[tuple[str, list[int]]]) -> None:
    with pytest.raises(TrainingError, match="own: no training document has both a known token and a label"):
        train(dataset_of(documents, FRUIT))


def test_neither_text_nor_refinement_is_refused() -> None:
    with pytest.raises(DecafError, match=r"model\.text.*model\.refinement"):
        train(ODD["two labels"](), "model.text=false", "model.refinement=false")


def test_zero_epochs_make_a_model_all_the_same(dataset: Dataset) -> None:
    epochs = [f"{stage}.epochs=0" for stage in ("tokens", "shortlister", "ranker")]
    assert answers(train(dataset, *epochs), dataset).ids.shape == (120, 5)


def test_a_dataset_without_test_documents_trains() -> None:
    whole = dataset_of([("red apple", [0]), ("green pear", [1])], FRUIT)
    trained = train(replace(whole, test=whole.test.take(np.array([], dtype=np.int64))))
    assert trained.kept.tolist() == [0, 1]


def without_texts(dataset: Dataset) -> Dataset:
    ready = with_features(dataset, QUICK.features)

    def bare(name: str) -> object:
        part = getattr(ready, name)
        return replace(part, documents=replace(part.documents, texts=None))

    return replace(ready, train=bare("train"), test=bare("test"), labels=replace(ready.labels, texts=None))


def test_ready_features_train_as_the_texts_they_came_from(dataset: Dataset, model: Model) -> None:
    bare = without_texts(dataset)
    assert not bare.has_texts
    trained = train(bare)
    assert trained.features is None
    figures, expected = (evaluate_model(*pair, device="cpu") for pair in ((trained, bare), (model, dataset)))
    figures.pop("ms_per_document"), expected.pop("ms_per_document")
    assert figures == expected


def test_labels_without_features_beside_documents_that_have_some_use_the_texts(dataset: Dataset) -> None:
    ready = with_features(dataset, QUICK.features)
    mixed = replace(ready, labels=replace(ready.labels, features=None))
    trained = train(mixed)
    assert trained.features is not None
    assert evaluate_model(trained, mixed, device="cpu")["P@1"] > 85


def test_labels_without_features_and_texts_are_a_data_error(dataset: Dataset) -> None:
    bare = without_texts(dataset)
    with pytest.raises(DataError, match="no text"):
        train(replace(bare, labels=replace(bare.labels, features=None)))


def test_a_gpu_that_is_not_there_is_an_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="no GPU can be used here; choose the device cpu, or auto"):
        decaf.train(ODD["two labels"](), QUICK, device="cuda")
    assert choose_device("auto") == CPU


@pytest.mark.parametrize("name", ["gpu", "", "cuda:x"])
def test_a_device_that_does_not_exist_is_an_error_of_ours(name: str) -> None:
    with pytest.raises(ConfigError, match="choose auto, cpu or cuda"):
        choose_device(name)


def test_a_recipe_that_does_not_exist_is_named_with_those_that_do() -> None:
    with pytest.raises(ConfigError, match="there is no recipe 'papier'; there are: contrastive, paper, paper-lite"):
        recipe("papier")
    assert recipe("paper-lite").model.lite
    assert not recipe("paper").model.lite
    assert all(recipe(name) is config for name, config in RECIPES.items())


def test_the_paper_recipe_has_the_numbers_of_the_paper() -> None:
    paper = recipe("paper")
    assert (paper.tokens.epochs, paper.tokens.rate, paper.tokens.dropout, paper.tokens.batch) == (20, 0.01, 0.5, 255)
    for stage in (paper.shortlister, paper.ranker):
        assert (stage.epochs, stage.rate, stage.dropout, stage.batch) == (10, 0.008, 0.2, 255)
    assert paper.ensemble.instances == 3


def test_a_number_of_clusters_that_is_no_power_of_two_is_a_training_error(dataset: Dataset) -> None:
    with pytest.raises(TrainingError, match=r"shortlister\.clusters must be a power of two, not 6"):
        train(dataset, "shortlister.clusters=6")


def test_a_setting_that_does_not_exist_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="nearest: 'epochs'"):
        QUICK.with_settings(["ranker.epoch=3"])


def test_more_memory_than_there_is_is_refused(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_module, "memory_needed", lambda *_: 10**16)
    with pytest.raises(TrainingError, match=r"takes about 10000000\.0 GB and .* GB are free; lower model\.dim"):
        train(dataset)


def test_the_memory_needed_grows_with_the_model(dataset: Dataset) -> None:
    ready = with_features(dataset, QUICK.features)
    features, labels = ready.train.documents.need_features(), ready.labels.need_features()
    problem = training_module.Problem.of(features, labels, ready.train.truth)
    config = QUICK.with_settings(["shortlister.clusters=8"])
    needed = [memory_needed(problem, config.with_settings([f"model.dim={dim}"])) for dim in (16, 4096)]
    assert 0 < needed[0] < needed[1]
    large = config.with_settings(["model.dim=4096"])
    assert memory_needed(problem, large, 4) < memory_needed(problem, large, 2) < needed[1]


def test_a_run_in_a_folder_is_the_run_without_one_and_leaves_the_model_alone(
    dataset: Dataset, model: Model, tmp_path: Path
) -> None:
    folder = tmp_path / "deep" / "model"
    kept = train(dataset, folder=folder)
    assert same(answers(kept, dataset), answers(model, dataset))
    assert same(answers(Model.load(folder), dataset), answers(model, dataset))
    names = {"features.json", "instance-0.safetensors", "labels.arrow", "metrics.jsonl", "model.json", "tokenizer.json"}
    assert {path.name for path in folder.iterdir()} - {"training.png"} == names
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    epochs = [(line["module"], line["epoch"]) for line in lines if "epoch" in line]
    assert epochs == [(name, epoch) for name in ("module I", "module II", "module IV") for epoch in range(1, 6)]


def test_a_finished_folder_is_returned_for_the_same_run_and_refused_for_another(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = train(dataset, folder=tmp_path)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    with monkeypatch.context() as patch:
        patch.setattr(training_module, "learn_tokens", lambda *_, **__: pytest.fail("trains again"))
        assert same(answers(train(dataset, folder=tmp_path), dataset), answers(first, dataset))
    for settings, seed, data, other in (
        (["ranker.epochs=6", "ranker.rate=0.02"], 0, dataset, r"settings \(ranker.epochs, ranker.rate\)"),
        ([], 1, dataset, "data, or with another seed"),
        ([], 0, topics(train=200), "data, or with another seed"),
    ):
        with pytest.raises(TrainingError, match=f"holds a model of other {other}; choose another folder"):
            train(data, *settings, seed=seed, folder=tmp_path)
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


def test_a_setting_that_is_left_to_the_data_may_tell_of_other_data(dataset: Dataset, tmp_path: Path) -> None:
    """Batches are larger with more documents; a setting that the user made is another setting."""
    train(dataset, "tokens.batch=0", folder=tmp_path)
    with pytest.raises(
        TrainingError, match=r"holds a model of other data, or of other settings \(tokens.batch\); choose"
    ):
        train(topics(train=2400), "tokens.batch=0", folder=tmp_path)
    with pytest.raises(TrainingError, match=r"holds a model of other settings \(tokens.batch\); choose another folder"):
        train(dataset, "tokens.batch=16", folder=tmp_path)


def test_a_finished_folder_is_refused_for_labels_with_other_names(dataset: Dataset, tmp_path: Path) -> None:
    train(dataset, folder=tmp_path)
    renamed = replace(dataset, labels=replace(dataset.labels, ids=[f"new {row}" for row in range(24)]))
    with pytest.raises(TrainingError, match="choose another folder"):
        train(renamed, folder=tmp_path)


def test_a_finished_folder_is_refused_for_labels_in_other_places(dataset: Dataset, tmp_path: Path) -> None:
    """A label without documents in front of the others: what is learned is the same, but not whose it is."""
    first = dataset_of([("red apple", [1]), ("green pear", [2])], ["zzz", *FRUIT])
    train(first, folder=tmp_path)
    moved = dataset_of([("red apple", [0]), ("green pear", [1])], [*FRUIT, "zzz"])
    with pytest.raises(TrainingError, match="choose another folder"):
        train(moved, folder=tmp_path)


@pytest.mark.parametrize(("setting", "learned"), [("tokens.kind=fixed", False), ("model.lite=true", False), ("", True)])
def test_token_embeddings_that_are_fixed_stay_so(dataset: Dataset, setting: str, learned: bool) -> None:
    """Module II has them first, module IV last."""
    (made,) = train(dataset, *([setting] if setting else [])).instances
    tables = made.shortlister.encoder.table, made.ranker.encoder.table
    assert torch.equal(*tables) is not learned


class Stopped(BaseException):
    """The process ends here."""


def stop(monkeypatch: pytest.MonkeyPatch, stop_at: tuple[str, int], run: Callable[[], object]) -> None:
    """Run until the state of that module after so many epochs is kept; every epoch's is, from here on."""
    monkeypatch.setattr(checkpoints, "_SHARE", float("inf"))
    keep = Checkpoint.keep

    def keep_and_stop(self: Checkpoint, name: str, tensors: dict[str, torch.Tensor], epochs: int) -> None:
        keep(self, name, tensors, epochs)
        if (name, epochs) == stop_at:
            raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "keep", keep_and_stop)
        with pytest.raises(Stopped):
            run()


@pytest.mark.parametrize("stop_at", [("module I", 3), ("module II", 2), ("module IV", 4)])
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(
    dataset: Dataset, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_at: tuple[str, int]
) -> None:
    stop(monkeypatch, stop_at, lambda: train(dataset, folder=tmp_path))
    assert not (tmp_path / "model.json").exists()
    assert same(answers(train(dataset, folder=tmp_path), dataset), answers(model, dataset))
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len([line for line in lines if "epoch" in line]) == 15  # none was learned twice
    assert not (tmp_path / "checkpoint").exists()


def test_an_unfinished_run_with_other_settings_is_refused(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(training_module, "learn_ranker", stop)
        with pytest.raises(Stopped):
            train(dataset, folder=tmp_path)
    with pytest.raises(TrainingError, match="unfinished run on other data or with other settings"):
        train(dataset, seed=1, folder=tmp_path)


def test_a_run_that_stopped_between_the_model_and_its_clean_up_is_cleaned_up(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(_: Checkpoint) -> None:
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "finish", stop)
        with pytest.raises(Stopped):
            train(dataset, folder=tmp_path)
    train(dataset, folder=tmp_path)
    assert not (tmp_path / "checkpoint").exists()


@pytest.mark.parametrize("file", ["labels.arrow", "tokenizer.json", "instance-0.safetensors", "model.json"])
def test_a_run_that_stopped_while_its_model_was_written_goes_on_to_the_same_bits(
    dataset: Dataset, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    share = model_module.share

    def full(path: Path) -> None:
        if path.name == f".{file}.part":
            raise OSError(errno.ENOSPC, "No space left on device")
        share(path)

    with monkeypatch.context() as patch:
        patch.setattr(model_module, "share", full)
        with pytest.raises(
            ModelError, match=rf"{file}: cannot be written .*; make room and run the same command again"
        ):
            train(dataset, folder=tmp_path)
    assert not (tmp_path / "model.json").exists()
    assert not list(tmp_path.glob(".*"))  # what is half written takes no room
    with monkeypatch.context() as patch:
        patch.setattr(training_module, "learn_ranker", None)  # all is learned
        assert same(answers(train(dataset, folder=tmp_path), dataset), answers(model, dataset))
    assert not (tmp_path / "checkpoint").exists()
    assert (tmp_path / "training.png").is_file()


def test_a_picture_that_cannot_be_drawn_is_told_and_drawn_later(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(folder: Path) -> None:
        (folder / ".training.png.part").write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(training_module, "plot_run", full)
        train(dataset, folder=tmp_path)
    assert "training.png: cannot be drawn" in caplog.text
    assert not list(tmp_path.glob("*training.png*"))
    train(dataset, folder=tmp_path)
    assert (tmp_path / "training.png").read_bytes().endswith(b"IEND\xaeB`\x82")


def test_training_leaves_the_dataset_as_it_was(dataset: Dataset) -> None:
    small = topics(labels=6, train=30, test=6)
    before = small.train.truth.toarray()
    train(small, "tokens.epochs=1", "shortlister.epochs=1", "ranker.epochs=1")
    assert np.array_equal(small.train.truth.toarray(), before)
    assert small.train.documents.features is None
    assert np.array_equal(before, truth_of([[row % 6] for row in range(30)], 6).toarray())


def test_a_folder_that_holds_something_else_is_refused_untouched(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(TrainingError, match="holds something else; choose a new folder"):
        train(ODD["two labels"](), folder=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model").write_text("mine", encoding="utf-8")
    with pytest.raises(TrainingError, match="choose a new folder"):
        train(ODD["two labels"](), folder=tmp_path / "model")


def test_training_over_a_damaged_model_says_to_remove_it(tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text("{", encoding="utf-8")
    with pytest.raises(TrainingError, match="remove the folder and train again"):
        train(ODD["two labels"](), folder=tmp_path)


def test_an_unfinished_run_is_no_model_yet(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    with pytest.raises(ModelError, match="unfinished run; run the same decaf train command again"):
        Model.load(tmp_path)
