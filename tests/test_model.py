"""The model folder: what is in it, that it reads back, and that damage of any kind is told by name."""

from __future__ import annotations

import errno
import hashlib
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from modules import QUICK, dataset_of, topics
from safetensors.torch import load_file, save_file

import decaf
from decaf import Model, ModelError, Predictor
from decaf import model as model_module
from decaf.errors import DecafError
from decaf.header import FORMAT

FILES = ["features.json", "instance-0.safetensors", "instance-1.safetensors", "labels.arrow", "tokenizer.json"]
TEXTS = list(topics(labels=8, train=40, test=16).test.documents.texts or [])


@pytest.fixture(scope="module")
def model() -> Model:
    config = QUICK.with_settings(["ensemble.instances=2", "model.dim=8"])
    return decaf.train(topics(labels=8, train=40, test=16, spare=[3]), config, device="cpu")


@pytest.fixture(scope="module")
def saved(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "model"
    model.save(folder)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    return Path(shutil.copytree(saved, tmp_path / "model"))


def edit(folder: Path, **changes: object) -> None:
    content = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    (folder / "model.json").write_text(json.dumps(content | changes), encoding="utf-8")


def header(folder: Path) -> dict[str, object]:
    return dict(json.loads((folder / "model.json").read_text(encoding="utf-8")))


def assert_same_answers(left: Model, right: Model) -> None:
    found, expected = (Predictor(model).predict(TEXTS, top=8) for model in (left, right))
    assert np.array_equal(found.ids, expected.ids)
    assert np.array_equal(found.scores, expected.scores)


def test_a_model_reads_back_as_it_was(model: Model, saved: Path) -> None:
    again = Model.load(saved)
    assert_same_answers(model, again)
    assert again.config == model.config
    assert again.about == model.about
    assert again.facts() == model.facts()
    assert again.kept.tolist() == model.kept.tolist() == [0, 1, 2, 4, 5, 6, 7]
    assert [again.labels.id(row) for row in range(8)] == [f"L{row}" for row in range(8)]
    assert [again.labels.text(row) for row in range(8)] == list(model.labels.texts or [])


def test_a_model_knows_how_often_its_labels_were_trained(model: Model, saved: Path, tmp_path: Path) -> None:
    for one in (model, Model.load(saved)):
        assert one.frequency is not None
        assert one.frequency.tolist() == [6, 6, 6, 0, 6, 6, 5, 5]
    replace(model, frequency=None).save(tmp_path / "model")
    assert Model.load(tmp_path / "model").frequency is None


def test_the_statistics_of_its_dataset_are_in_a_model_but_not_among_its_facts(saved: Path) -> None:
    loaded = Model.load(saved)
    counted = loaded.about["statistics"]
    assert (counted["train_documents"], counted["test_documents"], counted["labels"]) == (40, 16, 8)
    assert (counted["labels_per_document"], counted["documents_per_label"]) == (1, 5)
    assert "statistics" not in loaded.facts()


def test_a_version_stands_for_the_files(model: Model, saved: Path, folder: Path, tmp_path: Path) -> None:
    version = Model.load(saved).version
    assert re.fullmatch("[0-9a-f]{12}", version)
    assert Model.load(folder, verify=False).version == version
    edit(folder, seed=7)  # no file that counts
    assert Model.load(folder).version == version
    replace(model, frequency=None).save(tmp_path / "other")
    assert Model.load(tmp_path / "other").version != version


def test_a_model_that_was_read_can_be_written_again(model: Model, saved: Path, tmp_path: Path) -> None:
    Model.load(saved).save(tmp_path / "again")
    assert_same_answers(model, Model.load(tmp_path / "again"))
    assert header(tmp_path / "again")["files"] == header(saved)["files"]


def test_a_model_can_be_written_over_itself(model: Model, folder: Path) -> None:
    Model.load(folder).save(folder)
    assert_same_answers(model, Model.load(folder))


def test_the_files_are_listed_with_their_checksums(saved: Path) -> None:
    assert sorted(path.name for path in saved.iterdir()) == sorted([*FILES, "model.json"])
    content = header(saved)
    assert content["format"] == FORMAT
    assert content["files"] == {name: hashlib.sha256((saved / name).read_bytes()).hexdigest() for name in FILES}
    filled_in = ["shortlister.clusters=2", "ranker.negatives=7"]  # for seven labels
    settings = ["ensemble.instances=2", "model.dim=8", *filled_in]
    assert content["config"] == QUICK.with_settings(settings).to_json()


def test_no_file_is_a_pickle(saved: Path) -> None:
    for path in saved.iterdir():
        data = path.read_bytes()
        if path.suffix == ".json":
            json.loads(data)
        elif path.suffix == ".arrow":
            assert data.startswith(b"ARROW1")
        else:
            assert path.suffix == ".safetensors"
            assert data[8:9] == b"{"  # behind its length, a header in JSON
            assert load_file(path)


def test_nothing_in_the_package_reads_pickles() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in Path(decaf.__file__).parent.rglob("*.py"))
    assert not any(word in sources for word in ("import pickle", "torch.load(", "torch.save(", "allow_pickle=True"))


