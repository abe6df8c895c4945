"""A server that is killed while labels are written and models are swapped."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from decaf.model import Model
from decaf.predictor import Predictor
from decaf.stores.sqlite import SqliteStore
from tools.crash.rounds import PATIENCE, ROOT, Round, Stand, check, drawn, environment, topic_name, until

__all__ = ["TEXTS", "Asker", "Server", "Writer", "check_shown", "kept_by", "kill_server", "kill_worker"]

TEXTS = [f"{topic_name(topic)} and {topic_name(topic + 7)}" for topic in range(6)]
_TOP = 100
_CLOSE = 0.01  # of logits
_LEAST = 1e-3  # a chance below which six digits say little of its logit
_UNSURE = (429, 503)  # statuses that say: later
_ABSENT = "(absent)"  # a label of which nothing is kept


class Server:
    """`decaf serve` in a process of its own, begun again at the same address after it was killed."""

    def __init__(self, round_: Round, model: Path, labels: Path, *options: object, **variables: str) -> None:
        self._round, self._variables = round_, variables
        self._words = ["serve", model, "--labels", labels, *options]
        self._log = round_.folder / "server.txt"
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """The process that was begun."""
        assert self._process is not None  # noqa: S101 - begun before it is asked for
        return self._process.pid

    def said(self) -> str:
        """Its log."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def loads(self) -> int:
        """How often one of its processes has loaded a model."""
        return self.said().count(" is in use")

    def begin(self) -> None:
        """Start it and wait until it is ready."""
        began = self._log.stat().st_size if self._log.exists() else 0
        command = [sys.executable, "-m", "decaf", *map(str, self._words), "--port", str(self._port)]
        with self._log.open("ab") as stream:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=environment(**self._variables), stdout=stream, stderr=stream
            )

        def told() -> str:
            return self._log.read_bytes()[began:].decode(errors="replace")

        process = self._process
        until(lambda: " at http://" in told() or process.poll() is not None, "the server's address")
        check(process.poll() is None, f"the server did not begin: {told()[-2000:]}")
        self._port = int(told().split(" at http://127.0.0.1:")[1].split()[0])
        with httpx.Client(base_url=self.address, timeout=PATIENCE) as client:

            def ready() -> bool:
                check(process.poll() is None, f"the server ended: {told()[-2000:]}")
                try:
                    return client.get("/readyz").status_code == 200
                except httpx.HTTPError:  # it is about to end
                    return False

            until(ready, "a server that is ready")

    def workers(self) -> list[int]:
        """Its processes that answer requests, if these are others than its own."""
        found = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text(encoding="ascii").split()
        return [int(pid) for pid in found if b"spawn_main" in _command(int(pid))]

    def kill(self) -> None:
        """End it at once, and wait until its workers have followed."""
        assert self._process is not None  # noqa: S101 - begun before it is killed
        workers = self.workers()
        self._process.kill()
        self._process.wait()
        until(lambda: not any(b"spawn_main" in _command(pid) for pid in workers), "the end of orphaned workers")

    def kill_worker(self, rng: random.Random) -> None:
        """End one worker at once."""
        if workers := self.workers():
            os.kill(rng.choice(workers), signal.SIGKILL)
            self._round.count("kills")

    def close(self) -> None:
        """End it, however it is."""
        if self._process is not None and self._process.poll() is None:
            self.kill()


