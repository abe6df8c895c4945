"""Batches on a real Ray cluster of this machine: the same as here, through killed workers and killed drivers."""

from __future__ import annotations

import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from modules import topics

import decaf
from decaf import Model, ModelError, Predictor, batch
from decaf.batch import BatchSettings, predict_file
from decaf.bulk import LabelColumns, labels_of
from decaf.cluster import on_ray
from decaf.errors import ConfigError, DataError
from decaf.labels import add_labels

ray: Any = pytest.importorskip("ray", reason="there is no Ray; pip install 'decaf[scale]'")
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray and what it needs have warnings of their own
EXAMPLES = Path(__file__).parent.parent.parent / "examples"
PATIENCE = 120.0  # seconds


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100_000_000)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def texts() -> list[str]:
    words = list(topics().test.documents.texts or [])
    return [f"{words[number % len(words)]} {number}" for number in range(600)]


@pytest.fixture
def source(texts: list[str], tmp_path: Path) -> Path:
    path = tmp_path / "in.parquet"
    pq.write_table(pa.table({"id": [f"d{number}" for number in range(len(texts))], "text": texts}), path)
    return path


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_the_output_is_the_same_as_without(
    model: Path, source: Path, tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "_CHUNK", 50)
    settings = BatchSettings(top=3)
    here, there = tmp_path / f"here{suffix}", tmp_path / f"there{suffix}"
    assert predict_file(model, source, here, settings) == 600
    assert predict_file(model, source, there, settings, engine=on_ray(2)) == 600
    assert there.read_bytes() == here.read_bytes()
    assert not there.with_name(f"{there.name}.parts").exists()


@pytest.mark.usefixtures("cluster")
def test_a_worker_that_is_killed_loses_and_doubles_nothing(
    model: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "_CHUNK", 10)
    here, there = tmp_path / "here.jsonl", tmp_path / "there.jsonl"
    predict_file(model, source, here)
    parts = tmp_path / "there.jsonl.parts"
    killed: list[int] = []

    def kill() -> None:
        while not list(parts.glob("part-*")):
            time.sleep(0.005)
        for worker in workers():
            os.kill(worker, signal.SIGKILL)
            killed.append(worker)

    killer = threading.Thread(target=kill)
    killer.start()
    assert predict_file(model, source, there, engine=on_ray(2)) == 600
    killer.join()
    assert killed
    assert there.read_bytes() == here.read_bytes()


