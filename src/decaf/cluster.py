"""The parts of a batch made on a Ray cluster: a process for each worker, chunks handed out as workers become free."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from decaf.batch import Chunk, Engine, PartMaker, PartSettings
from decaf.errors import ConfigError, DecafError

__all__ = ["on_ray"]

log = logging.getLogger(__name__)

_AHEAD = 2  # chunks that a worker has to do or to come
_TRIES = 3  # of a chunk whose worker dies


def on_ray(workers: int | None = None) -> Engine:
    """An engine for `predict_file`; without a number, a worker for each core that the cluster has.

    The cluster is that of RAY_ADDRESS, or one that is begun here and ended with the work. The model's folder must be
    there on every machine, under the same path. A worker that dies is begun anew and its chunks are done again; parts
    are written here, each once.
    """

    def engine(settings: PartSettings, chunks: Iterator[Chunk]) -> Iterator[tuple[int, bytes]]:
        return _parts(_load_ray(), settings, chunks, workers)

    return engine


def _load_ray() -> Any:  # noqa: ANN401 - a package that may not be there
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # or it warns of how GPUs will be hidden one day
    try:
        import ray
    except ImportError as error:
        raise ConfigError("Ray is not installed; pip install 'decaf[scale]'") from error
    return ray


def _parts(
    ray: Any,  # noqa: ANN401 - a package that may not be there
    settings: PartSettings,
    chunks: Iterator[Chunk],
    workers: int | None,
) -> Iterator[tuple[int, bytes]]:
    """The parts as they are done; no more chunks are read than workers can soon begin."""
    began = not ray.is_initialized()
    if began:
        ray.init(log_to_driver=False, include_dashboard=False, logging_level=logging.ERROR)
    try:
        nodes = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
        threads = max(1, min(settings.threads, max(nodes)))  # a worker must fit on a machine
        room = max(1, sum(cores // threads for cores in nodes))
        count = min(workers or room, room)
        if workers and workers > room:
            log.warning("there is room for %d workers of %d threads, not for %d", room, threads, workers)
        absolute = dataclasses.replace(settings, model=str(Path(settings.model).resolve()), threads=threads)
        kind = ray.remote(PartMaker).options(num_cpus=threads, max_restarts=-1, max_task_retries=_TRIES)
        makers = [kind.remote(absolute) for _ in range(count)]
        log.info("%d workers on %d machines", count, len(nodes))
        yield from _handed_out(ray, makers, chunks)
    finally:
        if began:
            ray.shutdown()


def _handed_out(ray: Any, makers: list[Any], chunks: Iterator[Chunk]) -> Iterator[tuple[int, bytes]]:  # noqa: ANN401
    """Chunks go to workers that are there, as these become free."""
    doing: dict[Any, tuple[int | None, Any]] = {maker.make.remote([]): (None, maker) for maker in makers}
    while doing:
        (done,), _ = ray.wait(list(doing), num_returns=1)
        number, maker = doing.pop(done)
        try:
            content: bytes = ray.get(done)
        except ray.exceptions.RayError as error:
            raise _plain(error) from error
        for wanted, chunk in islice(chunks, _AHEAD if number is None else 1):
            doing[maker.make.remote(chunk)] = wanted, maker
        if number is not None:
            yield number, content


def _plain(error: Exception) -> DecafError:
    """What went wrong in a worker, in the words that it would have here."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, DecafError):
        return cause
    said = [line for line in str(error).splitlines() if line.strip()]
    return DecafError(f"a worker failed: {said[-1].strip() if said else type(error).__name__}")
