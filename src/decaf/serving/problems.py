"""What goes wrong, as an answer: problem+json (RFC 9457) with a code that stays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from pydantic_core import to_json
from starlette.responses import Response

__all__ = ["CODES", "ProblemError", "busy", "code_of", "head_too_large", "invalid", "late"]

CODES = {
    "bad_request": 400,
    "unauthorized": 401,
    "not_found": 404,
    "method_not_allowed": 405,
    "slow": 408,
    "model_refused": 409,
    "too_large": 413,
    "unsupported": 415,
    "invalid": 422,
    "busy": 429,
    "head_too_large": 431,
    "internal": 500,
    "timeout": 503,
    "not_ready": 503,
    "labels_unavailable": 503,
}
_LONGEST = 1_000  # characters of a detail: what is wrong may be as long as a request
_PASSING = ("busy", "timeout", "not_ready", "labels_unavailable")  # the same request may succeed in a second


class ProblemError(Exception):
    """A request that is refused."""

    def __init__(self, code: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail if len(detail) <= _LONGEST else f"{detail[:_LONGEST]}...")
        self.code = code
        self.status = CODES[code]
        self._headers = {**({"Retry-After": "1"} if code in _PASSING else {}), **(headers or {})}

    def response(self) -> Response:
        """The answer that says so."""
        facts = {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": str(self),
            "code": self.code,
        }
        return Response(to_json(facts), self.status, self._headers, "application/problem+json")


def busy() -> ProblemError:
    """Too many are waiting already."""
    return ProblemError("busy", "too many requests are waiting; try again in a moment")


def head_too_large(limit: int) -> ProblemError:
    """The address and the headers are too long."""
    return ProblemError(
        "head_too_large", f"address and headers may have {limit} bytes; send less", {"Connection": "close"}
    )


def late() -> ProblemError:
    """The time of a request is over."""
    return ProblemError("timeout", "the answer took too long and was given up; send less at once, or try again")


def invalid(errors: Iterable[Mapping[str, Any]]) -> ProblemError:
    """What pydantic found wrong."""
    found = list(errors)
    if any(error["type"] == "json_invalid" for error in found):
        return ProblemError("bad_request", f"the body is not JSON in UTF-8 ({found[0]['msg']})")
    return ProblemError("invalid", "; ".join(_told(error) for error in found[:3]))


def _told(error: Mapping[str, Any]) -> str:
    """One thing that is wrong, in our words where it is a common slip."""
    place = _place(error["loc"])
    if error["type"] == "missing":
        return f"{place} is missing"
    if error["type"] == "extra_forbidden":
        return f"there is no field {place}"
    return f"{place}: {error['msg']}"


def _place(parts: Iterable[object]) -> str:
    """Where in a request something is wrong."""
    return ".".join(str(part) for part in parts if part not in ("query", "path")) or "body"


def code_of(status: int) -> str:
    """The code for a status that another library chose."""
    return next((code for code, of_code in CODES.items() if of_code == status), "bad_request")
