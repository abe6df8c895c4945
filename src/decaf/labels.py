"""Labels that come and go: what a user may write, checked against the model, then kept beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from decaf.datasets.tables import open_csv
from decaf.errors import DataError
from decaf.live import Live
from decaf.model import Model
from decaf.store import Change, LabelStore, kept_changes, now, store_path

__all__ = ["LONGEST_ID", "LONGEST_TEXT", "add_labels", "checked_label", "read_labels", "remove_label"]

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


def add_labels(model: Path, wanted: Mapping[str, str], kept: Path | None = None) -> int:
    """Add labels by their texts, change texts, or bring hidden labels back; how many."""
    live = Live(Model.load(model))
    checked = dict(checked_label(label, text) for label, text in wanted.items())
    for label, text in checked.items():
        if not live.knows(text):
            unknown = f"the model knows no word of {text!r}, the text of {label!r}"
            raise DataError(f"{unknown}; use words that it was trained on, or train again")
    store = LabelStore(kept or store_path(model))
    try:
        own = [label for label, text in checked.items() if live.labels.is_own(label, text)]
        for label in own:
            store.forget(label)
        store.apply([Change(label, text, now()) for label, text in checked.items() if label not in own])
    finally:
        store.close()
    return len(checked)


def remove_label(model: Path, label: str, kept: Path | None = None) -> bool:
    """Take an added label away, or hide one that was trained; whether it was that."""
    trained = Live(Model.load(model)).labels.find(label) is not None
    if not trained and label not in {change.id for change in kept_changes(model, kept)}:
        raise DataError(f"there is no label {label!r}, neither in the model nor among those added")
    store = LabelStore(kept or store_path(model))
    try:
        if trained:
            store.hide(label)
        else:
            store.forget(label)
    finally:
        store.close()
    return trained
