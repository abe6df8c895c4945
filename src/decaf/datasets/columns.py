"""Ids, texts and label lists, collected row by row and checked as they come."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

from scipy import sparse

from decaf.datasets.parts import Items, truth_matrix
from decaf.errors import DataError

_TOO_LARGE = 3.4028235677973366e38  # rounds to infinity as float32

__all__ = ["ItemColumns", "TargetColumns", "text_of"]


class ItemColumns:
    """Documents or labels read so far."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ids: dict[str, int] = {}  # id -> its line, in file order
        self.texts: list[str] = []
        self.contents: list[str] = []

    def add(self, line: int, name: str, text: str, content: str = "") -> None:
        first = self.ids.setdefault(name, line)
        if first != line:
            raise DataError.at(self.path, line, f"id {name!r} is already on line {first}; each must be there once")
        self.texts.append(text)
        self.contents.append(content)

    def items(self) -> Items:
        return Items(len(self.ids), list(self.ids), self.texts, self.contents if any(self.contents) else None)


class TargetColumns:
    """The labels of the documents read so far."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._indptr = array("q", [0])
        self._indices = array("q")
        self._weights = array("f")

    def add(self, line: int, labels: list[int], weights: list[Any] | None) -> None:
        if weights is None:
            weights = [1.0] * len(labels)
        elif len(weights) != len(labels):
            raise DataError.at(
                self.path, line, f"{len(weights)} weights for {len(labels)} labels; expected one for each"
            )
        if len(set(labels)) != len(labels):
            raise DataError.at(self.path, line, "a label is there twice")
        for weight in weights:
            if type(weight) not in (int, float) or not 0 <= weight < _TOO_LARGE:
                raise DataError.at(self.path, line, f"weight {weight!r} must be a finite number, 0 or more")
        self._indices.extend(labels)
        self._weights.extend(weights)
        self._indptr.append(len(self._indices))

    def truth(self, labels: int) -> sparse.csr_array:
        return truth_matrix(self._indptr, self._indices, self._weights, labels)


def text_of(value: object, what: str, path: Path, line: int) -> str:
    """`value` if it is a text that any file can hold."""
    if not isinstance(value, str):
        raise DataError.at(path, line, f"expected {what}, a text, found {value!r}")
    try:
        value.encode()
    except UnicodeEncodeError as error:  # JSON can name half of a surrogate pair
        raise DataError.at(path, line, f"{what} is not valid Unicode ({error.reason})") from error
    return value
