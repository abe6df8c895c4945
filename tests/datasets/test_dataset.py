"""Datasets as a whole: load and save without loss, names, constants and refusals."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from decaf.config import FeatureSettings
from decaf.datasets import LAYOUTS, Dataset, Items, Propensity
from decaf.errors import DataError, FeatureError
from decaf.features import with_features

from .helpers import (
    FOLDERS,
    TEXT_LAYOUTS,
    assert_same,
    assert_same_features,
    datasets,
    examples,
    make_dataset,
    matrices,
    write_files,
)


def _through(dataset: Dataset, layout: str) -> Dataset:
    with TemporaryDirectory() as folder:
        dataset.save(Path(folder) / "set", layout)
        return Dataset.load(Path(folder) / "set")


def _items(dataset: Dataset) -> tuple[Items, Items, Items]:
    return dataset.train.documents, dataset.test.documents, dataset.labels


@st.composite
def _featured(draw: st.DrawFn, *, weighted: bool) -> Dataset:
    dataset = draw(datasets(weighted=weighted))
    train, test, labels = (replace(items, features=draw(matrices(items.count, 5))) for items in _items(dataset))
    return replace(
        dataset,
        train=replace(dataset.train, documents=train),
        test=replace(dataset.test, documents=test),
        labels=labels,
    )


@pytest.mark.parametrize("layout", TEXT_LAYOUTS)
@examples(60)
@given(dataset=datasets())
def test_texts_come_back_as_they_were(layout: str, dataset: Dataset) -> None:
    assert_same(_through(dataset, layout), dataset)


@examples(25)
@given(datasets())
def test_raw_through_every_table_and_back(dataset: Dataset) -> None:
    made = dataset
    for layout in ("raw", "csv", "jsonl", "parquet", "raw"):
        made = _through(made, layout)
    assert_same(made, dataset)


@examples(60)
@given(_featured(weighted=True))
def test_sparse_files_come_back_as_they_were(dataset: Dataset) -> None:
    loaded = _through(dataset, "sparse")
    assert_same(loaded, dataset)
    for left, right in zip(_items(loaded), _items(dataset), strict=True):
        assert_same_features(left, right)


@examples(40)
@given(_featured(weighted=False))
def test_sparse_through_single_and_back(dataset: Dataset) -> None:
    loaded = _through(_through(dataset, "single"), "sparse")
    assert_same(loaded, dataset)
    for left, right in zip(_items(loaded), _items(dataset), strict=True):
        assert_same_features(left, right)


@examples(15)
@given(datasets())
def test_texts_with_learned_features_through_sparse_to_raw(dataset: Dataset) -> None:
    try:
        featured = with_features(dataset, FeatureSettings())
    except FeatureError:  # no word in any text
        assume(False)
    loaded = _through(featured, "sparse")
    assert_same_features(loaded.train.documents, featured.train.documents)
    assert_same(_through(loaded, "raw"), dataset)


@pytest.mark.parametrize("layout", FOLDERS)
def test_every_layout_is_recognised(tmp_path: Path, layout: str) -> None:
    dataset = Dataset.load(write_files(tmp_path, FOLDERS[layout]))
    assert str(dataset) == "2 training documents, 1 test documents, 3 labels"
    assert dataset.labels.texts == ["ex", "why", "zed"]
    assert dataset.train.filters.tolist() == [[0, 1], [1, 2]]
    assert dataset.test.filters.tolist() == [[0, 0]]
    assert (dataset.name, dataset.about) == ("small", {"task": "test"})
    assert dataset.propensity == Propensity(0.5, 1.5)


def test_a_text_path_is_as_good_as_a_path(tmp_path: Path) -> None:
    write_files(tmp_path / "set", FOLDERS["raw"])
    assert_same(Dataset.load(str(tmp_path / "set")), Dataset.load(tmp_path / "set"))


def test_the_folder_gives_its_name(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "LF-AmazonTitles-131K", FOLDERS["raw"])
    (folder / "dataset.json").unlink()
    dataset = Dataset.load(folder)
    assert dataset.name == "LF-AmazonTitles-131K"
    assert dataset.propensity == Propensity(0.6, 2.6)
    assert dataset.about == {}


def test_a_single_table_gives_its_name(tmp_path: Path) -> None:
    (tmp_path / "my.docs.csv").write_text("text,labels\na,p\n")
    assert Dataset.load(tmp_path / "my.docs.csv").name == "my"


def test_the_name_in_dataset_json_chooses_the_constants(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "amazon", FOLDERS["raw"] | {"dataset.json": b'{"name": "wikipedia-500k"}'})
    assert Dataset.load(folder).propensity == Propensity(0.5, 0.4)


def test_constants_in_dataset_json_win(tmp_path: Path) -> None:
    about = {"name": "amazon", "propensity": {"A": 0.25, "B": 3}, "licence": "none"}
    dataset = Dataset.load(write_files(tmp_path, FOLDERS["raw"] | {"dataset.json": json.dumps(about).encode()}))
    assert dataset.propensity == Propensity(0.25, 3)
    assert dataset.about == {"licence": "none"}


@pytest.mark.parametrize(
    ("name", "constants"),
    [
        ("LF-AmazonTitles-1.3M", (0.6, 2.6)),
        ("amazon-670k", (0.6, 2.6)),
        ("LF-WikiTitles-500K", (0.5, 0.4)),
        ("LF-Wikipedia-500K", (0.5, 0.4)),
        ("LF-WikiSeeAlsoTitles-320K", (0.55, 1.5)),
        ("catalogue", (0.55, 1.5)),
    ],
)
def test_families_have_their_constants(name: str, constants: tuple[float, float]) -> None:
    assert Propensity.of_family(name) == Propensity(*constants)


def test_inverse_propensity_by_hand() -> None:
    # A = 1, B = 1, N = 20: C = (ln 20 - 1) * 2 = 3.991464547, and 1/p = 1 + C / (N_l + 1).
    weights = Propensity(1.0, 1.0).inverse(np.array([0, 1, 3]), 20)
    assert weights.tolist() == pytest.approx([4.991464547, 2.995732274, 1.997866137], rel=1e-8)
    # A = 0.55, B = 1.5, N = 1000, N_l = 4: 1 + (6.907755279 - 1) * 2.5^0.55 * 5.5^-0.55
    assert Propensity().inverse(np.array([4]), 1000)[0] == pytest.approx(1 + 5.907755279 * 1.655262990 / 2.553874073)


def test_few_documents_give_no_negative_weights() -> None:
    assert Propensity().inverse(np.array([0, 1]), 1).tolist() == [1, 1]


def test_frequency_counts_training_documents_alone() -> None:
    dataset = make_dataset()
    assert dataset.frequency.tolist() == [1, 1, 1]
    expected = dataset.propensity.inverse(np.array([1, 1, 1]), 3)
    assert dataset.inverse_propensity.tolist() == expected.tolist()


@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf, "a", None, pytest.param(10**400, id="huge"), True])
def test_constants_must_be_finite_numbers(value: object) -> None:
    with pytest.raises(DataError, match="propensity B must be a finite number"):
        Propensity(0.5, value)  # type: ignore[arg-type]


def test_an_unknown_layout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"there are: {', '.join(LAYOUTS)}"):
        make_dataset().save(tmp_path / "set", "xml")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("layout", TEXT_LAYOUTS)
def test_text_layouts_refuse_sets_without_texts(tmp_path: Path, layout: str) -> None:
    files = {name: content for name, content in FOLDERS["sparse"].items() if name.endswith(".txt") and name != "Yf.txt"}
    dataset = Dataset.load(write_files(tmp_path / "in", files))
    assert not dataset.has_texts
    with pytest.raises(DataError, match=f"the {layout} layout holds texts"):
        dataset.save(tmp_path / "out", layout)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize("target", ["out", "new/folders/out"])
def test_the_single_layout_refuses_weights_and_leaves_nothing(tmp_path: Path, target: str) -> None:
    dataset = with_features(make_dataset(), FeatureSettings())
    dataset.test.truth.data[0] = 0.5
    with pytest.raises(DataError, match="weights other than 1"):
        dataset.save(tmp_path / target, "single")
    assert list(tmp_path.iterdir()) == []


def test_save_does_not_overwrite(tmp_path: Path) -> None:
    make_dataset().save(tmp_path / "set")
    before = {path.name: path.read_bytes() for path in (tmp_path / "set").iterdir()}
    with pytest.raises(DataError, match="is already there"):
        make_dataset().save(tmp_path / "set", "csv")
    assert {path.name: path.read_bytes() for path in (tmp_path / "set").iterdir()} == before


def test_a_path_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere: there is no such file or folder; check the path .'catalogue' names"):
        Dataset.load(tmp_path / "nowhere")


def test_a_folder_without_a_dataset_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"{tmp_path.name}: holds no dataset that decaf knows; expected trn"):
        Dataset.load(tmp_path)


def test_filtered_sets_filters_by_the_rule() -> None:
    dataset = make_dataset()
    labels = replace(dataset.labels, ids=["a0", "b1", "x"])
    made = replace(dataset, labels=labels).filtered()
    assert made.train.filters.tolist() == [[0, 0]]
    assert made.test.filters.tolist() == [[1, 0], [1, 1]]  # a0 -> b1 was trained
    assert dataset.train.filters.tolist() == []
