"""The application: routes, their description for OpenAPI, and the page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import FileResponse, Response
from starlette.routing import Match, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from decaf import __version__
from decaf.errors import DecafError
from decaf.serving import answers, labels
from decaf.serving.bodies import ChangedLabel, LabelText, ModelCard, PredictRequest, ProblemAnswer, Status, Version
from decaf.serving.guard import Guard
from decaf.serving.problems import CODES, ProblemError, code_of, invalid
from decaf.serving.service import Service, json_response
from decaf.serving.settings import ServeSettings

__all__ = ["create_app"]

_PAGE = Path(__file__).parent / "page"
_SCALARS = (str, int, float, bool)
_FRESH = {"Cache-Control": "no-cache"}  # asked for again, and sent again only when changed

router = APIRouter(tags=["model"])


def create_app(service: Service) -> FastAPI:
    """The application of one worker."""
    app = FastAPI(title="DECAF", version=__version__, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.state.service = service
    for part in (answers.router, labels.router, router):
        app.include_router(part)
    app.mount("/static", _Static(directory=_PAGE))
    app.router.routes.insert(0, _Direct("/v1/predict", answers.predict, methods=["POST"]))
    app.add_exception_handler(HTTPException, _told_http)
    app.add_exception_handler(RequestValidationError, _told_invalid)
    app.add_middleware(Guard, service=service)
    if service.settings.cors:
        app.add_middleware(
            CORSMiddleware, allow_origins=service.settings.cors, allow_methods=["*"], allow_headers=["*"]
        )
    app.openapi = _described_once(app, service.settings)  # type: ignore[method-assign]
    return app


@router.get("/", include_in_schema=False)
async def page() -> Response:
    """The page."""
    return FileResponse(_PAGE / "index.html", headers=_FRESH)


@router.get("/healthz", summary="Whether the process is alive", responses={200: {"model": Status}})
async def healthz() -> Response:
    """Always well."""
    return json_response({"status": "ok"})


@router.get("/readyz", summary="Whether requests should be sent here", responses={200: {"model": Status}})
async def readyz(request: Request) -> Response:
    """Ready once the model is loaded and has answered, until the server is told to end."""
    service = Service.of(request)
    if service.draining:
        raise ProblemError("not_ready", "the server is ending; ask another one")
    _ = service.engine.latest
    return json_response({"status": "ready"})


@router.get(
    "/metrics",
    summary="Measures for Prometheus",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(request: Request) -> Response:
    """Requests, answer times, batches, the queue and the model."""
    service = Service.of(request)
    return Response(await service.lane.run(service.measures), media_type="text/plain; version=0.0.4; charset=utf-8")


@router.get("/v1/model", summary="What is served", responses={200: {"model": ModelCard}})
async def model(request: Request) -> Response:
    """The model, how good it was when judged, and how fast it answers here."""
    service = Service.of(request)
    return json_response(await service.lane.run(_card, service))


@router.post("/v1/model/reload", summary="Load the model folder anew", responses={200: {"model": Version}})
async def reload(request: Request) -> Response:
    """The new model takes over when it has answered; a bad one is refused, and the old one stays."""
    try:
        served = await Service.of(request).load(tell=True)
    except DecafError as error:
        raise ProblemError("model_refused", str(error)) from error
    return json_response({"version": served.version})


def _card(service: Service) -> dict[str, Any]:
    served, settings = service.engine.current(), service.settings
    loaded, view = served.predictor.model, served.predictor.labels
    facts = loaded.facts()
    return {
        "name": service.engine.folder.name or service.engine.folder.resolve().name,
        "version": served.version,
        "recipe": facts.get("recipe") or ("contrastive" if served.tail is not None else "paper"),
        "labels": loaded.labels.count,
        "live_labels": view.added,
        "hidden_labels": view.hidden_count,
        "tail": served.tail,
        "facts": {name: value for name, value in facts.items() if isinstance(value, _SCALARS)},
        **served.card,
        "latency_ms": service.telemetry.latency(),
        "limits": {name: getattr(settings, name) for name in ("texts", "text_length", "body_bytes", "top", "rows")},
        "keys": {"read": bool(settings.read_key), "write": bool(settings.read_key or settings.write_key)},
    }


class _Direct(Route):
    """A route past FastAPI, which is slow for so little; the same route there is for OpenAPI alone."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Whether a request is for this route, which is noted."""
        match, found = super().matches(scope)
        return match, {**found, "route": self} if found else found


class _Static(StaticFiles):
    """The files of the page."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """A file, or that it is as it was."""
        response = await super().get_response(path, scope)
        response.headers.update(_FRESH)
        return response


async def _told_http(_request: Request, error: Exception) -> Response:
    """What the framework refuses, as a problem."""
    refused = cast(HTTPException, error)
    told = {404: "there is nothing at this address", 405: "this address does not know this method"}
    return ProblemError(
        code_of(refused.status_code), told.get(refused.status_code, refused.detail), refused.headers
    ).response()


async def _told_invalid(_request: Request, error: Exception) -> Response:
    return invalid(cast(RequestValidationError, error).errors()).response()


def _described_once(app: FastAPI, settings: ServeSettings) -> Callable[[], dict[str, Any]]:
    """OpenAPI with our bodies, limits and problems."""

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _openapi(app, settings)
        return app.openapi_schema

    return described


def _openapi(app: FastAPI, settings: ServeSettings) -> dict[str, Any]:
    summary = "Which few of many labels belong to this short text?"
    made: dict[str, Any] = get_openapi(title=app.title, version=app.version, summary=summary, routes=app.routes)
    schemas = made["components"]["schemas"]
    _, own = models_json_schema(
        [(kind, "validation") for kind in (PredictRequest, LabelText, ChangedLabel, ProblemAnswer)],
        ref_template="#/components/schemas/{model}",
    )
    schemas |= own["$defs"]
    _show_limits(schemas, settings)
    for path in made["paths"].values():
        for operation in path.values():
            answers = operation["responses"]
            for status in sorted(set(CODES.values()) - {500}):
                answers[str(status)] = _problem_of(status)
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    if settings.read_key or settings.write_key:
        made["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        made["security"] = [{"key": []}]
    return made


def _show_limits(schemas: dict[str, Any], settings: ServeSettings) -> None:
    wanted, text = schemas["PredictRequest"]["properties"], schemas["LabelText"]["properties"]["text"]
    wanted["top"]["maximum"] = settings.top
    text["maxLength"] = settings.text_length
    several, one = wanted["texts"]["anyOf"]
    several |= {"minItems": 1, "maxItems": settings.texts}
    one["maxLength"] = several["items"]["maxLength"] = settings.text_length


def _problem_of(status: int) -> dict[str, Any]:
    codes = ", ".join(code for code, of_code in CODES.items() if of_code == status)
    schema = {"$ref": "#/components/schemas/ProblemAnswer"}
    return {"description": f"Refused: {codes}", "content": {"application/problem+json": {"schema": schema}}}
