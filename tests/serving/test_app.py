"""The application in this process: routes, keys, problems and what OpenAPI says of them."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from decaf.errors import ConfigError, ModelError
from decaf.serving import ServeSettings
from decaf.serving.app import create_app
from decaf.serving.engine import Engine
from decaf.serving.service import Service
from serving import problem

Call = Callable[..., httpx.Response]


@contextmanager
def service_of(model: Path, store: Path, **settings: Any) -> Iterator[Service]:  # noqa: ANN401
    service = Service(Engine(model, store), ServeSettings(**settings))
    service.engine.load()
    yield service
    service.close()


@contextmanager
def called(service: Service) -> Iterator[Call]:
    """Calls of an application, one after another."""
    app = create_app(service)

    def call(method: str, path: str, **content: Any) -> httpx.Response:  # noqa: ANN401
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
                return await client.request(method, path, **content)

        return asyncio.run(ask())

    yield call


@pytest.fixture(scope="module")
def service(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    limits = {"texts": 4, "text_length": 50, "top": 10, "rows": 600, "body_bytes": 20_000}
    with service_of(model, tmp_path_factory.mktemp("app") / "labels.sqlite", **limits) as made:
        yield made


@pytest.fixture(scope="module")
def call(service: Service) -> Iterator[Call]:
    with called(service) as made:
        yield made


def predict(call: Call, **body: object) -> httpx.Response:
    return call("POST", "/v1/predict", json=body)


def test_one_text_or_several_get_their_labels_best_first(call: Call, service: Service) -> None:
    answer = predict(call, texts=["topic aa", "topic ab"], top=3)
    assert answer.status_code == 200
    body = answer.json()
    assert body["model"] == service.engine.current().version
    assert [one["text"] for one in body["predictions"]] == ["topic aa", "topic ab"]
    expected = service.engine.current().predictor.predict(["topic aa", "topic ab"], top=3)
    for one, matches in zip(body["predictions"], expected, strict=True):
        assert [label["id"] for label in one["labels"]] == [f"L{match.label}" for match in matches]
        assert [label["score"] for label in one["labels"]] == [round(match.score, 6) for match in matches]
        assert all(set(label) == {"id", "text", "score", "live"} for label in one["labels"])
    assert predict(call, texts="topic aa", top=3).json()["predictions"] == body["predictions"][:1]
    assert len(predict(call, texts="topic aa").json()["predictions"][0]["labels"]) == 5


def test_a_threshold_and_the_tail_are_kept_to(call: Call, service: Service) -> None:
    predictor = service.engine.current().predictor
    scores = [match.score for match in predictor.predict(["topic aa"], top=10)[0]]
    least = round((scores[1] + scores[2]) / 2, 6)
    (found,) = predict(call, texts="topic aa", top=10, threshold=least).json()["predictions"]
    assert len(found["labels"]) == 2
    for tail in (0, 1):
        (found,) = predict(call, texts="topic aa", tail=tail).json()["predictions"]
        expected = predictor.predict(["topic aa"], tail=float(tail))[0]
        assert [label["score"] for label in found["labels"]] == [round(match.score, 6) for match in expected]


def test_an_explanation_names_parts_and_tokens(call: Call, service: Service) -> None:
    (found,) = predict(call, texts="topic aa", top=2, explain=True).json()["predictions"]
    predictor = service.engine.current().predictor
    reasons = predictor.explain("topic aa", predictor.predict(["topic aa"], top=2)[0])
    for label, reason in zip(found["labels"], reasons, strict=True):
        assert label["parts"] == pytest.approx(reason.parts, abs=1e-5)
        assert label["tokens"] == pytest.approx(reason.tokens, abs=1e-5)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({}, "texts is missing"),
        ({"texts": []}, "texts: List should have at least 1 item"),
        ({"texts": [1]}, "texts.0: Input should be a valid string"),
        ({"texts": None}, "texts: Input should be a valid array"),
        ({"texts": ["a"] * 5}, "there are 5 texts; send at most 4 at once"),
        ({"texts": ["a", "b" * 51]}, "text 1 has 51 characters; at most 50 are read"),
        ({"texts": "a", "top": 0}, "top: Input should be greater than or equal to 1"),
        ({"texts": "a", "top": 11}, "top is 11; at most 10 labels are given"),
        ({"texts": "a", "top": "3"}, "top: Input should be a valid integer"),
        ({"texts": "a", "top": True}, "top: Input should be a valid integer"),
        ({"texts": "a", "threshold": 1.5}, "threshold: Input should be less than or equal to 1"),
        ({"texts": "a", "tail": -1}, "tail: Input should be greater than or equal to 0"),
        ({"texts": "a", "explain": 1}, "explain: Input should be a valid boolean"),
        ({"texts": "a", "tops": 1}, "there is no field tops"),
        ([], "body: Input should be an object"),
    ],
)
def test_what_cannot_be_predicted_is_invalid(call: Call, body: object, told: str) -> None:
    answer = call("POST", "/v1/predict", json=body)
    assert problem(answer) == (422, "invalid")
    assert told in answer.json()["detail"]


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_none_are_refused(call: Call, value: str) -> None:
    body = f'{{"texts": "a", "threshold": {value}}}'
    assert problem(call("POST", "/v1/predict", content=body))[0] in (400, 422)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"texts", b'{"texts": "\xff"}', b"[" * 20_000, b'{"texts":' * 2_000, b'{"texts": "\\ud800"}']
)
def test_what_is_no_json_is_a_bad_request(call: Call, body: bytes) -> None:
    assert problem(call("POST", "/v1/predict", content=body)) == (400, "bad_request")


def test_a_body_that_is_too_large_is_refused(call: Call) -> None:
    assert problem(call("POST", "/v1/predict", content=b" " * 20_001)) == (413, "too_large")
    assert problem(call("PUT", "/v1/labels/x", content=b" " * 20_001)) == (413, "too_large")
    assert problem(call("POST", "/v1/predict/csv", content=b" " * 20_001)) == (413, "too_large")


def test_a_model_that_cannot_lean_says_so(other: Path, tmp_path: Path) -> None:
    with service_of(other, tmp_path / "labels.sqlite") as service, called(service) as call:
        assert problem(predict(call, texts="topic aa", tail=0.5)) == (422, "invalid")
        assert call("POST", "/v1/predict/csv?tail=0.5", content="text\na\n").status_code == 422
        card = call("GET", "/v1/model").json()
        assert (card["tail"], card["labels"]) == (None, 30)


def test_labels_are_searched_page_by_page(call: Call) -> None:
    everything = call("GET", "/v1/labels").json()
    assert (everything["total"], everything["offset"], everything["limit"]) == (24, 0, 20)
    assert everything["labels"][0] == {
        "id": "L0",
        "text": "topic aa",
        "frequency": 10,
        "live": False,
        "hidden": False,
    }
    second = call("GET", "/v1/labels?offset=20").json()
    assert [label["id"] for label in second["labels"]] == ["L20", "L21", "L22", "L23"]
    assert [label["id"] for label in call("GET", "/v1/labels?q=ab").json()["labels"]] == ["L1"]
    assert call("GET", "/v1/labels?q=nobody").json()["labels"] == []
    assert call("GET", "/v1/labels?live=true").json()["total"] == 0
    for wrong in ("limit=0", "limit=1001", "offset=-1", "offset=x", "live=2", "q=" + "a" * 1001):
        assert problem(call("GET", f"/v1/labels?{wrong}")) == (422, "invalid")


def test_a_label_has_neighbours(call: Call) -> None:
    label = call("GET", "/v1/labels/L3").json()
    assert (label["id"], label["text"]) == ("L3", "topic ad")
    assert 0 < len(label["neighbours"]) <= 10
    assert all(set(near) == {"id", "text", "similarity"} for near in label["neighbours"])
    assert "L3" not in [near["id"] for near in label["neighbours"]]
    assert problem(call("GET", "/v1/labels/nobody")) == (404, "not_found")
    assert problem(call("GET", "/v1/labels/")) == (404, "not_found")


def test_a_label_is_added_changed_and_removed(call: Call) -> None:
    path = "/v1/labels/new%2Fone%20%C3%A9"
    added = call("PUT", path, json={"text": "topic aa"})
    assert added.status_code == 201
    assert added.json() == {"id": "new/one é", "text": "topic aa", "frequency": 0, "live": True, "hidden": False}
    (found,) = predict(call, texts="topic aa", top=10).json()["predictions"]
    assert [label["live"] for label in found["labels"] if label["id"] == "new/one é"] == [True]
    assert call("GET", path).json()["text"] == "topic aa"
    assert call("GET", "/v1/model").json()["live_labels"] == 1
    changed = call("PUT", path, json={"text": "topic ab"})
    assert (changed.status_code, changed.json()["text"]) == (200, "topic ab")
    (line,) = call("GET", "/v1/changes").text.splitlines()
    assert json.loads(line).items() >= {"id": "new/one é", "text": "topic ab"}.items()
    assert call("GET", "/v1/labels?live=true").json()["total"] == 1
    gone = call("DELETE", path)
    assert (gone.status_code, gone.content) == (204, b"")
    assert problem(call("DELETE", path)) == (404, "not_found")
    assert problem(call("GET", path)) == (404, "not_found")
    assert call("GET", "/v1/changes").text == ""


def test_a_trained_label_is_hidden_and_brought_back(call: Call) -> None:
    (before,) = predict(call, texts="topic aa").json()["predictions"]
    best = before["labels"][0]
    path = f"/v1/labels/{best['id']}"
    assert call("DELETE", path).status_code == 204
    assert call("DELETE", path).status_code == 204  # as often as one likes
    assert call("GET", path).json()["hidden"]
    (without,) = predict(call, texts="topic aa").json()["predictions"]
    assert best["id"] not in [label["id"] for label in without["labels"]]
    assert call("GET", "/v1/model").json()["hidden_labels"] == 1
    back = call("PUT", path, json={"text": best["text"]})
    assert (back.status_code, back.json()["hidden"], back.json()["live"]) == (200, False, False)
    assert predict(call, texts="topic aa").json()["predictions"] == [before]
    assert call("GET", "/v1/changes").text == ""


def test_a_trained_label_with_another_text_and_its_own_again(call: Call) -> None:
    changed = call("PUT", "/v1/labels/L5", json={"text": "another topic"})
    assert (changed.status_code, changed.json()["text"], changed.json()["live"]) == (200, "another topic", True)
    again = call("PUT", "/v1/labels/L5", json={"text": "topic af"})
    assert (again.status_code, again.json()["live"]) == (200, False)
    assert call("GET", "/v1/changes").text == ""


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("x", {"text": ""}),
        ("x", {"text": " \t\n"}),
        ("x", {"text": "a" * 51}),
        ("x", {"text": "漢"}),  # a word that the model does not know
        ("%20x", {"text": "a"}),
        ("x", {"text": 5}),
        ("x", {"text": "a", "more": 1}),
        ("x", {}),
        ("", {"text": "a"}),
        ("a" * 513, {"text": "a"}),
        ("a%00b", {"text": "a"}),
        ("a%09b", {"text": "a"}),
        ("%C2%85", {"text": "a"}),
    ],
)
def test_a_label_that_cannot_be_added(call: Call, path: str, body: object) -> None:
    assert problem(call("PUT", f"/v1/labels/{path}", json=body)) == (422, "invalid")
    assert call("GET", "/v1/changes").text == ""


def rows_of(answer: httpx.Response) -> list[list[str]]:
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/csv")
    assert "attachment" in answer.headers["content-disposition"]
    return list(csv.reader(io.StringIO(answer.text, newline="")))


def test_a_table_comes_back_with_labels(call: Call) -> None:
    table = 'id,text\r\n1,topic aa\r\n\r\n2,"a ""b"",\nc"\r\n3,\r\n'
    header, *rows = rows_of(call("POST", "/v1/predict/csv?top=2&threshold=0&tail=&column=", content=table))
    added = ["label_1", "label_1_text", "score_1", "label_2", "label_2_text", "score_2"]
    assert header == ["id", "text", *added]
    assert [row[:2] for row in rows] == [["1", "topic aa"], ["2", 'a "b",\nc'], ["3", ""]]
    (found,) = predict(call, texts="topic aa", top=2).json()["predictions"]
    cells = [str(label[key]) for label in found["labels"] for key in ("id", "text", "score")]
    assert rows[0][2:] == cells
    assert rows[2][2:] == [""] * 6


@pytest.mark.parametrize(
    ("table", "query"),
    [
        ("Title;n\ntopic aa;1\n", ""),
        ("n\tquery\n1\ttopic aa\n", ""),
        ("\ufefftext\ntopic aa\n", ""),
        ("text,mine\n-,topic aa\n", "&column=mine"),
        ("name,text\n-,topic aa", ""),
        ("text,n\r\ntopic aa,a\u2028b\x0bc\r\n", ""),
    ],
)
def test_the_text_is_found_in_tables_of_many_kinds(call: Call, table: str, query: str) -> None:
    (_, row) = rows_of(call("POST", f"/v1/predict/csv?top=1&tail=0.3{query}", content=table.encode()))
    (found,) = predict(call, texts="topic aa", top=1, tail=0.3).json()["predictions"]
    assert row[-3] == found["labels"][0]["id"]


def test_a_table_of_many_rows_is_predicted_in_parts(call: Call) -> None:
    table = "text\n" + "topic aa\ntopic ab\n" * 300
    _, *rows = rows_of(call("POST", "/v1/predict/csv?top=1", content=table))
    assert len(rows) == 600
    expected = [label["id"] for text in ("topic aa", "topic ab") for label in _best(call, text)]
    assert [row[1] for row in rows] == expected * 300


def _best(call: Call, text: str) -> Any:  # noqa: ANN401
    return predict(call, texts=text, top=1).json()["predictions"][0]["labels"]


@pytest.mark.parametrize(
    ("table", "query", "told"),
    [
        ("", "", "found no header"),
        ("text\n", "", "has no rows behind its header"),
        ("a,b\n1,2\n", "", "found 'a', 'b'; name it with ?column="),
        ("text\na\n", "?column=title", "('title')"),
        ("text,b\n1,2\n3\n", "", "line 3: expected 2 cells as in the header, found 1"),
        ('text\n"a\n', "", "is not valid CSV"),
        ("text\n" + "a\n" * 601, "", "more than 600 rows"),
        ("text\n" + "a" * 51, "", "text 0 has 51 characters"),
        ("text\na\n", "?top=11", "top is 11"),
        ("text\na\n", "?top=0", "top: "),
        ("text\na\n", "?threshold=nan", "threshold: "),
        ("text\na\n", "?tail=2", "tail: expected a number from 0 to 1"),
        ("text\na\n", "?tail=x", "tail: expected a number from 0 to 1"),
        ("text\na\n", "?tail=nan", "tail: expected a number from 0 to 1"),
    ],
)
def test_a_table_that_cannot_be_predicted(call: Call, table: str, query: str, told: str) -> None:
    answer = call("POST", f"/v1/predict/csv{query}", content=table)
    assert problem(answer) == (422, "invalid")
    assert told in answer.json()["detail"]


def test_a_table_that_is_not_utf_8(call: Call) -> None:
    assert problem(call("POST", "/v1/predict/csv", content=b"text\n\xff\n")) == (400, "bad_request")


def test_the_model_is_told_of(call: Call, service: Service) -> None:
    predict(call, texts="topic aa")
    card = call("GET", "/v1/model").json()
    assert card["name"] == "tiny"
    assert card["version"] == service.engine.current().version
    assert card["recipe"] == "contrastive"
    assert (card["labels"], card["live_labels"], card["hidden_labels"]) == (24, 0, 0)
    assert 0 <= card["tail"] <= 1
    assert card["facts"]["dim"] == 16
    assert {"statistics", "metrics", "quantiles"} <= set(card)
    assert card["latency_ms"]["count"] > 0
    assert 0 < card["latency_ms"]["p50"] <= card["latency_ms"]["p90"] <= card["latency_ms"]["p99"]
    assert card["limits"].items() >= {"texts": 4, "text_length": 50, "body_bytes": 20_000, "top": 10}.items()
    assert card["keys"] == {"read": False, "write": False}


def test_what_is_not_there_is_told_as_a_problem(call: Call) -> None:
    assert problem(call("GET", "/nothing")) == (404, "not_found")
    assert problem(call("GET", "/v1/predict/")) == (404, "not_found")
    assert problem(call("GET", "/static/nothing.js")) == (404, "not_found")
    assert problem(call("GET", "/static/../app.py")) == (404, "not_found")
    assert problem(call("GET", "/docs")) == (404, "not_found")
    wrong = call("GET", "/v1/predict")
    assert problem(wrong) == (405, "method_not_allowed")
    assert wrong.headers["allow"] == "POST"
    assert problem(call("POST", "/static/app.js")) == (405, "method_not_allowed")


def test_the_page_and_its_files_are_there(call: Call) -> None:
    page = call("GET", "/")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    script = call("GET", "/static/app.js")
    assert script.status_code == 200
    assert "javascript" in script.headers["content-type"]
    assert call("GET", "/static/app.js", headers={"If-None-Match": script.headers["etag"]}).status_code == 304


def test_a_failure_is_told_without_its_reason(
    call: Call, service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr(service.telemetry, "text", fail)
    answer = call("GET", "/metrics")
    assert problem(answer) == (500, "internal")
    assert "secret" not in answer.text
    assert "a secret" in caplog.text


def test_measures_are_counted(model: Path, tmp_path: Path) -> None:
    with service_of(model, tmp_path / "labels.sqlite") as service, called(service) as call:
        predict(call, texts=["topic aa", "topic ab"])
        predict(call, texts=[])
        call("PUT", "/v1/labels/new", json={"text": "topic aa"})
        call("GET", "/v1/labels/new")
        call("GET", "/nothing")
        answer = call("GET", "/metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=")
        lines = answer.text.splitlines()
    for line in (
        'decaf_requests_total{route="/v1/predict",status="200"} 1.0',
        'decaf_requests_total{route="/v1/predict",status="422"} 1.0',
        'decaf_requests_total{route="/v1/labels/{id}",status="201"} 1.0',
        'decaf_requests_total{route="/v1/labels/{id}",status="200"} 1.0',
        'decaf_requests_total{route="other",status="404"} 1.0',
        'decaf_request_seconds_count{route="/v1/predict"} 2.0',
        "decaf_batch_texts_sum 2.0",
        "decaf_texts_total 2.0",
        "decaf_queue_requests 0.0",
        "decaf_live_labels 1.0",
    ):
        assert line in lines
    assert any(line.startswith('decaf_request_seconds_bucket{le="0.00025"') for line in lines)


def test_reloading_is_counted_and_a_bad_folder_refused(model: Path, tmp_path: Path) -> None:
    link = tmp_path / "model"
    link.symlink_to(model)
    with service_of(link, tmp_path / "labels.sqlite") as service, called(service) as call:
        version = service.engine.current().version
        assert call("POST", "/v1/model/reload").json() == {"version": version}
        link.unlink()
        link.symlink_to(tmp_path)
        answer = call("POST", "/v1/model/reload")
        assert problem(answer) == (409, "model_refused")
        assert "holds no model" in answer.json()["detail"]
        assert service.engine.current().version == version
        lines = call("GET", "/metrics").text.splitlines()
        assert f'decaf_model_info{{version="{version}"}} 1.0' in lines
        assert 'decaf_reloads_total{outcome="refused"} 1.0' in lines


READING = [("GET", "/v1/labels"), ("GET", "/v1/labels/L0"), ("GET", "/v1/model"), ("GET", "/v1/changes")]
READING += [("POST", "/v1/predict"), ("POST", "/v1/predict/csv"), ("GET", "/metrics")]
WRITING = [("PUT", "/v1/labels/x"), ("DELETE", "/v1/labels/x"), ("POST", "/v1/model/reload")]
OPEN = [("GET", "/"), ("GET", "/static/app.js"), ("GET", "/healthz"), ("GET", "/readyz"), ("GET", "/openapi.json")]


@pytest.mark.parametrize(
    ("keys", "given", "reads", "writes"),
    [
        ({}, None, True, True),
        ({"read_key": "r"}, None, False, False),
        ({"read_key": "r"}, "r", True, True),
        ({"write_key": "w"}, None, True, False),
        ({"write_key": "w"}, "w", True, True),
        ({"read_key": "r", "write_key": "w"}, None, False, False),
        ({"read_key": "r", "write_key": "w"}, "r", True, False),
        ({"read_key": "r", "write_key": "w"}, "w", True, True),
        ({"read_key": "r", "write_key": "w"}, "x", False, False),
        ({"read_key": "ré", "write_key": "w"}, "ré", True, False),
        ({"read_key": "r", "write_key": "w"}, "", False, False),
    ],
)
def test_keys_open_what_they_should(
    service: Service,
    monkeypatch: pytest.MonkeyPatch,
    keys: dict[str, str],
    given: str | None,
    reads: bool,
    writes: bool,
) -> None:
    monkeypatch.setattr(service, "settings", ServeSettings(**keys))  # type: ignore[arg-type]
    headers = {} if given is None else {"Authorization": f"Bearer {given}".encode()}
    with called(service) as call:
        for expected, routes in ((reads, READING), (writes, WRITING), (True, OPEN)):
            for method, path in routes:
                answer = call(method, path, headers=headers)
                assert (answer.status_code != 401) is expected, (method, path)
                if not expected:
                    assert problem(answer) == (401, "unauthorized")
                    assert answer.headers["www-authenticate"] == "Bearer"
        if reads:
            needed = call("GET", "/v1/model", headers=headers).json()["keys"]
            assert needed == {"read": "read_key" in keys, "write": bool(keys)}


def test_a_key_of_another_kind_is_none(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "settings", ServeSettings(read_key="r"))
    with called(service) as call:
        assert call("GET", "/v1/model", headers={"Authorization": "Basic r"}).status_code == 401
        assert call("GET", "/v1/model", headers={"Authorization": "bearer r"}).status_code == 200


def test_pages_of_others_may_ask_only_when_told(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    asking = {"Origin": "https://shop.example", "Access-Control-Request-Method": "PUT"}
    with called(service) as call:
        assert call("OPTIONS", "/v1/labels/x", headers=asking).status_code == 405
        assert "access-control-allow-origin" not in call("GET", "/v1/model", headers=asking).headers
    monkeypatch.setattr(service, "settings", ServeSettings(cors=("https://shop.example",), read_key="r"))
    with called(service) as call:
        allowed = call("OPTIONS", "/v1/labels/x", headers=asking)
        assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (200, "https://shop.example")
        refused = call("GET", "/v1/model", headers=asking)
        assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, "https://shop.example")
        stranger = call("GET", "/healthz", headers={"Origin": "https://else.example"})
        assert "access-control-allow-origin" not in stranger.headers


def test_too_many_at_once_are_busy(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "settings", ServeSettings(concurrency=1))
    app = create_app(service)

    async def ask() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            return await asyncio.gather(*(client.get("/v1/model") for _ in range(3)), client.get("/healthz"))

    first, *others, health = asyncio.run(ask())
    assert first.status_code == 200
    assert [problem(other) for other in others] == [(429, "busy")] * 2
    assert all(other.headers["retry-after"] == "1" for other in others)
    assert health.status_code == 200


def test_nothing_is_ready_before_the_model_nor_at_the_end(model: Path, tmp_path: Path) -> None:
    service = Service(Engine(model, tmp_path / "labels.sqlite"), ServeSettings())
    with called(service) as call:
        for method, path, body in (
            ("GET", "/readyz", None),
            ("GET", "/v1/model", None),
            ("GET", "/v1/labels", None),
            ("POST", "/v1/predict", {"texts": "a"}),
            ("PUT", "/v1/labels/x", {"text": "a"}),
        ):
            answer = call(method, path, json=body)
            assert problem(answer) == (503, "not_ready")
            assert answer.headers["retry-after"] == "1"
        assert call("GET", "/healthz").json() == {"status": "ok"}
        assert call("GET", "/metrics").status_code == 200
        service.engine.load()
        assert call("GET", "/readyz").json() == {"status": "ready"}
        service.draining = True
        ending = call("GET", "/readyz")
        assert problem(ending) == (503, "not_ready")
        assert ending.headers["connection"] == "close"
    service.close()


def test_a_model_without_words_is_refused(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from decaf import Model

    bare = replace(Model.load(model), features=None)
    monkeypatch.setattr(Model, "load", lambda _, **__: bare)
    engine = Engine(model, tmp_path / "labels.sqlite")
    with pytest.raises(ModelError, match="knows no words"):
        engine.load()
    engine.close()


def test_openapi_tells_of_every_route_with_examples(call: Call) -> None:
    told = call("GET", "/openapi.json").json()
    assert set(told["paths"]) == {
        "/v1/predict",
        "/v1/predict/csv",
        "/v1/labels",
        "/v1/labels/{id}",
        "/v1/changes",
        "/v1/model",
        "/v1/model/reload",
        "/healthz",
        "/readyz",
        "/metrics",
    }
    wanted = told["components"]["schemas"]["PredictRequest"]
    assert wanted["examples"]
    assert wanted["properties"]["top"]["maximum"] == 10
    assert wanted["properties"]["texts"]["anyOf"][0]["maxItems"] == 4
    for path in told["paths"].values():
        for operation in path.values():
            assert operation["summary"]
            assert "application/problem+json" in operation["responses"]["422"]["content"]
    assert "http" not in json.dumps(told).replace("application/http", "")


@pytest.mark.parametrize("wrong", [{"workers": 0}, {"timeout": 0}, {"port": 70_000}, {"texts": -1}])
def test_settings_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(wrong))} must be"):
        ServeSettings(**wrong)
