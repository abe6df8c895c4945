"""The command line: every verb on a tiny dataset, and every mistake as one line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from typer.testing import CliRunner, Result

from decaf import Config, DataError, Dataset, Predictions, console, recipe
from decaf.cli import app
from decaf.datasets import LAYOUTS, Items, Part

DECAF = Path(sys.executable).with_name("decaf")
FIGURES = [f"{name}@{k}" for name in ("P", "N", "PSP", "PSN") for k in (1, 3, 5)] + ["R@20", "C@20"]
LABELS = ["red apple", "green pear", "blue plum"]
TRAIN = [("red apple pie", [0]), ("green pear tree", [1]), ("blue plum jam", [2]), ("red apple tree", [0])]
TEST = [("apple", [0]), ("pear jam", [1]), ("zzz", [2])]
VERBS = {
    "demo": ["--no-serve", "--set"],
    "train": ["DATA", "--output", "-o", "--recipe", "--device", "--seed", "--precision", "--set", "--quiet", "-q"],
    "evaluate": ["MODEL", "DATA", "--device", "--tail", "--fast", "--exact", "--threads", "--json"],
    "predict": ["MODEL", "TEXT", "--top", "--input", "--threshold", "--tail", "--device", "--explain", "--json"],
    "inspect": ["PATH", "--set", "--json"],
    "convert": ["DATA", "OUT", "--to", "--set"],
    "split": ["DATA", "OUT", "--to", "--set"],
    "match": ["DATA", "--output", "-o", "--top", "--set"],
    "metrics": ["DATA", "PREDICTIONS", "--set", "--json"],
    "settings": ["--recipe", "--set", "--json"],
    "serve": ["MODEL", "--host", "--port", "--workers", "--labels", "--read-key", "--write-key", "--no-watch"],
}


def call(*arguments: object) -> Result:
    """A verb in this process; what it raises is the test's failure."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "120"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def decaf(*arguments: object, **env: str) -> subprocess.CompletedProcess[str]:
    """The installed script, as a person runs it."""
    command = [DECAF, *map(str, arguments)]
    return subprocess.run(
        command, env=os.environ | env, capture_output=True, encoding="utf-8", errors="replace", check=False
    )


def plain(text: str) -> str:
    """Without colours, frames and line breaks, which depend on the terminal."""
    return " ".join(re.sub(r"\x1b\[[0-9;]*m|[│╭╮╰╯─]", " ", text).split())


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "fruit"
    folder.mkdir()

    def write(name: str, records: list[dict[str, Any]]) -> None:
        (folder / name).write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")

    write("lbl.json", [{"uid": f"L{row}", "title": title} for row, title in enumerate(LABELS)])
    for name, documents in (("trn.json", TRAIN), ("tst.json", TEST)):
        write(
            name,
            [
                {"uid": f"{name}{row}", "title": title, "target_ind": labels, "target_rel": [1.0] * len(labels)}
                for row, (title, labels) in enumerate(documents)
            ],
        )
    return folder


def write_scores(path: Path, scores: list[list[float]]) -> Path:
    sparse.save_npz(path, sparse.csr_array(np.array(scores)))
    return path


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_a_verb_mentions_its_arguments(verb: str) -> None:
    for flag in ("--help", "-h"):
        result = call(verb, flag)
        assert result.exit_code == 0
        assert set(VERBS[verb]) <= set(re.split(r"[\s\[\]{}|]+", plain(result.stdout)))


def test_help_lists_every_verb() -> None:
    result = call("--help")
    assert result.exit_code == 0
    assert {command.callback.__name__ for command in app.registered_commands if command.callback} == set(VERBS)
    assert all(f" {verb} " in plain(result.stdout) for verb in VERBS)


def test_inspect_prints_sizes(data: Path) -> None:
    shown = plain(call("inspect", data).stdout)
    assert "training documents N 4" in shown
    assert "labels L 3" in shown
    assert "test documents N' 3" in shown
    assert "labels per document 1.00" in shown


def test_inspect_json_has_the_statistics_and_nothing_else_on_standard_output(data: Path) -> None:
    facts = json.loads(call("inspect", data, "--json").stdout)
    assert (facts["name"], facts["train_documents"], facts["labels"], facts["test_documents"]) == ("fruit", 4, 3, 3)
    assert facts["documents_per_label"] == pytest.approx(4 / 3)
    assert [band["labels"] for band in facts["frequency"]] == [2, 1]
    assert facts["tokens"] > 0


def test_inspect_takes_settings(data: Path) -> None:
    few = json.loads(call("inspect", data, "--json", "--set", "features.vocabulary=20").stdout)
    many = json.loads(call("inspect", data, "--json", "--set", "features.min_count=1").stdout)
    assert few["tokens"] <= 20
    assert many["tokens"] == 9  # red apple green pear blue plum pie tree jam


