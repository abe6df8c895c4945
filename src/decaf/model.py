"""Model: settings, vocabulary and learned arrays, and the folder that holds them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from decaf.config import Config, FeatureSettings, recipe_of
from decaf.datasets import Items
from decaf.datasets.arrow import read_arrow, write_arrow
from decaf.datasets.files import share
from decaf.errors import ConfigError, DecafError, ModelError
from decaf.features import Features, read_tokenizer
from decaf.header import ADVICE, FORMAT, read_header
from decaf.networks import Instance
from decaf.packed import Packed

__all__ = ["Column", "Model"]

_NEEDED, _OF_TEXTS = {"labels.arrow"}, {"tokenizer.json", "features.json"}
_NAMED = ("words", "pairs", "shapes")  # tokens that are kept by name
_HEAVIEST = 1000.0  # that a token can be: logarithms of counts are far below
_UNREADABLE = (
    *(KeyError, ValueError, TypeError, IndexError, AttributeError, OverflowError, RecursionError, RuntimeError),
    *(OSError, pa.ArrowException, SafetensorError),
)


@dataclass(frozen=True, eq=False)
class Model:
    """What training makes and prediction needs."""

    config: Config
    features: Features | None  # None where the dataset came with ready features
    labels: Items  # all labels of the dataset
    kept: NDArray[np.int64]  # the row in `labels` of each label that was trained
    packed: tuple[Packed, ...]  # its instances as they are stored
    about: dict[str, Any]  # recipe, seed, dataset, sizes
    frequency: NDArray[np.int64] | None = None  # training documents of each label of the dataset
    version: str = ""  # twelve hex digits that stand for the files it was read from

    def save(self, folder: str | Path) -> None:
        """Write the model into a folder; model.json comes last, so that a folder with it is whole."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        writers: dict[str, Callable[[Path], Any]] = {"labels.arrow": self._write_labels}
        if self.features is not None:
            features = self.features
            writers["tokenizer.json"] = lambda path: path.write_text(
                features.tokenizer.to_str(pretty=True), encoding="utf-8"
            )
            writers["features.json"] = lambda path: path.write_text(
                json.dumps(
                    {
                        **{name: list(getattr(features, name)) for name in _NAMED},
                        "known": dict(features.known),
                        "idf": features.idf.tolist(),
                    }
                ),
                encoding="utf-8",
            )
        for number, packed in enumerate(self.packed):
            arrays = packed.arrays()
            writers[f"instance-{number}.safetensors"] = lambda path, arrays=arrays: save_file(arrays, path)  # type: ignore[misc]
        digests: dict[str, str] = {}
        for name, write in writers.items():
            digests[name] = _write(folder / name, write)
        content = {"format": FORMAT, **self.about, "config": self.config.to_json(), "files": digests}
        text = json.dumps(content, indent=1) + "\n"
        _write(folder / "model.json", lambda path: path.write_text(text, encoding="utf-8"))

    @classmethod
    def load(cls, folder: str | Path, *, verify: bool = True) -> Model:
        """Read a model folder; arrays are memory-mapped. Checksums are verified unless told otherwise."""
        folder = Path(folder)
        real = folder.resolve()
        if real != folder.absolute():  # a link that leads elsewhere by and by does not mix two models
            folder = real
        content = read_header(folder)
        files = content.pop("files")
        for name in {*files, *_NEEDED, *(_OF_TEXTS if _OF_TEXTS & files.keys() else ())}:
            _check_there(folder, name, files)
        with ThreadPoolExecutor() as pool:  # large files are read for their checksums while the rest goes on
            found = {name: pool.submit(_digest, folder / name) for name in files} if verify else {}
            model: Model | ModelError
            try:
                version = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()[:12]
                model = cls._read(folder, content, list(files), version)
            except ModelError as error:
                model = error
            for name, digest in found.items():
                try:
                    same = digest.result() == files[name]
                except OSError as error:
                    raise ModelError(f"{folder / name}: cannot be read ({error}); {ADVICE}") from error
                if not same:
                    raise ModelError(f"{folder / name}: is damaged (checksum); {ADVICE}")
        if isinstance(model, ModelError):
            raise model
        return model

    @classmethod
    def _read(cls, folder: Path, content: dict[str, Any], files: list[str], version: str) -> Model:
        """The model of a folder whose files are all there."""
        with _told(folder / "model.json"):
            config = Config.from_json(content.pop("config"))
            names = sorted((name for name in files if name.startswith("instance-")), key=_instance_number)
        with _told(folder / "features.json"):
            features = _read_features(folder, config.features) if "tokenizer.json" in files else None
        with _told(folder / "labels.arrow"):
            labels, kept, frequency = _read_labels(folder)
        packed = tuple(_read_packed(folder / name) for name in names)
        if not packed:
            raise ModelError(f"{folder}: holds no instance; {ADVICE}")
        if any(len(one.labels.numbers) != len(kept) for one in packed):
            raise ModelError(f"{folder}: labels and instances are not of one model; {ADVICE}")
        tokens = {len(one.far.table) for one in packed} | (set() if features is None else {features.count})
        if len(tokens) != 1 or len({len(one.far.gate) for one in packed}) != 1:
            raise ModelError(f"{folder}: features and instances are not of one model; {ADVICE}")
        content.pop("format")
        return cls(config, features, labels, kept, packed, content, frequency, version)

    @cached_property
    def instances(self) -> tuple[Instance, ...]:
        """The instances as networks, of single precision."""
        return tuple(packed.instance() for packed in self.packed)

    @property
    def tokens(self) -> int:
        """How many tokens documents are made of."""
        return len(self.packed[0].far.table)

    def number(self, row: int) -> int | None:
        """The number among those trained of a label, by its row; None if it was not."""
        at = int(np.searchsorted(self.kept, row))
        return at if at < len(self.kept) and self.kept[at] == row else None

    def tail(self, wanted: float | None) -> float:
        """The place between head and tail that is wanted, or where the model was made to stand."""
        if wanted is not None and any(packed.curve is None for packed in self.packed):
            raise ModelError("only models of the contrastive recipe can lean from head to tail; leave the tail out")
        return self.config.blend.tail if wanted is None else wanted

    def facts(self) -> dict[str, Any]:
        """What the model is made of, for people and JSON."""
        first = self.packed[0]
        return {
            "recipe": recipe_of(self.config),
            **{name: value for name, value in self.about.items() if name != "statistics"},
            "instances": len(self.packed),
            "dim": len(first.far.gate),
            "clusters": len(first.clusters.bias),
            "beam": [packed.beam for packed in self.packed],
            **({} if first.curve is None else {"tail": self.config.blend.tail}),
            "precision": self.config.model.precision,
            "bytes": sum(array.nbytes for packed in self.packed for array in packed.arrays().values()),
        }

    def _write_labels(self, path: Path) -> None:
        trained = np.zeros(self.labels.count, dtype=bool)
        trained[self.kept] = True
        rows = range(self.labels.count)
        columns = {
            "id": pa.array([self.labels.id(row) for row in rows], pa.large_string()),
            "text": pa.array([self.labels.text(row) for row in rows], pa.large_string()),
            "trained": pa.array(trained),
        }
        if self.frequency is not None:
            columns["frequency"] = pa.array(self.frequency, pa.int64())
        write_arrow(pa.table(columns), path)


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Say which file it is that cannot be read."""
    try:
        yield
    except ConfigError as error:
        raise ModelError(f"{path}: {error}; this decaf does not know the model's settings") from error
    except _UNREADABLE as error:
        raise ModelError(f"{path}: cannot be read ({error}); {ADVICE}") from error


def _check_there(folder: Path, name: str, files: Mapping[str, str]) -> None:
    """Refuse a file that is not there, that model.json does not list, or that lies elsewhere."""
    path = folder / name
    try:
        listed = Path(name).name == name and name in files
        there = listed and path.is_file()
        odd = listed and not there and os.path.lexists(path)
        outside = there and path.is_symlink() and path.resolve().parent != folder.resolve()
    except (OSError, ValueError, RuntimeError):  # a name that no file can have, or links in a circle
        there = odd = outside = False
    if outside:
        raise ModelError(f"{path}: is a link that leads out of the folder; copy the file there")
    if not there:
        raise ModelError(f"{path}: is missing{', what stands there is no file' if odd else ''}; {ADVICE}")


def _write(path: Path, write: Callable[[Path], Any]) -> str:
    """Write a file, at its place only when it is whole; its checksum."""
    aside = path.with_name(f".{path.name}.part")
    try:
        write(aside)
        share(aside)
        digest = _digest(aside)
        aside.replace(path)
    except (OSError, SafetensorError) as error:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        raise ModelError(f"{path}: cannot be written ({error}); make room and run the same command again") from error
    return digest


def _read_features(folder: Path, settings: FeatureSettings) -> Features:
    stored = json.loads((folder / "features.json").read_text(encoding="utf-8"))
    named = {name: stored.get(name, []) for name in _NAMED}
    known, idf = stored.get("known", {}), np.array(stored["idf"], dtype=np.float64)
    for texts in named.values():
        if type(texts) is not list or not all(type(text) is str for text in texts):
            raise ValueError("words are no texts")
    if type(known) is not dict or not all(type(count) is int and count > 0 for count in known.values()):
        raise ValueError("known words are not counted")
    if idf.ndim != 1 or not ((idf > 0) & (idf <= _HEAVIEST)).all():
        raise ValueError("words weigh nothing, or too much")
    try:
        tokenizer = read_tokenizer(folder / "tokenizer.json")
    except DecafError as error:  # which names the file
        raise ModelError(f"{error}; {ADVICE}") from error
    try:
        return Features(tokenizer, idf=idf.astype(np.float32), settings=settings, known=known, **named)
    except DecafError as error:
        raise ModelError(f"{folder / 'features.json'}: {error}") from error


class Column(Sequence[str]):
    """A column of texts that stays in its memory-mapped file until it is asked for."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        if column.type != pa.large_string() or column.null_count:
            raise ValueError("a column of labels holds no texts")
        self.values = column

    def __len__(self) -> int:
        return len(self.values)

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: slice) -> list[str]: ...
    def __getitem__(self, row: int | slice) -> str | list[str]:
        if isinstance(row, slice):
            return [self[at] for at in range(*row.indices(len(self)))]
        text: str = self.values[row].as_py()
        return text


