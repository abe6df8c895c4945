"""Batch prediction: every format, chunks of any size, runs that are killed and go on, and what is refused."""

from __future__ import annotations

import csv
import dataclasses
import errno
import gzip
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from modules import QUICK, topics
from typer.testing import CliRunner, Result

import decaf
from decaf import ConfigError, DataError, Dataset, Model, ModelError, Predictions, Predictor, TableSettings, batch
from decaf.batch import BatchSettings, predict_file
from decaf.cli import app
from decaf.datasets import Items
from decaf.errors import DecafError
from decaf.progress import Advance, showing

ODD = ["a; b", "[c]", "", " d ", 'e "f", g', "h\ni"]  # texts of labels that one cell cannot simply join
INPUTS = [".txt", ".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".txt.gz", ".csv.gz", ".tsv.gz", ".jsonl.gz"]
INPUTS += [".parquet"]
OUTPUTS = [".jsonl", ".csv", ".jsonl.gz", ".csv.gz", ".parquet"]

Found = tuple[str, str, list[tuple[str, str, float]]]  # id, text, labels


def call(*arguments: object, given: str | bytes | None = None) -> Result:
    """A verb in this process; what it raises is the test's failure."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=given, env={"COLUMNS": "120"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def trained() -> Model:
    return decaf.train(topics(), QUICK.with_settings(["tokens.epochs=2", "ranker.epochs=2"]), device="cpu")


@pytest.fixture(scope="module")
def model(trained: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with odd texts among its labels."""
    texts = [ODD[row] if row < len(ODD) else trained.labels.text(row) for row in range(trained.labels.count)]
    folder = tmp_path_factory.mktemp("model") / "model"
    dataclasses.replace(trained, labels=Items(len(texts), trained.labels.ids, texts)).save(folder)
    return folder


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return [*(topics().test.documents.texts or [])[:40], "", "zzz, \"quoted\"; or 'not'", "tab\u2028line é 日本"]


def write(path: Path, columns: dict[str, Sequence[Any]]) -> Path:
    """A file of these columns, in the format that its name says; lines hold the last column alone."""
    kind = path.name.removesuffix(".gz")
    kind = kind[kind.index(".") :]
    if kind == ".parquet":
        pq.write_table(pa.table(dict(columns)), path, row_group_size=9)
        return path
    rows = list(zip(*columns.values(), strict=True))
    if kind == ".txt":
        content = "".join(f"{row[-1]}\n" for row in rows)
    elif kind in (".csv", ".tsv"):
        stream = io.StringIO(newline="")
        csv.writer(stream, delimiter="," if kind == ".csv" else "\t").writerows([list(columns), *rows])
        content = stream.getvalue()
    else:
        content = "".join(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows)
    path.write_bytes(gzip.compress(content.encode()) if path.suffix == ".gz" else content.encode())
    return path


def parted(cell: str) -> list[str]:
    return json.loads(cell) if cell.startswith("[") else [name for name in cell.split(";") if name]


def read(path: Path) -> list[Found]:
    """What an output file holds, read without decaf."""
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        assert table.schema.names == ["id", "text", "labels", "label_texts", "scores"]
        rows = [tuple(row.values()) for row in table.to_pylist()]
    else:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        if ".csv" in path.suffixes:
            header, *cells = csv.reader(io.StringIO(data.decode(), newline=""))
            assert header == ["id", "text", "labels", "label_texts", "scores"]
            rows = [
                (name, text, parted(ids), parted(names), [float(score) for score in parted(scores)])
                for name, text, ids, names, scores in cells
            ]
        else:
            records = [json.loads(line) for line in data.decode().split("\n")[:-1]]
            assert all(list(record) == ["id", "text", "labels"] for record in records)
            assert all(list(label) == ["id", "text", "score"] for record in records for label in record["labels"])
            return [(r["id"], r["text"], [tuple(label.values()) for label in r["labels"]]) for r in records]
    return [(name, text, list(zip(*lists, strict=True))) for name, text, *lists in rows]


def expected(model: Path, texts: Sequence[str], ids: Sequence[str] | None = None, **how: float) -> list[Found]:
    """What the predictor says of all texts at once."""
    loaded = Model.load(model)
    predictions, labels = Predictor(loaded).predict(texts, **how), loaded.labels
    found = [[(labels.id(at), labels.text(at), score) for at, score in matches] for matches in predictions]
    return list(zip(ids or map(str, range(len(texts))), texts, found, strict=True))


def check(found: list[Found], wanted: list[Found]) -> None:
    """The same documents and labels, and scores but for the last digits, which depend on how rows lie together."""
    assert [(name, text, [label[:2] for label in labels]) for name, text, labels in found] == [
        (name, text, [label[:2] for label in labels]) for name, text, labels in wanted
    ]
    scores = ([score for *_, labels in rows for *_, score in labels] for rows in (found, wanted))
    assert next(scores) == pytest.approx(next(scores), rel=1e-4)


@pytest.mark.parametrize("kind", INPUTS)
def test_every_format_is_read(model: Path, texts: list[str], tmp_path: Path, kind: str) -> None:
    ids = [f"d{row:03d};" for row in range(len(texts))]
    source = write(tmp_path / f"in{kind}", {"id": ids, "other": [1] * len(ids), "text": texts})
    result = call("predict", model, "--input", source, "--output", tmp_path / "out.jsonl")
    assert (result.exit_code, result.stdout) == (0, "")
    assert f"out.jsonl: {len(texts)} documents" in " ".join(result.stderr.split())
    check(read(tmp_path / "out.jsonl"), expected(model, texts, None if ".txt" in kind else ids))
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"in{kind}", "out.jsonl"]