@pytest.mark.parametrize("layout", LAYOUTS)
def test_convert_writes_every_layout_without_loss(data: Path, tmp_path: Path, layout: str) -> None:
    result = call("convert", data, tmp_path / "out", "--to", layout)
    assert result.stdout == ""
    assert f"({layout}): 4 training documents, 3 test documents, 3 labels" in plain(result.stderr)
    before, after = Dataset.load(data), Dataset.load(tmp_path / "out")
    assert after.name == "fruit"
    for name in ("train", "test"):
        assert getattr(after, name).truth.toarray().tolist() == getattr(before, name).truth.toarray().tolist()
    if after.has_texts:
        assert list(after.labels.texts or []) == LABELS


@pytest.fixture
def table(tmp_path: Path) -> Path:
    lines = [f"{colour} thing {number},{colour}" for colour in ("red", "green", "blue", "grey") for number in range(20)]
    (tmp_path / "my.csv").write_text("\n".join(["text,labels", *lines]) + "\n", encoding="utf-8")
    return tmp_path / "my.csv"


def test_split_shares_documents_out(table: Path, tmp_path: Path) -> None:
    def train_texts(folder: str, *assignments: str) -> list[str]:
        call("split", table, tmp_path / folder, *(word for given in assignments for word in ("--set", given)))
        dataset = Dataset.load(tmp_path / folder)
        assert dataset.train.documents.count + dataset.test.documents.count == 80
        assert dataset.labels.count == 4
        return list(dataset.train.documents.texts or [])

    assert len(train_texts("plain")) == 56  # 70 % of 80
    half = train_texts("half", "split.train=0.5", "split.seed=3")
    assert len(half) == 40
    assert train_texts("again", "split.train=0.5", "split.seed=3") == half
    assert train_texts("other", "split.train=0.5", "split.seed=4") != half


def test_a_table_is_split_matched_and_judged(table: Path, tmp_path: Path) -> None:
    call("split", table, tmp_path / "my")
    call("match", tmp_path / "my", "-o", tmp_path / "match.npz")
    figures = json.loads(call("metrics", tmp_path / "my", tmp_path / "match.npz", "--json").stdout)
    assert figures["P@1"] == figures["C@20"] == 100


def test_match_writes_predictions_that_metrics_judges(data: Path, tmp_path: Path) -> None:
    result = call("match", data, "-o", tmp_path / "match.npz")
    assert result.stdout == ""
    assert "judge it with: decaf metrics" in plain(result.stderr)
    shown = call("metrics", data, tmp_path / "match.npz", "--json")
    figures = json.loads(shown.stdout)
    # apple -> red apple, pear -> green pear, and nothing is known of zzz: 2 of 3 documents.
    assert figures["P@1"] == pytest.approx(200 / 3)
    assert figures["C@20"] == pytest.approx(200 / 3)
    text = plain(call("metrics", data, tmp_path / "match.npz").stdout)
    assert "match.npz 66.67 22.22 13.33" in text
    assert "contribution to P@5" in text


def test_match_keeps_as_many_labels_as_asked(data: Path, tmp_path: Path) -> None:
    call("match", data, "-o", tmp_path / "one.npz", "--top", 1)
    assert np.diff(sparse.load_npz(tmp_path / "one.npz").indptr).max() == 1


def test_metrics_json_has_exactly_these_figures(data: Path, tmp_path: Path) -> None:
    perfect = write_scores(tmp_path / "perfect.npz", [[1, 0, 0], [0, 1, 0], [0, 0, 1]])
    figures = json.loads(call("metrics", data, perfect, "--json").stdout)
    assert list(figures) == [*FIGURES, "quantiles"]
    assert [figures[name] for name in FIGURES if not name.startswith("P@")] == pytest.approx([100] * 11)
    assert [figures["P@1"], figures["P@3"], figures["P@5"]] == pytest.approx([100, 100 / 3, 20])
    assert len(figures["quantiles"]) == 5
    assert all(set(quantile) == {"labels", "mean_frequency", "contribution"} for quantile in figures["quantiles"])
    assert sum(quantile["contribution"] for quantile in figures["quantiles"]) == pytest.approx(figures["P@5"])


