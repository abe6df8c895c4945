"""The API of labels against a plain dict: any order of writes, reads, restarts and swaps, through two workers' apps."""

from __future__ import annotations

import asyncio
import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)
from modules import topics
from serving.conftest import TINY

import decaf
from decaf.serving import ServeSettings
from decaf.serving.app import create_app
from decaf.serving.engine import Engine
from decaf.serving.service import Service
from decaf.stores.sqlite import SqliteStore

LABELS = 24
OWN = {f"L{topic}": f"topic a{chr(97 + topic)}" for topic in range(LABELS)}
TEXTS = [*list(OWN.values())[:6], "topic", "topic aa topic ab", "the topic of ac", "TOPIC AD"]
SPACED = ["{}", "  {}", "{}\n", "\t{} "]

new_ids = st.one_of(
    st.sampled_from(
        ["a", "a/b", "..", ".", "/", "a//b", "%41", "a b", "?", "#", "é", "漢字", "L99", "l0", "L0 x", "\\", '"']
    ),
    st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=6),
)
bad_ids = st.sampled_from(["", " a", "a ", "a\nb", "\x00", "\u200b", "a" * 513])
texts = st.builds(str.format, st.sampled_from(SPACED), st.sampled_from(TEXTS))


class Answer(NamedTuple):
    """What an app says."""

    status: int
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401
        return json.loads(self.body)


@cache
def models() -> list[Path]:
    """Two models of the same labels."""
    folder = Path(tempfile.mkdtemp(prefix="decaf-machine-"))
    for seed in (1, 2):
        chosen = TINY.with_settings([f"model.dim={8 * seed}"])
        decaf.train(topics(labels=LABELS), chosen, device="cpu", folder=folder / str(seed))
    return [folder / "1", folder / "2"]


