"""Old files live on: a folder of every format that is read answers as it did when it was written."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from decaf import Model, ModelError, Predictor
from decaf.header import FORMAT
from decaf.stores import Change
from decaf.stores.sqlite import SqliteStore

FORMATS = Path(__file__).parent / "formats"
MODELS = sorted(path.parent for path in FORMATS.glob("v*/*/answers.json"))


def named(folder: Path) -> str:
    return f"{folder.parent.name}-{folder.name}"


def test_the_format_that_is_written_is_kept() -> None:
    """Whoever raises FORMAT runs python -m tools.make_format, and commits what it writes."""
    assert (FORMATS / f"v{FORMAT}").is_dir()
    assert {path.parent.name for path in MODELS} >= {f"v{FORMAT}"}


@pytest.mark.parametrize("folder", MODELS, ids=named)
def test_an_old_folder_answers_as_it_did(folder: Path) -> None:
    expected = json.loads((folder / "answers.json").read_text(encoding="utf-8"))
    model = Model.load(folder / "model")
    assert json.loads((folder / "model" / "model.json").read_text())["format"] == int(folder.parent.name[1:])
    for fast in (True, False):
        found = Predictor(model, fast=fast).predict(expected["texts"], top=5)
        for matches, answers in zip(found, expected["answers"], strict=True):
            assert [model.labels.id(label) for label, _ in matches] == [label for label, _ in answers]
            assert [score for _, score in matches] == pytest.approx([score for _, score in answers], abs=2e-4)
    assert any(expected["answers"])


@pytest.mark.parametrize("folder", MODELS, ids=named)
def test_an_old_folder_is_written_anew_in_the_format_of_today(folder: Path, tmp_path: Path) -> None:
    old = Model.load(folder / "model")
    old.save(tmp_path / "model")
    assert json.loads((tmp_path / "model" / "model.json").read_text())["format"] == FORMAT
    texts = json.loads((folder / "answers.json").read_text(encoding="utf-8"))["texts"]
    found, before = (Predictor(model).predict(texts) for model in (Model.load(tmp_path / "model"), old))
    assert found.ids.tolist() == before.ids.tolist()


@pytest.mark.parametrize(("version", "advice"), [(FORMAT + 1, "install a newer decaf"), (1, "train the model again")])
def test_another_format_says_what_to_do(tmp_path: Path, version: int, advice: str) -> None:
    folder = Path(shutil.copytree(MODELS[0] / "model", tmp_path / "model"))
    content = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(content | {"format": version}))
    with pytest.raises(ModelError, match=rf"model\.json: has format {version} .*{advice}"):
        Model.load(folder)


def test_an_old_store_of_labels_is_read_and_written(tmp_path: Path) -> None:
    path = Path(shutil.copy(FORMATS / "store-v1.sqlite", tmp_path))
    kept = [Change("L2", None, "2024-05-06T07:08:09+00:00"), Change("new", "amber delta", "2024-05-06T07:08:09+00:00")]
    with closing(SqliteStore(path)) as store:
        assert (store.changes(), store.reloads()) == (kept, 1)
        store.put("more", "kelp")
        assert [change.id for change in store.changes()] == ["L2", "more", "new"]
