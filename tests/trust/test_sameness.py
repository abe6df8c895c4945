"""The same in, the same out: training bit by bit, answers whatever company, threads, process and copy of the model.

The fast scorer answers for each text alone, in one order of sums: its bits never change. The exact scorer multiplies
whole matrices, and how their sums are grouped depends on how many rows there are: its chances may differ in the last
bits of single precision, never by more than CLOSE, and labels change places only where they are as close as that.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from modules import topics
from numpy.typing import NDArray
from test_contrastive import SMALL
from test_training import QUICK

import decaf
from decaf import Dataset, Model, Predictions, Predictor, evaluate_model
from decaf.datasets import Items
from decaf.packed import Packed

CLOSE = 2e-6  # of a chance: some units in the last place of single precision
FEW_BITS = 0.5  # points of P@1 and PSP@5 that eight bits may cost or bring on some hundred documents

TRAIN = """
import json, sys
from pathlib import Path
import torch
sys.path[:0] = [{tests!r}]
from modules import topics
import decaf
from decaf import Config
torch.set_num_threads(2)
for name, settings in json.loads(sys.argv[2]).items():
    decaf.train(topics(), Config.from_json(settings), seed=3, device="cpu", folder=Path(sys.argv[1]) / name)
"""
ANSWER = """
import sys
import numpy as np
from decaf import Model, Predictor
found = Predictor(Model.load(sys.argv[1]), fast=sys.argv[2] == "fast", threads=2).predict(sys.argv[4:], top=5)
np.savez(sys.argv[3], ids=found.ids, scores=found.scores)
"""


def child(script: str, *arguments: object) -> subprocess.Popen[bytes]:
    """A process of its own, with as many threads as it likes."""
    given = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    return subprocess.Popen([sys.executable, "-c", script, *map(str, arguments)], env=given)


def digests(folder: Path) -> dict[str, str]:
    """The digest of every file that a model is; its times and the picture of them are no part of it."""
    named = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    files = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in named["files"]}
    return files | {"model.json": json.dumps({key: value for key, value in named.items() if key != "seconds"})}


def test_two_processes_train_the_same_models_bit_by_bit(tmp_path: Path) -> None:
    script = TRAIN.format(tests=str(Path(__file__).parent.parent))
    settings = json.dumps({"default": SMALL.to_json(), "paper": QUICK.to_json()})
    runs = [child(script, tmp_path / str(number), settings) for number in range(2)]
    assert [run.wait() for run in runs] == [0, 0]
    for recipe in ("default", "paper"):
        first, second = (digests(tmp_path / str(number) / recipe) for number in range(2))
        assert {"instance-0.safetensors", "labels.arrow", "tokenizer.json", "features.json"} <= first.keys()
        assert first == second


@pytest.fixture(scope="module")
def data() -> Dataset:
    return topics()


@pytest.fixture(scope="module")
def folder(data: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("sameness") / "model"
    decaf.train(data, SMALL, device="cpu", folder=made)
    return made


@pytest.fixture(scope="module")
def texts(data: Dataset) -> list[str]:
    return [*(data.test.documents.texts or []), "", "nothing known"] * 3


def same(left: Predictions, right: Predictions, *, fast: bool) -> None:
    """Bit by bit where fast, otherwise but for the last bits."""
    if fast:
        assert np.array_equal(left.ids, right.ids)
        assert np.array_equal(left.scores, right.scores)
        return
    there = left.ids >= 0
    assert np.array_equal(there, right.ids >= 0)
    np.testing.assert_allclose(left.scores[there], right.scores[there], rtol=0, atol=CLOSE)
    for one, other, scores in zip(left.ids, right.ids, left.scores, strict=True):
        for place in np.flatnonzero(one != other):
            assert min(_gaps(scores, int(place))) <= 2 * CLOSE


def _gaps(scores: NDArray[np.float32], place: int) -> list[float]:
    """How far a score is from those beside it; the one behind the last is not known."""
    near = [scores[at] for at in (place - 1, place + 1) if 0 <= at < len(scores)]
    return [abs(float(scores[place] - other)) for other in near] + ([0.0] if place == len(scores) - 1 else [])


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "exact"])
def test_company_threads_and_a_second_load_change_nothing(folder: Path, texts: list[str], fast: bool) -> None:
    model = Model.load(folder)
    expected = Predictor(model, fast=fast, threads=1).predict(texts, top=5)
    assert (expected.ids[:, 0] >= 0).sum() > 300
    for threads in (2, 4):
        same(Predictor(model, fast=fast, threads=threads).predict(texts, top=5), expected, fast=fast)
    again = Predictor(Model.load(folder), fast=fast)
    same(again.predict(texts, top=5), expected, fast=fast)
    for size in (1, 7, 100):
        parts = [again.predict(texts[start : start + size], top=5) for start in range(0, len(texts), size)][:60]
        ids, scores = (np.concatenate([getattr(part, name) for part in parts]) for name in ("ids", "scores"))
        same(Predictions(ids, scores), expected.take(range(len(ids)), 5), fast=fast)


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "exact"])
def test_another_process_answers_the_same(folder: Path, texts: list[str], tmp_path: Path, fast: bool) -> None:
    expected = Predictor(Model.load(folder), fast=fast).predict(texts[:50], top=5)
    found = tmp_path / "found.npz"
    assert child(ANSWER, folder, "fast" if fast else "exact", found, *texts[:50]).wait() == 0
    with np.load(found) as arrays:
        same(Predictions(arrays["ids"], arrays["scores"]), expected, fast=fast)


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "exact"])
def test_a_model_that_is_saved_again_answers_the_same(
    folder: Path, texts: list[str], tmp_path: Path, fast: bool
) -> None:
    model = Model.load(folder)
    model.save(tmp_path / "copy")
    copied = Model.load(tmp_path / "copy")
    same(*(Predictor(each, fast=fast).predict(texts, top=5) for each in (model, copied)), fast=True)
    assert digests(tmp_path / "copy").keys() == digests(folder).keys()


@pytest.fixture(scope="module")
def packages() -> Dataset:
    """A part of the embedded catalogue: its first documents, and the labels that they have."""
    whole = Dataset.load("catalogue")
    train, test = whole.train.take(np.arange(1000)), whole.test.take(np.arange(600))
    kept = np.flatnonzero(np.bincount(train.truth.indices, minlength=whole.labels.count))
    labels: Items = whole.labels.take(kept)
    return Dataset("packages", train.take_labels(kept), test.take_labels(kept), labels)


@pytest.mark.parametrize(("precision", "same", "apart"), [("int8", 0.97, 0.02), ("int4", 0.85, 0.08)])
def test_few_bits_answer_as_single_precision_does(packages: Dataset, precision: str, same: float, apart: float) -> None:
    settings = ["model.precision=float32", "model.dim=32", "tokens.epochs=3", "ranker.epochs=2"]
    whole = decaf.train(packages, decaf.recipe("contrastive").with_settings(settings), device="cpu")
    rounded = decaf.Model(
        whole.config.with_settings([f"model.precision={precision}"]),
        *(whole.features, whole.labels, whole.kept),
        tuple(Packed.of(instance, precision) for instance in whole.instances),
        *(whole.about, whole.frequency),
    )
    texts = list(packages.test.documents.texts or [])
    found, expected = (Predictor(model, fast=False).predict(texts, top=5) for model in (rounded, whole))
    there = expected.ids[:, 0] >= 0
    assert not np.array_equal(found.scores, expected.scores)
    assert (found.ids[there, 0] == expected.ids[there, 0]).mean() > same
    kept = [len({*one} & {*other}) / 5 for one, other in zip(found.ids[there], expected.ids[there], strict=True)]
    assert np.mean(kept) > same
    first = there & (found.ids[:, 0] == expected.ids[:, 0])
    assert np.quantile(np.abs(found.scores[first, 0] - expected.scores[first, 0]), 0.95) < apart
    figures = [evaluate_model(model, packages, device="cpu") for model in (rounded, whole)]
    for figure in ("P@1", "P@5", "PSP@1", "PSP@5"):
        assert abs(figures[0][figure] - figures[1][figure]) <= FEW_BITS
