"""The routes that predict: texts in JSON, and tables in CSV."""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import chain
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Query, Request
from starlette.responses import Response, StreamingResponse

from decaf.datasets.tables import TEXT_COLUMNS, usual_column
from decaf.predictions import Match
from decaf.serving.batching import Answer, Wish
from decaf.serving.bodies import PredictAnswer, PredictRequest, parsed, takes
from decaf.serving.problems import ProblemError, late
from decaf.serving.service import Service, json_response, read_body

__all__ = ["router"]

router = APIRouter(tags=["predicting"])

_MANY = 500  # labels to write down for which another thread pays
_PART = 256  # rows of a table that are scored together
_DIGITS = 6
_CSV_EXAMPLE = "id,text\n1,neural network parser\n"

_Labels = list[dict[str, Any]]


@router.post(
    "/v1/predict",
    summary="Find the labels of texts",
    responses={200: {"model": PredictAnswer}},
    openapi_extra=takes(PredictRequest),
)
async def predict(request: Request) -> Response:
    """One text or several; each comes back with its labels, the likeliest first."""
    service = Service.of(request)
    wanted = parsed(PredictRequest, await read_body(request))
    wish = Wish(wanted.top, wanted.threshold, wanted.tail)
    _check(wanted.texts, wish, service)
    answer = await service.batcher.ask(wanted.texts, wish)
    if wanted.explain:
        found = await _explained(service, wanted.texts, answer, wish)
    elif len(wanted.texts) * wanted.top > _MANY:
        found = await service.lane.run(_described, answer)
    else:
        found = _described(answer)
    predictions = [{"text": text, "labels": labels} for text, labels in zip(wanted.texts, found, strict=True)]
    return json_response({"model": answer.served.version, "predictions": predictions})


@router.post(
    "/v1/predict/csv",
    summary="Find the labels of the rows of a table",
    response_class=Response,
    responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}}},
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"text/csv": {"schema": {"type": "string"}, "example": _CSV_EXAMPLE}},
        }
    },
)
async def predict_csv(
    request: Request,
    top: Annotated[int, Query(ge=1)] = 5,
    threshold: Annotated[float, Query(ge=0, le=1)] = 0.0,
    tail: Annotated[str, Query(description="From frequent labels (0) to rare ones (1); empty: as made.")] = "",
    column: Annotated[str, Query(description="Column of the text; empty: text, title, name, query, document.")] = "",
) -> Response:
    """The table comes back with the labels of each row, their texts and scores in columns behind its own."""
    service = Service.of(request)
    wish = Wish(top, threshold, _number(tail))
    body = await read_body(request)
    table = await service.lane.run(_read_table, body, column, service.settings.rows)
    _check(table.texts, wish, service, many=True)
    parts = _predicted(service, table, wish)
    first = await anext(parts)  # what is wrong is known before an answer begins
    headers = {"Content-Disposition": 'attachment; filename="predicted.csv"'}
    return StreamingResponse(_chained(first, parts), headers=headers, media_type="text/csv")


def _check(texts: Sequence[str], wish: Wish, service: Service, *, many: bool = False) -> None:
    """Raise a problem if this is more than may be asked for."""
    limits = service.settings
    if wish.top > limits.top:
        raise ProblemError("invalid", f"top is {wish.top}; at most {limits.top} labels are given")
    if len(texts) > limits.texts and not many:
        raise ProblemError("invalid", f"there are {len(texts)} texts; send at most {limits.texts} at once")
    for at, text in enumerate(texts):
        if len(text) > limits.text_length:
            detail = f"text {at} has {len(text)} characters; at most {limits.text_length} are read"
            raise ProblemError("invalid", detail)
    if wish.tail is not None and service.engine.latest.tail is None:
        raise ProblemError("invalid", "this model cannot lean from frequent labels to rare ones; leave tail out")


def _described(answer: Answer) -> list[_Labels]:
    """The labels of each text."""
    view = answer.served.predictor.labels
    return [
        [
            {"id": view.id(label), "text": view.text(label), "score": round(score, _DIGITS), "live": view.live(label)}
            for label, score in matches
        ]
        for matches in answer.matches
    ]