def _read_labels(folder: Path) -> tuple[Items, NDArray[np.int64], NDArray[np.int64] | None]:
    table = read_arrow(folder / "labels.arrow")
    items = Items(len(table), Column(table["id"]), Column(table["text"]))
    frequency = _numbers(table["frequency"], pa.int64()) if "frequency" in table.column_names else None
    if frequency is not None and (frequency < 0).any():
        raise ValueError("labels have less than no documents")
    return items, np.flatnonzero(_numbers(table["trained"], pa.bool_())), frequency


def _numbers(column: pa.ChunkedArray, kind: pa.DataType) -> NDArray[Any]:
    if column.type != kind or column.null_count:
        raise ValueError(f"a column of labels is not of {kind}")
    if pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    values: NDArray[Any] = np.from_dlpack(column.combine_chunks())  # to_numpy would load pandas where it is there
    return values


def _read_packed(path: Path) -> Packed:
    # Torch maps the file; numpy's way copies it.
    with _told(path), safe_open(path, framework="pt", device="cpu") as stored:
        packed = Packed.from_arrays({key: stored.get_tensor(key).numpy() for key in stored.keys()})  # noqa: SIM118
        packed.check()
    return packed


def _instance_number(name: str) -> int:
    return int(name.removeprefix("instance-").removesuffix(".safetensors"))


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
