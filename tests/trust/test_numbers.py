"""Numbers that are not finite stop a run, name what they came with, and leave it fit to go on."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from modules import QUICK, topics
from test_contrastive import SMALL
from typer.testing import CliRunner

import decaf
from decaf import Config, Dataset, Model, TrainingError, with_features
from decaf.cli import app
from decaf.modules import linear
from decaf.modules.linear import Linear

RECIPES = {"default": SMALL, "paper": QUICK}
STAGES = {"module I": "tokens", "module II": "shortlister", "module IV": "ranker"}


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    data = topics()
    names = [f"d{row}" for row in range(data.train.documents.count)]
    return replace(data, train=replace(data.train, documents=replace(data.train.documents, ids=names)))


def train(dataset: Dataset, config: Config, folder: Path, *settings: str) -> Model:
    return decaf.train(dataset, config.with_settings(settings), device="cpu", folder=folder)


def record(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("module", STAGES)
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_rate_that_is_far_too_high_stops_the_run_and_a_lower_one_goes_on(
    dataset: Dataset, tmp_path: Path, recipe: str, module: str
) -> None:
    config, folder, setting = RECIPES[recipe], tmp_path / "model", f"{STAGES[module]}.rate"
    with pytest.raises(TrainingError) as caught:
        train(dataset, config, folder, f"{setting}=1e38")
    said = str(caught.value)
    assert said.startswith(f"{module}: ")
    assert " not finite in epoch 1, step " in said
    assert f"; lower {setting} and run again" in said
    last = record(folder)[-1]
    assert last["module"] == module
    assert str(last["broke"]).startswith("epoch 1, step ")
    named = str(last["documents"]).split(", ")
    texts = {f"(label {label})" for label in dataset.labels.ids or ()}
    known = {*(dataset.train.documents.ids or ())} | (texts if module == "module I" else set())
    assert set(named) <= known
    assert len(set(named)) == len(named) == 32
    assert f"with documents {', '.join(named[:8])} and 24 more" in said
    kept = {path.name: path.stat().st_mtime_ns for path in (folder / "checkpoint").glob("*.done.safetensors")}
    assert len(kept) == list(STAGES).index(module)
    gone_on, anew = train(dataset, config, folder), train(dataset, config, tmp_path / "anew")
    assert not (folder / "checkpoint").exists()
    assert any(line.get("rate_before") == 1e38 for line in record(folder))
    for one, other in zip(gone_on.instances, anew.instances, strict=True):
        assert all(torch.equal(tensor, other.tensors()[name]) for name, tensor in one.tensors().items())


def test_a_document_that_is_not_finite_is_named_by_its_id(dataset: Dataset, tmp_path: Path) -> None:
    ready = with_features(dataset, SMALL.features)
    features = ready.train.documents.need_features().copy()
    features.data[features.indptr[17]] = np.nan
    items = replace(ready.train.documents, texts=None, features=features)
    bare = replace(ready, train=replace(ready.train, documents=items), labels=replace(ready.labels, texts=None))
    bare = replace(bare, test=replace(bare.test, documents=replace(bare.test.documents, texts=None)))
    settings = ["split.validation=0", *(f"{stage}.batch=8" for stage in STAGES.values())]
    with pytest.raises(TrainingError, match=r"module I: .* not finite in epoch 1, .*\bd17\b"):
        train(bare, SMALL, tmp_path / "model", *settings)


def test_what_is_not_finite_outside_of_the_epochs_is_not_kept(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn = linear.learn_linear

    def broken(*given: object, **named: object) -> Linear:
        made = learn(*given, **named)  # type: ignore[arg-type]
        made.bias[3] = np.nan
        return made

    monkeypatch.setattr(linear, "learn_linear", broken)
    with pytest.raises(TrainingError, match=r"module IV: .*bias.* not finite; lower ranker\.rate and run again"):
        train(dataset, SMALL, tmp_path / "model")
    monkeypatch.undo()
    assert train(dataset, SMALL, tmp_path / "model").packed


def test_the_command_line_says_it_without_a_traceback(tmp_path: Path) -> None:
    table = tmp_path / "own.csv"
    rows = "".join(f'p{row},"word{row % 7} thing{row % 5}",label{row % 6}\n' for row in range(60))
    table.write_text("id,text,labels\n" + rows, encoding="utf-8")
    options = ["--device", "cpu", "--set", "model.dim=8"]
    command = ["train", str(table), "-o", str(tmp_path / "model"), *options]
    broken = [sys.executable, "-m", "decaf", *command, "--set", "tokens.rate=1e38"]
    result = subprocess.run(broken, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    last = result.stderr.splitlines()[-1]
    assert last.startswith("decaf: module I: ")
    assert "lower tokens.rate and run again" in last
    assert "Traceback" not in result.stderr
    assert CliRunner().invoke(app, command).exit_code == 0
    assert (tmp_path / "model" / "model.json").is_file()
