"""A long run of the service under mixed load and abuse: memory stays flat, no label is lost, and nothing fails.

    python -m tools.soak --minutes 30 --seed 0 [--workers 2] [--rate 40] [--json]

A real `decaf serve` with its workers answers ordinary clients (predictions of one text, of many and of tables, labels
that come and go, searches), clients with bad requests and every kind of abusive client of `tools.abuse`, bursts of ten
times what may wait, crowds of idle connections, and models that are swapped. Two small models are made for it.

What must hold, or the exit status is 1:

- no answer of 5xx but 503, and none to an ordinary request that its kind does not allow;
- no ordinary request without an answer, and none that begins later than the server's `--timeout` and `--slack`;
- ordinary requests succeed right after a burst;
- every label is as it was last acknowledged, while it runs, at its end, and in the store after that;
- memory of each process is flat: in the second half of the run (the first is for warming up), the median slope of its
  resident memory between all pairs of samples, projected to an hour, is at most `--growth` MB. Runs whose second half
  is shorter than five minutes are too short to say;
- each process has at its end, when all clients are gone, at most 8 open files more than at the first quiet moment, and
  in the second half no more threads than in the first, in the median: loading a model takes some for a moment;
- the log tells of no failure, and the server ends with status 0 when told to.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from decaf import Dataset, recipe, train
from decaf.stores.sqlite import SqliteStore
from tools.abuse import ABUSES, Answer, Wire, connected, request

MEGA = 1 << 20
LABELS = 24  # of the models
CLIENTS = 8
OWN = 12  # labels that each client adds and removes
QUEUE, TIMEOUT, IDLE = 64, 5, 10  # limits of the server, which are reached
BURST = 10 * (QUEUE + 1)  # requests at once
CROWD = 500  # idle connections
SHORTEST = 300.0  # seconds of samples that say something of memory
FILES = 8  # more than at the beginning, at the end
PATIENCE = 120.0  # seconds for an answer that never comes
SETTINGS = ["model.dim=16", "tokens.epochs=3", "shortlister.epochs=2", "ranker.epochs=3", "split.validation=0"]
PASSING = (429, 503)


def make_model(folder: Path, *, seed: int) -> Path:
    """A small model of topics, each with words of its own."""
    rng = random.Random(seed)  # noqa: S311 - no secret
    table = folder / f"{seed}.jsonl"
    with table.open("w", encoding="utf-8") as stream:
        for row in range(10 * LABELS):
            words = rng.sample(words_of(row % LABELS), 2)
            stream.write(json.dumps({"text": " ".join(["topic", *words]), "labels": [text_of(row % LABELS)]}) + "\n")
    model = folder / f"model-{seed}"
    train(Dataset.load(table), recipe().with_settings(SETTINGS), device="cpu", folder=model)
    return model


def text_of(topic: int) -> str:
    """The name of a topic, which is its id too."""
    return f"topic {chr(97 + topic)}"


def words_of(topic: int) -> list[str]:
    """What documents of a topic talk of."""
    return [f"{chr(97 + topic)}{ending}" for ending in ("lor", "mip", "nus", "rat")]


class Sample(NamedTuple):
    """What a process uses."""

    at: float  # seconds since the beginning
    memory: int  # bytes that are resident
    files: int
    threads: int


def sample(pid: int, at: float) -> Sample | None:
    """What a process uses now; None if it is gone."""
    try:
        status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        files = len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - a count of names
        return Sample(at, 1024 * int(status["VmRSS"].split()[0]), files, int(status["Threads"]))
    except (OSError, KeyError):
        return None


def family(pid: int) -> list[int]:
    """A process and all that it started."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(one for child in children for one in family(int(child)))]


