"""The soak: a short run of it, and that it would find what it looks for."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.append(str(Path(__file__).parents[2]))

from tools import soak
from tools.soak import MEGA, Client, Run, Sample, Tally, complaints, judge

FIRST = Sample(0, 400 * MEGA, 30, 12)


def samples(per_hour: float, *, minutes: float = 30, wave: float = 0.0) -> list[Sample]:
    """Memory that warms up by 80 MB in the first minutes, then grows at this rate, with noise and waves."""
    rng, found = random.Random(3), []
    for at in range(0, int(60 * minutes), 2):
        warm = 400 + 80 * min(at / 300, 1) + per_hour * at / 3600
        found.append(Sample(at, int(MEGA * (warm + rng.gauss(0, 2) + wave * (at % 120 > 90))), 30, 12))
    return found


def told(found: list[Sample], last: Sample | None = None, growth: float = 32.0) -> list[str]:
    return complaints(judge(7, found, FIRST, last or found[-1]), growth)


def test_flat_memory_is_flat_whatever_it_does_at_first_and_in_between() -> None:
    assert told(samples(0)) == []
    assert told(samples(0, wave=100)) == []
    judged = judge(7, samples(0), FIRST, samples(0)[-1])
    assert judged.mb_per_hour is not None
    assert abs(judged.mb_per_hour) < 5


@pytest.mark.parametrize("wave", [0, 100])
def test_a_slow_leak_is_found(wave: float) -> None:
    (complaint,) = told(samples(60, wave=wave))
    assert "process 7: memory grows by " in complaint
    judged = judge(7, samples(60, wave=wave), FIRST, FIRST)
    assert judged.mb_per_hour == pytest.approx(60, abs=8)


def test_a_short_run_says_nothing_of_memory() -> None:
    found = samples(1_000, minutes=9)
    assert judge(7, found, FIRST, found[-1]).mb_per_hour is None
    assert told(found) == []


def test_files_and_threads_that_stay_are_found() -> None:
    found = samples(0)
    assert told(found, FIRST._replace(files=38)) == []
    assert told(found, FIRST._replace(files=39)) == ["process 7: 39 open files at the end, 30 at first"]
    found[-5] = found[-5]._replace(threads=16)  # for a moment
    assert told(found) == []
    leaking = [one._replace(threads=12 + int(one.at // 600)) for one in found]  # one in ten minutes
    assert told(leaking) == ["process 7: 14 threads in the second half, 12 before"]


def test_a_process_is_measured() -> None:
    import os

    found = soak.sample(os.getpid(), 1.0)
    assert found is not None
    assert found.memory > 10 * MEGA
    assert found.files >= 3
    assert found.threads >= 1
    assert soak.sample(1 << 30, 1.0) is None
    assert soak.family(os.getpid())[0] == os.getpid()


def violations(answer: bytes, act: str, **kept: str) -> list[str]:
    """What a client holds against a server that always answers so."""

    async def go() -> list[str]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            tally = Tally()
            client = Client(server.sockets[0].getsockname()[1], "c", random.Random(0), tally, latest=1e9)
            client.kept |= kept
            await getattr(client, act)()
            await client.close()
        return tally.violations

    return asyncio.run(go())


def answered(status: str, body: bytes = b"{}") -> bytes:
    return f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


@pytest.mark.parametrize("act", ["one", "many", "table", "write", "remove", "check", "read", "bad"])
def test_a_server_that_fails_is_found_out_by_every_act(act: str) -> None:
    assert "500" in violations(answered("500 Failed"), act)[0]
    assert violations(b"", act)[0].endswith("no answer")
    assert violations(answered("503 Late"), act) == []


def test_wrong_answers_are_found_out() -> None:
    other = json.dumps({"predictions": [{"text": "another", "labels": []}]}).encode()
    assert violations(answered("200 OK", other), "one") == ["one: answers of other texts"]
    assert violations(answered("200 OK", b"text\n"), "table") == ["table: rows are missing"]
    mine = {f"c-{number}": "topic x" for number in range(soak.OWN)}
    (gone,) = violations(answered("404 Gone"), "check", **mine)
    assert gone.startswith("check: 404")
    changed = violations(answered("200 OK", b'{"text": "topic y", "predictions": [{"labels": []}]}'), "check", **mine)
    assert ["has another text" in changed[0], "is not predicted" in changed[1]] == [True, True]
    assert violations(answered("201 Made"), "write", **mine)[0].startswith("write: 201")


def test_a_lost_label_and_one_that_came_back_are_found() -> None:
    run = object.__new__(Run)
    run.tally = Tally()
    run.clients = [SimpleNamespace(kept={"a": "x", "b": "y"}, gone={"c", "d"})]  # type: ignore[list-item]
    run._compared({"a": "x", "b": "y", "else": "z"}, "here")
    assert run.tally.violations == []
    run._compared({"a": "x", "b": "other", "d": "z"}, "here")
    assert run.tally.violations == ["b is lost or has another text here", "d was removed and is there here"]


def test_a_short_soak_of_a_real_server_finds_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"IDLE": 3, "TIMEOUT": 8, "BURST": 60, "QUEUE": 5, "CROWD": 30}.items():
        monkeypatch.setattr(soak, name, value)
    options = ["--minutes", "0.1", "--every", "1", "--workers", "1", "--abusers", "2", "--slack", "1000", "--tell", "1"]
    assert soak.main([*options, "--json"]) == 0, capsys.readouterr().err
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert found["violations"] == []
    assert found["requests"] > 20
    assert found["bursts"]
    assert found["swaps"] > 0
    assert found["abuses"]
    assert found["processes"]
    assert "min  " in shown.err
    soak.show(found)
    assert "0 violations" in capsys.readouterr().out
