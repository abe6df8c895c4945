"""Dataset: documents to train and to test on, labels with text, and what belongs together."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from decaf.config import SplitSettings, TableSettings
from decaf.datasets.cache import cached
from decaf.datasets.catalogue import read_catalogue
from decaf.datasets.files import find_file, new_folder, read_json
from decaf.datasets.pairs import read_pairs, with_pair_filters, write_pairs
from decaf.datasets.parts import Items, Part, Parts
from decaf.datasets.raw import raw_files, read_raw, write_raw
from decaf.datasets.sparse_files import (
    read_single_files,
    read_sparse,
    single_files,
    sparse_files,
    write_single_files,
    write_sparse,
)
from decaf.datasets.splits import split_parts, validation_split
from decaf.datasets.tables import TABLE_SUFFIXES, read_tables, table_files, write_tables
from decaf.errors import DataError

__all__ = ["CATALOGUE", "LAYOUTS", "Dataset", "Propensity"]

CATALOGUE = "catalogue"  # the name of the embedded dataset
LAYOUTS = ("raw", "sparse", "single", "csv", "jsonl", "parquet")
_TEXT_LAYOUTS = ("raw", "csv", "jsonl", "parquet")


@dataclass(frozen=True)
class Propensity:
    """How likely a true label was recorded, by its training frequency: rarer labels were missed more often."""

    A: float = 0.55
    B: float = 1.5

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if type(value) not in (int, float) or not 0 <= value <= sys.float_info.max:
                raise DataError(f"propensity {name} must be a finite number, 0 or more, not {value!r}")

    @classmethod
    def of_family(cls, name: str) -> Propensity:
        """The constants customary for a benchmark of this name."""
        name = name.lower()
        if "amazon" in name:
            return cls(0.6, 2.6)
        if "wikipedia" in name or "wikititles" in name:
            return cls(0.5, 0.4)
        return cls()

    def inverse(self, frequency: NDArray[np.int64], documents: int) -> NDArray[np.float64]:
        """1/p for each label: 1 + C (N_l + B)^-A with C = (ln N - 1)(B + 1)^A."""
        scale = max(math.log(max(documents, 1)) - 1, 0) * (self.B + 1) ** self.A
        weights: NDArray[np.float64] = 1 + scale * np.maximum(frequency + self.B, 1e-12) ** -self.A
        return weights


@dataclass(frozen=True, eq=False)
class Dataset:
    """Documents to train and to test on, labels, and which labels belong to which document."""

    name: str
    train: Part
    test: Part
    labels: Items
    propensity: Propensity = field(default_factory=Propensity)
    about: dict[str, Any] = field(default_factory=dict)  # what else dataset.json says: task, licence

    @classmethod
    def load(cls, path: str | Path, *, table: TableSettings | None = None) -> Dataset:
        """Read a dataset of any supported layout: a folder, one table, or the embedded "catalogue"."""
        path = Path(path)
        if str(path) == CATALOGUE and not path.exists():
            return cls(CATALOGUE, *read_catalogue(), about={"task": "related packages: name of a Debian package"})
        folder = path if path.is_dir() else path.parent
        parts = _read_parts(path, table or TableSettings())
        about: dict[str, Any] = {}
        if path.is_dir():
            parts = _with_filter_files(parts, folder)
            about = read_json(folder / "dataset.json") if (folder / "dataset.json").is_file() else {}
        name = about.pop("name", path.resolve().name if path.is_dir() else path.name.split(".")[0])
        if not isinstance(name, str):
            raise DataError(f"{folder / 'dataset.json'}: expected name to be a text, found {name!r}")
        propensity = Propensity.of_family(name)
        if "propensity" in about:
            constants = about.pop("propensity")
            if not isinstance(constants, dict) or set(constants) != {"A", "B"}:
                raise DataError(
                    f'{folder / "dataset.json"}: expected propensity {{"A": .., "B": ..}}, found {constants!r}'
                )
            try:
                propensity = Propensity(**constants)
            except DataError as error:
                raise DataError(f"{folder / 'dataset.json'}: {error}") from error
        return cls(name, *parts, propensity=propensity, about=about)

    def save(self, folder: str | Path, layout: str = "raw") -> None:
        """Write the dataset as a new folder of this layout; what the layout cannot hold is refused, not dropped."""
        if layout not in LAYOUTS:
            raise DataError(f"there is no layout {layout!r}; there are: {', '.join(LAYOUTS)}")
        self._check_fits(layout)
        with new_folder(Path(folder)) as aside:
            if layout == "raw":
                write_raw(self.parts, aside)
            elif layout == "sparse":
                write_sparse(self.parts, aside)
            elif layout == "single":
                write_single_files(self.parts, aside)
            else:
                write_tables(self.parts, aside, f".{layout}")
            for name, part in (("train", self.train), ("test", self.test)):
                write_pairs(part.filters, aside / f"filter_labels_{name}.txt")
            about = {"name": self.name, **self.about, "propensity": asdict(self.propensity)}
            (aside / "dataset.json").write_text(
                json.dumps(about, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
            )

    def __str__(self) -> str:
        sizes = (self.train.documents.count, self.test.documents.count, self.labels.count)
        return "{} training documents, {} test documents, {} labels".format(*(f"{size:,}" for size in sizes))

    @property
    def document_count(self) -> int:
        """Documents of both parts."""
        return self.train.documents.count + self.test.documents.count

    @property
    def has_texts(self) -> bool:
        """Whether documents and labels have text."""
        return self.train.documents.texts is not None and self.labels.texts is not None

    @property
    def parts(self) -> Parts:
        """The dataset without its name and constants."""
        return Parts(self.train, self.test, self.labels)

    @cached_property
    def frequency(self) -> NDArray[np.int64]:
        """Training documents of each label."""
        return np.bincount(self.train.truth.indices, minlength=self.labels.count)

    @cached_property
    def inverse_propensity(self) -> NDArray[np.float64]:
        """1/p of each label, from the unfiltered training labels."""
        return self.propensity.inverse(self.frequency, self.train.documents.count)

    def split(self, settings: SplitSettings) -> Dataset:
        """All documents shared out anew between training and test, with filters by the paper's rule."""
        return self._with(split_parts(self.parts, settings))

    def filtered(self) -> Dataset:
        """The same dataset with filters by the paper's rule in place of its own."""
        return self._with(with_pair_filters(self.parts))

    def validation(self, settings: SplitSettings) -> Dataset:
        """Part of the training documents in the place of the test documents: what tuning may look at."""
        kept, held_out = validation_split(self.train, settings)
        return self._with(Parts(kept, held_out, self.labels))

    def _with(self, parts: Parts) -> Dataset:
        return replace(self, train=parts.train, test=parts.test, labels=parts.labels)

    def _check_fits(self, layout: str) -> None:
        documents = [part.documents for part in (self.train, self.test) if part.documents.count]
        if layout in _TEXT_LAYOUTS and any(items.texts is None for items in [*documents, self.labels]):
            raise DataError(f"the {layout} layout holds texts and {self.name} has none; convert to sparse or single")
        if layout not in _TEXT_LAYOUTS and any(items.features is None for items in documents):
            raise DataError(f"the {layout} layout holds features and {self.name} has none; see decaf.with_features")