@pytest.mark.parametrize("kind", OUTPUTS)
def test_every_format_is_written(
    model: Path, texts: list[str], tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "_CHUNK", 10)
    source = write(tmp_path / "in.txt", {"text": texts})
    how = ["--top", 24, "--threshold", 0.001, "--threads", 1]
    call("predict", model, "--input", source, "-o", tmp_path / f"out{kind}", *how)
    wanted = expected(model, texts, top=24, threshold=0.001)
    assert {len(labels) for *_, labels in wanted} > {0}
    assert {text for *_, labels in wanted for _, text, _ in labels} >= set(ODD)
    check(read(tmp_path / f"out{kind}"), wanted)


@pytest.mark.parametrize("kind", [".csv", ".parquet"])
def test_what_is_written_is_a_table_that_decaf_reads(model: Path, texts: list[str], tmp_path: Path, kind: str) -> None:
    source, output = write(tmp_path / "in.txt", {"text": texts}), tmp_path / f"out{kind}"
    predict_file(model, source, output)
    for column, place in (("labels", 0), ("label_texts", 1)):
        dataset = Dataset.load(output, table=TableSettings(labels=column))
        truth = dataset.train.truth.tolil().rows
        found = [{dataset.labels.id(at) for at in row} for row in truth]
        assert found == [{label[place] for label in labels} for *_, labels in expected(model, texts)]


def test_standard_input_is_read_as_lines(model: Path, tmp_path: Path) -> None:
    given = "topic aa\r\n\ntopic ab\x0b\u2028é".encode()
    call("predict", model, "--input", "-", "--output", tmp_path / "out.jsonl", given=given)
    check(read(tmp_path / "out.jsonl"), expected(model, ["topic aa", "", "topic ab\x0b\u2028é"]))
    with pytest.raises(DataError, match="standard input, line 2: is not UTF-8"):
        call("predict", model, "--input", "-", "--output", tmp_path / "other.jsonl", given=b"a\n\xff\n")


@pytest.mark.parametrize("kind", [".csv", ".jsonl", ".parquet"])
def test_the_text_column_is_guessed_or_named(model: Path, tmp_path: Path, kind: str) -> None:
    columns = {"UID": [7, 8], "Title": ["topic aa", "topic ab"], "body": ["topic ac", None], "name": ["x", "y"]}
    source = write(tmp_path / f"in{kind}", columns)
    call("predict", model, "--input", source, "--output", tmp_path / "guessed.jsonl")
    assert [row[:2] for row in read(tmp_path / "guessed.jsonl")] == [("7", "topic aa"), ("8", "topic ab")]
    call("predict", model, "--input", source, "--output", tmp_path / "named.jsonl", "--text", "body")
    assert [row[:2] for row in read(tmp_path / "named.jsonl")] == [("7", "topic ac"), ("8", "")]