def _command(pid: int) -> bytes:
    """The command line of a process; nothing if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


class Client(threading.Thread):
    """Asks a server all the time in a thread of its own; what goes wrong is kept."""

    def __init__(self, server: Server) -> None:
        super().__init__(daemon=True)
        self.failure = ""
        self.answered = 0
        self._over = threading.Event()
        self._server = server

    def run(self) -> None:
        """Ask until told to end; a connection that breaks is made anew."""
        while not self._over.is_set():
            try:
                with httpx.Client(base_url=self._server.address, timeout=PATIENCE) as client:
                    while not self._over.is_set():
                        self.ask(client)
                        self.answered += 1
            except httpx.HTTPError:
                time.sleep(0.01)
            except Exception as error:
                self.failure = f"{type(error).__name__}: {error}"
                return

    def ask(self, client: httpx.Client) -> None:
        """One request."""
        raise NotImplementedError

    def end(self) -> None:
        """Have it end."""
        self._over.set()
        self.join(PATIENCE)


class Writer(Client):
    """Adds, changes and removes labels of its own, one write after another, and knows what each may be by now."""

    def __init__(self, server: Server, number: int, rng: random.Random) -> None:
        super().__init__(server)
        own = [f"own-{number}-{at}" for at in range(4)]
        trained = [topic_name(10 + number)]  # the id of a label of a table is its text
        self.known: dict[str, set[str | None]] = {label: {_ABSENT} for label in own + trained}
        self.acknowledged = 0
        self._trained, self._rng, self._written = trained, rng, 0

    def ask(self, client: httpx.Client) -> None:
        """One write; without an answer, both what was and what would be are possible."""
        label = self._rng.choice(sorted(self.known))
        self._written += 1
        if self._rng.random() < 0.35:
            gone = None if label in self._trained else _ABSENT
            self.known[label] |= {gone}
            answer = client.delete(f"/v1/labels/{label}")
            good, value = answer.status_code in (204, 404), gone
        else:
            value = f"{topic_name(self._rng.randrange(40))} {topic_name(self._rng.randrange(40))}"
            text = value + " the" * (self._written % 300)  # of many lengths, so that pages of the file fill up
            self.known[label] |= {text}
            answer = client.put(f"/v1/labels/{label}", json={"text": text})
            good, value = answer.status_code in (200, 201), text
        if good:
            self.known[label] = {value}
            self.acknowledged += 1
            return
        check(answer.status_code in _UNSURE, f"a write was answered with {answer.status_code}: {answer.text}")
        time.sleep(0.02)


class Asker(Client):
    """Asks for predictions and checks that each answer is wholly that of one model."""

    def __init__(self, server: Server, answers: Answers) -> None:
        super().__init__(server)
        self.answers = answers

    def ask(self, client: httpx.Client) -> None:
        """One request for all texts."""
        answer = client.post("/v1/predict", json={"texts": TEXTS, "top": _TOP})
        if answer.status_code != 200:
            check(answer.status_code in _UNSURE, f"a question was answered with {answer.status_code}: {answer.text}")
            time.sleep(0.02)
            return
        self.answers.check(answer.json())


class Answers:
    """What models say of the texts, as far as live labels cannot change it.

    These move the logits of all chances of a text by one amount: between two labels, they are as far apart as ever.
    """

    def __init__(self, models: Sequence[Path], touched: set[str]) -> None:
        self.compared = 0  # chances
        self._touched = touched
        self._known: dict[str, list[dict[str, float]]] = {}
        for folder in models:
            model = Model.load(folder)
            predictions = Predictor(model).predict(TEXTS, top=_TOP)
            self._known[model.version] = [
                {model.labels.id(at): score for at, score in matches if model.labels.id(at) not in touched}
                for matches in predictions
            ]

    def check(self, answer: dict[str, Any]) -> str:
        """The version that has answered, if all of it is right."""
        version: str = answer["model"]
        check(version in self._known, f"a model answered that was never there: {version}")
        for one, wanted in zip(answer["predictions"], self._known[version], strict=True):
            labels = [label for label in one["labels"] if not label["live"] and label["id"] not in self._touched]
            found = {label["id"]: label["score"] for label in labels}
            check(found.keys() == wanted.keys(), f"{version}: other labels: {sorted(found.keys() ^ wanted.keys())}")
            both = [(score, wanted[label]) for label, score in found.items()]
            moved = [_logit(now) - _logit(then) for now, then in both if min(now, then) > _LEAST and now < 1 - _LEAST]
            far = max(moved) - min(moved) if moved else 0.0
            check(far < _CLOSE, f"{version}: chances are off by {far} in logits")
            self.compared += len(moved) - 1 if moved else 0
        return version


def _logit(chance: float) -> float:
    return math.log(chance / (1 - chance))


def kill_server(round_: Round, *, workers: int = 0, seconds: float = 0.0) -> None:
    """A server that is killed, workers and all, has every acknowledged write when it is there again."""
    rng = round_.rng
    workers = workers or rng.choice([1, 2])
    with _loaded(round_, workers) as (server, swap, clients):
        _disturb(round_, swap, seconds or rng.uniform(0.05, 2.5))
        server.kill()
        round_.count("kills")
        _end(clients)
        swap.restore()
        server.begin()
        _check_all(round_, server, clients, swap)


def kill_worker(round_: Round, *, seconds: float = 0.0) -> None:
    """Workers that are killed are replaced, and nothing is lost."""
    rng, workers = round_.rng, round_.rng.choice([2, 2, 3])
    with _loaded(round_, workers) as (server, swap, clients):
        for _ in range(rng.choice([1, 2])):
            _disturb(round_, swap, seconds or rng.uniform(0.05, 2.0))
            server.kill_worker(rng)
        until(lambda: len(server.workers()) == workers, "another worker")
        _disturb(round_, swap, 0.3)
        _end(clients)
        _check_all(round_, server, clients, swap)


class Swap:
    """A link that leads to one model or another, now and then to a damaged one."""

    def __init__(self, round_: Round, server_reloads: bool) -> None:
        stand: Stand = round_.stand
        self.link, self._round, self._reloads = round_.folder / "current", round_, server_reloads
        self._good = [stand.model, stand.other]
        self._bad = round_.folder / "damaged"
        shutil.copytree(stand.other, self._bad)
        file = self._bad / "instance-0.safetensors"
        os.truncate(file, round_.rng.randrange(1, file.stat().st_size))
        self.link.symlink_to(stand.model)
        self.server: Server | None = None

    def point(self, target: Path) -> None:
        """Have the link lead elsewhere, at once."""
        aside = self.link.with_name("aside")
        aside.symlink_to(target)
        aside.replace(self.link)
        self._round.count("swaps")
        if self._reloads and self.server is not None:
            with suppress(httpx.HTTPError):  # a worker may be killed at this very moment
                httpx.post(f"{self.server.address}/v1/model/reload", timeout=PATIENCE)

    def chance(self) -> None:
        """Lead to any of the models."""
        self.point(self._round.rng.choice([*self._good, self._bad]))

    def restore(self) -> None:
        """Lead to a good one where it leads to a damaged one, with which no server begins."""
        if self.link.resolve() == self._bad.resolve():
            self.point(self._good[0])

    def settle(self) -> str:
        """Lead to a good one; its version."""
        target = self._round.rng.choice(self._good)
        self.point(target)
        return Model.load(target).version


@contextmanager
def _loaded(round_: Round, workers: int) -> Iterator[tuple[Server, Swap, list[Client]]]:
    """A server that is asked and written to by several clients."""
    round_.facts["workers"] = workers
    reloads = round_.rng.random() < 0.3
    swap = Swap(round_, reloads)
    options: list[object] = ["--workers", workers, *(["--no-watch"] if reloads else [])]
    temporary = round_.folder / "tmp"
    temporary.mkdir()
    server = Server(round_, swap.link, round_.folder / "labels.sqlite", *options, TMPDIR=str(temporary))
    swap.server = server
    clients: list[Client] = []
    try:
        server.begin()
        writers = [Writer(server, number, drawn(round_.rng.random())) for number in range(3)]
        answers = Answers([round_.stand.model, round_.stand.other], {label for one in writers for label in one.known})
        clients += [*writers, Asker(server, answers), Asker(server, answers)]
        for client in clients:
            client.start()
        until(lambda: all(client.answered or client.failure for client in clients), "an answer for everybody")
        yield server, swap, clients
    finally:
        for client in clients:
            client.end()
        server.close()


def _disturb(round_: Round, swap: Swap, seconds: float) -> None:
    """Swap models for a while."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, round_.rng.uniform(0.1, 0.9)))
        if time.monotonic() < end:
            swap.chance()