def _read_parts(path: Path, table: TableSettings) -> Parts:
    """Find out the layout by the files that are there, and read it."""
    if path.is_file():
        return cached(
            table_files(path, table),
            f"table {asdict(table)} " + " ".join(_suffixes(file) for file in table_files(path, table)),
            lambda: read_tables(path, table),
        )
    if not path.is_dir():
        raise DataError(
            f"{path}: there is no such file or folder; check the path ({CATALOGUE!r} names the embedded dataset)"
        )
    if files := raw_files(path):
        return cached(files, _layout("raw", files), lambda: read_raw(path))
    if files := sparse_files(path):
        return cached(files, _layout("sparse", files), lambda: read_sparse(path))
    if files := single_files(path):
        return cached(files, _layout("single", files), lambda: read_single_files(path))
    if files := table_files(path, table):
        return cached(files, _layout(f"table {asdict(table)}", files), lambda: read_tables(path, table))
    expected = "trn.json.gz and lbl.json.gz, trn_X_Xf.txt and trn_X_Y.txt, train.txt, or train" + "|".join(
        TABLE_SUFFIXES
    )
    raise DataError(f"{path}: holds no dataset that decaf knows; expected {expected}")


def _suffixes(file: Path) -> str:
    return "".join(file.suffixes[-2:])


def _layout(name: str, files: list[Path]) -> str:
    """The layout and the role of each file, which its name in the folder tells."""
    return " ".join([name, *(file.name for file in files)])


def _with_filter_files(parts: Parts, folder: Path) -> Parts:
    def filtered(part: Part, name: str) -> Part:
        file = find_file(folder, f"filter_labels_{name}.txt")
        return part if file is None else replace(part, filters=read_pairs(file, *part.truth.shape))

    return Parts(filtered(parts.train, "train"), filtered(parts.test, "test"), parts.labels)