def test_a_dot_in_the_name_of_a_parquet_column_is_a_dot(model: Path, tmp_path: Path) -> None:
    source = write(tmp_path / "in.parquet", {"a": [{"b": "inner"}], "a.b": ["topic aa"]})
    predict_file(model, source, tmp_path / "out.jsonl", BatchSettings(text="a.b"))
    assert [row[:2] for row in read(tmp_path / "out.jsonl")] == [("0", "topic aa")]


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("out", [".jsonl", ".csv", ".parquet"])
def test_an_empty_file_gives_an_empty_one(model: Path, tmp_path: Path, kind: str, out: str) -> None:
    source = write(tmp_path / f"in{kind}", {"text": pa.array([], pa.string()) if kind == ".parquet" else []})
    assert predict_file(model, source, tmp_path / f"out{out}") == 0
    assert read(tmp_path / f"out{out}") == []
    (tmp_path / "nothing.csv").touch()
    assert predict_file(model, tmp_path / "nothing.csv", tmp_path / f"other{out}") == 0


def test_tail_and_fast_reach_the_predictor(model: Path, texts: list[str], tmp_path: Path) -> None:
    source = write(tmp_path / "in.txt", {"text": texts})
    with pytest.raises(ModelError, match="leave the tail out"):
        call("predict", model, "--input", source, "--output", tmp_path / "out.jsonl", "--tail", 0.3)
    assert not (tmp_path / "out.jsonl.parts").exists()
    loaded, found = Model.load(model), {}
    for name, options, fast in (("left-out", (), True), ("fast", ("--fast",), True), ("exact", ("--exact",), False)):
        output = tmp_path / f"{name}.jsonl"
        call("predict", model, "--input", source, "--output", output, *options, "--threads", 1)
        found[name] = [[score for *_, score in labels] for *_, labels in read(output)]
        expected = Predictor(loaded, fast=fast).predict(texts)
        assert found[name] == [[match.score for match in matches] for matches in expected]
    assert found["left-out"] == found["fast"] != found["exact"]
    with pytest.raises(ConfigError, match="--fast scores on the CPU"):
        call("predict", model, "a", "--fast", "--device", "cuda")


CELLS = st.text(st.sampled_from(list('ab ,;"[]\\\t\r\n\u2028é')), max_size=6)


@settings(max_examples=30, deadline=None, derandomize=True, database=None)
@given(
    texts=st.lists(st.one_of(CELLS, st.sampled_from(["topic aa", "topic ab", "topic ac"])), max_size=12),
    chunk=st.integers(1, 13),
    kind=st.sampled_from([".csv", ".jsonl", ".parquet"]),
    out=st.sampled_from([".csv", ".jsonl", ".parquet"]),
)
@example(texts=["topic aa"] * 6, chunk=3, kind=".csv", out=".csv")
def test_the_size_of_a_chunk_changes_nothing(model: Path, texts: list[str], chunk: int, kind: str, out: str) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        ids = [f"d{row}" for row in range(len(texts))]
        columns = {"id": pa.array(ids, pa.string()), "text": pa.array(texts, pa.string())}
        source = write(Path(name) / f"in{kind}", columns if kind == ".parquet" else {"id": ids, "text": texts})
        patch.setattr(batch, "_CHUNK", chunk)
        assert predict_file(model, source, Path(name) / f"out{out}") == len(texts)
        check(read(Path(name) / f"out{out}"), expected(model, texts, ids) if texts else [])


# The command line with small chunks, killed when it has written the n-th file aside, or before parts are removed.
KILLED = """
import os, shutil, signal
from decaf import batch
from decaf.cli import main
batch._CHUNK = 6
left = {}
fsync = os.fsync
def sync_and_die(file):
    global left
    fsync(file)
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
os.fsync = sync_and_die
if left == 0:
    shutil.rmtree = lambda folder: os.kill(os.getpid(), signal.SIGKILL)
main()
"""


def run_and_kill(model: Path, source: Path, output: Path, files: int) -> None:
    command = [sys.executable, "-c", KILLED.format(files), "predict", model, "--input", source, "--output", output]
    done = subprocess.run([str(word) for word in command], capture_output=True, check=False, env=os.environ)
    assert done.returncode == -signal.SIGKILL, done.stderr


def watch_predictions(patch: pytest.MonkeyPatch) -> list[str]:
    """The texts that are predicted from now on."""
    seen: list[str] = []
    predict = Predictor.predict

    def watched(self: Predictor, texts: Sequence[str], *, top: int, threshold: float) -> Predictions:
        seen.extend(texts)
        return predict(self, texts, top=top, threshold=threshold)

    patch.setattr(Predictor, "predict", watched)
    return seen


