"""The queue in front of the model: what gathers is scored together, what is given up is dropped."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest

from decaf.errors import ModelError
from decaf.predictions import Predictions
from decaf.serving.batching import Answer, Batcher, Lane, Wish
from decaf.serving.problems import ProblemError
from decaf.serving.telemetry import Telemetry


class Slow:
    """An engine and its predictor, which answers with a text's length once it may."""

    def __init__(self) -> None:
        self.predictor = self
        self.asked: list[list[str]] = []
        self.may = threading.Event()
        self.began = threading.Event()
        self.fresh = False
        self.error: Exception | None = None

    def current(self) -> Slow:
        return self

    def predict(self, texts: list[str], *, top: int, threshold: float, tail: float | None) -> Predictions:
        self.asked.append(texts)
        self.began.set()
        assert self.fresh or self.may.wait(60)
        if self.error:
            raise self.error
        ids = np.array([[len(text)] * top for text in texts], dtype=np.int64)
        return Predictions(ids, np.full(ids.shape, 0.5, np.float32))


def batcher(engine: Slow, **limits: Any) -> Batcher:  # noqa: ANN401
    return Batcher(engine, Telemetry(), **{"queue": 8, "timeout": 60.0, **limits})  # type: ignore[arg-type]


async def began(engine: Slow) -> None:
    while not engine.began.is_set():
        await asyncio.sleep(0.001)


def lengths(answer: Answer) -> list[int]:
    return [matches[0].label for matches in answer.matches]


def test_what_comes_while_others_are_scored_is_scored_together() -> None:
    async def main() -> None:
        engine = Slow()
        desk = batcher(engine)
        first = asyncio.create_task(desk.ask(["a"], Wish()))
        await began(engine)
        others = [asyncio.create_task(desk.ask(texts, Wish())) for texts in (["bb"], ["ccc", "dddd"], ["e"])]
        apart = asyncio.create_task(desk.ask(["ff"], Wish(top=2)))
        await asyncio.sleep(0)
        engine.may.set()
        assert lengths(await first) == [1]
        assert [lengths(await other) for other in others] == [[2], [3, 4], [1]]
        assert len((await apart).matches[0]) == 2
        assert engine.asked == [["a"], ["bb", "ccc", "dddd", "e"], ["ff"]]
        desk.close()

    asyncio.run(main())


def test_requests_of_one_moment_are_scored_together_without_a_thread() -> None:
    async def main() -> None:
        engine = Slow()
        engine.fresh = True
        desk = batcher(engine)
        found = await asyncio.gather(*(desk.ask([text], Wish()) for text in ("a", "bb", "ccc")))
        assert [lengths(answer) for answer in found] == [[1], [2], [3]]
        assert engine.asked == [["a", "bb", "ccc"]]
        desk.close()

    asyncio.run(main())


def test_batches_are_bounded_but_for_one_request() -> None:
    async def main() -> None:
        engine = Slow()
        engine.fresh = True
        desk = batcher(engine)
        sizes = (200, 50, 20, 300, 1)
        await asyncio.gather(*(desk.ask(["a"] * size, Wish()) for size in sizes))
        assert [len(texts) for texts in engine.asked] == [250, 20, 300, 1]
        desk.close()

    asyncio.run(main())


def test_a_full_queue_is_busy_but_for_who_is_admitted() -> None:
    async def main() -> None:
        engine = Slow()
        desk = batcher(engine, queue=1)
        tasks = [asyncio.create_task(desk.ask(["a"], Wish()))]
        await began(engine)
        tasks += [asyncio.create_task(desk.ask(["b"], Wish()))]
        await asyncio.sleep(0)
        with pytest.raises(ProblemError) as told:
            await desk.ask(["c"], Wish())
        assert (told.value.code, told.value.status) == ("busy", 429)
        tasks += [asyncio.create_task(desk.ask(["d"], Wish(), admitted=True))]
        await asyncio.sleep(0)
        engine.may.set()
        await asyncio.gather(*tasks)
        assert engine.asked == [["a"], ["b", "d"]]
        desk.close()

    asyncio.run(main())


def test_who_waits_too_long_is_told_and_never_scored() -> None:
    async def main() -> None:
        engine = Slow()
        desk = batcher(engine, timeout=0.05)
        first = asyncio.create_task(desk.ask(["a"], Wish()))
        await began(engine)
        with pytest.raises(ProblemError) as told:
            await desk.ask(["b"], Wish())
        assert (told.value.code, told.value.status) == ("timeout", 503)
        with pytest.raises(ProblemError):
            await first  # its scoring is late as well
        engine.may.set()
        engine.fresh = True
        desk._timeout = 60.0
        assert lengths(await desk.ask(["ccc"], Wish())) == [3]
        assert engine.asked == [["a"], ["ccc"]]
        desk.close()

    asyncio.run(main())


@pytest.mark.parametrize(("error", "kind"), [(ModelError("cannot"), ProblemError), (ValueError("oh"), ValueError)])
def test_an_error_reaches_everybody_and_the_next_are_scored(error: Exception, kind: type[Exception]) -> None:
    async def main() -> None:
        engine = Slow()
        engine.fresh, engine.error = True, error
        desk = batcher(engine)
        found = await asyncio.gather(*(desk.ask(["a"], Wish()) for _ in range(2)), return_exceptions=True)
        assert [type(one) for one in found] == [kind, kind]
        engine.error = None
        assert lengths(await desk.ask(["bb"], Wish())) == [2]
        desk.close()

    asyncio.run(main())


def test_a_lane_is_bounded_in_number_and_time() -> None:
    async def main() -> None:
        may, began = threading.Event(), threading.Event()

        def work() -> str:
            began.set()
            assert may.wait(60)
            return "done"

        lane = Lane(1, queue=1, timeout=60.0)
        tasks = [asyncio.create_task(lane.run(work)) for _ in range(2)]
        while not began.is_set():
            await asyncio.sleep(0.001)
        with pytest.raises(ProblemError) as told:
            await lane.run(work)
        assert told.value.code == "busy"
        tasks += [asyncio.create_task(lane.go_on(work))]  # an answer that has begun
        await asyncio.sleep(0)
        may.set()
        assert await asyncio.gather(*tasks) == ["done", "done", "done"]
        lane._timeout = 0.05
        may.clear()
        begun = asyncio.create_task(lane.go_on(work))
        with pytest.raises(ProblemError) as told:
            await lane.run(work)
        assert told.value.code == "timeout"
        assert not begun.done()
        may.set()
        assert await begun == "done"
        lane.close()

    asyncio.run(main())
