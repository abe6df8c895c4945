"""Requests of one moment are scored together, and no more of them wait than is bounded."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, ParamSpec, TypeVar

from decaf.errors import DecafError
from decaf.predictions import Match
from decaf.serving.engine import Engine, Served
from decaf.serving.problems import ProblemError, busy, late
from decaf.serving.telemetry import Telemetry

__all__ = ["Answer", "Batcher", "Lane", "Wish"]

_TEXTS = 256  # scored together at most, but for a request that has more of its own
_AT_ONCE = 200  # characters that are scored without another thread, which would cost more than it saves

P = ParamSpec("P")
T = TypeVar("T")


class Wish(NamedTuple):
    """What is asked of each text; requests with the same wish are scored together."""

    top: int = 5
    threshold: float = 0.0
    tail: float | None = None


class Answer(NamedTuple):
    """The matches of each text, and the model that found them."""

    served: Served
    matches: list[list[Match]]


@dataclass(eq=False, slots=True)
class _Job:
    texts: Sequence[str]
    wish: Wish
    future: asyncio.Future[Answer]


class Batcher:
    """The queue of texts in front of the model.

    While some are scored in their thread, those that come gather, and are scored together next. Few and short texts
    that find nobody before them are scored at once.
    """

    def __init__(self, engine: Engine, telemetry: Telemetry, *, queue: int, timeout: float) -> None:
        self._engine = engine
        self._telemetry = telemetry
        self._queue = queue
        self._timeout = timeout
        self._waiting: deque[_Job] = deque()
        self._scoring = False
        self._pool = ThreadPoolExecutor(1, "score")

    async def ask(self, texts: Sequence[str], wish: Wish, *, admitted: bool = False) -> Answer:
        """The best labels of texts; who is `admitted`, its answer having begun, is neither turned away nor late."""
        if len(self._waiting) >= self._queue and not admitted:
            raise busy()
        loop = asyncio.get_running_loop()
        job = _Job(texts, wish, loop.create_future())
        self._waiting.append(job)
        self._telemetry.queue(len(self._waiting))
        if not self._scoring:
            self._scoring = True
            loop.call_soon(self._next)
        if admitted:
            return await job.future
        timer = loop.call_later(self._timeout, _expire, job.future)
        try:
            return await job.future
        finally:
            timer.cancel()

    def close(self) -> None:
        """End the thread once it has nothing more to do."""
        self._pool.shutdown()

    def _next(self) -> None:
        """Score what waits, or rest."""
        jobs = self._taken()
        self._telemetry.queue(len(self._waiting))
        if not jobs:
            self._scoring = False
        elif sum(len(text) for job in jobs for text in job.texts) <= _AT_ONCE and self._engine.fresh:
            self._finish(jobs, self._outcomes(jobs))
        else:
            loop = asyncio.get_running_loop()
            scored = loop.run_in_executor(self._pool, self._outcomes, jobs)
            scored.add_done_callback(lambda done: self._finish(jobs, done.result()))

    def _taken(self) -> list[_Job]:
        """The requests that are next; those that were given up are dropped."""
        jobs: list[_Job] = []
        count = 0
        while self._waiting and (not jobs or count + len(self._waiting[0].texts) <= _TEXTS):
            job = self._waiting.popleft()
            if not job.future.done():
                jobs.append(job)
                count += len(job.texts)
        return jobs

    def _finish(self, jobs: Sequence[_Job], outcomes: Sequence[Answer | Exception]) -> None:
        for job, outcome in zip(jobs, outcomes, strict=True):
            if job.future.done():
                continue
            if isinstance(outcome, Exception):
                job.future.set_exception(outcome)
            else:
                job.future.set_result(outcome)
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._next)
        else:
            self._scoring = False

    def _outcomes(self, jobs: Sequence[_Job]) -> list[Answer | Exception]:
        """What becomes of each request."""
        try:
            served = self._engine.current()
        except Exception as error:
            return [error for _ in jobs]
        together: dict[Wish, list[_Job]] = {}
        for job in jobs:
            together.setdefault(job.wish, []).append(job)
        found: dict[int, Answer | Exception] = {}
        for wish, alike in together.items():
            self._telemetry.batch(sum(len(job.texts) for job in alike))
            found.update(zip(map(id, alike), _scored(served, wish, alike), strict=True))
        return [found[id(job)] for job in jobs]


def _scored(served: Served, wish: Wish, jobs: Sequence[_Job]) -> list[Answer | Exception]:
    texts = [text for job in jobs for text in job.texts]
    try:
        found = served.predictor.predict(texts, top=wish.top, threshold=wish.threshold, tail=wish.tail)
    except DecafError as error:
        return [ProblemError("invalid", str(error)) for _ in jobs]
    except Exception as error:
        return [error for _ in jobs]
    rows = zip(found.ids.tolist(), found.scores.tolist(), strict=True)
    matches = ([Match(label, score) for label, score in zip(*row, strict=True) if label >= 0] for row in rows)
    return [Answer(served, list(islice(matches, len(job.texts)))) for job in jobs]


def _expire(future: asyncio.Future[Answer]) -> None:
    if not future.done():
        future.set_exception(late())


class Lane:
    """A few threads for other work than scoring; no more may wait for them than is bounded."""

    def __init__(self, threads: int, *, queue: int, timeout: float | None) -> None:
        self._pool = ThreadPoolExecutor(threads, "lane")
        self._most = threads + queue
        self._timeout = timeout
        self._running = 0

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What the work returns; it is dropped if its time is over before it has begun."""
        if self._running >= self._most:
            raise busy()
        try:
            async with asyncio.timeout(self._timeout):
                return await self.go_on(work, *args, **kwargs)
        except TimeoutError:
            raise late() from None

    async def go_on(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The same for an answer that has begun: it is neither turned away nor late."""
        self._running += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._pool, lambda: work(*args, **kwargs))
        finally:
            self._running -= 1

    def close(self) -> None:
        """End the threads once they have nothing more to do."""
        self._pool.shutdown()