@pytest.mark.parametrize(("kind", "out"), [(".csv", ".jsonl"), (".parquet", ".parquet"), (".txt.gz", ".csv.gz")])
def test_a_run_that_is_killed_goes_on_and_ends_as_one_that_was_not(
    model: Path, texts: list[str], tmp_path: Path, kind: str, out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "_CHUNK", 6)
    source = write(tmp_path / f"in{kind}", {"text": texts})
    whole, output = tmp_path / f"whole{out}", tmp_path / f"out{out}"
    predict_file(model, source, whole)
    run_and_kill(model, source, output, 5)  # the state, then parts
    run_and_kill(model, source, output, 2)
    assert not output.exists()
    parts = tmp_path / f"out{out}.parts"
    assert len(list(parts.glob("part-*"))) == 4  # the fourth came with the second run; the fifth was not yet whole
    seen = watch_predictions(monkeypatch)
    result = call("predict", model, "--input", source, "--output", output)
    assert "going on behind 4 finished parts" in result.stderr
    assert seen == texts[24:]
    assert output.read_bytes() == whole.read_bytes()
    assert not parts.exists()


def test_a_run_that_is_killed_while_parts_are_put_together_goes_on(
    model: Path, texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "_CHUNK", 6)
    source = write(tmp_path / "in.csv", {"text": texts})
    whole, output = tmp_path / "whole.csv", tmp_path / "out.csv"
    assert predict_file(model, source, whole) == len(texts) == 43
    run_and_kill(model, source, output, 10)  # the state, eight parts, then the output
    assert not output.exists()
    seen = watch_predictions(monkeypatch)
    assert predict_file(model, source, output) == len(texts)
    assert seen == []
    assert output.read_bytes() == whole.read_bytes()


def test_an_output_is_whole_before_its_parts_are_removed(
    model: Path, texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "_CHUNK", 6)
    source, output = write(tmp_path / "in.csv", {"text": texts}), tmp_path / "out.jsonl"
    run_and_kill(model, source, output, 0)
    check(read(output), expected(model, texts))
    whole, parts = output.read_bytes(), tmp_path / "out.jsonl.parts"
    assert len(list(parts.glob("part-*"))) == 8
    with pytest.raises(DataError, match="is already there"):  # the parts are not those of this run
        predict_file(model, source, output, BatchSettings(top=2))
    seen = watch_predictions(monkeypatch)
    assert predict_file(model, source, output) == len(texts)  # the same command ends what was left
    assert seen == []
    assert output.read_bytes() == whole
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv", "out.jsonl"]
    with pytest.raises(DataError, match="is already there"):
        predict_file(model, source, output)


@pytest.mark.parametrize("left", ["nothing", "an empty folder", "some parts"])
@pytest.mark.parametrize("kept", [True, False])
def test_a_run_that_is_killed_while_its_parts_are_removed_is_tidied_up(
    model: Path, texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str, kept: bool
) -> None:
    monkeypatch.setattr(batch, "_CHUNK", 6)
    source, output = write(tmp_path / "in.csv", {"text": texts}), tmp_path / "out.jsonl"
    parts, rmtree = tmp_path / "out.jsonl.parts", shutil.rmtree

    def stop(folder: Path) -> None:
        (folder / "state.json").unlink()
        if left != "some parts":
            rmtree(folder)
        if left == "an empty folder":
            folder.mkdir()
        raise StoppedError

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", stop)
        with pytest.raises(StoppedError):
            predict_file(model, source, output)
    whole = output.read_bytes()
    if not kept:  # somebody wants it anew
        output.unlink()
    assert predict_file(model, source, output) == len(texts)
    assert output.read_bytes() == whole
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv", "out.jsonl"]
    assert not parts.exists()