def test_metrics_takes_filtered_pairs_out_before_it_cuts_at_20(tmp_path: Path) -> None:
    titles = [f"label {row}" for row in range(30)]
    truth = sparse.csr_array(([1.0], ([0], [29])), shape=(1, 30), dtype=np.float32)
    filters = np.array([[0, label] for label in range(25)])
    part = Part(Items(1, ["a"], ["one document"]), truth, filters)
    Dataset("own", part, part, Items(30, titles, titles)).save(tmp_path / "own")
    scores = write_scores(tmp_path / "scores.npz", [[float(100 - label) for label in range(30)]])
    figures = json.loads(call("metrics", tmp_path / "own", scores, "--json").stdout)
    # Labels 0 to 24 are filtered; of 25 to 29 the last is right.
    assert (figures["P@3"], figures["P@5"], figures["R@20"]) == (0, 20, 100)


def test_settings_lists_all_with_what_they_do() -> None:
    shown = plain(call("settings", "--set", "split.seed=42").stdout)
    assert "split.seed 42 seed of the random choice" in shown
    assert "features.vocabulary 0 most word pieces" in shown


def test_settings_of_one_stage() -> None:
    shown = plain(call("settings", "ranker", "--set", "ranker.epochs=7").stdout)
    assert "ranker.epochs 7 " in shown
    assert "split.seed" not in shown
    values = json.loads(call("settings", "ranker", "--json", "--set", "ranker.epochs=7").stdout)
    assert list(values) == ["ranker"]
    assert Config.from_json(values).ranker == recipe("contrastive").with_settings(["ranker.epochs=7"]).ranker


def test_settings_json_can_be_read_back() -> None:
    values = json.loads(call("settings", "--json", "--set", "features.words=yes").stdout)
    assert values["features"]["words"] is True
    assert Config.from_json(values) == recipe("contrastive").with_settings(["features.words=yes"])


@pytest.mark.parametrize("name", ["contrastive", "paper", "paper-lite"])
def test_settings_are_those_of_a_recipe(name: str) -> None:
    values = json.loads(call("settings", "--recipe", name, "--json").stdout)
    assert Config.from_json(values) == recipe(name)
    changed = json.loads(call("settings", "--recipe", name, "--json", "--set", "ranker.epochs=3").stdout)
    assert Config.from_json(changed) == recipe(name).with_settings(["ranker.epochs=3"])


def test_settings_of_the_paper_are_shown_by_name() -> None:
    shown = plain(call("settings", "--recipe", "paper").stdout)
    assert 'tokens.kind "clusters"' in shown
    assert "ensemble.instances 3" in shown
    assert 'tokens.kind "texts"' in plain(call("settings").stdout)


def expect_one_line(done: subprocess.CompletedProcess[str], *parts: str) -> None:
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("decaf: ")
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert all(part in done.stderr for part in parts), done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["inspect", "nowhere"], "nowhere: there is no such file or folder"),
        (["inspect", "."], "holds no dataset"),
        (["inspect", "half"], "half: holds no model (there is no model.json)"),
        (["inspect", "fruit", "--set", "features.vocabluary=3"], "nearest: 'vocabulary'"),
        (["convert", "fruit", "out", "--to", "xml"], "there is no layout 'xml'"),
        (["convert", "fruit", "fruit/lbl.json"], "is already there"),
        (["settings", "--recipe", "papier"], "there is no recipe 'papier'; there are: contrastive, paper, paper-lite"),
        (["settings", "rankre"], "nearest: 'ranker'"),
        (["settings", "rankre", "--json"], "nearest: 'ranker'"),
        (["metrics", "fruit", "nowhere.npz"], "nowhere.npz: there is no such file; check the path"),
        (["metrics", "fruit", "wide.npz"], "wide.npz: is 3 x 4; expected 3 documents x 3 labels"),
        (["match", "fruit", "-o", "nowhere/match.npz"], "nowhere: is no folder that can be written"),
    ],
)
def test_a_mistake_is_one_line(data: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str) -> None:
    monkeypatch.chdir(data.parent)
    write_scores(Path("wide.npz"), [[1, 0, 0, 0]] * 3)
    Path("half").mkdir(exist_ok=True)
    Path("half", "instance-0.safetensors").touch()
    before = sorted(data.parent.rglob("*"))
    expect_one_line(decaf(*arguments), message)
    assert sorted(data.parent.rglob("*")) == before


def test_an_output_folder_that_is_there_is_left_alone(data: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine", encoding="utf-8")
    expect_one_line(decaf("convert", data, tmp_path / "out"), "is already there")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine.txt"]
    assert (tmp_path / "out" / "mine.txt").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["inspect"],
        ["inspect", "a", "b"],
        ["inspect", "a", "--nonsense"],
        ["match", "a"],
        ["match", "a", "-o", "b", "--top", "0"],
        ["match", "a", "-o", "b", "--top", "many"],
        ["predict", "a", "b", "--threshold", "1.5"],
        ["predict", "a", "b", "--threshold", "-1"],
        ["predict", "a", "b", "--tail", "2"],
        ["evaluate", "a", "b", "--tail", "-0.1"],
    ],
)
def test_bad_usage_exits_with_2(arguments: list[str]) -> None:
    assert call(*arguments).exit_code == 2


