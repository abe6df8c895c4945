"""The service under load: one client, many clients, a live label, and memory over a long run.

    python -m benchmarks.serve MODEL DATASET [--seconds 10] [--requests 200000] [--save]

The service is a real process on the loopback, and the load comes from another process on the same machine. MODEL is a
folder that `decaf train DATASET` has made; texts are the dataset's test documents.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import parser, write_report
from decaf import Dataset

CLIENTS = (1, 8, 32)
LIVE = 50  # labels that are added while the service runs


class Client(asyncio.Protocol):
    """One connection that asks, waits for the answer, and asks again."""

    def __init__(self, requests: Sequence[bytes], until: float, most: int | None, times: list[float]) -> None:
        self._requests, self._until, self._left, self._times = requests, until, most, times
        self._at, self._began, self._buffer = 0, 0.0, b""
        self.refused = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - TCP
        self._transport = transport
        self._next()

    def _next(self) -> None:
        if self._left == 0 or time.perf_counter() > self._until:
            self._transport.close()
            return
        self._left = None if self._left is None else self._left - 1
        self._at = (self._at + 1) % len(self._requests)
        self._began = time.perf_counter()
        self._transport.write(self._requests[self._at])

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head = self._buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        lines = self._buffer[:head].lower().split(b"\r\n")
        length = next(int(line.partition(b":")[2]) for line in lines if line.startswith(b"content-length:"))
        if len(self._buffer) < head + 4 + length:
            return
        self.refused += self._buffer[9:12] != b"200"
        self._times.append(time.perf_counter() - self._began)
        self._buffer = b""
        self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        self.refused += exc is not None
        self.done.set_result(None)


async def load(
    port: int, texts: Sequence[str], clients: int, *, seconds: float = 1e9, requests: int | None = None
) -> dict[str, float]:
    """Ask for so long, or so often."""
    made = [request("POST", "/v1/predict", {"texts": [text]}) for text in texts]
    times: list[float] = []
    started = time.perf_counter()
    each = None if requests is None else requests // clients
    loop = asyncio.get_running_loop()
    asking = []
    for number in range(clients):
        making = partial(Client, made[number::clients], started + seconds, each, times)
        _, client = await loop.create_connection(making, "127.0.0.1", port)
        asking.append(client)
    await asyncio.gather(*(client.done for client in asking))
    p50, p99 = (float(value) for value in np.percentile(np.array(times) * 1000, [50, 99]))
    per_second = len(times) / (time.perf_counter() - started)
    refused = sum(client.refused for client in asking)
    rates = {"requests": len(times), "per_second": round(per_second), "errors": refused}
    return rates | {"p50": round(p50, 2), "p99": round(p99, 2)}


def request(method: str, path: str, body: dict[str, Any]) -> bytes:
    """An HTTP request."""
    content = json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


@contextmanager
def service(model: Path) -> Iterator[tuple[int, int]]:
    """The service as a process -> its port and process number; its live labels are its own."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "decaf", "serve", str(model), "--port", "0"]
        command += ["--labels", str(Path(folder) / "labels.sqlite")]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None  # noqa: S101 - piped
        try:
            port = next(int(line.rstrip().rpartition(":")[2]) for line in process.stderr if "at http" in line)
            while not _ready(port):
                time.sleep(0.05)
            yield port, process.pid
        finally:
            process.terminate()
            process.wait()


def _ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz") as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def ask(port: int, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """One request on a connection of its own."""
    wanted = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
        method=method,
    )
    with urllib.request.urlopen(wanted) as answer:  # noqa: S310 - our own server
        found: dict[str, Any] = json.loads(answer.read())
    return found


def live(port: int, texts: Sequence[str]) -> dict[str, float]:
    """Milliseconds from the acknowledgement of a new label to the first answer that has it, and how many have it."""
    waits = []
    for number, text in enumerate(texts[:LIVE]):
        ask(port, "PUT", f"/v1/labels/live-{number}", {"text": text})
        acknowledged = time.perf_counter()
        (found,) = ask(port, "POST", "/v1/predict", {"texts": [text], "top": 20})["predictions"]
        if any(label["id"] == f"live-{number}" for label in found["labels"]):
            waits.append(1000 * (time.perf_counter() - acknowledged))
    return {
        "added": LIVE,
        "predicted_at_once": len(waits),
        "p50": round(float(np.median(waits)), 2),
        "most": round(max(waits), 2),
    }


def resident(process: int) -> float:
    """Megabytes of memory that a process holds."""
    lines = Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1000


def main() -> None:
    options = parser(__doc__)
    options.add_argument("model", type=Path)
    options.add_argument("dataset")
    options.add_argument("--seconds", type=float, default=10)
    options.add_argument("--requests", type=int, default=200_000)
    arguments = options.parse_args()
    dataset = Dataset.load(arguments.dataset)
    texts = list((dataset.test.documents.texts or [])[:5000])
    figures: dict[str, Any] = {"dataset": dataset.name, "clients": {}, "memory_mb": {}}
    with service(arguments.model) as (port, process):
        for clients in CLIENTS:
            asyncio.run(load(port, texts, clients, seconds=1))  # to warm up
            figures["clients"][str(clients)] = asyncio.run(load(port, texts, clients, seconds=arguments.seconds))
            print(clients, figures["clients"][str(clients)], flush=True)
        figures["live"] = live(port, texts)
        print(figures["live"], flush=True)
        for part in range(4):
            figures["memory_mb"][str(part * arguments.requests // 4)] = round(resident(process), 1)
            asyncio.run(load(port, texts, 32, requests=arguments.requests // 4))
        figures["memory_mb"][str(arguments.requests)] = round(resident(process), 1)
    write_report(f"serve-{dataset.name}", 0, figures, save=arguments.save)


if __name__ == "__main__":
    main()
