"""The verbs around training: train, evaluate, predict, inspect; and runs that are killed and started again."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from modules import QUICK, QUICK_SETTINGS, topics
from typer.testing import CliRunner, Result

import decaf
from decaf import ConfigError, DataError, Dataset, Model, ModelError, Predictor, TrainingError, evaluate_model, recipe
from decaf.cli import app
from decaf.errors import DecafError
from decaf.evaluation import kept_evaluation

FIGURES = [f"{name}@{k}" for name in ("P", "N", "PSP", "PSN") for k in (1, 3, 5)] + ["R@20", "C@20"]
SETTINGS = ["--recipe", "paper", *(word for setting in QUICK_SETTINGS for word in ("--set", setting))]
# The command line, with the state of a running module kept after every epoch and not every 20 seconds.
EAGER = """
from decaf.cli import main
from decaf.modules import checkpoints
checkpoints._SHARE = float("inf")
main()
"""
# The same, killed when an epoch has been noted, or in the middle of writing its state.
KILLED = (
    """
import os, signal
from decaf.modules import checkpoints
from decaf.modules.checkpoints import Checkpoint
where, module, epoch = "{}", "{}", {}
note, keep = Checkpoint.note, Checkpoint.keep
def note_and_die(self, **facts):
    note(self, **facts)
    if (where, facts["module"], facts.get("epoch")) == ("note", module, epoch):
        os.kill(os.getpid(), signal.SIGKILL)
def write_and_die(tensors, path):
    path.write_bytes(b"half of it")
    os.kill(os.getpid(), signal.SIGKILL)
def keep_and_die(self, name, tensors, epochs):
    if (where, name, epochs) == ("write", module, epoch):
        checkpoints.save_file = write_and_die
    keep(self, name, tensors, epochs)
Checkpoint.note, Checkpoint.keep = note_and_die, keep_and_die
"""
    + EAGER
)


def call(*arguments: object, given: str | None = None) -> Result:
    """A verb in this process; what it raises is the test's failure."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=given, env={"COLUMNS": "120"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def plain(text: str) -> str:
    return " ".join(re.sub(r"\x1b\[[0-9;]*m", " ", text).split())


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "topics"
    topics().save(folder)
    return folder