def workers() -> list[int]:
    """Processes that make parts."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if place.read_bytes().startswith(b"ray::PartMaker"):
                found.append(int(place.parent.name))
        except OSError:
            continue
    return found


@pytest.mark.usefixtures("cluster")
def test_more_workers_than_there_is_room_for_are_not_waited_for(
    model: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(batch, "_CHUNK", 20)
    assert predict_file(model, source, tmp_path / "out.jsonl", threads=2, engine=on_ray(8)) == 600
    assert "there is room for 1 workers of 2 threads, not for 8" in caplog.text


@pytest.mark.usefixtures("cluster")
def test_no_more_is_read_than_workers_can_soon_begin(
    model: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "_CHUNK", 10)
    chunks, written, ahead = batch._chunks, batch._whole_file, []
    read = done = 0

    def reading(documents: Iterator[Any]) -> Iterator[Any]:
        nonlocal read
        for chunk in chunks(documents):
            read += 1
            ahead.append(read - done)
            yield chunk

    def writing(path: Path) -> Any:  # noqa: ANN401 - a context
        nonlocal done
        done += path.name.startswith("part-")
        return written(path)

    monkeypatch.setattr(batch, "_chunks", reading)
    monkeypatch.setattr(batch, "_whole_file", writing)
    predict_file(model, source, tmp_path / "out.jsonl", engine=on_ray(2))
    assert read == done == 60
    assert max(ahead) <= 6  # two for each of two workers, one that was just done, one that takes its place


def test_a_driver_that_is_killed_goes_on_without_ray(
    model: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "_CHUNK", 5)
    here, there = tmp_path / "here.jsonl", tmp_path / "there.jsonl"
    predict_file(model, source, here)
    code = "import sys; from decaf import batch; batch._CHUNK = 5; from decaf.cli import main; main()"
    command = [sys.executable, "-c", code, "predict", model, "--input", source, "--output", there, "--engine", "ray"]
    process = subprocess.Popen([*command, "--workers", "2"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    parts = tmp_path / "there.jsonl.parts"
    end = time.monotonic() + PATIENCE
    while not list(parts.glob("part-*")):
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert predict_file(model, source, there) == 600
    assert there.read_bytes() == here.read_bytes()


@pytest.mark.usefixtures("cluster")
def test_what_goes_wrong_in_a_worker_is_told_as_it_would_be_here(
    model: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "model"
    broken.mkdir()
    for file in model.iterdir():
        (broken / file.name).write_bytes(file.read_bytes())
    (broken / "instance-0.safetensors").write_bytes(b"damaged")
    with pytest.raises((ModelError, decaf.DecafError), match="damaged"):
        predict_file(broken, source, tmp_path / "out.jsonl", engine=on_ray(1))


def test_without_ray_it_says_what_to_install(
    model: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install 'decaf\[scale\]'"):
        predict_file(model, source, tmp_path / "out.jsonl", engine=on_ray())


@pytest.mark.usefixtures("cluster")
def test_ray_data_maps_tables(model: Path, source: Path, texts: list[str]) -> None:
    import ray.data

    ray.data.DataContext.get_current().enable_progress_bars = False
    found = (
        ray.data.read_parquet(str(source))
        .map_batches(
            LabelColumns,
            fn_constructor_args=[str(model)],
            fn_constructor_kwargs={"top": 2},
            batch_format="pyarrow",
            concurrency=1,
        )
        .take_all()
    )
    known = Model.load(model)
    expected = Predictor(known).predict(texts, top=2)
    by_text = {row["text"]: row for row in found}
    assert len(found) == len(by_text) == len(texts)
    for text, matches in zip(texts, expected, strict=True):
        assert list(by_text[text]["labels"]) == [known.labels.id(match.label) for match in matches]
        assert list(by_text[text]["label_texts"]) == [known.labels.text(match.label) for match in matches]
        assert list(by_text[text]["scores"]) == pytest.approx([match.score for match in matches])


@pytest.mark.usefixtures("cluster")
def test_the_example_of_ray_serve_answers_and_takes_labels(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ray import serve

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("DECAF_MODEL", str(model))
    monkeypatch.setenv("DECAF_LABELS", str(tmp_path / "labels.sqlite"))
    monkeypatch.setenv("DECAF_REPLICAS", "1")
    application = runpy.run_path(str(EXAMPLES / "ray_serve.py"))["application"]
    serve.start(http_options={"port": port})
    try:
        serve.run(application)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as client:
            question = {"texts": ["topic aa"], "top": 20}

            def found() -> list[str]:
                answer = client.post("/v1/predict", json=question).raise_for_status().json()
                return [label["id"] for label in answer["predictions"][0]["labels"]]

            assert "L0" in found()
            assert client.put("/v1/labels/new", json={"text": "topic aa"}).status_code == 201
            assert "new" in found()
    finally:
        serve.shutdown()


def test_a_plain_function_answers_plain_values(model: Path, texts: list[str]) -> None:
    known = Model.load(model)
    (expected,) = Predictor(known).predict([texts[0]], top=2)
    found = labels_of(str(model), [texts[0], None], top=2)
    assert found[0] == [
        {"id": known.labels.id(match.label), "text": known.labels.text(match.label), "score": match.score}
        for match in expected
    ]
    assert len(found) == 2
    assert labels_of(str(model), []) == []


def test_a_table_without_the_column_is_refused(model: Path) -> None:
    with pytest.raises(DataError, match="expected a column 'title', found 'text'"):
        LabelColumns(str(model), text="title")(pa.table({"text": ["a"]}))
    with pytest.raises(DataError, match="there is a column 'scores' already"):
        LabelColumns(str(model))(pa.table({"text": ["a"], "scores": [1]}))


def test_live_labels_are_among_them(model: Path, tmp_path: Path) -> None:
    kept = str(tmp_path / "labels.sqlite")
    add_labels(model, {"new": "topic aa"}, kept)
    assert "new" in [label["id"] for label in labels_of(str(model), ["topic aa"], top=20, live_labels=kept)[0]]
    table = LabelColumns(str(model), top=20, live_labels=kept)(pa.table({"text": ["topic aa"]}))
    assert "new" in table.column("labels").to_pylist()[0]