def slope(samples: Sequence[Sample]) -> float:
    """Bytes per hour: the median over all pairs of samples, which a few odd ones do not move."""
    at = np.array([one.at for one in samples])
    memory = np.array([float(one.memory) for one in samples])
    left, right = np.triu_indices(len(samples), k=1)
    return float(np.median((memory[right] - memory[left]) / (at[right] - at[left]))) * 3600


class Judged(NamedTuple):
    """One process over the run."""

    pid: int
    samples: int
    first_mb: float
    half_mb: float
    last_mb: float
    peak_mb: float
    mb_per_hour: float | None  # None: the run was too short to say
    files: tuple[int, int, int]  # when quiet at first, at most, when quiet at last
    threads: tuple[int, int, int]  # when quiet at first, medians of the first half and of the second


def judge(pid: int, samples: Sequence[Sample], quiet: Sample, last: Sample) -> Judged:
    """What became of a process between two quiet moments."""
    half = [one for one in samples if one.at >= samples[-1].at / 2]
    enough = len(half) > 2 and half[-1].at - half[0].at >= SHORTEST
    early, late = ([one.threads for one in samples if (one in half) == second] for second in (False, True))
    return Judged(
        pid,
        len(samples),
        round(quiet.memory / MEGA, 1),
        round(half[0].memory / MEGA, 1),
        round(last.memory / MEGA, 1),
        round(max(one.memory for one in samples) / MEGA, 1),
        round(slope(half) / MEGA, 2) if enough else None,
        (quiet.files, max(one.files for one in samples), last.files),
        (quiet.threads, int(np.median(early)) if early else 0, int(np.median(late))),
    )


def complaints(judged: Judged, growth: float) -> list[str]:
    """What is wrong with a process."""
    found = []
    if judged.mb_per_hour is not None and judged.mb_per_hour > growth:
        found.append(f"process {judged.pid}: memory grows by {judged.mb_per_hour} MB an hour; at most {growth}")
    if judged.files[2] > judged.files[0] + FILES:
        found.append(f"process {judged.pid}: {judged.files[2]} open files at the end, {judged.files[0]} at first")
    if judged.mb_per_hour is not None and judged.threads[2] > judged.threads[1]:
        found.append(
            f"process {judged.pid}: {judged.threads[2]} threads in the second half, {judged.threads[1]} before"
        )
    return found


class Tally:
    """What was answered, and what should not have been."""

    def __init__(self) -> None:
        self.answers: Counter[tuple[str, int]] = Counter()
        self.endings: Counter[str] = Counter()
        self.violations: list[str] = []
        self.longest = 0.0
        self.reconnected = 0
        self.bursts: list[dict[str, int]] = []
        self.swaps = 0
        self.crowds = 0

    def wrong(self, what: str) -> None:
        """Something that must not be."""
        self.violations.append(what)
        print(f"  WRONG: {what}", file=sys.stderr, flush=True)

    @property
    def requests(self) -> int:
        """How many ordinary ones were answered."""
        return sum(self.answers.values())