@pytest.fixture(scope="module")
def model(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "model"
    result = call("train", data, "-o", folder, "--device", "cpu", "--seed", 0, *SETTINGS)
    assert result.exit_code == 0
    assert result.stdout == ""
    assert f"{folder} is ready; next: decaf evaluate {folder} {data}" in plain(result.stderr)
    return folder


def test_train_trains_what_the_library_trains(data: Path, model: Path) -> None:
    expected = decaf.train(Dataset.load(data), QUICK, device="cpu")
    texts = ["topic aa", *(Dataset.load(data).test.documents.texts or [])]
    found, wanted = (Predictor(m).predict(texts) for m in (Model.load(model), expected))
    assert np.array_equal(found.ids, wanted.ids)
    assert np.array_equal(found.scores, wanted.scores)


def test_train_again_returns_at_once(data: Path, model: Path) -> None:
    before = (model / "model.json").stat().st_mtime_ns
    assert call("train", data, "-o", model, "--device", "cpu", *SETTINGS).exit_code == 0
    assert (model / "model.json").stat().st_mtime_ns == before
    with pytest.raises(TrainingError, match="choose another folder"):
        call("train", data, "-o", model, "--device", "cpu", "--seed", 1, *SETTINGS)


def test_train_is_silent_when_quiet(data: Path, tmp_path: Path) -> None:
    result = call("train", data, "-o", tmp_path / "m", "--device", "cpu", "-q", *SETTINGS, "--set", "tokens.epochs=1")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--recipe", "papier"], "there is no recipe 'papier'; there are: contrastive, paper, paper-lite"),
        (["--device", "tpu"], "choose auto, cpu or cuda"),
        (["--set", "ranker.epoch=3"], "nearest: 'epochs'"),
        (["--set", "shortlister.clusters=6"], "power of two"),
        (["--precision", "int2"], r"model\.precision.*int4.*int8.*float32"),
    ],
)
def test_a_mistake_is_an_error_of_ours(data: Path, tmp_path: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(DecafError, match=message):
        call("train", data, "-o", tmp_path / "model", *arguments)
    assert not (tmp_path / "model").exists()


def test_the_lite_recipe_is_one_option(data: Path, tmp_path: Path) -> None:
    short = ["--set", "tokens.epochs=1", "--set", "ranker.epochs=1", "--set", "shortlister.epochs=1"]
    call("train", data, "-o", tmp_path, "--device", "cpu", *SETTINGS, *short, "--recipe", "paper-lite")
    assert Model.load(tmp_path).config.model.lite


def test_the_precision_is_one_option_and_float32_takes_more_room(data: Path, model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "whole"
    against = ["--set", "model.precision=int8"]  # the option counts
    call("train", data, "-o", folder, "--device", "cpu", *SETTINGS, *against, "--precision", "float32")
    whole, small = (json.loads(call("inspect", path, "--json").stdout) for path in (folder, model))
    assert (whole["precision"], small["precision"]) == ("float32", "int4")
    assert whole["bytes"] > 2 * small["bytes"]
    sizes = [(path / "instance-0.safetensors").stat().st_size for path in (folder, model)]
    assert sizes[0] > 1.5 * sizes[1]
    assert Model.load(folder).packed[0].labels.weights.dtype == np.float32
    assert "precision float32" in plain(call("inspect", folder).stdout)


def test_evaluate_prints_the_figures_as_one_json_object(data: Path, model: Path) -> None:
    figures = json.loads(call("evaluate", model, data, "--json", "--device", "cpu").stdout)
    assert set(figures) == {*FIGURES, "ms_per_document"}
    expected = evaluate_model(Model.load(model), Dataset.load(data), device="cpu")
    assert [figures[name] for name in FIGURES] == pytest.approx([expected[name] for name in FIGURES])
    assert figures["ms_per_document"] > 0
    assert figures["P@1"] > 85


def test_evaluate_shows_a_table(data: Path, model: Path) -> None:
    shown = plain(call("evaluate", model, data, "--device", "cpu").stdout)
    assert "P@1 P@3 P@5" in shown
    assert "ms a document" in shown


def test_evaluate_refuses_data_with_other_labels(model: Path, tmp_path: Path) -> None:
    topics(labels=8, train=16, test=8).save(tmp_path / "other")
    with pytest.raises(DataError, match="has 8 labels and the model 24"):
        call("evaluate", model, tmp_path / "other")


def labels_of(line: str) -> list[tuple[str, str, float]]:
    record = json.loads(line)
    assert list(record) == ["text", "labels"]
    assert all(list(label) == ["id", "text", "score"] for label in record["labels"])
    return [(label["id"], label["text"], label["score"]) for label in record["labels"]]


def test_predict_prints_a_json_object_a_line(data: Path, model: Path) -> None:
    texts = list(Dataset.load(data).test.documents.texts or [])[:3]
    lines = call("predict", model, *texts, "--json", "--top", 4).stdout.splitlines()
    assert [json.loads(line)["text"] for line in lines] == texts
    loaded = Model.load(model)
    for line, matches in zip(lines, Predictor(loaded).predict(texts, top=4), strict=True):
        found = labels_of(line)
        assert found == [(loaded.labels.id(at), loaded.labels.text(at), score) for at, score in matches]
        scores = [score for _, _, score in found]
        assert len(scores) == 4
        assert scores == sorted(scores, reverse=True)
        assert all(0 < score <= 1 for score in scores)


def test_predict_shows_labels_under_their_text(data: Path, model: Path) -> None:
    text = (Dataset.load(data).test.documents.texts or [])[0]
    shown = call("predict", model, text, "").stdout.splitlines()
    assert shown[0] == text
    assert re.fullmatch(r"   [01]\.\d{3}  topic [a-z]{2}", shown[1])
    assert len(shown) == 8  # five labels; then the empty text, which has none
    assert "no label" in shown[7]


def test_an_empty_text_has_no_labels(model: Path) -> None:
    assert labels_of(call("predict", model, "", "--json").stdout) == []


LINES = "topic aa\n\ntopic ab  \r\ntopic ac\u2028more\x0b\x85 text"
TEXTS = ["topic aa", "", "topic ab  ", "topic ac\u2028more\x0b\x85 text"]


def test_predict_reads_lines_of_a_file(model: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_bytes(LINES.encode())
    lines = call("predict", model, "first", "--input", tmp_path / "texts.txt", "--json").stdout.split("\n")[:-1]
    assert [json.loads(line)["text"] for line in lines] == ["first", *TEXTS]


def test_predict_reads_lines_of_standard_input_as_of_a_file(model: Path) -> None:
    lines = call("predict", model, "--input", "-", "--json", given=LINES).stdout.split("\n")[:-1]
    assert [json.loads(line)["text"] for line in lines] == TEXTS


def test_predict_without_a_text_says_what_to_write(model: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no text to predict; write it behind the model, or name a file"):
        call("predict", model)
    (tmp_path / "empty.txt").write_bytes(b"")
    with pytest.raises(DataError, match=r"empty\.txt: holds no text; write one a line"):
        call("predict", model, "--input", tmp_path / "empty.txt")
    with pytest.raises(DataError, match=r"nowhere\.txt"):
        call("predict", model, "--input", "nowhere.txt")


@pytest.mark.parametrize("device", ["auto", "cpu"])
def test_predict_takes_the_devices_that_its_help_names(model: Path, device: str) -> None:
    assert call("predict", model, "topic aa", "--device", device).exit_code == 0


def test_inspect_shows_what_a_model_is_made_of(model: Path) -> None:
    facts = json.loads(call("inspect", model, "--json").stdout)
    assert facts == json.loads(json.dumps(Model.load(model).facts()))
    assert (facts["labels"], facts["dim"], facts["instances"], facts["dataset"]) == (24, 16, 1, "own")
    shown = plain(call("inspect", model).stdout)
    assert "trained labels 24" in shown
    assert "dim 16" in shown
    assert "dataset own" in shown


CONTRASTIVE = ["model.dim=16", "split.validation=0.25", "tokens.rate=0.05", "ranker.rate=0.02"]
CONTRASTIVE += [f"{stage}.{setting}" for stage in ("tokens", "ranker") for setting in ("epochs=3", "batch=32")]


@pytest.fixture(scope="module")
def contrastive(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("contrastive") / "model"
    call("train", data, "-o", folder, "--device", "cpu", *(w for setting in CONTRASTIVE for w in ("--set", setting)))
    return folder


def test_train_trains_the_contrastive_recipe_unless_told_otherwise(data: Path, contrastive: Path) -> None:
    made = Model.load(contrastive)
    assert (made.config.tokens.kind, made.config.features.pairs) == ("texts", True)
    assert made.instances[0].blend is not None
    expected = decaf.train(Dataset.load(data), recipe().with_settings(CONTRASTIVE), device="cpu")
    texts = list(Dataset.load(data).test.documents.texts or [])
    found, wanted = (Predictor(m).predict(texts) for m in (made, expected))
    assert np.array_equal(found.ids, wanted.ids)
    assert np.array_equal(found.scores, wanted.scores)
    figures = json.loads(call("evaluate", contrastive, data, "--json", "--device", "cpu").stdout)
    assert figures["P@1"] > 85


def test_evaluate_leaves_the_figures_beside_the_model_unless_they_lean(
    data: Path, contrastive: Path, tmp_path: Path
) -> None:
    leaning = Path(shutil.copytree(contrastive, tmp_path / "model"))
    (leaning / "evaluation.json").unlink(missing_ok=True)
    call("evaluate", leaning, data, "--device", "cpu", "--tail", 0.9)
    assert kept_evaluation(leaning) is None
    figures = json.loads(call("evaluate", leaning, data, "--json", "--device", "cpu").stdout)
    kept = kept_evaluation(leaning)
    assert kept is not None
    assert (kept.dataset, kept.metrics) == ("own", figures)
    assert kept.quantiles
    Model.load(leaning)  # the file is none of the model's


@pytest.mark.parametrize("tail", [0, 0.5, 1])
def test_evaluate_and_predict_lean_towards_the_tail_as_told(data: Path, contrastive: Path, tail: float) -> None:
    loaded, dataset = Model.load(contrastive), Dataset.load(data)
    figures = json.loads(call("evaluate", contrastive, data, "--json", "--device", "cpu", "--tail", tail).stdout)
    expected = evaluate_model(loaded, dataset, device="cpu", tail=tail)
    assert [figures[name] for name in FIGURES] == pytest.approx([expected[name] for name in FIGURES])
    text = (dataset.test.documents.texts or [])[0]
    found = labels_of(call("predict", contrastive, text, "--json", "--tail", tail).stdout)
    wanted = Predictor(loaded, tail=tail).predict([text])[0]
    assert [score for _, _, score in found] == [match.score for match in wanted]


def test_a_model_of_the_paper_has_no_tail(data: Path, model: Path) -> None:
    for verb in (["evaluate", model, data], ["predict", model, "topic aa"]):
        with pytest.raises(ModelError, match="leave the tail out"):
            call(*verb, "--tail", 0.5)


def test_predict_names_no_label_below_the_threshold(data: Path, contrastive: Path) -> None:
    text = (Dataset.load(data).test.documents.texts or [])[0]
    everything = labels_of(call("predict", contrastive, text, "--json").stdout)
    assert len(everything) == 5
    threshold = everything[1][2]
    found = labels_of(call("predict", contrastive, text, "--json", "--threshold", threshold).stdout)
    assert found == everything[:2]
    assert "no label" in call("predict", contrastive, text, "--threshold", 1).stdout


@pytest.mark.parametrize("kind", ["model", "contrastive"])
def test_evaluate_is_fast_or_exact_as_told(
    data: Path, kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, scorers = request.getfixturevalue(kind), []

    def noted(*given: Model, device: str, **how: float | None) -> Predictor:
        made = Predictor(*given, device=device, **how)
        scorers.append(type(made.scorer).__name__)
        return made

    monkeypatch.setattr("decaf.predictor.Predictor", noted)
    options: list[list[str]] = [["--exact"], ["--fast"], []]
    exact, fast, left_out = (
        json.loads(call("evaluate", folder, data, "--json", "--device", "cpu", *option).stdout) for option in options
    )
    assert scorers == ["ExactScorer", "FastScorer", "FastScorer"]
    assert [fast[name] for name in FIGURES] == pytest.approx([exact[name] for name in FIGURES], abs=1)
    assert [left_out[name] for name in FIGURES] == [fast[name] for name in FIGURES]
    assert exact["P@1"] > 85


def test_evaluate_is_not_fast_on_a_gpu(data: Path, model: Path) -> None:
    with pytest.raises(ConfigError, match="--fast scores on the CPU; leave it out, or leave out --device cuda"):
        call("evaluate", model, data, "--fast", "--device", "cuda")


PARTS = {
    "model": {"label text", "refinement", "shortlister"},
    "contrastive": {"label text", "refinement", "shortlister", "text likeness", "words", "rarity"},
}


@pytest.mark.parametrize("kind", PARTS)
def test_predict_explains_every_label_as_json(data: Path, kind: str, request: pytest.FixtureRequest) -> None:
    folder = request.getfixturevalue(kind)
    text = (Dataset.load(data).test.documents.texts or [])[0]
    lines = call("predict", folder, text, "", "--explain", "--json", "--top", 3).stdout.splitlines()
    found, nothing = (json.loads(line) for line in lines)
    assert nothing == {"text": "", "labels": []}
    predictor = Predictor(Model.load(folder))
    (matches,) = predictor.predict([text], top=3)
    for label, reason in zip(found["labels"], predictor.explain(text, matches), strict=True):
        assert list(label) == ["id", "text", "score", "parts", "tokens"]
        assert (label["id"], label["score"]) == (predictor.model.labels.id(reason.label), reason.score)
        assert label["parts"] == pytest.approx(reason.parts, abs=1e-4)
        assert label["tokens"] == pytest.approx(reason.tokens, abs=1e-4)
        assert set(label["parts"]) == PARTS[kind]
        assert set(text.split()) <= set(label["tokens"])


def test_predict_shows_parts_and_tokens_under_each_label(data: Path, contrastive: Path) -> None:
    text = (Dataset.load(data).test.documents.texts or [])[0]
    shown = call("predict", contrastive, text, "", "--explain", "--top", 2).stdout.splitlines()
    kinds = [line.split()[0] for line in shown]
    assert shown[0] == text
    assert kinds[2:4] == kinds[5:7] == ["parts:", "tokens:"]
    assert shown[7:] == ["(empty text)", "  no label"]
    reason = Predictor(Model.load(contrastive)).explain(text)[0]
    for line, values in zip(shown[2:4], (reason.parts, reason.tokens), strict=True):
        pairs = [pair.rsplit(" ", 1) for pair in line.split(": ", 1)[1].split(", ")]
        assert {name: float(value) for name, value in pairs} == pytest.approx(
            {name: value for name, value in values.items() if value}, abs=0.006
        )
        sizes = [abs(float(value)) for _, value in pairs]
        assert sizes == sorted(sizes, reverse=True)  # what counts most comes first
        assert all(value[0] in "+-" for _, value in pairs)
    assert "parts" not in call("predict", contrastive, text).stdout


def start(data: Path, folder: Path, *settings: str, code: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, "train", data, "-o", folder, "--device", "cpu", *SETTINGS, *settings]
    return subprocess.Popen(
        [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    )


def record(folder: Path) -> list[tuple[str, int]]:
    """The epochs that are noted whole."""
    path = folder / "metrics.jsonl"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    notes = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
    return [(note["module"], note["epoch"]) for note in notes if "epoch" in note]


def wait_for(process: subprocess.Popen[str], folder: Path, epoch: tuple[str, int]) -> None:
    """Until this epoch is over."""
    while epoch not in record(folder):
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)


LONG = [word for stage in ("tokens", "shortlister", "ranker") for word in ("--set", f"{stage}.epochs=60")]


def test_a_run_that_is_killed_three_times_ends_as_one_that_was_not(data: Path, model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    for *point, lines in (("note", "module I", 3, 3), ("write", "module II", 2, 8), ("note", "module IV", 4, 16)):
        process = start(data, folder, code=KILLED.format(*point))
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert not (folder / "model.json").exists()
        assert len(record(folder)) == lines
    last = start(data, folder, code=EAGER)
    assert "going on with the run" in last.communicate()[1]
    assert last.returncode == 0
    assert not (folder / "checkpoint").exists()
    # Each kill came after an epoch was noted and before it was kept: that one was learned again, and no other.
    again = [("module I", 3), ("module II", 2), ("module IV", 4)]
    whole = [(name, epoch) for name in ("module I", "module II", "module IV") for epoch in range(1, 6)]
    assert sorted(record(folder)) == sorted(whole + again)
    texts = list(Dataset.load(data).test.documents.texts or [])
    found, expected = (Predictor(Model.load(path)).predict(texts) for path in (folder, model))
    assert np.array_equal(found.ids, expected.ids)
    assert np.array_equal(found.scores, expected.scores)


def test_a_run_that_is_killed_at_any_moment_goes_on(data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    process = start(data, folder, *LONG, code=EAGER)
    wait_for(process, folder, ("module I", 5))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    call("train", data, "-o", folder, "--device", "cpu", *SETTINGS, *LONG)
    expected = decaf.train(Dataset.load(data), QUICK.with_settings(LONG[1::2]), device="cpu")
    texts = list(Dataset.load(data).test.documents.texts or [])
    found, wanted = (Predictor(made).predict(texts) for made in (Model.load(folder), expected))
    assert np.array_equal(found.ids, wanted.ids)
    assert np.array_equal(found.scores, wanted.scores)


def test_a_run_that_is_interrupted_says_how_to_go_on(data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    process = start(data, folder, *LONG, code="from decaf.cli import main; main()")
    wait_for(process, folder, ("module II", 2))
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate()
    assert process.returncode == 130
    assert out == ""
    assert "stopped; run the same command again to go on" in errors
    assert "Traceback" not in errors
    assert (folder / "checkpoint" / "module-I.done.safetensors").is_file()
    assert not (folder / "model.json").exists()