@pytest.mark.parametrize("out", [".jsonl", ".csv", ".parquet"])
@pytest.mark.parametrize("left", [0, 0.5, -1])
def test_a_part_that_is_cut_short_is_made_again(
    model: Path,
    texts: list[str],
    tmp_path: Path,
    out: str,
    left: float,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(batch, "_CHUNK", 6)
    source, output = write(tmp_path / "in.csv", {"text": texts}), tmp_path / f"out{out}"
    predict_file(model, source, tmp_path / f"whole{out}")
    begin(model, source, output)
    parts = tmp_path / f"out{out}.parts"
    part = min(parts.glob("part-*"))
    content = part.read_bytes()
    lines = content.splitlines(keepends=True)
    part.write_bytes(b"".join(lines[:-1]) if left < 0 else content[: round(left * len(content))])  # -1: whole lines
    (parts / ".part-000002.123.aside").write_bytes(b"half")
    seen = watch_predictions(monkeypatch)
    predict_file(model, source, output)
    assert "is damaged and will be made again" in caplog.text
    assert seen == texts[:6] + texts[12:]
    assert output.read_bytes() == (tmp_path / f"whole{out}").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["in.csv", f"out{out}", f"whole{out}"])


def test_an_output_may_be_named_as_parts_are(
    model: Path, texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "_CHUNK", 6)
    source, output = write(tmp_path / "in.csv", {"text": texts}), tmp_path / "part-000001.jsonl"
    begin(model, source, output)
    (tmp_path / "part-000001.jsonl.parts" / output.name).write_bytes(b"put together, not moved")
    predict_file(model, source, output)
    check(read(output), expected(model, texts))


