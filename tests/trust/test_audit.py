"""The audit of locked packages without a network: which versions an advisory covers, and what the service answers."""

from __future__ import annotations

import importlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from packaging.version import Version

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def audit(monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: ANN401
    monkeypatch.syspath_prepend(ROOT)
    return importlib.import_module("tools.audit")


def advisory(*events: dict[str, str], name: str = "Some.Package", **more: object) -> dict[str, Any]:
    affected = {
        "package": {"name": name, "ecosystem": "PyPI"},
        "ranges": [{"type": "GIT", "events": [{"introduced": "0"}]}, {"type": "ECOSYSTEM", "events": list(events)}],
        "versions": ["9.9"],
    }
    elsewhere = {"package": {"name": "other", "ecosystem": "npm"}, "versions": ["1.0"]}
    return {"id": "X-1", "affected": [affected, elsewhere], **more}


@pytest.mark.parametrize(
    ("events", "inside", "outside"),
    [
        ([{"introduced": "0"}, {"fixed": "1.10"}], ["0.1", "1.9", "1.10rc1", "9.9"], ["1.10", "1.11"]),
        ([{"introduced": "1.2"}, {"last_affected": "1.4"}], ["1.2", "1.4"], ["1.1", "1.4.1", "2"]),
        ([{"introduced": "0"}], ["0.0.1", "99"], []),
        (
            [{"introduced": "3"}, {"fixed": "3.5"}, {"introduced": "1"}, {"fixed": "1.5"}],
            ["1.4", "3.0"],
            ["0.9", "1.5", "2.0", "3.5"],
        ),
    ],
)
def test_an_advisory_covers_the_versions_of_its_ranges(
    audit: Any,  # noqa: ANN401
    events: list[dict[str, str]],
    inside: list[str],
    outside: list[str],
) -> None:
    found = advisory(*events)
    assert [version for version in inside + outside if audit.covers(found, "some-package", Version(version))] == inside
    assert not audit.covers(found, "other", Version("1.0"))
    for nothing in (None, "null"):  # JSON's, and what a reader of texts makes of YAML's
        assert audit.covers(found | {"withdrawn": nothing}, "some-package", Version(inside[0]))
        assert not audit.covers(found | {"affected": nothing}, "some-package", Version(inside[0]))
    assert not audit.covers(found | {"withdrawn": "2023-11-08T00:00:00Z"}, "some-package", Version(inside[0]))


def test_a_folder_of_advisories_answers_as_the_service_does(audit: Any, tmp_path: Path) -> None:  # noqa: ANN401
    events = ({"introduced": "0"}, {"fixed": "1.10"})
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "one.json").write_text(json.dumps(advisory(*events)), encoding="utf-8")
    yaml = (
        "id: Y-2\naffected:\n- package: {name: other, ecosystem: PyPI}\n  ranges:\n  - type: ECOSYSTEM\n    events:\n"
        '    - introduced: "0"\n    - fixed: 1.10\n'  # which is not 1.1
    )
    (tmp_path / "two.yaml").write_text(yaml, encoding="utf-8")
    (tmp_path / "list.yml").write_text("- nothing\n", encoding="utf-8")
    (tmp_path / "other.json").write_text('{"name": "no advisory"}', encoding="utf-8")
    advisories = audit.read_advisories(tmp_path)
    assert set(advisories) == {"some-package", "other"}
    with audit.service(advisories) as address:
        asked = [("Some_Package", "1.9"), ("some-package", "1.10"), ("other", "1.9"), ("absent", "1")]
        found = [ids(address, *each) for each in asked]
    assert found == [["X-1"], [], ["Y-2"], []]
    (tmp_path / "bad.json").write_text("{", encoding="utf-8")
    with pytest.raises(SystemExit, match=r"bad\.json: is no advisory"):
        audit.read_advisories(tmp_path)


def test_a_registry_tells_of_newest_versions_alone(audit: Any, tmp_path: Path) -> None:  # noqa: ANN401
    lock = (
        "Some.Package==1.2 \\\n    --hash=sha256:00\nother[more]==2.0\n"
        "numpy==1 ; python_full_version < '3.12'\nnumpy==2 ; python_full_version >= '3.12'\n"
    )
    pins = audit.locked(lock)
    assert pins == [
        ("some-package", Version("1.2")),
        ("other", Version("2.0")),
        ("numpy", Version("1")),
        ("numpy", Version("2")),
    ]
    weak = {"id": "X-1", "aliases": ["CVE-1"], "withdrawn": None, "fixed_in": ["1.3"], "summary": None}
    gone = weak | {"id": "X-2", "withdrawn": "2023-11-08T00:00:00Z"}
    known = {"some-package": ("1.2", [weak, gone]), "other": ("2.1", [weak]), "numpy": ("2", [])}
    for name, (version, several) in known.items():
        (tmp_path / name).mkdir()
        page = {"info": {"version": version}, "vulnerabilities": several}
        (tmp_path / name / "json").write_text(json.dumps(page), encoding="utf-8")
    with served(tmp_path) as address:
        found, older = audit.ask_registry(f"{address}/", pins)
        assert older == ["other 2.0 (newest: 2.1)", "numpy 1 (newest: 2)"]
        with pytest.raises(SystemExit, match=r"absent/json: .*try again, or another registry"):
            audit.ask_registry(address, [("absent", Version("1"))])
    with audit.service(found) as service:
        assert ids(service, "some.package", "1.2") == ["X-1"]
        assert ids(service, "some-package", "1.1") == ids(service, "numpy", "2") == []
    with pytest.raises(SystemExit, match="begins with https"):
        audit.ask_registry("file:///etc", pins)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def ids(address: str, name: str, version: str) -> list[str]:
    question = {"package": {"name": name, "ecosystem": "PyPI"}, "version": version}
    return [each["id"] for each in httpx.post(address, json=question).json().get("vulns", [])]
