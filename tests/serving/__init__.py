"""Tests of the service: a real process over a real socket, or its application in this process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

PATIENCE = 120.0  # seconds for what takes a few where the machine is busy


@dataclass
class Running:
    """A server in a process of its own."""

    process: subprocess.Popen[bytes]
    client: httpx.Client
    log: Path

    @property
    def port(self) -> int:
        port = self.client.base_url.port
        assert port is not None
        return port

    def predict(self, *texts: str, **wishes: object) -> Any:  # noqa: ANN401
        """The labels of each text."""
        answer = self.client.post("/v1/predict", json={"texts": texts, **wishes})
        assert answer.status_code == 200, answer.text
        return [one["labels"] for one in answer.json()["predictions"]]

    def ids(self, text: str, **wishes: object) -> list[str]:
        return [label["id"] for label in self.predict(text, **wishes)[0]]

    def version(self) -> str:
        version: str = self.client.get("/v1/model").json()["version"]
        return version

    def end(self, number: int = signal.SIGTERM) -> int:
        """The exit status after a signal."""
        os.kill(self.process.pid, number)
        return self.process.wait(PATIENCE)


def until(true: Any, what: str) -> None:  # noqa: ANN401
    """Wait for something that comes soon."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, f"{what} did not come"
        time.sleep(0.02)


def launch(model: Path, log: Path, **settings: object) -> subprocess.Popen[bytes]:
    """A server's process, which may fail; settings are options of the verb."""
    command = [sys.executable, "-m", "decaf", "serve", str(model)]
    for name, value in {"port": 0, **settings}.items():
        option = name.replace("_", "-")
        if isinstance(value, bool):
            command.append(f"--{option}" if value else f"--no-{option}")
        else:
            command += [f"--{option}", str(value)]
    with log.open("wb") as stream:
        return subprocess.Popen(command, stdout=stream, stderr=stream)


@contextmanager
def running(model: Path, *, ready: bool = True, **settings: object) -> Iterator[Running]:
    """A server that is ready, and gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        process = launch(model, log, **{"labels": f"{folder}/labels.sqlite", **settings})
        try:
            until(lambda: b"serving " in log.read_bytes() or process.poll() is not None, "the address")
            told = log.read_text()
            assert process.poll() is None, told
            address = told.split(" at ")[1].split()[0]
            with httpx.Client(base_url=address, timeout=PATIENCE) as client:
                until(lambda: not ready or client.get("/readyz").status_code == 200, "the model")
                yield Running(process, client, log)
        finally:
            process.kill()
            process.wait()


def problem(answer: httpx.Response) -> tuple[int, str]:
    """The status and code of a refusal, which is as the standard wants it."""
    assert answer.headers["content-type"] == "application/problem+json"
    facts = answer.json()
    assert set(facts) == {"type", "title", "status", "detail", "code"}
    assert facts["status"] == answer.status_code
    assert facts["detail"]
    return answer.status_code, facts["code"]
