"""The routes of labels: search, look, add, change, hide and export."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from starlette.convertors import Convertor, register_url_convertor
from starlette.responses import Response

from decaf.errors import DataError
from decaf.labels import LONGEST_ID, taking, writing
from decaf.serving.bodies import Label, LabelPage, LabelText, LabelWithNeighbours, parsed, takes
from decaf.serving.engine import Engine, Served
from decaf.serving.problems import ProblemError
from decaf.serving.service import Service, json_response, read_body
from decaf.stores import to_lines

__all__ = ["router"]


class _Label(Convertor[str]):
    """Any id; starlette's own `path` stops at the end of a line."""

    regex = r"[\s\S]*"

    def convert(self, value: str) -> str:
        """The id as it is."""
        return value

    def to_string(self, value: str) -> str:
        """The same, back."""
        return value


register_url_convertor("label", _Label())
router = APIRouter(tags=["labels"])

_NEIGHBOURS = 10
_Id = Annotated[str, Path(description="Any characters, slashes too, percent-encoded.")]
_NewId = Annotated[str, Path(min_length=1, max_length=LONGEST_ID, description="Printable characters, slashes too.")]


@router.get("/v1/labels", summary="Search the labels", responses={200: {"model": LabelPage}})
async def search(
    request: Request,
    q: Annotated[str, Query(max_length=1_000, description="Words that are all in the text, or are the id.")] = "",
    offset: Annotated[int, Query(ge=0, le=1 << 40)] = 0,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 20,
    live: Annotated[bool, Query(description="Only labels that were added, changed or hidden here.")] = False,
) -> Response:
    """The labels that have all these words, in the model's order."""
    service = Service.of(request)

    def page() -> dict[str, Any]:
        served = service.engine.current()
        total, rows = served.predictor.labels.search(q, offset=offset, limit=limit, live=live)
        labels = [_described(served, row) for row in rows]
        return {"total": total, "offset": offset, "limit": limit, "labels": labels}

    return json_response(await service.lane.run(page))


@router.get("/v1/labels/{id:label}", summary="Look at a label", responses={200: {"model": LabelWithNeighbours}})
async def look(request: Request, id: _Id) -> Response:
    """A label with those nearest to it."""
    service = Service.of(request)

    def described() -> dict[str, Any]:
        served = service.engine.current()
        row, view = _found(served, id), served.predictor.labels
        near = [
            {"id": view.id(other), "text": view.text(other), "similarity": round(likeness, 6)}
            for other, likeness in view.neighbours(row, _NEIGHBOURS)
        ]
        return _described(served, row) | {"neighbours": near}

    return json_response(await service.lane.run(described))


@router.put(
    "/v1/labels/{id:label}",
    summary="Add a label, change its text or bring it back",
    responses={200: {"model": Label}, 201: {"model": Label, "description": "It is new."}},
    openapi_extra=takes(LabelText),
)
async def put(request: Request, id: _NewId) -> Response:
    """It is durable when this is answered, and predicted from the next request on."""
    service = Service.of(request)
    text = parsed(LabelText, await read_body(request)).text
    if len(text) > service.settings.text_length:
        limit = service.settings.text_length
        raise ProblemError("invalid", f"text: has {len(text)} characters; a label may have {limit}")
    label, new = await service.writing.run(_put, service.engine, id, text)
    return json_response(label, 201 if new else 200)


@router.delete("/v1/labels/{id:label}", summary="Remove a label, or hide a trained one", status_code=204)
async def delete(request: Request, id: _Id) -> Response:
    """A label that was added is gone; a trained one is no longer predicted, and PUT brings it back."""
    service = Service.of(request)
    await service.writing.run(_delete, service.engine, id)
    return Response(status_code=204)


@router.get(
    "/v1/changes",
    summary="Export what was changed",
    response_class=Response,
    responses={
        200: {"content": {"application/x-ndjson": {"schema": {"$ref": "#/components/schemas/ChangedLabel"}}}},
    },
)
async def changes(request: Request) -> Response:
    """One JSON object a line for every label that was added, changed or hidden here."""
    service = Service.of(request)
    found = await service.lane.run(service.engine.store.changes)
    body = "".join(f"{line}\n" for line in to_lines(found))
    headers = {"Content-Disposition": 'attachment; filename="changes.ndjson"'}
    return Response(body, headers=headers, media_type="application/x-ndjson")


def _put(engine: Engine, id: str, text: str) -> tuple[dict[str, Any], bool]:
    """The label as it is then, and whether it is new."""
    before = engine.exact().predictor
    try:
        engine.writer.apply(*writing(before, {id: text}))
    except DataError as error:
        raise ProblemError("invalid", str(error)) from None
    now = engine.exact()
    return _described(now, _found(now, id)), before.labels.find(id) is None


def _delete(engine: Engine, id: str) -> None:
    served = engine.exact()
    _found(served, id)
    engine.writer.apply(*taking(served.predictor, id))


def _found(served: Served, id: str) -> int:
    """The row of a label."""
    row = served.predictor.labels.find(id)
    if row is None:
        raise ProblemError("not_found", f"there is no label {id!r}; search with GET /v1/labels?q=")
    return row


def _described(served: Served, row: int) -> dict[str, Any]:
    view = served.predictor.labels
    return {
        "id": view.id(row),
        "text": view.text(row),
        "frequency": view.frequency(row),
        "live": view.live(row),
        "hidden": view.hidden(row),
    }