class Labels(RuleBasedStateMachine):
    """What the API does beside what a dict says it should."""

    known = Bundle("known")

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.loop = asyncio.new_event_loop()
        self.store = Path(self.folder.name) / "labels.sqlite"
        self.model = Path(self.folder.name) / "model"
        self.model.symlink_to(models()[0])
        self.services = [self.opened(), self.opened()]
        self.apps = [create_app(service) for service in self.services]
        self.changed: dict[str, str | None] = {}  # None: hidden

    def opened(self) -> Service:
        service = Service(Engine(self.model, self.store), ServeSettings())
        self.loop.run_until_complete(service.load())
        return service

    def teardown(self) -> None:
        for service in self.services:
            service.close()
        kept = SqliteStore(self.store)
        assert {change.id: change.text for change in kept.changes()} == self.changed
        kept.close()
        self.loop.close()
        self.folder.cleanup()

    # Asking

    def ask(self, method: str, path: str, body: object = None, *, worker: int = 0, query: str = "") -> Answer:
        """A request, past every client that would tidy its address up."""
        sent: list[Any] = []
        content = b"" if body is None else json.dumps(body).encode()

        async def receive() -> Any:  # noqa: ANN401
            return {"type": "http.request", "body": content, "more_body": False}

        async def send(message: Any) -> None:  # noqa: ANN401
            sent.append(message)

        raw = path.encode()
        scope = {
            "type": "http",
            "method": method,
            "http_version": "1.1",
            "scheme": "http",
            "headers": [],
            "root_path": "",
        }
        scope |= {"path": path, "raw_path": quote(raw).encode(), "query_string": query.encode()}
        scope |= {"server": ("here", 80), "client": ("there", 1), "state": {}}
        self.loop.run_until_complete(self.apps[worker](scope, receive, send))
        return Answer(sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:]))

    # What should be

    def text(self, label: str) -> str | None:
        """The text of a label; None if there is none."""
        return self.changed.get(label) or OWN.get(label)

    def hidden(self, label: str) -> bool:
        return label in self.changed and self.changed[label] is None

    def described(self, label: str) -> dict[str, object]:
        text, frequency = self.text(label), 10 if label in OWN else 0
        live = self.changed.get(label) is not None
        return {"id": label, "text": text, "frequency": frequency, "live": live, "hidden": self.hidden(label)}

    # What may happen

    @initialize(target=known)
    def trained(self) -> Any:  # noqa: ANN401
        return multiple("L0", "L1", "L2", "L3", "L23")

    @rule(target=known, label=new_ids, text=texts, worker=st.integers(0, 1))
    def add(self, label: str, text: str, worker: int) -> str:
        self.put(label, text, worker)
        return label

    @rule(label=known, text=texts, worker=st.integers(0, 1))
    def put(self, label: str, text: str, worker: int) -> None:
        new = self.text(label) is None
        answer = self.ask("PUT", f"/v1/labels/{label}", {"text": text}, worker=worker)
        tidy = " ".join(text.split())
        if OWN.get(label) == tidy:
            self.changed.pop(label, None)
        else:
            self.changed[label] = tidy
        assert (answer.status, answer.json) == (201 if new else 200, self.described(label))

    @rule(label=known, worker=st.integers(0, 1))
    def put_back(self, label: str, worker: int) -> None:
        if label in OWN:
            self.put(label, OWN[label], worker)
            assert label not in self.changed

    @rule(label=known, worker=st.integers(0, 1))
    def delete(self, label: str, worker: int) -> None:
        answer = self.ask("DELETE", f"/v1/labels/{label}", worker=worker)
        assert answer.status == (404 if self.text(label) is None else 204)
        if label in OWN:
            self.changed[label] = None
        else:
            self.changed.pop(label, None)

    @rule(label=bad_ids, text=texts)
    def put_what_cannot_be(self, label: str, text: str) -> None:
        assert self.ask("PUT", f"/v1/labels/{label}", {"text": text}).status == 422

    @rule(
        label=known, body=st.sampled_from([{"text": " "}, {"text": "漢"}, {"text": 1}, {}, {"text": "a" * 10_001}, []])
    )
    def put_what_is_no_text(self, label: str, body: object) -> None:
        assert self.ask("PUT", f"/v1/labels/{label}", body).status == 422

    @rule(worker=st.integers(0, 1))
    def restart(self, worker: int) -> None:
        self.services[worker].close()
        self.services[worker] = self.opened()
        self.apps[worker] = create_app(self.services[worker])

    @rule(worker=st.integers(0, 1))
    def swap(self, worker: int) -> None:
        target = models()[0] if self.model.resolve() == models()[1].resolve() else models()[1]
        self.model.unlink()
        self.model.symlink_to(target)
        answer = self.ask("POST", "/v1/model/reload", worker=worker)
        assert answer.status == 200
        self.loop.run_until_complete(self.services[1 - worker].follow())
        assert self.ask("GET", "/v1/model", worker=1 - worker).json["version"] == answer.json["version"]

    # What can be seen

    @rule(label=known | new_ids, worker=st.integers(0, 1))
    def look(self, label: str, worker: int) -> None:
        answer = self.ask("GET", f"/v1/labels/{label}", worker=worker)
        if self.text(label) is None:
            assert answer.status == 404
        else:
            assert answer.status == 200
            neighbours = answer.json.pop("neighbours")
            assert {key: value for key, value in answer.json.items() if key != "neighbours"} == self.described(label)
            assert not any(self.hidden(near["id"]) or near["id"] == label for near in neighbours)

    @rule(limit=st.sampled_from([1, 3, 20, 1_000]), live=st.booleans(), q=st.sampled_from(["", "topic", "ab", "L1"]))
    def list_page_by_page(self, limit: int, live: bool, q: str) -> None:
        found: list[dict[str, object]] = []
        while True:
            query = urlencode({"limit": limit, "offset": len(found), "live": str(live).lower(), "q": q})
            page = self.ask("GET", "/v1/labels", query=query).json
            assert (page["offset"], page["limit"]) == (len(found), limit)
            assert len(page["labels"]) == min(limit, page["total"] - len(found))
            if not page["labels"]:
                break
            found += page["labels"]
        ids = {*self.changed} if live else {*OWN, *self.changed}
        wanted = [label for label in ids if not q or q.casefold() in str(self.text(label)).casefold() or q == label]
        assert len(found) == len(wanted)
        assert {str(one["id"]): one for one in found} == {label: self.described(label) for label in wanted}

    @rule(label=known, worker=st.integers(0, 1))
    def predict(self, label: str, worker: int) -> None:
        text = self.text(label) or "topic"
        answer = self.ask("POST", "/v1/predict", {"texts": [text], "top": 100}, worker=worker)
        assert answer.status == 200
        labels = answer.json["predictions"][0]["labels"]
        ids = [one["id"] for one in labels]
        assert len(set(ids)) == len(ids)
        assert not any(self.hidden(one) or self.text(one) is None for one in ids)
        assert {one["id"]: one["text"] for one in labels} == {one: self.text(one) for one in ids}
        if label in self.changed and label not in OWN:
            assert label in ids

    @rule(worker=st.integers(0, 1))
    def export(self, worker: int) -> None:
        lines = self.ask("GET", "/v1/changes", worker=worker).body.decode().splitlines()
        found = [json.loads(line) for line in lines]
        assert {line["id"]: line["text"] for line in found} == self.changed
        assert len(found) == len(self.changed)

    @invariant()
    def counts_are_right(self) -> None:
        card = self.ask("GET", "/v1/model", worker=1).json
        hidden = sum(text is None for text in self.changed.values())
        added = sum(label not in OWN for label in self.changed)
        assert (card["labels"], card["hidden_labels"], card["live_labels"]) == (LABELS, hidden, added)


def test_labels_are_what_a_dict_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decaf.serving.engine._settle", lambda: None)  # a round of the garbage collector for each load
    chosen = settings(
        derandomize=True,
        database=None,
        max_examples=15,
        stateful_step_count=30,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
    )
    run_state_machine_as_test(Labels, settings=chosen)