def test_a_full_disk_says_what_to_do_and_leaves_nothing_half_written(
    model: Path, texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, output = write(tmp_path / "in.csv", {"text": texts}), tmp_path / "out.jsonl"

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(
            DataError, match=r"cannot be written \(No space left on device\); make room and run the same"
        ):
            predict_file(model, source, output)
    assert list((tmp_path / "out.jsonl.parts").iterdir()) == []
    predict_file(model, source, output)
    check(read(output), expected(model, texts))


class StoppedError(Exception):
    """Raised in the middle of a run."""


def stop_after(chunks: int, patch: pytest.MonkeyPatch) -> None:
    rows, left = batch._rows, [chunks]

    def stopping(predictor: Predictor, chunk: list[tuple[str, str]], how: BatchSettings) -> Iterator[batch._Row]:
        left[0] -= 1
        if left[0] < 0:
            raise StoppedError
        return rows(predictor, chunk, how)

    patch.setattr(batch, "_rows", stopping)


def begin(model: Path, source: Path, output: Path, how: BatchSettings | None = None) -> None:
    """Leave a run behind that has finished two parts."""
    with pytest.MonkeyPatch.context() as patch:
        stop_after(2, patch)
        with pytest.raises(StoppedError):
            predict_file(model, source, output, how)


def test_a_file_that_was_repaired_before_anything_was_finished_begins_anew(model: Path, tmp_path: Path) -> None:
    source, output = tmp_path / "in.csv", tmp_path / "out.jsonl"
    source.write_bytes("text\ntopic aa\nt\u00f6pic\n".encode("latin-1"))
    with pytest.raises(DataError, match="is not UTF-8"):
        call("predict", model, "--input", source, "--output", output)
    source.write_bytes("text\ntopic aa\nt\u00f6pic\n".encode())
    call("predict", model, "--input", source, "--output", output)
    assert len(output.read_text(encoding="utf-8").splitlines()) == 2
    assert not (tmp_path / "out.jsonl.parts").exists()


@pytest.mark.parametrize("name", ["in.csv", "in.jsonl", "in.parquet"])
def test_a_table_without_an_output_is_refused(model: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("text\ntopic aa\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"is a table; add --output OUT\.csv"):
        call("predict", model, "--input", tmp_path / name)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        (["--top", 4], "top"),
        (["--threshold", 0.1], "threshold"),
        (["--tail", 0.3], "tail"),
        (["--text", "name"], "text"),
        (["--fast"], "fast"),
        (["--device", "auto"], "device"),
        (["--fast", "--top", 4], "top, fast"),
    ],
)
def test_a_run_with_other_settings_is_refused(
    model: Path, texts: list[str], tmp_path: Path, changed: list[str], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "_CHUNK", 6)
    source, output = write(tmp_path / "in.csv", {"name": texts, "text": texts}), tmp_path / "out.jsonl"
    begin(model, source, output)
    parts = re.escape(f"{output}.parts")
    message = f"{parts}: holds an unfinished run with another {named}; .* remove the folder {parts} to begin anew"
    with pytest.raises(DataError, match=message):
        call("predict", model, "--input", source, "--output", output, *changed)
    assert len(list((tmp_path / "out.jsonl.parts").glob("part-*"))) == 2
    assert predict_file(model, source, output) == len(texts)


def grow(source: Path, model: Path) -> None:
    with source.open("a", encoding="utf-8") as stream:
        stream.write("more\n")


def touch(source: Path, model: Path) -> None:
    os.utime(source, ns=(0, 10**18))


def train_again(source: Path, model: Path) -> None:
    (model / "model.json").write_text((model / "model.json").read_text().replace('"seed": 0', '"seed": 1'))


def enlarge_chunks(source: Path, model: Path) -> None:
    state = next(source.parent.glob("*.parts")) / "state.json"
    state.write_text(state.read_text().replace('"chunk": 6', '"chunk": 7'))


@pytest.mark.parametrize(
    ("change", "named"),
    [(grow, "input size, input time"), (touch, "input time"), (train_again, "model"), (enlarge_chunks, "chunk")],
)
def test_a_run_on_another_input_or_model_is_refused(
    trained: Model,
    texts: list[str],
    tmp_path: Path,
    change: Callable[[Path, Path], None],
    named: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batch, "_CHUNK", 6)
    model, source, output = tmp_path / "model", write(tmp_path / "in.txt", {"text": texts}), tmp_path / "out.jsonl"
    trained.save(model)
    begin(model, source, output)
    change(source, model)
    with pytest.raises(DataError, match=f"with another {named}; "):
        predict_file(model, source, output)


def test_another_file_of_the_same_size_and_time_is_another_input(
    model: Path, texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "_CHUNK", 6)
    source, other = (write(tmp_path / name, {"text": texts}) for name in ("in.txt", "other.txt"))
    for path in (source, other):
        os.utime(path, ns=(0, 0))
    begin(model, source, tmp_path / "out.jsonl")
    with pytest.raises(DataError, match="with another input; "):
        predict_file(model, other, tmp_path / "out.jsonl")


def test_a_folder_of_somebody_else_is_left_alone(model: Path, texts: list[str], tmp_path: Path) -> None:
    source, parts = write(tmp_path / "in.txt", {"text": texts}), tmp_path / "out.jsonl.parts"
    parts.mkdir()
    (parts / "part-000000.jsonl").write_text("mine")
    with pytest.raises(DataError, match="is already there"):
        predict_file(model, source, tmp_path / "out.jsonl")
    (parts / "state.json").write_text("{")
    with pytest.raises(DataError, match=r"is not JSON .*; remove the folder .*out\.jsonl\.parts to begin anew"):
        predict_file(model, source, tmp_path / "out.jsonl")
    assert (parts / "part-000000.jsonl").read_text() == "mine"


def test_standard_input_begins_anew(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "_CHUNK", 1)
    with pytest.MonkeyPatch.context() as patch:
        stop_after(2, patch)
        with pytest.raises(StoppedError):
            call("predict", model, "--input", "-", "--output", tmp_path / "out.jsonl", given="a\nb\nc\n")
    result = call("predict", model, "--input", "-", "--output", tmp_path / "out.jsonl", given="d\ne\nf\n")
    assert "beginning anew" in result.stderr
    assert [text for _, text, _ in read(tmp_path / "out.jsonl")] == ["d", "e", "f"]


def test_an_interrupted_run_says_how_to_go_on(
    model: Path, texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Predictor, "predict", interrupt)
    source = write(tmp_path / "in.txt", {"text": texts})
    result = call("predict", model, "--input", source, "--output", tmp_path / "out.jsonl")
    assert (result.exit_code, result.stdout) == (130, "")
    assert "stopped; run the same command again to go on" in result.stderr


@pytest.mark.parametrize("kind", [".txt", ".csv.gz", ".jsonl", ".parquet"])
def test_one_bar_runs_from_nothing_to_the_end(
    model: Path, texts: list[str], tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "_CHUNK", 6)
    shown: dict[str, list[int]] = {}

    @contextmanager
    def display(title: str, total: int) -> Iterator[Advance]:
        shown[title] = [total, 0]

        def advance(amount: int) -> None:
            shown[title][1] += amount

        yield advance

    source = write(tmp_path / f"in{kind}", {"text": texts})
    with showing(display):
        predict_file(model, source, tmp_path / "out.jsonl")
    total = len(texts) if kind == ".parquet" else source.stat().st_size
    assert shown == {f"reading in{kind}": [total, total]}


def test_an_output_that_is_there_is_refused_and_kept(model: Path, texts: list[str], tmp_path: Path) -> None:
    source = write(tmp_path / "in.txt", {"text": texts})
    (tmp_path / "out.jsonl").write_text("mine")
    with pytest.raises(DataError, match=r"out\.jsonl: is already there; remove it or choose another name"):
        call("predict", model, "--input", source, "--output", tmp_path / "out.jsonl")
    assert (tmp_path / "out.jsonl").read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "content", "arguments", "message"),
    [
        ("in.csv", None, [], r"in\.csv: there is no such file"),
        ("in.docx", b"", [], r"in\.docx: cannot tell the format; expected a name in \.txt, \.csv"),
        ("in.parquet.gz", b"", [], r"in\.parquet\.gz: cannot tell the format"),
        ("in.csv", b"a,b\n1,2\n", [], r"of the text \(text, title, .*\), found 'a', 'b'; name it with --text COLUMN"),
        ("in.csv", b"a,text\n1,2\n", ["--text", "c"], "expected a column 'c', found 'a', 'text'; name it with --text"),
        ("in.jsonl", b'{"a": 1}\n', [], "found 'a'; name it with --text COLUMN"),
        ("in.txt", b"a\n", ["--text", "c"], "one text a line and has no column 'c'; leave --text out"),
        ("in.jsonl", b'{"text": "a"}\n\n{"text"\n', [], r"in\.jsonl, line 3: is not JSON"),
        ("in.json", b'{"text": "a"}\n{"title": "b"}\n', [], r"in\.json, line 2: expected 'text', as in the first row"),
        ("in.jsonl", b'{"text": ["a"]}\n', [], r"in\.jsonl, line 1: expected 'text', a text, found \['a'\]"),
        ("in.jsonl", b'{"text": "\\ud800"}\n', [], r"in\.jsonl, line 1: 'text' is not valid Unicode"),
        ("in.csv", b"text,id\na,1\nb\n", [], r"in\.csv, line 3: expected 2 cells, found 1"),
        ("in.csv", b'text\n"a\nb\nc\n', [], r"in\.csv, line 4: is not valid CSV"),
        ("in.txt", b"a\nb\xff\n", [], r"in\.txt, line 2: byte 0xff at column 2 is not UTF-8"),
        ("in.csv", b"text\nb\xff\n", [], r"in\.csv, line 2: byte 0xff at column 2 is not UTF-8"),
        ("in.jsonl.gz", gzip.compress(b'{"text": "a"}\n' * 99, mtime=0)[:-9], [], r"in\.jsonl\.gz: is cut short"),
        ("in.txt.gz", b"a\n", [], r"in\.txt\.gz: is not valid gzip"),
        ("in.parquet", b"PAR1 and no more", [], r"in\.parquet: is not valid Parquet"),
    ],
)
def test_a_bad_input_is_an_error_of_ours(
    model: Path, tmp_path: Path, name: str, content: bytes | None, arguments: list[str], message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        call("predict", model, "--input", tmp_path / name, "--output", tmp_path / "out.jsonl", *arguments)
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--input", "in.txt", "--output", "out.xlsx"],
            r"out\.xlsx: cannot tell the format; expected .* \.jsonl, \.csv",
        ),
        (["--input", "in.txt", "--output", "out.txt"], r"out\.txt: cannot tell the format"),
        (["--input", "in.txt", "--output", "no/where.csv"], "no: is no folder that can be written; make it or choose"),
        (["--output", "out.csv"], "--output goes with --input FILE"),
        (["a text", "--input", "in.txt", "--output", "out.csv"], "--output goes with --input FILE"),
        (["--input", "in.txt", "--output", "out.csv", "--json"], "--output goes with --input FILE"),
        (["--input", "in.txt", "--output", "out.csv", "--explain"], "without texts, --json and --explain"),
        (["--input", "in.txt", "--text", "name"], "--text names a column of a table, which is read for --output"),
    ],
)
def test_a_mistake_is_an_error_of_ours(
    model: Path, tmp_path: Path, arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("a\n")
    with pytest.raises(DecafError, match=message):
        call("predict", model, *arguments)
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


def test_a_folder_without_a_model_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a\n")
    with pytest.raises(ModelError, match="holds no model"):
        predict_file(tmp_path / "model", tmp_path / "in.txt", tmp_path / "out.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]