class Server:
    """The server's process, and where it is."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, link: Path, models: Sequence[Path]) -> None:
        self.process, self.port, self.link, self.models = process, port, link, models

    def point(self, number: int) -> None:
        """Have the link lead to another model, at once."""
        aside = self.link.with_name("aside")
        aside.symlink_to(self.models[number % len(self.models)])
        aside.replace(self.link)


@contextmanager
def serving(folder: Path, workers: int) -> Iterator[Server]:
    """A server with its workers."""
    models = [make_model(folder, seed=seed) for seed in (0, 1)]
    link, log = folder / "current", folder / "log"
    link.symlink_to(models[0])
    command = [sys.executable, "-m", "decaf", "serve", str(link), "--port", "0", "--workers", str(workers)]
    command += ["--labels", str(folder / "labels.sqlite"), "--queue", str(QUEUE)]
    command += ["--timeout", str(TIMEOUT), "--idle", str(IDLE)]
    with log.open("wb") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=stream)
    try:
        while b"serving " not in log.read_bytes():
            if process.poll() is not None:
                raise SystemExit(f"the server did not begin:\n{log.read_text()}")
            time.sleep(0.05)
        yield Server(process, int(log.read_text().split(" at ")[1].split()[0].rpartition(":")[2]), link, models)
    finally:
        process.kill()
        process.wait()


class Client:
    """An ordinary client, with labels of its own that it knows the state of."""

    def __init__(self, port: int, name: str, rng: random.Random, tally: Tally, latest: float) -> None:
        self._port, self._name, self._rng, self._tally, self._latest = port, name, rng, tally, latest
        self._wire: Wire | None = None
        self._stack = AsyncExitStack()
        self.kept: dict[str, str] = {}  # labels and their texts, as acknowledged
        self.gone: set[str] = set()  # labels of which it was acknowledged that they are not there

    async def close(self) -> None:
        """Go."""
        self._wire = None
        await self._stack.aclose()

    async def ask(self, kind: str, data: bytes, *allowed: int) -> Answer | None:
        """An answer, which is counted; None if there is none."""
        for fresh in (False, True):
            if self._wire is None:
                fresh = True
                self._stack = AsyncExitStack()
                self._wire = await self._stack.enter_async_context(connected(self._port))
            began = time.monotonic()
            try:
                async with asyncio.timeout(PATIENCE):
                    await self._wire.send(data)
                    answer = await self._wire.answer()
            except TimeoutError:
                answer = None
            if answer is not None:
                break
            await self.close()
            if fresh:
                self._tally.wrong(f"{kind}: no answer")
                return None
            self._tally.reconnected += 1  # a connection that was idle for too long
        assert answer is not None  # noqa: S101 - broken off otherwise
        took = time.monotonic() - began
        self._tally.longest = max(self._tally.longest, took)
        if took > self._latest and kind != "reload":
            self._tally.wrong(f"{kind}: answered after {took:.1f} s")
        self._tally.answers[kind, answer.status] += 1
        if answer.status not in (*allowed, *PASSING):
            self._tally.wrong(f"{kind}: {answer.status} {answer.body[:200]!r}")
        if answer.headers.get("connection") == "close":
            await self.close()
        return answer

    async def act(self) -> None:
        """One of the things that clients do."""
        acts = [(self.one, 40), (self.many, 8), (self.table, 2), (self.write, 14), (self.remove, 8), (self.check, 8)]
        acts += [(self.read, 12), (self.bad, 8)]
        (act,) = self._rng.choices([act for act, _ in acts], [weight for _, weight in acts])
        await act()

    def _text(self) -> str:
        topic = self._rng.randrange(LABELS)
        return " ".join(["topic", *self._rng.sample(words_of(topic), 2)])

    def _own(self) -> str:
        return f"{self._name}-{self._rng.randrange(OWN)}"

    async def one(self) -> None:
        """Predict a text."""
        await self._predict("one", [self._text()], top=self._rng.choice([1, 5, 20]))

    async def many(self) -> None:
        """Predict many texts."""
        await self._predict("many", [self._text() for _ in range(self._rng.choice([10, 100, 256]))])

    async def _predict(self, kind: str, texts: list[str], **wishes: object) -> None:
        body = json.dumps({"texts": texts, "explain": self._rng.random() < 0.05 and len(texts) == 1, **wishes}).encode()
        answer = await self.ask(kind, request("POST", "/v1/predict", body), 200)
        if answer is not None and answer.status == 200:
            found = [one["text"] for one in json.loads(answer.body)["predictions"]]
            if found != texts:
                self._tally.wrong(f"{kind}: answers of other texts")

    async def table(self) -> None:
        """Predict a table."""
        rows = ["text", *(self._text() for _ in range(self._rng.choice([20, 600])))]
        answer = await self.ask("table", request("POST", "/v1/predict/csv?top=2", "\n".join(rows).encode()), 200)
        if answer is not None and answer.status == 200 and answer.body.count(b"\n") != len(rows):
            self._tally.wrong("table: rows are missing")

    async def write(self) -> None:
        """Add a label, or give it another text."""
        label, text = self._own(), f"topic {self._rng.choice(words_of(self._rng.randrange(LABELS)))}"
        body = json.dumps({"text": text}).encode()
        before = self.kept.pop(label, None)
        allowed = (200,) if before else (201,) if label in self.gone else (200, 201)
        answer = await self.ask("write", request("PUT", f"/v1/labels/{label}", body), *allowed)
        self.gone.discard(label)
        if answer is not None and answer.status in (200, 201):
            self.kept[label] = text

    async def remove(self) -> None:
        """Remove a label."""
        label = self._own()
        before = self.kept.pop(label, None)
        allowed = (204,) if before else (404,) if label in self.gone else (204, 404)
        answer = await self.ask("remove", request("DELETE", f"/v1/labels/{label}"), *allowed)
        if answer is not None and answer.status in (204, 404):
            self.gone.add(label)
        else:
            self.gone.discard(label)

    async def check(self) -> None:
        """Look at a label, and whether it is predicted."""
        label = self._own()
        known = self.kept.get(label)
        allowed = (200,) if known else (404,) if label in self.gone else (200, 404)
        answer = await self.ask("check", request("GET", f"/v1/labels/{label}"), *allowed)
        if answer is None or answer.status != 200 or known is None:
            return
        if json.loads(answer.body)["text"] != known:
            self._tally.wrong(f"check: {label} has another text than was acknowledged")
        body = json.dumps({"texts": [known], "top": 100}).encode()
        answer = await self.ask("seen", request("POST", "/v1/predict", body), 200)
        if answer is not None and answer.status == 200:
            found = [one["id"] for one in json.loads(answer.body)["predictions"][0]["labels"]]
            if label not in found:
                self._tally.wrong(f"seen: {label} is not predicted")

    async def read(self) -> None:
        """Look around."""
        paths = ["/v1/labels?q=topic&limit=50", "/v1/labels?live=true", "/v1/changes", "/v1/model", "/metrics"]
        paths += ["/healthz", "/readyz", "/", "/openapi.json", "/static/app.js"]
        await self.ask("read", request("GET", self._rng.choice(paths)), 200)

    async def bad(self) -> None:
        """A request that is refused."""
        method, path, body, status = self._rng.choice(
            [
                ("POST", "/v1/predict", b"{", 400),
                ("POST", "/v1/predict", b'{"texts": []}', 422),
                ("POST", "/v1/predict", b'{"texts": "a", "top": 1000}', 422),
                ("POST", "/v1/predict/csv", b"a,b\n1,2\n", 422),
                ("PUT", "/v1/labels/%20", b'{"text": "topic"}', 422),
                ("PUT", "/v1/labels/x", b'{"text": ""}', 422),
                ("DELETE", "/v1/labels/nobody", b"", 404),
                ("GET", "/v1/labels?limit=0", b"", 422),
                ("GET", "/nothing", b"", 404),
                ("PATCH", "/v1/labels/x", b"", 405),
            ]
        )
        await self.ask("bad", request(method, path, body), status)


class Run:
    """All that happens at once."""

    def __init__(self, server: Server, options: argparse.Namespace) -> None:
        self.server, self.options, self.tally = server, options, Tally()
        self.began = time.monotonic()
        self.end = self.began + 60 * options.minutes
        self.samples: dict[int, list[Sample]] = {}
        self.clients = [self._client(f"c{number}") for number in range(CLIENTS)]

    def _client(self, name: str) -> Client:
        rng = random.Random(f"{self.options.seed} {name}")  # noqa: S311 - no secret
        return Client(self.server.port, name, rng, self.tally, TIMEOUT + self.options.slack)

    @property
    def over(self) -> bool:
        """Whether it is time to end."""
        return bool(time.monotonic() >= self.end)

    async def rest(self, seconds: float) -> None:
        """Wait, but not beyond the end."""
        await asyncio.sleep(max(0.0, min(seconds, self.end - time.monotonic())))

    async def until_ready(self) -> None:
        """Wait for all workers."""
        ready = 0
        while ready < 8 * self.options.workers:  # in a row, each on a connection of its own
            async with connected(self.server.port) as wire:
                await wire.send(request("GET", "/readyz", b"", "Connection: close"))
                ready = ready + 1 if await wire.status() == 200 else 0
            await asyncio.sleep(0.02)

    async def quiet(self) -> dict[int, Sample]:
        """What each process uses when nobody is there."""
        await asyncio.sleep(2)
        found = {pid: sample(pid, self.at()) for pid in family(self.server.process.pid)}
        return {pid: one for pid, one in found.items() if one is not None}

    def at(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.began

    async def ordinary(self, client: Client) -> None:
        """Requests at a modest rate."""
        rng = random.Random(f"{self.options.seed} pace")  # noqa: S311 - no secret
        while not self.over:
            await client.act()
            await self.rest(rng.expovariate(self.options.rate / CLIENTS))
        await client.close()

    async def abusive(self, number: int) -> None:
        """One kind of abuse after another, in any order."""
        rng = random.Random(f"{self.options.seed} abuse {number}")  # noqa: S311 - no secret
        while not self.over:
            for abuse in rng.sample(ABUSES, len(ABUSES)):
                if self.over:
                    return
                try:
                    async with asyncio.timeout(PATIENCE):
                        found = await abuse.act(self.server.port)
                except TimeoutError:
                    self.tally.wrong(f"{abuse.name}: the connection was left open")
                    continue
                self.tally.endings[abuse.name] += 1
                busy = len(found) > 0 and all(status in (*PASSING, 200) for status in found)
                if found not in abuse.endings and not busy:
                    self.tally.wrong(f"{abuse.name}: {found[:10]}, not one of {[list[:10] for list in abuse.endings]}")
                await self.rest(rng.expovariate(2.0))

    async def bursts(self) -> None:
        """Ten times what may wait, at once; then an ordinary request."""
        texts = [text_of(at % LABELS) for at in range(100)]
        heavy = request("POST", "/v1/predict", json.dumps({"texts": texts, "top": 20}).encode(), "Connection: close")
        client = self._client("after")
        while not self.over:
            await self.rest(self.options.every)
            if self.over:
                break

            async def one() -> int:
                async with connected(self.server.port) as wire:
                    await wire.send(heavy)
                    return await wire.status()

            found = Counter(await asyncio.gather(*(one() for _ in range(BURST)), return_exceptions=True))
            self.tally.bursts.append({str(status): count for status, count in found.items()})
            if set(found) - {200, *PASSING}:
                self.tally.wrong(f"burst: {dict(found)}")
            answer = await client.ask("after a burst", request("POST", "/v1/predict", b'{"texts": "topic a"}'), 200)
            if answer is not None and answer.status != 200:
                self.tally.wrong(f"after a burst: {answer.status}")
        await client.close()

    async def crowds(self) -> None:
        """Many connections that do nothing until the server closes them."""
        while not self.over:
            await self.rest(2.3 * self.options.every)
            if self.over:
                return
            async with AsyncExitStack() as stack:
                wires = [await stack.enter_async_context(connected(self.server.port)) for _ in range(CROWD)]
                ends = await asyncio.gather(*(wire.reader.read() for wire in wires), return_exceptions=True)
            self.tally.crowds += 1
            if any(end != b"" for end in ends):
                self.tally.wrong("crowd: idle connections were not closed quietly")

    async def swaps(self) -> None:
        """Another model every so often: told to load it, or left to find it."""
        client = self._client("swap")
        while not self.over:
            await self.rest(1.7 * self.options.every)
            if self.over:
                break
            self.tally.swaps += 1
            self.server.point(self.tally.swaps)
            if self.tally.swaps % 2:
                await client.ask("reload", request("POST", "/v1/model/reload"), 200)
        await client.close()

    async def watch(self) -> None:
        """Samples, and a line now and then."""
        told = 0.0
        while not self.over:
            for pid in family(self.server.process.pid):
                if found := sample(pid, self.at()):
                    self.samples.setdefault(pid, []).append(found)
            if self.at() - told >= self.options.tell:
                told = self.at()
                latest = [samples[-1] for samples in self.samples.values()]
                memory = "+".join(f"{one.memory / MEGA:.0f}" for one in latest)
                files, threads = sum(one.files for one in latest), sum(one.threads for one in latest)
                line = (
                    f"{told / 60:6.1f} min  {self.tally.requests} requests  {sum(self.tally.endings.values())} abuses"
                )
                line += f"  {len(self.tally.bursts)} bursts  {self.tally.swaps} swaps  RSS {memory} MB"
                line += f"  files {files}  threads {threads}  wrong {len(self.tally.violations)}"
                print(line, file=sys.stderr, flush=True)
            await self.rest(min(2.0, self.options.minutes * 60 / 20))

    async def compare(self) -> None:
        """Every label is as it was last acknowledged."""
        async with connected(self.server.port) as wire:
            await wire.send(request("GET", "/v1/changes"))
            answer = await wire.answer()
        lines = answer.body.splitlines() if answer is not None and answer.status == 200 else []
        self._compared({line["id"]: line["text"] for line in map(json.loads, lines)}, "at the end")

    def compare_store(self, path: Path) -> None:
        """The same in the store."""
        store = SqliteStore(path)
        self._compared({change.id: change.text for change in store.changes()}, "in the store")
        store.close()

    def _compared(self, found: dict[str, str | None], when: str) -> None:
        for client in self.clients:
            for label, text in client.kept.items():
                if found.get(label) != text:
                    self.tally.wrong(f"{label} is lost or has another text {when}")
            for label in client.gone & set(found):
                self.tally.wrong(f"{label} was removed and is there {when}")

    async def go(self) -> tuple[dict[int, Sample], dict[int, Sample]]:
        """All of it; what processes use before and after."""
        await self.until_ready()
        first = self._client("first")
        for _ in range(100):  # threads and files that come with the first requests
            await first.act()
        await first.close()
        self.clients.append(first)
        before = await self.quiet()
        self.began = time.monotonic()
        self.end = self.began + 60 * self.options.minutes
        await asyncio.gather(
            *(self.ordinary(client) for client in self.clients[:CLIENTS]),
            *(self.abusive(number) for number in range(self.options.abusers)),
            self.bursts(),
            self.crowds(),
            self.swaps(),
            self.watch(),
        )
        await asyncio.sleep(IDLE + 3)  # for connections that clients have left
        await self.compare()
        return before, await self.quiet()


def soak(options: argparse.Namespace) -> dict[str, Any]:
    """Run, and report what came out."""
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        folder = Path(name)
        with serving(folder, options.workers) as server:
            run = Run(server, options)
            before, after = asyncio.run(run.go())
            server.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                server.process.wait(PATIENCE)
        status, log = server.process.returncode, (folder / "log").read_text()
        run.compare_store(folder / "labels.sqlite")
    return report(run, before, after, status, log)


def report(run: Run, before: dict[int, Sample], after: dict[int, Sample], status: int, log: str) -> dict[str, Any]:
    """All figures, and whether they are good."""
    tally, growth = run.tally, run.options.growth
    judged = [judge(pid, run.samples[pid], before[pid], after[pid]) for pid in sorted(before) if pid in after]
    for one in judged:
        for complaint in complaints(one, growth):
            tally.wrong(complaint)
    if set(before) - set(after):
        tally.wrong(f"processes ended: {sorted(set(before) - set(after))}")
    if status != 0:
        tally.wrong(f"the server ended with status {status}")
    if "failed" in log or "Traceback" in log:
        tally.wrong(f"the log tells of a failure: {log[-2000:]}")
    kinds = sorted({kind for kind, _ in tally.answers})
    return {
        "minutes": run.options.minutes,
        "seed": run.options.seed,
        "workers": run.options.workers,
        "requests": tally.requests,
        "answers": {
            kind: {str(code): count for (of, code), count in sorted(tally.answers.items()) if of == kind}
            for kind in kinds
        },
        "abuses": dict(sorted(tally.endings.items())),
        "bursts": tally.bursts,
        "swaps": tally.swaps,
        "crowds": tally.crowds,
        "reconnected": tally.reconnected,
        "longest_s": round(tally.longest, 2),
        "labels": sum(len(client.kept) for client in run.clients),
        "growth_mb_per_hour": growth,
        "processes": [one._asdict() for one in judged],
        "violations": tally.violations,
    }


def show(found: dict[str, Any]) -> None:
    """The report as tables."""
    print(f"{found['minutes']} minutes, seed {found['seed']}, {found['workers']} workers")
    print(f"{found['requests']} ordinary requests, the longest took {found['longest_s']} s")
    for kind, counts in found["answers"].items():
        print(f"  {kind:<14}", "  ".join(f"{status}: {count}" for status, count in counts.items()))
    abuses = found["abuses"]
    print(f"{sum(abuses.values())} abusive clients of {len(abuses)} kinds; {found['crowds']} crowds of {CROWD}")
    totals: Counter[str] = Counter()
    for burst in found["bursts"]:
        totals.update(burst)
    print(f"{len(found['bursts'])} bursts of {BURST}: {dict(sorted(totals.items()))}; {found['swaps']} models swapped")
    print(f"{found['labels']} labels were as acknowledged")
    print("files: at first, most, at last; threads: at first, medians of both halves")
    print(f"{'process':>8} {'first':>7} {'half':>7} {'last':>7} {'peak':>7} {'MB/hour':>8}  files  threads")
    for one in found["processes"]:
        rate = "short" if one["mb_per_hour"] is None else f"{one['mb_per_hour']:.2f}"
        figures = " ".join(f"{one[name]:7.1f}" for name in ("first_mb", "half_mb", "last_mb", "peak_mb"))
        files, threads = ("/".join(map(str, one[name])) for name in ("files", "threads"))
        print(f"{one['pid']:>8} {figures} {rate:>8}  {files}  {threads}")
    print(f"{len(found['violations'])} violations" + "".join(f"\n  {one}" for one in found["violations"]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    about, shown = __doc__.splitlines()[0], argparse.ArgumentDefaultsHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m tools.soak", description=about, formatter_class=shown)
    parser.add_argument("--minutes", type=float, default=30.0, help="how long")
    parser.add_argument("--seed", type=int, default=0, help="what decides who asks what")
    parser.add_argument("--workers", type=int, default=2, help="processes of the server")
    parser.add_argument("--rate", type=float, default=40.0, help="ordinary requests a second, at most")
    parser.add_argument("--abusers", type=int, default=4, help="abusive clients at once")
    parser.add_argument("--every", type=float, default=20.0, help="seconds between two bursts; swaps are rarer")
    parser.add_argument("--growth", type=float, default=32.0, help="MB an hour that memory of a process may grow")
    parser.add_argument("--slack", type=float, default=10.0, help="seconds that an answer may be late: a busy machine")
    parser.add_argument("--tell", type=float, default=30.0, help="seconds between two lines of progress")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    options = parser.parse_args(arguments)
    found = soak(options)
    if options.json:
        print(json.dumps(found, indent=1))
    else:
        show(found)
    return 1 if found["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
