"""Whatever OpenAPI allows or forbids is asked of a real server: it never fails, and answers as it says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import Case, GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from decaf.serving.bodies import ProblemAnswer
from serving import Running, running

CHECKS = [
    schemathesis.checks.not_a_server_error,
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
]
CHOOSY = [("POST", "/v1/predict"), ("POST", "/v1/predict/csv"), ("GET", "/v1/labels"), ("PUT", "/v1/labels/{id}")]
OPERATIONS = [
    *CHOOSY,
    ("GET", "/v1/labels/{id}"),
    ("DELETE", "/v1/labels/{id}"),
    ("GET", "/v1/changes"),
    ("GET", "/v1/model"),
    ("POST", "/v1/model/reload"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/metrics"),
]


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[Running]:
    """A server of its own: labels come and go here."""
    with running(model) as made:
        yield made


@pytest.fixture(scope="module")
def api(server: Running) -> schemathesis.BaseSchema:
    """What the server says of itself."""
    return schemathesis.openapi.from_url(str(server.client.base_url.join("/openapi.json")))


def test_these_are_all_operations(api: schemathesis.BaseSchema) -> None:
    found = [operation.ok() for operation in api.get_all_operations()]
    assert sorted((operation.method.upper(), operation.path) for operation in found) == sorted(OPERATIONS)


@pytest.mark.parametrize(
    ("method", "path", "mode"),
    [
        *((*operation, GenerationMode.POSITIVE) for operation in OPERATIONS),
        *((*operation, GenerationMode.NEGATIVE) for operation in CHOOSY),
    ],
)
def test_any_request_gets_an_answer(
    api: schemathesis.BaseSchema, server: Running, method: str, path: str, mode: GenerationMode
) -> None:
    @given(case=api[path][method].as_strategy(generation_mode=mode))
    @settings(derandomize=True, database=None, max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    def ask(case: Case) -> None:
        response = case.call_and_validate(checks=CHECKS)
        if response.status_code >= 400:
            ProblemAnswer.model_validate(response.json())

    ask()
    assert server.process.poll() is None
    assert "failed:" not in server.log.read_text()