def test_files_can_be_read_by_everybody_who_may(saved: Path) -> None:
    (saved.parent / "plain").write_text("", encoding="utf-8")
    usual = (saved.parent / "plain").stat().st_mode
    assert {path.stat().st_mode for path in saved.iterdir()} == {usual}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("place", [0.0, 0.3, 0.99])
def test_one_flipped_bit_is_told(folder: Path, name: str, place: float) -> None:
    data = bytearray((folder / name).read_bytes())
    data[int(place * len(data))] ^= 1
    (folder / name).write_bytes(data)
    with pytest.raises(
        ModelError, match=rf"{name}: is damaged \(checksum\); remove the folder and train again, or restore it"
    ):
        Model.load(folder)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("left", [0, -1])
def test_a_file_that_is_cut_short_is_told(folder: Path, name: str, left: int) -> None:
    (folder / name).write_bytes((folder / name).read_bytes()[:left])
    with pytest.raises(ModelError, match=f"{name}: is damaged"):
        Model.load(folder)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("verify", [True, False])
def test_a_missing_file_is_told(folder: Path, name: str, verify: bool) -> None:
    (folder / name).unlink()
    with pytest.raises(ModelError, match=f"{name}: is missing; remove the folder and train again, or restore it"):
        Model.load(folder, verify=verify)


@pytest.mark.parametrize("name", FILES)
def test_an_empty_file_is_told_even_where_checksums_are_not_looked_at(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"")
    with pytest.raises(ModelError, match=str(folder)):
        Model.load(folder, verify=False)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"{}", b'{"format": 1}', b"[" * 9999])
def test_a_damaged_header_is_told(folder: Path, content: bytes) -> None:
    (folder / "model.json").write_bytes(content)
    with pytest.raises(ModelError, match=r"model\.json: is damaged"):
        Model.load(folder)


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None)
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_in_the_header_is_told_or_does_no_harm(saved: Path, place: float, bit: int) -> None:
    data = bytearray((saved / "model.json").read_bytes())
    data[int(place * len(data))] ^= 1 << bit
    copy = saved.parent / "spoiled"
    if not copy.exists():
        shutil.copytree(saved, copy)
    (copy / "model.json").write_bytes(data)
    try:
        found = Model.load(copy, verify=False)
    except ModelError as error:
        assert str(copy) in str(error)  # noqa: PT017 - it may also be read
    else:
        assert len(found.instances) == 2


def test_pairs_of_words_are_kept_with_the_model(tmp_path: Path) -> None:
    texts = [(f"{word} red apple", [row % 2]) for row, word in enumerate(["one", "two", "three", "four"])]
    config = QUICK.with_settings(["model.dim=8", "features.pairs=true"])
    made = decaf.train(dataset_of(texts, ["first", "second"]), config, device="cpu")
    made.save(tmp_path)
    again = Model.load(tmp_path)
    assert made.features is not None
    assert again.features is not None
    assert list(again.features.pairs) == list(made.features.pairs) == ["red apple"]
    assert again.features.vocabulary == made.features.vocabulary
    found, expected = (model.features.transform(["red apple", "apple"]) for model in (again, made))
    assert found.toarray().tolist() == expected.toarray().tolist()
    assert found[[0]].nnz == made.features.transform(["red"]).nnz + made.features.transform(["apple"]).nnz + 1


def test_an_older_format_is_told(folder: Path) -> None:
    edit(folder, format=1)
    with pytest.raises(ModelError, match=r"model\.json: has format 1 from before the first release; train the model"):
        Model.load(folder)


def test_a_newer_format_is_told(folder: Path) -> None:
    edit(folder, format=FORMAT + 1)
    with pytest.raises(ModelError, match=rf"model\.json: has format {FORMAT + 1} and this decaf reads up to {FORMAT}"):
        Model.load(folder)


