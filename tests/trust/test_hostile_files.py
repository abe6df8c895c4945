"""Files from strangers: nothing in them runs, waits, swells, or leads elsewhere."""

from __future__ import annotations

import ast
import gzip
import hashlib
import json
import os
import pickle
import shutil
import sqlite3
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy import sparse
from typer.testing import CliRunner

import decaf
from decaf import Dataset, Model, Predictor
from decaf.batch import predict_file
from decaf.cli import app
from decaf.datasets import cache
from decaf.datasets.arrow import read_arrow, write_arrow
from decaf.datasets.files import read_bytes
from decaf.datasets.raw import read_raw
from decaf.datasets.tables import open_csv
from decaf.errors import ConfigError, DataError, DecafError, ModelError, StoreError, TrainingError
from decaf.evaluation import Evaluation, card_of, keep_evaluation
from decaf.header import FORMAT
from decaf.modules.checkpoints import Checkpoint
from decaf.predictions import load_scores, save_scores
from decaf.scoring.fast import FastScorer
from decaf.scoring.nearest import _BINS, _counted, _reached
from decaf.stores import kept_changes, open_store
from decaf.stores.sqlite import SqliteStore

SOURCE = Path(decaf.__file__).parent
KEPT = Path(__file__).parent / "formats" / f"v{FORMAT}"
TEXTS = ["red amber basalt", "garnet harbour"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model to spoil."""
    return Path(shutil.copytree(KEPT / "contrastive" / "model", tmp_path / "model"))


def edit(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    content = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    change(content)
    (folder / "model.json").write_text(json.dumps(content), encoding="utf-8")


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def remake(folder: Path, name: str, data: bytes) -> None:
    """Put another file in place, its checksum too."""
    (folder / name).write_bytes(data)
    edit(folder, lambda content: content["files"].update({name: hashlib.sha256(data).hexdigest()}))


def ends(call: Callable[[], object]) -> BaseException | None:
    """What a call raises; it must not wait for anything."""
    found: list[BaseException | None] = []

    def work() -> None:
        try:
            call()
            found.append(None)
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(60)
    assert found, "it waits"
    return found[0]


# Nothing runs.

FORBIDDEN = {
    *("pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "yaml", "runpy", "code"),
    *("eval", "exec", "compile", "__import__", "read_pickle", "to_pickle", "read_index", "write_index"),
    *("torch.load", "torch.save", "torch.jit.load", "torch.package", "torch.hub", "os.system", "os.popen"),
    *("Tokenizer.from_file", "Tokenizer.from_pretrained", "Tokenizer.from_buffer", "Tokenizer.from_str"),
}
ARRAYS = {"np.load", "numpy.load", "np.lib.format.read_array", "np.save"}  # must say allow_pickle=False
BARE = {"eval", "exec", "compile", "code"}  # harmless as methods of something


def calls_of(source: str) -> list[tuple[str, ast.Call | None]]:
    """Names that are called or imported, in full and the last part alone."""
    found: list[tuple[str, ast.Call | None]] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            found.append((ast.unparse(node.func), node))
        elif isinstance(node, ast.Import):
            found += [(alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [(str(node.module), None), *((f"{node.module}.{alias.name}", None) for alias in node.names)]
    return found


def unsafe(source: str) -> list[str]:
    bad = []
    for name, call in calls_of(source):
        last = ".".join(name.split(".")[-2:])
        of_any = name.split(".")[-1] in FORBIDDEN - BARE  # whatever it is called on
        if {name, last} & FORBIDDEN or of_any or name.split(".")[0] in FORBIDDEN - BARE:
            bad.append(name)
        if call is not None and name in ARRAYS:
            said = {one.arg: ast.unparse(one.value) for one in call.keywords}
            bad += [] if said.get("allow_pickle") == "False" else [name]
    return bad


@pytest.mark.parametrize("file", sorted(SOURCE.rglob("*.py")), ids=lambda file: str(file.relative_to(SOURCE)))
def test_no_source_calls_a_reader_that_runs_code(file: Path) -> None:
    assert unsafe(file.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from pickle import loads",
        "import torch; torch.load(path)",
        "np.load(path)",
        "np.load(path, allow_pickle=True)",
        "np.load(path, allow_pickle=choice)",
        "faiss.read_index(name)",
        "from joblib import load",
        "exec(text)",
        "Tokenizer.from_file(name)",
    ],
)
def test_such_a_call_would_be_seen(line: str) -> None:
    assert unsafe(line) != []


def test_safe_calls_are_left_alone() -> None:
    assert unsafe("np.load(path, allow_pickle=False); re.compile('a'); json.load(stream); network.eval()") == []


AUDITED = """
import collections
import sys
import typing
from pathlib import Path
from contextlib import closing, suppress
from decaf import Dataset, Model
from decaf.datasets import cache
from decaf.datasets.raw import read_raw
from decaf.errors import DecafError
from decaf.predictions import load_scores
from decaf.stores import kept_changes
from decaf.modules.checkpoints import Checkpoint
import decaf.console, scipy.sparse, torch, numpy.lib.format, safetensors, zipfile
folder = Path(sys.argv[1])
Model.load(folder / "good")  # whatever is imported late
with suppress(ImportError):
    import pandas  # pyarrow loads it with the first table where it is there
seen = []
bad = ("pickle.find_class", "exec", "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "socket.connect",
       "ctypes.dlopen")
def watch(event, arguments):
    # Annotations of our own source are looked up, and modules of a library may be imported late.
    if event in bad:
        caller = sys._getframe(1).f_code.co_filename
        if event != "exec" or caller not in (typing.__file__, collections.__file__, "<frozen importlib._bootstrap>"):
            seen.append((event, caller, str(arguments)[:300]))
sys.addaudithook(watch)
def tried(call):
    try:
        call()
        print("read")
    except DecafError as error:
        print("refused")
for name in sorted(path.name for path in (folder / "models").iterdir()):
    tried(lambda: Model.load(folder / "models" / name))
tried(lambda: load_scores(folder / "scores.npz", 1, 2))
tried(lambda: Dataset.load(folder / "data.parquet"))
tried(lambda: kept_changes(folder / "good", folder / "labels.sqlite"))
cache.cached([folder / "raw" / "trn.json.gz"], "x", lambda: read_raw(folder / "raw"), smallest=0)
Checkpoint(folder / "run", "x", torch.device("cpu")).result("module", lambda: {"a": torch.ones(2)})
seen += [name for name, one in sys.modules.items() if str(getattr(one, "__file__", "")).startswith(str(folder))]
print("SEEN", seen)
"""


class Trap:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.mark),)


def test_nothing_in_a_file_runs_when_it_is_read(folder: Path, tmp_path: Path) -> None:
    """Pickles stand wherever a reader looks; Python itself tells what is unpickled, imported, run or connected to."""
    trap = pickle.dumps(Trap(tmp_path / "mark"))
    shutil.copytree(folder, tmp_path / "good")
    for name in ("tokenizer.json", "features.json", "labels.arrow", "instance-0.safetensors", "model.json"):
        spoiled = Path(shutil.copytree(folder, tmp_path / "models" / name))
        (remake if name != "model.json" else lambda of, name, data: (of / name).write_bytes(data))(spoiled, name, trap)
    typed = Path(shutil.copytree(folder, tmp_path / "models" / "extension"))
    mark = {b"ARROW:extension:name": b"arrow.py_extension_type", b"ARROW:extension:metadata": trap}
    column = pa.field("id", pa.large_string(), metadata=mark)  # what old versions of the library unpickled
    table = read_arrow(folder / "labels.arrow")
    write_arrow(table.cast(table.schema.set(0, column)), tmp_path / "typed.arrow")
    remake(typed, "labels.arrow", (tmp_path / "typed.arrow").read_bytes())
    with zipfile.ZipFile(tmp_path / "scores.npz", "w") as out:
        for name in ("data.npy", "indices.npy", "indptr.npy", "shape.npy", "format.npy"):
            out.writestr(name, trap)
    pq.write_table(pa.table({"text": [trap], "labels": [trap]}), tmp_path / "data.parquet")
    with closing(SqliteStore(tmp_path / "labels.sqlite")) as store:
        store._database.execute("insert into labels values ('a', ?, ?)", [trap, trap])
    (tmp_path / "raw").mkdir()
    for name in ("trn", "lbl"):
        record = {"uid": "a", "title": "one", "target_ind": [0]}
        (tmp_path / "raw" / f"{name}.json.gz").write_bytes(gzip.compress(json.dumps(record).encode()))
    environment = {**os.environ, "DECAF_CACHE": str(tmp_path / "cache")}
    kept = tmp_path / "cache" / "datasets" / cache._key([tmp_path / "raw" / "trn.json.gz"], "x")
    kept.mkdir(parents=True)
    cache._store(read_raw(tmp_path / "raw"), kept)
    np.save(kept / "train.truth" / "data.npy", np.array([Trap(tmp_path / "mark")], dtype=object), allow_pickle=True)
    Checkpoint(tmp_path / "run", "x", torch.device("cpu"))
    (tmp_path / "run" / "checkpoint" / "module.done.safetensors").write_bytes(trap)
    command = [sys.executable, "-c", AUDITED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    *answers, seen = done.stdout.splitlines()
    assert answers == ["read", *["refused"] * 8]  # a type that nobody knows is the type below it
    assert seen == "SEEN []"
    assert not (tmp_path / "mark").exists()
    pickle.loads(trap)  # noqa: S301
    assert (tmp_path / "mark").exists()  # the trap would have worked


def test_compiled_loops_are_kept_with_the_program_and_never_with_data() -> None:
    """They are pickled by numba: who can write there could write the program itself."""
    kept = Path(_reached.stats.cache_path)  # type: ignore[attr-defined]
    own = [SOURCE, Path.home(), *([Path(os.environ["NUMBA_CACHE_DIR"])] if "NUMBA_CACHE_DIR" in os.environ else [])]
    assert any(kept.is_relative_to(place) for place in own)
    assert not kept.is_relative_to(Path.cwd()) or kept.is_relative_to(SOURCE)


# Nothing waits.


@pytest.mark.parametrize("listed", [True, False], ids=["listed", "not listed"])
@pytest.mark.parametrize("name", ["model.json", "features.json", "tokenizer.json", "labels.arrow"])
def test_a_pipe_in_a_model_folder_is_not_waited_for(folder: Path, name: str, listed: bool) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)
    if not listed and name != "model.json":
        edit(folder, lambda content: content["files"].pop(name))
    for verify in (True, False):
        assert isinstance(ends(lambda verify=verify: Model.load(folder, verify=verify)), ModelError)


def test_a_file_that_is_not_listed_is_not_read(folder: Path) -> None:
    """Or it would be read without its checksum."""
    for name in ("features.json", "labels.arrow"):
        edit(folder, lambda content, name=name: content["files"].pop(name))
        with pytest.raises(ModelError, match=f"{name}: is missing"):
            Model.load(folder)
        edit(folder, lambda content, name=name: content["files"].update({name: digest_of(folder / name)}))
    Model.load(folder)


def test_a_pipe_beside_a_model_is_not_waited_for(folder: Path) -> None:
    evaluation = Evaluation("small", {"P@1": 50.0}, [])
    keep_evaluation(evaluation, folder)
    model = Model.load(folder)
    assert card_of(model, folder)["metrics"] == {"P@1": 50.0}
    (folder / "evaluation.json").unlink()
    os.mkfifo(folder / "evaluation.json")
    os.mkfifo(folder / ".evaluation.json.part")
    assert ends(lambda: card_of(model, folder)) is None
    assert ends(lambda: keep_evaluation(evaluation, folder)) is None
    assert card_of(model, folder)["metrics"] == {"P@1": 50.0}
    store = folder.with_name("model.labels.sqlite")
    os.mkfifo(store)
    assert kept_changes(folder) == []
    assert isinstance(ends(lambda: open_store(folder)), StoreError)


def test_a_pipe_in_place_of_a_file_of_a_model_is_told(folder: Path) -> None:
    (folder / "labels.arrow").unlink()
    os.mkfifo(folder / "labels.arrow")
    error = ends(lambda: Model.load(folder))
    assert isinstance(error, ModelError)
    assert "labels.arrow: is missing, what stands there is no file; remove the folder" in str(error)


@pytest.mark.parametrize("name", ["trn.json.gz", "lbl.json", "filter_labels_train.txt", "dataset.json", "train.csv"])
def test_a_pipe_in_a_dataset_is_not_waited_for(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    assert isinstance(ends(lambda: Dataset.load(tmp_path)), DataError)
    assert isinstance(ends(lambda: Dataset.load(tmp_path / name)), DataError)


def test_a_pipe_in_the_cache_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DECAF_CACHE", str(tmp_path / "cache"))
    (tmp_path / "raw").mkdir()
    for name in ("trn", "lbl"):
        record = {"uid": "a", "title": "one", "target_ind": [0]}
        (tmp_path / "raw" / f"{name}.json").write_text(json.dumps(record))

    def load() -> None:
        cache.cached([tmp_path / "raw" / "trn.json"], "x", lambda: read_raw(tmp_path / "raw"), smallest=0)

    load()
    (kept,) = (tmp_path / "cache" / "datasets").iterdir()
    for name in ("counts.json", "train.arrow", "test.truth/indices.npy"):
        (kept / name).unlink()
        os.mkfifo(kept / name)
        assert ends(load) is None
        assert (kept / name).is_file()  # made again


def test_an_unfinished_run_of_pipes_and_links_is_refused(tmp_path: Path) -> None:
    def begin() -> Checkpoint:
        return Checkpoint(tmp_path / "run", "x", torch.device("cpu"))

    begin()
    (tmp_path / "victim").write_text("precious")
    for name in ("metrics.jsonl", "checkpoint/module.done.safetensors"):
        path = tmp_path / "run" / name
        os.mkfifo(path)
        error = ends(begin)
        assert isinstance(error, TrainingError)
        assert f"{path}: is no file of a run" in str(error)
        path.unlink()
        path.symlink_to(tmp_path / "victim")
        with pytest.raises(TrainingError, match="is no file of a run"):
            begin()
        path.unlink()
    begin().note(epoch=1)
    assert (tmp_path / "victim").read_text() == "precious"


# Nothing leads elsewhere.


@pytest.mark.parametrize("name", ["model.json", "features.json", "labels.arrow", "instance-0.safetensors"])
def test_a_link_out_of_the_folder_is_refused_and_one_inside_is_followed(folder: Path, name: str) -> None:
    outside = folder.with_name("outside")
    (folder / name).rename(outside)
    (folder / name).symlink_to("../outside")
    with pytest.raises(ModelError, match=rf"{name}: is a link that leads out of the folder; copy the file there"):
        Model.load(folder)
    outside.rename(folder / "kept")
    (folder / name).unlink()
    (folder / name).symlink_to("kept")
    Model.load(folder)
    folder.with_name("other").symlink_to(folder)
    Model.load(folder.with_name("other"))


@pytest.mark.parametrize("name", ["x" * 300, "a\0b", "\ud800", "", "C:\\x", "instance-0.safetensors/../x"])
def test_a_name_that_no_file_has_is_missing(folder: Path, name: str) -> None:
    edit(folder, lambda content: content["files"].update({name: "0"}))
    with pytest.raises(ModelError, match="is missing"):
        Model.load(folder)


def test_an_evaluation_is_not_written_through_a_link(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    for name in (".evaluation.json.part", "evaluation.json"):
        (folder / name).symlink_to(tmp_path / "victim")
    keep_evaluation(Evaluation("small", {"P@1": 50.0}, []), folder)
    assert (tmp_path / "victim").read_text() == "precious"
    assert not (folder / "evaluation.json").is_symlink()
    assert card_of(Model.load(folder), folder)["metrics"] == {"P@1": 50.0}


# Nothing swells.


def test_what_unpacks_to_far_more_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trn.json.gz"
    path.write_bytes(gzip.compress(b"\n" * (3 << 20)))
    assert len(read_bytes(path)) == 3 << 20  # so much may any file
    monkeypatch.setenv("DECAF_UNPACKED", str(1 << 20))
    with pytest.raises(
        DataError, match=r"trn\.json\.gz: has [0-9,]+ bytes that would take more than 1,048,576; .*DECAF"
    ):
        read_bytes(path)
    monkeypatch.setenv("DECAF_UNPACKED", str(4 << 20))
    assert len(read_bytes(path)) == 3 << 20
    for wrong in ("many", "-1", "0", "1e9", "9" * 30):
        monkeypatch.setenv("DECAF_UNPACKED", wrong)
        with pytest.raises(ConfigError, match="DECAF_UNPACKED must be a number of bytes"):
            read_bytes(path)


@pytest.mark.parametrize(
    ("name", "header"),
    [("trn_X_Y.txt", "1 2000000000"), ("trn_X_Xf.txt", "1 2000000000"), ("train.txt", "1 4 2000000000")],
)
def test_a_header_that_promises_far_more_is_refused(tmp_path: Path, name: str, header: str) -> None:
    for other in ("trn_X_Xf.txt", "trn_X_Y.txt"):
        if name != "train.txt":
            (tmp_path / other).write_text("1 4\n0:1\n")
    (tmp_path / name).write_text(f"{header}\n0 0:1\n" if name == "train.txt" else f"{header}\n0:1\n")
    with pytest.raises(DataError, match=rf"{name}: has [0-9]+ bytes that would take more than 268,435,456"):
        Dataset.load(tmp_path)
    done = CliRunner().invoke(app, ["inspect", str(tmp_path)])
    assert isinstance(done.exception, DataError)


def table_of(path: Path, rows: int, text: str) -> None:
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), [text])
    pq.write_table(pa.table({"text": column, "labels": column}), path, compression="zstd")


@pytest.mark.parametrize(("rows", "length"), [(8_000_000, 1), (4_000, 1 << 20)], ids=["many rows", "long texts"])
def test_a_small_table_of_very_much_is_refused(tmp_path: Path, rows: int, length: int) -> None:
    """A value that is said again and again takes next to nothing in the file, and all of it in memory."""
    table_of(tmp_path / "documents.parquet", rows, "x" * length)
    assert (tmp_path / "documents.parquet").stat().st_size < 100_000
    for call in (
        lambda: Dataset.load(tmp_path / "documents.parquet"),
        lambda: predict_file(KEPT / "tree" / "model", tmp_path / "documents.parquet", tmp_path / "o.jsonl"),
    ):
        with pytest.raises(DataError, match=r"documents\.parquet: has .* bytes that would take more than 268,435,456"):
            call()


def test_a_table_that_says_little_again_is_read(tmp_path: Path) -> None:
    table_of(tmp_path / "documents.parquet", 3_000, "a text")
    assert Dataset.load(tmp_path / "documents.parquet").train.documents.count == 3_000


def test_labels_that_have_to_be_unpacked_are_refused(folder: Path, tmp_path: Path) -> None:
    table = read_arrow(Path(shutil.copy(folder / "labels.arrow", tmp_path / "plain")))
    for packing in ("zstd", "lz4"):
        options = pa.ipc.IpcWriteOptions(compression=packing)
        with (
            pa.OSFile(str(tmp_path / "packed"), "wb") as out,
            pa.ipc.new_file(out, table.schema, options=options) as to,
        ):
            to.write_table(table)
        remake(folder, "labels.arrow", (tmp_path / "packed").read_bytes())
        with pytest.raises(ModelError, match="columns are packed"):
            Model.load(folder)
    write_arrow(table, tmp_path / "again")
    remake(folder, "labels.arrow", (tmp_path / "again").read_bytes())
    assert Model.load(folder).labels.count == 20


def test_labels_stay_in_their_file(tmp_path: Path) -> None:
    column = pa.array(["a text"] * 100_000, pa.large_string())
    write_arrow(pa.table({"id": column}), tmp_path / "labels.arrow")
    del column
    before = pa.total_allocated_bytes()
    table = read_arrow(tmp_path / "labels.arrow")
    assert (len(table), pa.total_allocated_bytes()) == (100_000, before)


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("padding", {"strategy": {"Fixed": 10**12}, "direction": "Right", "pad_id": 0, "pad_token": "x"}),
        ("truncation", {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0}),
        ("normalizer", {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": ""}),
        ("pre_tokenizer", {"type": "Whitespace"}),
        ("added_tokens", [{"id": 0, "content": "a"}]),
        ("model", {"type": "BPE", "vocab": {}, "merges": []}),
    ],
)
def test_a_tokenizer_with_parts_that_decaf_never_writes_is_refused(folder: Path, part: str, value: object) -> None:
    stored = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    remake(folder, "tokenizer.json", json.dumps(stored | {part: value}).encode())
    with pytest.raises(ModelError, match=r"tokenizer\.json: is no tokenizer"):
        Model.load(folder)


@pytest.mark.parametrize("shape", ["(1099511627776,)", "(4611686018427387904, 4)", "(-8,)", "(3,)"])
def test_scores_whose_header_promises_more_than_is_there_are_refused(tmp_path: Path, shape: str) -> None:
    path = tmp_path / "scores.npz"
    save_scores(sparse.csr_array(np.array([[1.0, 2.0]])), path)
    with zipfile.ZipFile(path) as stored:
        members = {name: stored.read(name) for name in stored.namelist()}
    data = members["data.npy"]
    head = data[:128].replace(b"(2,)", shape.encode())
    members["data.npy"] = head[: len(head) - (len(head) - 128) - 1].rstrip() + b"\n" + data[128:]
    members["data.npy"] = (
        data[:8] + (len(members["data.npy"]) - 10 - 16).to_bytes(2, "little") + members["data.npy"][10:]
    )
    with zipfile.ZipFile(path, "w") as out:
        for name, content in members.items():
            out.writestr(name, content)
    with pytest.raises(DataError, match=r"scores\.npz: cannot be read \((data\.npy promises more|an array has less)"):
        load_scores(path, 1, 2)


def test_scores_that_unpack_to_far_more_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "scores.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("data.npy", b"\0" * (2 << 20))
    monkeypatch.setenv("DECAF_UNPACKED", str(1 << 20))
    with pytest.raises(DataError, match=r"scores\.npz: has .* bytes that would take more than 1,048,576"):
        load_scores(path, 1, 2)


@pytest.mark.parametrize(
    ("layout", "name", "value"),
    [
        ("csr", "indices", 7),
        ("csc", "indices", 1 << 30),
        ("csc", "indptr", 1 << 30),
        ("bsr", "indices", 1 << 30),
        ("bsr", "indices", -1),
        ("coo", "row", 1 << 30),
        ("dia", "offsets", -(1 << 31)),
        ("dia", "offsets", (1 << 31) - 1),
    ],
)
def test_scores_at_places_that_are_not_there_are_refused(tmp_path: Path, layout: str, name: str, value: int) -> None:
    """Whatever the layout: it is looked at before it is rewritten by rows."""
    path = tmp_path / "scores.npz"
    sparse.save_npz(path, sparse.csr_array(np.array([[1.0, 0.0, 3.0], [0.0, 4.0, 0.0]])).asformat(layout))
    with np.load(path) as stored:
        arrays = dict(stored)
    arrays[name] = arrays[name].copy()
    arrays[name][1 if name == "indptr" else 0] = value
    np.savez(path, **arrays)
    with pytest.raises(DataError, match=r"scores\.npz: cannot be read"):
        load_scores(path, 2, 3)


def test_a_matrix_of_another_shape_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "scores.npz"
    sparse.save_npz(path, sparse.coo_array((np.ones(1), ([0], [0])), shape=(1 << 40, 2)))
    with pytest.raises(DataError, match=r"is 1099511627776 x 2; expected 1 documents x 2 labels"):
        load_scores(path, 1, 2)


def test_a_table_of_very_many_columns_is_told_at_once(tmp_path: Path) -> None:
    """The names are compared with all others by a count, not one by one."""
    path = tmp_path / "wide.csv"
    path.write_text(",".join(f"c{number}" for number in range(200_000)) + ",c7\n")
    with pytest.raises(DataError, match=r"wide\.csv, line 1: column 'c7' is there twice"):
        open_csv(path, None)


@pytest.mark.parametrize("depth", [20, 200, 900])
def test_json_that_is_nested_deeply_is_told(folder: Path, tmp_path: Path, depth: int) -> None:
    nested: object = 1
    for _ in range(depth):
        nested = [nested]
    edit(folder, lambda content: content.update(task=nested))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.csv").write_text("text,labels\na,b\n")
    (tmp_path / "data" / "dataset.json").write_text(json.dumps({"task": nested}))
    if depth == 20:
        assert Model.load(folder).about["task"] == Dataset.load(tmp_path / "data").about["task"] == nested
        return
    with pytest.raises(ModelError, match="nested too deeply"):
        Model.load(folder)
    with pytest.raises(DataError, match=r"dataset\.json: is nested too deeply"):
        Dataset.load(tmp_path / "data")


# Numbers that are none.


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [0, 3, 9])
def test_scores_that_are_no_numbers_are_not_counted(bad: float, at: int) -> None:
    """Compiled loops look nothing up twice: a place that is none would be written to."""
    scores = np.arange(10, dtype=np.float32)
    scores[at] = bad
    bins = np.empty(_BINS, dtype=np.int64)
    counted = _counted(scores, bins)
    assert 0 <= bins.sum() <= 10
    for wanted in range(1, 10):
        _reached(counted, wanted, bins)
    assert np.isfinite(_reached(_counted(np.arange(10, dtype=np.float32), bins), 3, bins))


def spoiled_instance(folder: Path, name: str, value: float, at: object = 0) -> None:
    path = folder / "instance-0.safetensors"
    tensors = {key: tensor.clone() for key, tensor in load_file(path).items()}
    tensors[name][at] = value
    save_file(tensors, path)
    remake(folder, path.name, path.read_bytes())


@pytest.mark.parametrize("name", ["near.scales", "far.matrix", "clusters.bias", "labels.rarity", "curve.chances"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_array_of_what_is_no_number_is_refused(folder: Path, name: str, value: float) -> None:
    spoiled_instance(folder, name, value)
    with pytest.raises(ModelError, match=f"{name} holds what is no number"):
        Model.load(folder)


def test_places_between_head_and_tail_must_be_in_order(folder: Path) -> None:
    spoiled_instance(folder, "curve.tails", 0.5, slice(None))
    with pytest.raises(ModelError, match="places between head and tail are not in order"):
        Model.load(folder)


def test_numbers_that_are_all_too_large_do_no_harm(folder: Path) -> None:
    for name in ("clusters.scales", "labels.weight_scales", "far.scales"):
        spoiled_instance(folder, name, 1e36, slice(None))
    model = Model.load(folder)
    assert model.features is not None
    for fast in (True, False):
        assert len(Predictor(model, fast=fast).predict(TEXTS)) == 2
    FastScorer(model, effort=1).top(model.features.transform(TEXTS), 5)


@pytest.mark.parametrize(
    "change",
    [
        {"idf": [float("nan")]},
        {"idf": [1e39]},
        {"idf": [0]},
        {"idf": [[1.0]]},
        {"idf": [10**400]},
        {"words": [1]},
        {"words": "amber"},
        {"words": {"amber": 1}},
        {"pairs": [1]},
        {"pairs": [None]},
        {"pairs": 3},
        {"words": []},
    ],
    ids=str,
)
def test_features_that_are_none_are_refused(folder: Path, change: dict[str, Any]) -> None:
    stored = json.loads((folder / "features.json").read_text(encoding="utf-8"))
    if isinstance(change.get("idf"), list):
        change = {"idf": change["idf"] * len(stored["idf"])}
    remake(folder, "features.json", json.dumps(stored | change).encode())
    with pytest.raises(ModelError, match=str(folder)):
        Model.load(folder)


def test_features_of_another_model_are_refused(folder: Path) -> None:
    stored = json.loads((folder / "features.json").read_text(encoding="utf-8"))
    stored["words"], stored["idf"] = [*stored["words"], "zzz"], [*stored["idf"], 1.0]
    remake(folder, "features.json", json.dumps(stored).encode())
    with pytest.raises(ModelError, match="features and instances are not of one model"):
        Model.load(folder)


# Stores of labels.


STATEMENTS = {
    "a view": "alter table labels rename to kept; create view labels as with recursive c(x) as "
    "(select 1 union all select x + 1 from c) select cast(x as text) as id, 'amber' as text, '' as at from c",
    "a trigger": "create trigger own after insert on labels begin delete from labels; end",
    "a computed column": "drop table labels; create table labels (id text, text as (hex(zeroblob(450000000))), at)",
    "another format": "pragma user_version = 0; create table more (a)",
    "no table": "drop table counters",
}


@pytest.mark.parametrize("kind", STATEMENTS)
def test_a_store_of_something_else_is_refused_and_left_alone(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "labels.sqlite"
    SqliteStore(path).close()
    with closing(sqlite3.connect(path)) as database:
        database.executescript(STATEMENTS[kind])
    before = path.read_bytes()
    error = ends(lambda: SqliteStore(path))
    assert isinstance(error, StoreError)
    assert "holds something else than changes of labels; restore the file" in str(error)
    assert path.read_bytes() == before


def test_a_store_whose_tables_are_named_in_no_text_is_told(tmp_path: Path) -> None:
    path = tmp_path / "labels.sqlite"
    SqliteStore(path).close()
    path.write_bytes(path.read_bytes().replace(b"id text primary key", b"id text primary \xc5ey"))
    with pytest.raises(StoreError, match=r"labels\.sqlite: changes of labels cannot be read or kept"):
        SqliteStore(path)


def test_a_table_that_a_tool_has_added_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "labels.sqlite"
    SqliteStore(path).close()
    with closing(sqlite3.connect(path)) as database:
        database.executescript("create table _backup (id integer); insert into _backup values (1)")
    with closing(SqliteStore(path)) as store:
        store.put("a", "text")
        assert [change.id for change in store.changes()] == ["a"]
        assert store._database.execute("select id from _backup").fetchall() == [(1,)]


def test_the_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "labels.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.executescript("create table places (url text); insert into places values ('x')")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="holds something else"):
        SqliteStore(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "statement",
    [
        "insert into labels values (x'00', 'text', '')",
        "insert into labels values ('a', x'00', '')",
        "insert into labels values ('a', 'b', x'00')",
    ],
)
def test_a_label_that_is_no_text_is_told(tmp_path: Path, statement: str) -> None:
    with closing(SqliteStore(tmp_path / "labels.sqlite")) as store:
        store._database.execute(statement)
        with pytest.raises(StoreError, match="holds a label that is no text"):
            store.changes()


@pytest.mark.parametrize("statement", ["delete from counters", "update counters set value = 'x'"])
def test_a_damaged_counter_is_told(tmp_path: Path, statement: str) -> None:
    with closing(SqliteStore(tmp_path / "labels.sqlite")) as store:
        store._database.execute(statement)
        with pytest.raises(StoreError, match=r"is damaged \(counters\)"):
            store.reloads()


# Checksums.


def test_checksums_can_be_left_out_on_the_command_line(folder: Path) -> None:
    edit(folder, lambda content: content["files"].update({"labels.arrow": "wrong"}))
    refused = CliRunner().invoke(app, ["predict", str(folder), *TEXTS, "--json"])
    assert isinstance(refused.exception, ModelError)
    assert "checksum" in str(refused.exception)
    done = CliRunner().invoke(app, ["predict", str(folder), *TEXTS, "--json", "--no-verify"])
    assert done.exit_code == 0
    assert [json.loads(line)["text"] for line in done.stdout.splitlines()] == TEXTS


def test_a_batch_and_a_service_can_do_without_checksums(folder: Path, tmp_path: Path) -> None:
    from decaf.serving.engine import Engine

    edit(folder, lambda content: content["files"].update({"labels.arrow": "wrong"}))
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    arguments = ["predict", str(folder), "--input", str(tmp_path / "texts.txt"), "--output", str(tmp_path / "o.jsonl")]
    assert isinstance(CliRunner().invoke(app, arguments).exception, ModelError)
    assert CliRunner().invoke(app, [*arguments, "--no-verify"]).exit_code == 0
    for verify in (True, False):
        with closing(Engine(folder, tmp_path / "labels.sqlite", verify=verify)) as engine:
            if verify:
                with pytest.raises(DecafError, match="checksum"):
                    engine.load()
            else:
                assert engine.load().version
