"""Labels that come and go on the command line: add, remove and list, and what predict makes of them."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import re
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest
from live_models import model_of
from typer.testing import CliRunner, Result

from decaf import DataError, Model, ModelError, batch
from decaf.batch import predict_file
from decaf.cli import app
from decaf.errors import StoreError
from decaf.labels import LONGEST_ID, LONGEST_TEXT, add_labels, checked_label, read_labels, remove_label
from decaf.stores import kept_changes, store_path
from decaf.stores.sqlite import SqliteStore


def call(*arguments: object, given: str | None = None) -> Result:
    """A verb in this process; what it raises is the test's failure."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=given, env={"COLUMNS": "120"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def plain(text: str) -> str:
    return " ".join(re.sub(r"\x1b\[[0-9;]*m", " ", text).split())


@pytest.fixture
def model(tmp_path: Path) -> Path:
    model_of("contrastive", "int8").save(tmp_path / "model")
    return tmp_path / "model"


def listed(model: Path, *options: object) -> dict[str, str | None]:
    lines = [json.loads(line) for line in call("labels", "list", model, "--json", *options).stdout.splitlines()]
    assert all(list(line) == ["id", "text", "at"] for line in lines)
    assert all(datetime.fromisoformat(line["at"]).tzinfo is not None for line in lines)
    return {line["id"]: line["text"] for line in lines}


def predicted(model: Path, text: str, *options: object) -> list[tuple[str, str]]:
    """Ids and texts of the labels that the command line finds."""
    (line,) = call("predict", model, text, "--json", *options).stdout.splitlines()
    return [(label["id"], label["text"]) for label in json.loads(line)["labels"]]


def test_a_label_comes_changes_and_goes(model: Path) -> None:
    before = predicted(model, "topic zq")
    assert listed(model) == {}
    result = call("labels", "add", model, "new", "topic zq")
    assert (result.exit_code, result.stdout, plain(result.stderr)) == (0, "", "1 label added or changed")
    assert listed(model) == {"new": "topic zq"}
    assert predicted(model, "topic zq")[0] == ("new", "topic zq")
    call("labels", "add", model, "new", "  the   other\ttopic \n")
    assert listed(model) == {"new": "the other topic"}
    assert predicted(model, "the other topic")[0] == ("new", "the other topic")
    result = call("labels", "remove", model, "new")
    assert (result.exit_code, plain(result.stderr)) == (0, "new is gone")
    assert listed(model) == {}
    assert predicted(model, "topic zq") == before


def test_a_trained_label_is_hidden_and_comes_back(model: Path) -> None:
    before = predicted(model, "topic ad", "--top", 24)
    hidden = before[0][0]
    text = Model.load(model).labels.text(int(hidden[1:]))
    result = call("labels", "remove", model, hidden)
    assert plain(result.stderr) == f"{hidden} is hidden"
    assert listed(model) == {hidden: None}
    assert predicted(model, "topic ad", "--top", 24) == before[1:]
    call("labels", "remove", model, hidden)  # once more
    assert listed(model) == {hidden: None}
    call("labels", "add", model, hidden, text)
    assert listed(model) == {}  # as it was trained: there is nothing to keep
    assert predicted(model, "topic ad", "--top", 24) == before


def test_a_trained_label_gets_another_text_and_the_old_one_back(model: Path) -> None:
    before = predicted(model, "topic ad", "--top", 24)
    call("labels", "add", model, "L3", "the other")
    assert listed(model) == {"L3": "the other"}
    assert ("L3", "the other") in predicted(model, "topic ad", "--top", 24)
    call("labels", "add", model, "L3", "topic ad")
    assert listed(model) == {}
    assert predicted(model, "topic ad", "--top", 24) == before


def test_a_label_that_had_no_training_documents_can_be_added_as_it_is(model: Path) -> None:
    assert "L0" not in dict(predicted(model, "topic aa", "--top", 24))
    call("labels", "add", model, "L0", "topic aa")
    assert listed(model) == {"L0": "topic aa"}
    assert predicted(model, "topic aa")[0] == ("L0", "topic aa")


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".csv.gz"])
def test_many_labels_come_from_a_table(model: Path, tmp_path: Path, suffix: str) -> None:
    rows = [["x", "id", "text"], ["1", "a;b", 'topic "zq", of'], ["2", "日本", "the topic"], ["3", "L3", "topic ad"]]
    rows += [["4", "a;b", "the last word"]]
    stream = io.StringIO(newline="")
    csv.writer(stream, delimiter="\t" if suffix == ".tsv" else ",").writerows(rows)
    data = stream.getvalue().encode()
    (tmp_path / f"in{suffix}").write_bytes(gzip.compress(data) if suffix.endswith(".gz") else data)
    call("labels", "remove", model, "L3")
    result = call("labels", "add", model, "--input", tmp_path / f"in{suffix}")
    assert plain(result.stderr) == "3 labels added or changed"
    assert listed(model) == {"a;b": "the last word", "日本": "the topic"}