@pytest.mark.parametrize("version", ["1", None, 1.5])
def test_a_format_that_is_no_number_is_told(folder: Path, version: object) -> None:
    edit(folder, format=version)
    with pytest.raises(ModelError, match=r"model\.json: has format"):
        Model.load(folder)


@pytest.mark.parametrize("config", [{"model": {"colour": 3}}, {"paint": {}}, {"model": {"dim": "wide"}}])
def test_settings_that_this_version_does_not_know_are_told(folder: Path, config: object) -> None:
    edit(folder, config=config)
    with pytest.raises(ModelError, match=r"model\.json: .*this decaf does not know the model's settings"):
        Model.load(folder)


@pytest.mark.parametrize("name", ["../x", "/etc/hostname", "sub/x", "..", "."])
def test_a_file_outside_the_folder_is_not_read(folder: Path, name: str) -> None:
    (folder.parent / "x").write_text("secret", encoding="utf-8")
    (folder / "sub").mkdir()
    (folder / "sub" / "x").write_text("secret", encoding="utf-8")
    digest = hashlib.sha256(b"secret").hexdigest()
    edit(folder, files={**dict(header(folder)["files"]), name: digest})  # type: ignore[call-overload]
    for verify in (True, False):
        with pytest.raises(ModelError, match=r"is missing"):
            Model.load(folder, verify=verify)


@pytest.mark.parametrize("files", [[], "x", {"labels.arrow": 3}, None])
def test_a_list_of_files_that_is_none_is_told(folder: Path, files: object) -> None:
    edit(folder, files=files)
    with pytest.raises(ModelError, match=r"model\.json: is damaged \(files\)"):
        Model.load(folder)


def test_no_instance_is_told(folder: Path) -> None:
    files = {name: digest for name, digest in dict(header(folder)["files"]).items() if "instance" not in name}  # type: ignore[call-overload]
    edit(folder, files=files)
    with pytest.raises(ModelError, match="holds no instance"):
        Model.load(folder)


def test_checksums_are_not_looked_at_when_told_so(model: Model, folder: Path) -> None:
    edit(folder, files=dict.fromkeys(FILES, "wrong"))
    with pytest.raises(ModelError, match="checksum"):
        Model.load(folder)
    assert_same_answers(model, Model.load(folder, verify=False))


def test_arrays_that_do_not_belong_together_are_told(folder: Path) -> None:
    """Labels for other classifiers: a half-restored backup."""
    other = decaf.train(topics(labels=5, train=20), QUICK.with_settings(["model.dim=8"]), device="cpu")
    other.save(folder.parent / "other")
    shutil.copy(folder.parent / "other" / "labels.arrow", folder / "labels.arrow")
    with pytest.raises(ModelError, match=str(folder)):
        Model.load(folder, verify=False)


@pytest.mark.parametrize(
    ("name", "at", "value", "told"),
    [
        ("labels.bounds", 1, 99, "clusters do not end where they should"),
        ("labels.numbers", 0, 7, "labels or tokens are named that are not there"),
        ("labels.numbers", slice(None), 0, "a label is in two clusters"),
    ],
)
def test_labels_that_are_not_there_are_told(folder: Path, name: str, at: int | slice, value: int, told: str) -> None:
    path = folder / "instance-1.safetensors"
    tensors = {key: tensor.clone() for key, tensor in load_file(path).items()}
    tensors[name][at] = value
    save_file(tensors, path)
    with pytest.raises(ModelError, match=rf"instance-1\.safetensors: cannot be read \({told}\); remove the folder"):
        Model.load(folder, verify=False)


@pytest.mark.parametrize("name", ["near.table", "far.unit", "clusters.first", "labels.bounds", "labels.words", "beam"])
def test_a_missing_array_is_told(folder: Path, name: str) -> None:
    path = folder / "instance-0.safetensors"
    save_file({key: tensor.clone() for key, tensor in load_file(path).items() if key != name}, path)
    with pytest.raises(ModelError, match=rf"instance-0\.safetensors: cannot be read .*{name}"):
        Model.load(folder, verify=False)


@pytest.mark.parametrize("name", ["features.json", "labels.arrow"])
def test_the_damaged_file_is_named_without_checksums_too(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"{}")
    with pytest.raises(ModelError, match=rf"{name}: cannot be read"):
        Model.load(folder, verify=False)


