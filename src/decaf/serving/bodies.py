"""What is sent and answered, as OpenAPI shows it; requests are checked with it, answers are built by hand for speed."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from decaf.serving.problems import invalid

__all__ = [
    "ChangedLabel",
    "FoundLabel",
    "Label",
    "LabelPage",
    "LabelText",
    "LabelWithNeighbours",
    "ModelCard",
    "Neighbour",
    "PredictAnswer",
    "PredictRequest",
    "Prediction",
    "ProblemAnswer",
    "Status",
    "Version",
    "parsed",
    "takes",
]

M = TypeVar("M", bound=BaseModel)


def parsed(kind: type[M], body: bytes) -> M:
    """The body, if it is as it should be."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        raise invalid(error.errors(include_url=False, include_context=False, include_input=False)) from None


def takes(kind: type[BaseModel]) -> dict[str, Any]:
    """What OpenAPI says of a route that reads its body by itself."""
    schema = {"$ref": f"#/components/schemas/{kind.__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


class _Sent(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class PredictRequest(_Sent):
    """Texts, and what is wanted of them."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"texts": ["neural network parser"], "top": 3}]})

    texts: Annotated[list[str], Field(min_length=1), BeforeValidator(_listed, json_schema_input_type=list[str] | str)]
    top: int = Field(5, ge=1, description="Labels for each text.")
    threshold: float = Field(0.0, ge=0, le=1, description="Only labels at least this likely.")
    tail: float | None = Field(
        None, ge=0, le=1, description="From frequent labels (0) to rare ones (1); null: as the model was made."
    )
    explain: bool = Field(False, description="Say which parts and tokens carried each score.")


class LabelText(_Sent):
    """The text of a label that is added, changed or brought back."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"text": "graph neural networks"}]})

    text: str = Field(min_length=1, pattern=r"\S")


class FoundLabel(BaseModel):
    """A label that belongs to a text."""

    id: str
    text: str
    score: float = Field(description="A chance from 0 to 1.")
    live: bool = Field(description="Added, or its text changed, while serving.")
    parts: dict[str, float] | None = Field(None, description="How far each part puts it above the others; explained.")
    tokens: dict[str, float] | None = Field(None, description="How far its score falls without each token; explained.")


class Prediction(BaseModel):
    """A text with its labels, the likeliest first."""

    text: str
    labels: list[FoundLabel]


class PredictAnswer(BaseModel):
    """The labels of each text, and the version of the model that chose them."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "model": "3f2a9c01d77e",
                    "predictions": [
                        {
                            "text": "neural network parser",
                            "labels": [{"id": "123", "text": "Parsing", "score": 0.91, "live": False}],
                        }
                    ],
                }
            ]
        }
    )

    model: str
    predictions: list[Prediction]


class Label(BaseModel):
    """A label; its frequency is that among training documents."""

    id: str
    text: str
    frequency: int
    live: bool = Field(description="Added, or its text changed, while serving.")
    hidden: bool


class Neighbour(BaseModel):
    """A label that is near another."""

    id: str
    text: str
    similarity: float


class LabelWithNeighbours(Label):
    """A label and those nearest to it."""

    neighbours: list[Neighbour]


class LabelPage(BaseModel):
    """Some of the labels that were found."""

    total: int
    offset: int
    limit: int
    labels: list[Label]


class ChangedLabel(BaseModel):
    """One line of the export."""

    id: str
    text: str | None = Field(description="null: the label is hidden.")
    at: str


class Status(BaseModel):
    """Whether the server is well."""

    status: str


class Version(BaseModel):
    """The version of the model that is served."""

    version: str


class ModelCard(BaseModel):
    """What is served, how good it was when judged, and how fast it answers here."""

    name: str
    version: str
    recipe: str
    labels: int
    live_labels: int
    hidden_labels: int
    tail: float | None = Field(description="null: the model cannot lean from head to tail.")
    facts: dict[str, Any]
    statistics: dict[str, Any] | None
    metrics: dict[str, Any] | None
    quantiles: list[dict[str, Any]] | None
    latency_ms: dict[str, float]
    limits: dict[str, float]
    keys: dict[str, bool]


class ProblemAnswer(BaseModel):
    """What is wrong with a request (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    code: str