def test_a_table_with_one_mistake_changes_nothing(model: Path, tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    for content, message in (
        ("id,text\na,topic\n ,topic\n", r"in\.csv, line 3: ' ' is no id; expected 1 to 512 printable characters"),
        ("id,text\na,topic\nb,\n", r"in\.csv, line 3: the text of 'b' has 0 characters; expected 1 to 10000"),
        (
            "id,text\na,topic\nb,漢\n",
            "the model knows no word of '漢', the text of 'b'; use words that it was trained on, or train again",
        ),
        ("id,title\na,topic\n", r"in\.csv: expected columns id and text, found id, title"),
    ):
        source.write_text(content, encoding="utf-8")
        with pytest.raises(DataError, match=message):
            call("labels", "add", model, "--input", source)
    assert not store_path(model).exists()
    with pytest.raises(DataError, match="missing"):
        call("labels", "add", model, "--input", tmp_path / "missing.csv")


@pytest.mark.parametrize("arguments", [[], ["new"], ["--input", "in.csv", "new", "topic"]])
def test_add_takes_a_label_or_a_table(model: Path, arguments: list[str]) -> None:
    with pytest.raises(DataError, match="write the id and the text behind the model, or name a table with --input"):
        call("labels", "add", model, *arguments)


@pytest.mark.parametrize("label", ["", " a", "a ", "a\nb", "a\0", "\u200b", "a" * 513])
def test_an_id_must_be_printable(label: str, model: Path) -> None:
    with pytest.raises(DataError, match="is no id; expected 1 to 512 printable characters without space at the ends"):
        call("labels", "add", model, label, "topic")
    assert not store_path(model).exists()


def test_ids_and_texts_have_their_bounds() -> None:
    assert checked_label("a" * LONGEST_ID, " b " * 10) == ("a" * LONGEST_ID, " ".join("b" * 10))
    assert checked_label("a b/ä?#", "x" * LONGEST_TEXT)[1] == "x" * LONGEST_TEXT
    for text in ("", " \t\n", "x" * (LONGEST_TEXT + 1)):
        with pytest.raises(DataError, match="characters; expected 1 to 10000"):
            checked_label("a", text)
    with pytest.raises(DataError, match="the text of 'a' is not UTF-8; convert it first"):
        checked_label("a", b"caf\xe9".decode(errors="surrogateescape"))  # as the command line hands it over


def test_mistakes_say_what_to_do_next(model: Path, tmp_path: Path) -> None:
    with pytest.raises(
        DataError,
        match="the model knows no word of '漢', the text of 'new'; use words that it was trained on, or train",
    ):
        call("labels", "add", model, "new", "漢")
    with pytest.raises(DataError, match="there is no label 'new', neither in the model nor among those added"):
        call("labels", "remove", model, "new")
    assert not store_path(model).exists()
    for verb in (["add", "nowhere", "new", "topic"], ["remove", "nowhere", "new"]):
        with pytest.raises(ModelError, match=r"holds no model .*; train one with decaf train"):
            call("labels", *[tmp_path / word if word == "nowhere" else word for word in verb])
    assert not store_path(tmp_path / "nowhere").exists()
    store_path(model).write_text("no database\n" * 100)
    advice = "make room, check who may write there, or name another file with --labels"
    for arguments in (["add", model, "new", "topic"], ["remove", model, "L3"], ["list", model]):
        with pytest.raises(StoreError, match=advice):
            call("labels", *arguments)
    with pytest.raises(StoreError, match=advice):
        call("predict", model, "topic")


def test_list_shows_a_table_or_says_that_there_is_nothing(model: Path) -> None:
    assert plain(call("labels", "list", model).stdout) == "no label was changed since training"
    call("labels", "add", model, "[b]new[/b]", "topic [red]zq[/red]")
    call("labels", "remove", model, "L3")
    shown = plain(call("labels", "list", model).stdout)
    assert re.search(r"id text since", shown)
    assert re.search(r"L3 \(hidden\) 20\d\d-", shown)
    assert re.search(r"\[b\]new\[/b\] topic \[red\]zq\[/red\] 20\d\d-", shown)


def test_another_file_may_keep_the_changes(model: Path, tmp_path: Path) -> None:
    kept = tmp_path / "elsewhere.sqlite"
    call("labels", "add", model, "new", "topic", "--labels", kept)
    call("labels", "remove", model, "L3", "--labels", kept)
    assert listed(model, "--labels", kept) == {"new": "topic", "L3": None}
    assert listed(model) == {}
    assert not store_path(model).exists()
    call("labels", "remove", model, "new", "--labels", kept)
    assert listed(model, "--labels", kept) == {"L3": None}


def test_the_library_does_the_same(model: Path, tmp_path: Path) -> None:
    assert add_labels(model, {"b": " topic zq ", "a": "the topic", "L3": "topic ad"}) == 3
    assert [(change.id, change.text) for change in kept_changes(model)] == [("a", "the topic"), ("b", "topic zq")]
    assert remove_label(model, "L3")
    assert not remove_label(model, "a")
    assert [(change.id, change.text) for change in kept_changes(model)] == [("L3", None), ("b", "topic zq")]
    (tmp_path / "in.csv").write_text("text,id\nthe topic,a\n")
    assert read_labels(tmp_path / "in.csv") == {"a": "the topic"}


def test_changes_outlive_the_model(model: Path) -> None:
    call("labels", "add", model, "new", "topic zq")
    for path in model.iterdir():
        path.unlink()
    assert listed(model) == {"new": "topic zq"}
    model_of("paper", "int8").save(model)  # another one in its place
    assert ("new", "topic zq") in predicted(model, "topic zq", "--top", 24)


@pytest.mark.parametrize("option", ["--fast", "--exact"])
def test_predict_explains_an_added_label(model: Path, option: str) -> None:
    call("labels", "add", model, "new", "topic zq")
    (line,) = call("predict", model, "topic zq", "--json", "--explain", option).stdout.splitlines()
    first = json.loads(line)["labels"][0]
    assert first["id"] == "new"
    assert {"label text", "refinement", "words"} <= first["parts"].keys()
    assert "topic" in first["tokens"]
    shown = plain(call("predict", model, "topic zq", "--explain", option).stdout)
    assert re.match(r"topic zq 0\.\d+ topic zq parts: .* tokens: ", shown)


def test_a_real_process_says_one_line_and_no_traceback(model: Path) -> None:
    command = [sys.executable, "-m", "decaf", "labels", "remove", str(model), "missing"]
    failed = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr == "decaf: there is no label 'missing', neither in the model nor among those added\n"


# Batch prediction.


def labels_of(output: Path) -> list[list[str]]:
    return [[label["id"] for label in json.loads(line)["labels"]] for line in output.read_text().splitlines()]


def test_a_file_is_predicted_with_the_labels_as_they_are_now(model: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("topic zq\ntopic ad\n")
    found = []
    for number, change in enumerate([None, ["add", model, "new", "topic zq"], ["remove", model, "L3"]]):
        if change is not None:
            call("labels", *change)
        output = tmp_path / f"out-{number}.jsonl"
        call("predict", model, "--input", tmp_path / "in.txt", "-o", output, "--top", 24)
        found.append(labels_of(output))
        for text, labels in zip(["topic zq", "topic ad"], found[-1], strict=True):
            assert labels == [label for label, _ in predicted(model, text, "--top", 24)]
    assert [labels[0][0] == "new" for labels in found] == [False, True, True]
    assert ["L3" in {*labels[0], *labels[1]} for labels in found] == [True, True, False]


def test_texts_of_labels_in_a_batch_are_those_of_now(model: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("topic ad\n")
    call("labels", "add", model, "L3", "the; other")
    call("predict", model, "--input", tmp_path / "in.txt", "-o", tmp_path / "out.csv", "--top", 24)
    with (tmp_path / "out.csv").open(newline="") as stream:
        (row,) = csv.DictReader(stream)
    texts = dict(zip(row["labels"].split(";"), json.loads(row["label_texts"]), strict=True))
    assert texts["L3"] == "the; other"


class StoppedError(Exception):
    """Raised in the middle of a run."""


def test_a_stopped_run_refuses_to_go_on_when_labels_have_changed(model: Path, tmp_path: Path) -> None:
    source, output = tmp_path / "in.txt", tmp_path / "out.jsonl"
    source.write_text("topic ad\n" * 10)
    folder = tmp_path / "out.jsonl.parts"

    def begin() -> None:
        """Leave a run behind that has finished two parts."""
        rows, left = batch._rows, [2]

        def stopping(*given: object) -> object:
            left[0] -= 1
            if left[0] < 0:
                raise StoppedError
            return rows(*given)  # type: ignore[arg-type]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(batch, "_rows", stopping)
            with pytest.raises(StoppedError):
                predict_file(model, source, output)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch, "_CHUNK", 3)
        begin()
        call("labels", "add", model, "new", "topic ad")
        message = "holds an unfinished run with another live labels; .* remove the folder .* to begin anew"
        with pytest.raises(DataError, match=message):
            call("predict", model, "--input", source, "-o", output)
        assert len(list(folder.glob("part-*"))) == 2
        call("labels", "remove", model, "new")
        call("predict", model, "--input", source, "-o", output)  # as it was begun
        assert len(labels_of(output)) == 10
        assert "new" not in {label for labels in labels_of(output) for label in labels}
        output.unlink()

        call("labels", "add", model, "new", "topic ad")
        begin()
        call("labels", "remove", model, "L3")
        with pytest.raises(DataError, match="another live labels"):
            predict_file(model, source, output)
        store = SqliteStore(store_path(model))
        store.forget("L3")
        store.close()
        assert predict_file(model, source, output) == 10
        assert {labels[0] for labels in labels_of(output)} == {"new"}