@pytest.mark.parametrize("known", [["get"], {"get": 0}, {"get": -1}, {"get": "3"}, {"get": 1.5}, {"get": True}, 7])
def test_known_words_must_be_counted(folder: Path, known: object) -> None:
    path = folder / "features.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"known": known}))
    with pytest.raises(ModelError, match=r"features\.json: cannot be read \(known words are not counted\)"):
        Model.load(folder, verify=False)


def test_counts_beyond_all_measure_are_told(folder: Path) -> None:
    path = folder / "features.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"known": {"get": 10**400, "set": 1}}))
    with pytest.raises(ModelError, match=r"features\.json: cannot be read"):
        Model.load(folder, verify=False)


@pytest.mark.parametrize("name", ["nowhere", "."])
def test_a_folder_without_a_model_is_told(tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelError, match=r"holds no model \(there is no model\.json\); train one with decaf train"):
        Model.load(tmp_path / name)


@pytest.mark.parametrize("failing", range(2))
def test_a_failure_while_writing_leaves_no_header(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    save_file, calls = model_module.save_file, []

    def full(tensors: dict[str, torch.Tensor], path: Path) -> None:
        calls.append(path)
        if len(calls) == failing + 1:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        save_file(tensors, path)

    monkeypatch.setattr(model_module, "save_file", full)
    with pytest.raises((OSError, DecafError), match="No space left"):
        model.save(tmp_path / "model")
    assert len(calls) == failing + 1
    assert not (tmp_path / "model" / "model.json").exists()
    with pytest.raises(ModelError, match="holds no model"):
        Model.load(tmp_path / "model")
    monkeypatch.undo()
    model.save(tmp_path / "model")
    assert_same_answers(model, Model.load(tmp_path / "model"))


def test_an_array_that_cannot_be_written_is_an_error_of_ours(model: Model, tmp_path: Path) -> None:
    (tmp_path / ".instance-0.safetensors.part").mkdir()  # the library raises its own kind of error
    with pytest.raises((OSError, DecafError)):
        model.save(tmp_path)
    assert not (tmp_path / "model.json").exists()


def test_a_link_that_leads_elsewhere_meanwhile_does_not_mix_two_models(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link, other, real = tmp_path / "link", tmp_path / "other", model_module.read_header
    decaf.train(topics(labels=8, train=40, test=16), QUICK, device="cpu", folder=other)
    link.symlink_to(saved)

    def flip(folder: Path) -> dict[str, object]:
        content = real(folder)
        link.unlink()
        link.symlink_to(other)
        return content

    monkeypatch.setattr(model_module, "read_header", flip)
    loaded = Model.load(link)
    monkeypatch.undo()
    assert_same_answers(loaded, Model.load(saved))


def test_facts_are_plain_json(model: Model, saved: Path) -> None:
    facts = json.loads(json.dumps(model.facts()))
    assert (facts["labels"], facts["trained_labels"], facts["instances"], facts["dim"]) == (8, 7, 2, 8)
    stored = [load_file(saved / f"instance-{number}.safetensors").values() for number in (0, 1)]
    assert facts["bytes"] == sum(tensor.numel() * tensor.element_size() for tensors in stored for tensor in tensors)
    assert facts["precision"] == "int4"


def test_a_model_knows_how_many_tokens_documents_are_made_of(model: Model) -> None:
    assert model.features is not None
    assert model.tokens == model.features.transform(["topic"]).shape[1] == len(model.instances[0].ranker.encoder.table)


def test_weights_are_kept_in_few_bits_or_as_they_are(saved: Path, tmp_path: Path) -> None:
    config = QUICK.with_settings(["model.dim=8", "model.precision=float32"])
    decaf.train(topics(labels=8, train=40, test=16, spare=[3]), config, device="cpu").save(tmp_path)
    found = [load_file(folder / "instance-0.safetensors") for folder in (saved, tmp_path)]
    for name in ("near.table", "far.table", "clusters.weights"):
        assert [tensors[name].dtype for tensors in found] == [torch.int8, torch.float32]
    assert [tensors["labels.weights"].dtype for tensors in found] == [torch.uint8, torch.float32]
    assert [tensors["labels.weights"].shape[1] for tensors in found] == [4, 8]
    assert Model.load(tmp_path).config.model.precision == "float32"


def test_networks_are_made_once_when_they_are_asked_for(saved: Path) -> None:
    loaded = Model.load(saved)
    assert "instances" not in vars(loaded)
    first = loaded.instances
    assert loaded.instances is first
    assert len(first) == 2
