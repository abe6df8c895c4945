"""Labels that come and go: what a user may write, checked against the model, then kept beside it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Protocol

from decaf.datasets.tables import open_csv
from decaf.errors import DataError
from decaf.live import LabelView, Live
from decaf.model import Model
from decaf.stores import Change, kept_changes, now, open_store

__all__ = [
    "LONGEST_ID",
    "LONGEST_TEXT",
    "Edit",
    "Known",
    "add_labels",
    "checked_label",
    "read_labels",
    "remove_label",
    "taking",
    "writing",
]

LONGEST_ID, LONGEST_TEXT = 512, 10_000  # characters


def checked_label(label: str, text: str) -> tuple[str, str]:
    """An id and a text that may be kept, without space around them."""
    text = " ".join(text.split())
    if not label or len(label) > LONGEST_ID or label != label.strip() or not label.isprintable():
        raise DataError(
            f"{label!r} is no id; expected 1 to {LONGEST_ID} printable characters without space at the ends"
        )
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise DataError(f"the text of {label!r} is not UTF-8; convert it first")
    if not text or len(text) > LONGEST_TEXT:
        raise DataError(f"the text of {label!r} has {len(text)} characters; expected 1 to {LONGEST_TEXT}")
    return label, text


def read_labels(path: Path) -> dict[str, str]:
    """Ids and texts of a CSV file with columns id and text."""
    header, records = open_csv(path, "\t" if path.suffix == ".tsv" else None)
    if not {"id", "text"} <= set(header):
        raise DataError(f"{path}: expected columns id and text, found {', '.join(header)}")
    found: dict[str, str] = {}
    for line, cells in records:
        try:
            label, text = checked_label(str(cells["id"]), str(cells["text"]))
        except DataError as error:
            raise DataError.at(path, line, str(error)) from error
        found[label] = text
    return found


class Known(Protocol):
    """A model with its changes: `Live`, or a `Predictor`."""

    @property
    def labels(self) -> LabelView:
        """What labels are called."""
        ...

    def knows(self, text: str) -> bool:
        """Whether a label of this text could ever be predicted."""
        ...


Edit = tuple[list[Change], list[str]]  # what to keep, and which labels to forget the changes of: as `LabelStore.apply`


def writing(known: Known, wanted: Mapping[str, str]) -> Edit:
    """What adds labels by their texts, changes texts, or brings hidden labels back; an error if one of them cannot."""
    checked = dict(checked_label(label, text) for label, text in wanted.items())
    for label, text in checked.items():
        if not known.knows(text):
            unknown = f"the model knows no word of {text!r}, the text of {label!r}"
            raise DataError(f"{unknown}; use words that it was trained on, or train again")
    own = [label for label, text in checked.items() if known.labels.is_own(label, text)]
    return [Change(label, text, now()) for label, text in checked.items() if label not in own], own


def taking(known: Known, label: str) -> Edit:
    """What takes an added label away, or hides one of the model's own."""
    row = known.labels.find(label)
    if row is None:
        raise DataError(f"there is no label {label!r}, neither in the model nor among those added")
    return ([Change(label, None, now())], []) if known.labels.trained(row) else ([], [label])


def add_labels(model: Path, wanted: Mapping[str, str], kept: str | Path = "") -> int:
    """Write labels beside a model folder; how many."""
    edit = writing(Live(Model.load(model)), wanted)
    with closing(open_store(model, kept)) as store:
        store.apply(*edit)
    return len(wanted)


def remove_label(model: Path, label: str, kept: str | Path = "") -> bool:
    """Take a label away beside a model folder; whether it was one of the model's own, which is hidden."""
    hidden, forgotten = taking(Live(Model.load(model), kept_changes(model, kept, begun=False)), label)
    with closing(open_store(model, kept)) as store:
        store.apply(hidden, forgotten)
    return bool(hidden)
