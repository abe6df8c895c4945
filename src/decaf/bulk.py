"""Columns of texts in, columns of labels out: what Ray Data, Spark and other engines of tables can call."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from decaf.errors import DataError
from decaf.model import Model
from decaf.predictor import Predictor
from decaf.stores import kept_changes

__all__ = ["LabelColumns", "labels_of"]


_COLUMNS = {"labels", "label_texts", "scores"}


class LabelColumns:
    """Adds `labels`, `label_texts` and `scores` to tables that have a column of texts.

    `live_labels` says where labels that were added or hidden since are kept, if not beside the model; they are read
    once. Made once in a process, it maps the model into memory; processes of one machine share its pages. For Ray Data:
    `dataset.map_batches(LabelColumns, fn_constructor_args=["my-model"], batch_format="pyarrow", concurrency=2)`.
    """

    def __init__(
        self,
        model: str,
        *,
        text: str = "text",
        top: int = 5,
        threshold: float = 0.0,
        tail: float | None = None,
        threads: int = 1,
        live_labels: str = "",
    ) -> None:
        self._text, self._top, self._threshold = text, top, threshold
        changes = kept_changes(model, live_labels)
        self._predictor = Predictor(Model.load(model), tail=tail, threads=threads, changes=changes)

    def __call__(self, table: pa.Table) -> pa.Table:
        """The same table with three columns more."""
        if self._text not in table.column_names:
            raise DataError(f"expected a column {self._text!r}, found {', '.join(map(repr, table.column_names))}")
        if taken := _COLUMNS & set(table.column_names):
            raise DataError(f"there is a column {min(taken)!r} already; rename it first")
        texts = ["" if text is None else text for text in table.column(self._text).to_pylist()]
        predictions = self._predictor.predict(texts, top=self._top, threshold=self._threshold)
        labels = self._predictor.labels
        columns: dict[str, list[Any]] = {
            "labels": [[labels.id(match.label) for match in matches] for matches in predictions],
            "label_texts": [[labels.text(match.label) for match in matches] for matches in predictions],
            "scores": [[match.score for match in matches] for matches in predictions],
        }
        for name, cells in columns.items():
            kind = pa.list_(pa.float32() if name == "scores" else pa.string())
            table = table.append_column(name, pa.array(cells, kind))
        return table


def labels_of(
    model: str, texts: Sequence[str | None], *, top: int = 5, threshold: float = 0.0, live_labels: str = ""
) -> list[list[dict[str, Any]]]:
    """The labels of each text as `{"id", "text", "score"}`, best first; the model is loaded once in a process.

    A plain function of plain values, for instance for a pandas UDF of Spark.
    """
    predictor = _predictor(model, (Path(model) / "model.json").stat().st_mtime_ns, live_labels)
    names = predictor.labels
    found = predictor.predict(["" if text is None else text for text in texts], top=top, threshold=threshold)
    return [
        [{"id": names.id(match.label), "text": names.text(match.label), "score": match.score} for match in matches]
        for matches in found
    ]


@lru_cache(maxsize=4)
def _predictor(model: str, _written: int, live_labels: str) -> Predictor:
    """A predictor for as long as its model is not written anew."""
    return Predictor(Model.load(model), changes=kept_changes(model, live_labels))