def test_the_installed_script_works_from_any_folder(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(data)
    done = decaf("inspect", ".", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["name"] == "fruit"


def test_the_demo_trains_prints_its_sections_and_keeps_its_model(tmp_path: Path) -> None:
    quick = ["model.dim=8", "split.validation=0", "shortlister.clusters=256", "shortlister.beam=4"]
    quick += [f"{stage}.epochs=0" for stage in ("tokens", "shortlister", "ranker")]
    kept = tmp_path / "kept"
    done = decaf("demo", "--no-serve", "-o", kept, *(word for setting in quick for word in ("--set", setting)))
    assert done.returncode == 0, done.stderr[-500:]
    assert (kept / "model.json").is_file()
    assert "training the default recipe" in done.stderr
    shown = plain(done.stdout)
    places = [
        shown.index(section)
        for section in (
            "catalogue training documents N",
            "labels by training documents",
            "on the test packages, in percent",
            "P@1 P@3 P@5 PSP@1",
            "label text alone",
            "decaf ",
            "contribution to P@5 of labels from rare to frequent",
            "packages of the test part",
            "0install-core",
            "missed: ",
            "python3-neural-parser",
            "the model is in",
            "with your own data",
            "decaf inspect my.csv",
        )
    ]
    assert places == sorted(places)


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_output_that_cannot_show_a_character_shows_the_rest(data: Path, encoding: str) -> None:
    done = decaf("inspect", data, PYTHONIOENCODING=encoding)
    assert done.returncode == 0, done.stderr[-200:]
    assert "labels by training documents" in done.stdout


def test_texts_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    predictions = Predictions(np.array([[1, 0], [-1, -1]]), np.array([[2.0, 1.0], [-np.inf] * 2], dtype=np.float32))
    console.show_predictions(["[red]a[/red]", ""], predictions, Items(2, texts=["[b]", "[/c] 50 %"]))
    shown = capsys.readouterr().out.splitlines()
    assert shown[:3] == ["[red]a[/red]", "   2.000  [/c] 50 %", "   1.000  [b]"]
    assert shown[3:] == ["(empty text)", "  no label"]


def test_what_is_right_is_ticked_and_what_is_missed_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    predictions = Predictions(np.array([[1, 0], [-1, -1]]), np.array([[2.0, 1.0], [-np.inf] * 2], dtype=np.float32))
    labels = Items(9, texts=list("abcdefghi"))
    console.show_predictions(["one", "other"], predictions, labels, [[0, 2, 3], [2, 3, 4, 5, 6, 7, 8]])
    shown = capsys.readouterr().out.splitlines()
    assert shown[:4] == ["one", "   2.000    b", "   1.000  ✓ a", "  missed: c, d"]
    assert shown[4:] == ["other", "  no label", "  missed: c, d, e, f, g and 2 more"]


def test_texts_with_colons_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    predictions = Predictions(np.array([[0]]), np.array([[1.0]], dtype=np.float32))
    console.show_predictions(["std:key:value"], predictions, Items(1, texts=["a:bug:b"]))
    assert capsys.readouterr().out.splitlines() == ["std:key:value", "   1.000  a:bug:b"]


def test_a_file_name_is_shown_as_it_is(data: Path, tmp_path: Path) -> None:
    scores = write_scores(tmp_path / "run[red].npz", [[1, 0, 0], [0, 1, 0], [0, 0, 1]])
    assert "run[red].npz 100.00" in plain(call("metrics", data, scores).stdout)


def test_a_dataset_name_is_shown_as_it_is(data: Path) -> None:
    (data / "dataset.json").write_text(json.dumps({"name": "my [red] set"}), encoding="utf-8")
    assert "my [red] set" in plain(call("inspect", data).stdout)


def test_a_setting_is_shown_as_it_is() -> None:
    assert '"[red]"' in plain(call("settings", "--set", "table.separator=[red]").stdout)


def test_a_dataset_without_test_documents_can_be_inspected_but_not_judged(data: Path, tmp_path: Path) -> None:
    (data / "tst.json").unlink()
    call("convert", data, tmp_path / "sparse", "--to", "sparse")
    assert json.loads(call("inspect", tmp_path / "sparse", "--json").stdout)["test_documents"] == 0
    with pytest.raises(DataError, match="fruit: has no test documents; make some with decaf split"):
        call("match", tmp_path / "sparse", "-o", tmp_path / "match.npz")
    assert not (tmp_path / "match.npz").exists()