def _end(clients: Sequence[Client]) -> None:
    """Have clients end; what they found is what failed the round."""
    for client in clients:
        client.end()
    for client in clients:
        check(not client.is_alive(), "a request has no end")
        check(not client.failure, client.failure)


def _check_all(round_: Round, server: Server, clients: Sequence[Client], swap: Swap) -> None:
    """Every acknowledged write is there, and whatever was wrong has passed."""
    asker = next(one for one in clients if isinstance(one, Asker))
    writers = [one for one in clients if isinstance(one, Writer)]
    for client in clients:
        check(client.answered, f"{type(client).__name__} was never answered")
    round_.count("writes", sum(one.acknowledged for one in writers))
    round_.count("answers", sum(one.answered for one in clients if isinstance(one, Asker)))
    check(asker.answers.compared, "no chances could be compared")
    wanted = swap.settle()
    for _ in range(4):  # on connections of their own, so that every worker has its turn
        with httpx.Client(base_url=server.address, timeout=PATIENCE) as line:
            until(partial(_answers, line, asker, wanted), "the model that stands there")
            kept = kept_by(line)
            for writer in writers:
                for label, possible in writer.known.items():
                    found = kept.get(label, _ABSENT)
                    check(found in possible, f"{label!r} is {found!r}, not one of {sorted(map(repr, possible))}")
            check_shown(line, kept)
    with closing(sqlite3.connect(round_.folder / "labels.sqlite")) as database:
        check(database.execute("pragma integrity_check").fetchone() == ("ok",), "labels.sqlite is damaged")
    with closing(SqliteStore(round_.folder / "labels.sqlite")) as store:
        check({one.id: one.text for one in store.changes()} == kept, "the server knows other changes than its file")


def kept_by(client: httpx.Client) -> dict[str, str | None]:
    """The changes that a server knows; None: the label is hidden."""
    changes = [json.loads(line) for line in client.get("/v1/changes").text.splitlines()]
    return {change["id"]: change["text"] for change in changes}


def check_shown(client: httpx.Client, kept: dict[str, str | None]) -> None:
    """Each change that is kept is what the server shows of the label."""
    for label, text in kept.items():
        shown = client.get(f"/v1/labels/{label}").json()
        check(shown.get("hidden") is (text is None), f"{label!r}: {shown}, but {text!r} is kept")
        check(text is None or shown.get("text") == text, f"{label!r}: {shown}, but {text!r} is kept")


def _answers(client: httpx.Client, asker: Asker, version: str) -> bool:
    """Whether this version answers by now; the answer must be right."""
    answer = client.post("/v1/predict", json={"texts": TEXTS, "top": _TOP})
    if answer.status_code != 200:
        check(answer.status_code in _UNSURE, f"{answer.status_code}: {answer.text}")
        return False
    return asker.answers.check(answer.json()) == version
