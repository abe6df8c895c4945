"""The benchmark of a million labels, with a few hundred: every stage is run, told and can be gone on with."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from decaf import Dataset
from decaf.predictions import Predictions, load_scores

ROOT = Path(__file__).parent.parent.parent
STAGES = ["make", "features", "problem", "module I", "module II", "module IV", "words", "blend", "pack", "oracle"]


def run(out: Path, *options: str) -> dict[str, object]:
    sizes = ("--labels", "300", "--documents", "600", "--tests", "60", "--device", "cpu", "--fraction", "0.125")
    command = [sys.executable, "-m", "benchmarks.million", *sizes, "--set", "model.dim=16", "--out", str(out), *options]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    subprocess.run(command, cwd=out.parent, env=environment, check=True, capture_output=True, text=True)
    figures: dict[str, object] = json.loads(out.read_text(encoding="utf-8"))
    return figures


def lines(figures: dict[str, object], key: str = "stages") -> dict[str, dict[str, float]]:
    found = figures[key]
    assert isinstance(found, list)
    return {line["stage"]: line for line in found if "of" not in line}


def test_a_run_tells_of_every_stage_and_goes_on_where_another_stopped(tmp_path: Path) -> None:
    keep = ("--keep", str(tmp_path / "kept"))
    first = lines(run(tmp_path / "figures.json", *keep, "--until", "module I"))
    assert list(first) == STAGES[:4]
    learned = first["module I"]
    assert learned["steps_in_all"] == 8 * learned["steps_measured"]
    assert learned["refreshes_not_run"] == 2  # of eight epochs, after every third
    assert learned["seconds_not_run"] == pytest.approx(7 * learned["epoch_seconds"], abs=0.1)
    figures = run(tmp_path / "figures.json", *keep)
    second, before = lines(figures), lines(figures, "earlier")
    assert list(second)[: len(STAGES)] == STAGES
    assert [name for name, line in second.items() if "kept" in line] == ["make", "features", "module I"]
    assert before["module I"] == learned
    summary = figures["summary"]
    assert isinstance(summary, dict)
    assert summary["training_seconds_measured"] >= learned["seconds"]
    assert summary["training_seconds_extrapolated"] >= learned["seconds_not_run"]
    assert 0 < second["judge, tail 0"]["P@1"] <= 100
    assert second["oracle"]["P@1"] > 50


def test_a_module_whose_epochs_were_all_run_has_nothing_that_was_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)
    million = importlib.import_module("benchmarks.million")
    line: dict[str, float] = {}
    report = million.Report(None, torch.device("cpu"), 60.0)
    epochs = million.Epochs(report, line, wanted=4, steps=10, refresh=3)
    missing = []
    for epoch in range(1, 5):
        epochs.note(module="module I", epoch=epoch, seconds=2.0)
        missing.append((line["seconds_not_run"], line["refreshes_not_run"]))
    assert missing == [(6.0, 1), (4.0, 1), (2.0, 1), (0.0, 0)]


def test_the_data_are_those_of_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)
    maker, million = (importlib.import_module(f"benchmarks.{name}") for name in ("make_catalogue", "million"))
    monkeypatch.setattr(million, "AT_ONCE", 500)
    monkeypatch.setattr(maker, "AT_ONCE", 500)
    shape = maker.Shape(labels=900, documents=1100, tests=130)
    maker.make(shape, tmp_path / "made")
    written, (made, oracle) = Dataset.load(tmp_path / "made"), million.catalogue(shape)
    for found, expected in ((made.train, written.train), (made.test, written.test)):
        assert found.documents.texts == expected.documents.texts
        assert found.documents.ids == expected.documents.ids
        assert (found.truth != expected.truth).nnz == 0
    assert made.labels.texts == written.labels.texts
    assert made.propensity == written.propensity
    kept = Predictions.from_csr(load_scores(tmp_path / "made" / "oracle.npz", *made.test.truth.shape), 20)
    assert np.array_equal(oracle.ids[:, :20], kept.ids)
    assert np.array_equal(oracle.scores[:, :20], kept.scores)
