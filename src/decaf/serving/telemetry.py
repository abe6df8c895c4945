"""What is counted and measured, for Prometheus and for the page."""

from __future__ import annotations

import os
from collections import deque
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

__all__ = ["Telemetry"]

_SECONDS = (
    *(0.00025, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075),
    *(0.01, 0.02, 0.035, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_REMEMBERED = 2_000  # answer times


class Telemetry:
    """The measures of one worker; where there are several, the text for Prometheus is that of all."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self._requests = Counter(
            "decaf_requests", "Requests by route and status.", ("route", "status"), registry=registry
        )
        self._seconds = Histogram(
            "decaf_request_seconds", "Answer times by route.", ("route",), buckets=_SECONDS, registry=registry
        )
        self._batches = Histogram("decaf_batch_texts", "Texts scored together.", buckets=_SIZES, registry=registry)
        self._texts = Counter("decaf_texts", "Texts scored.", registry=registry)
        self._queue = Gauge(
            "decaf_queue_requests", "Requests that wait to be scored.", registry=registry, multiprocess_mode="livesum"
        )
        self._model = Gauge(
            "decaf_model_info",
            "1 for the version of the model that is served.",
            ("version",),
            registry=registry,
            multiprocess_mode="livemax",
        )
        self._live = Gauge(
            "decaf_live_labels", "Labels added or hidden here.", registry=registry, multiprocess_mode="livemostrecent"
        )
        self._reloads = Counter("decaf_reloads", "Models loaded, by outcome.", ("outcome",), registry=registry)
        self._connections = Gauge(
            "decaf_connections", "Connections that are open.", registry=registry, multiprocess_mode="livesum"
        )
        self._cuts = Counter(
            "decaf_connections_closed", "Connections that were closed here, by reason.", ("reason",), registry=registry
        )
        self._latest: deque[float] = deque(maxlen=_REMEMBERED)
        self._counted = cache(self._requests.labels)
        self._timed = cache(self._seconds.labels)
        self._version = ""

    def request(self, route: str, status: int, seconds: float) -> None:
        """A request was answered."""
        self._counted(route, status).inc()
        self._timed(route).observe(seconds)
        if route == "/v1/predict" and status == 200:
            self._latest.append(seconds)

    def batch(self, texts: int) -> None:
        """So many texts are scored together."""
        self._batches.observe(texts)
        self._texts.inc(texts)

    def queue(self, requests: int) -> None:
        """So many requests wait."""
        self._queue.set(requests)

    def connections(self, count: int) -> None:
        """So many connections are open."""
        self._connections.set(count)

    def cut(self, reason: str) -> None:
        """A connection was closed that its client would have kept."""
        self._cuts.labels(reason).inc()

    def labels(self, count: int) -> None:
        """So many labels were added or hidden."""
        self._live.set(count)

    def loaded(self, version: str) -> None:
        """Another model is served."""
        self._reloads.labels("loaded").inc()
        if self._version:
            self._model.labels(self._version).set(0)
        self._version = version
        self._model.labels(version).set(1)

    def refused(self) -> None:
        """A model could not be loaded."""
        self._reloads.labels("refused").inc()

    def latency(self) -> dict[str, float]:
        """Answer times of the latest predictions, in milliseconds."""
        times = sorted(self._latest)
        last = len(times) - 1
        marks = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
        return {"count": len(times)} | {
            name: round(1000 * times[round(mark * last)], 3) if times else 0.0 for name, mark in marks.items()
        }

    def text(self) -> bytes:
        """All measures as Prometheus reads them."""
        if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            return generate_latest(self._registry)
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)