async def _explained(service: Service, texts: Sequence[str], answer: Answer, wish: Wish) -> list[_Labels]:
    """The labels of each text with what carried their scores."""
    explain, found = answer.served.predictor.explain, _described(answer)
    end = asyncio.get_running_loop().time() + service.settings.timeout
    for text, matches, labels in zip(texts, answer.matches, found, strict=True):
        if asyncio.get_running_loop().time() > end:
            raise late()
        reasons = await service.explaining.run(explain, text, matches, tail=wish.tail)
        for label, reason in zip(labels, reasons, strict=True):
            label["parts"] = {name: round(value, _DIGITS) for name, value in reason.parts.items()}
            label["tokens"] = {name: round(value, _DIGITS) for name, value in reason.tokens.items()}
    return found


class _Table(NamedTuple):
    """A CSV file, read."""

    header: list[str]
    rows: list[list[str]]
    texts: list[str]


def _read_table(body: bytes, column: str, most: int) -> _Table:
    """The rows of a CSV file; raises a problem if it cannot be read or is too long."""
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ProblemError("bad_request", "the table is not UTF-8; convert it first") from None
    delimiter = max(",;\t", key=text.partition("\n")[0].count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    rows: list[list[str]] = []
    try:
        header = next(reader, [])
        at = _text_column(header, column)
        for row in filter(None, reader):
            if len(row) != len(header):
                detail = f"line {reader.line_num}: expected {len(header)} cells as in the header, found {len(row)}"
                raise ProblemError("invalid", detail)
            if len(rows) == most:
                raise ProblemError("invalid", f"there are more than {most} rows; cut the table up")
            rows.append(row)
    except csv.Error as error:
        raise ProblemError("invalid", f"line {reader.line_num}: is not valid CSV ({error})") from None
    if not rows:
        raise ProblemError("invalid", "the table has no rows behind its header; with curl, send it by --data-binary")
    return _Table(header, rows, [row[at] for row in rows])


def _text_column(header: Sequence[str], column: str) -> int:
    wanted = column or usual_column(header, TEXT_COLUMNS)
    if wanted not in header:
        expected = repr(column) if column else ", ".join(TEXT_COLUMNS)
        found = ", ".join(map(repr, header[:20])) or "no header"
        detail = f"expected a column of the text ({expected}), found {found}; name it with ?column="
        raise ProblemError("invalid", detail)
    return header.index(wanted)


def _number(tail: str) -> float | None:
    """An empty tail is none."""
    try:
        value = float(tail) if tail else None
    except ValueError:
        value = -1
    if value is not None and not 0 <= value <= 1:
        raise ProblemError("invalid", "tail: expected a number from 0 to 1, or nothing")
    return value


async def _predicted(service: Service, table: _Table, wish: Wish) -> AsyncIterator[bytes]:
    """The table with its labels, part by part; other requests come in between."""
    names = ((f"label_{rank}", f"label_{rank}_text", f"score_{rank}") for rank in range(1, wish.top + 1))
    head = _csv([[*table.header, *chain.from_iterable(names)]])
    for start in range(0, max(len(table.rows), 1), _PART):
        end = start + _PART
        answer = await service.batcher.ask(table.texts[start:end], wish, admitted=start > 0)
        run = service.lane.go_on if start else service.lane.run
        yield head + await run(_csv_part, table.rows[start:end], answer, wish.top)
        head = b""


def _csv_part(rows: Sequence[Sequence[str]], answer: Answer, top: int) -> bytes:
    view = answer.served.predictor.labels

    def cells(matches: Sequence[Match]) -> list[str]:
        found = [(view.id(label), view.text(label), str(round(score, _DIGITS))) for label, score in matches]
        return list(chain.from_iterable([*found, *[("", "", "")] * (top - len(found))]))

    return _csv([*row, *cells(matches)] for row, matches in zip(rows, answer.matches, strict=True))


def _csv(rows: Iterable[Sequence[str]]) -> bytes:
    stream = io.StringIO(newline="")
    csv.writer(stream).writerows(rows)
    return stream.getvalue().encode()


async def _chained(first: bytes, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for part in parts:
        yield part
