"""The server: a socket, the worker behind it or several of them, and its end."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import FrameType

from decaf.errors import ConfigError, DecafError, ModelError
from decaf.header import read_header
from decaf.serving.settings import ServeSettings

__all__ = ["serve"]

log = logging.getLogger(__name__)

_BACKLOG = 2_048
_FAILED = 3  # exit status of a worker that cannot begin
_PAUSE = 2.0  # seconds before a worker is tried anew where the one before could not begin
_SPARE = 5.0  # seconds that workers have to end after they have drained
_MEASURES = ("counter", "histogram", "gauge_livesum", "gauge_livemax", "gauge_livemostrecent")  # files of a worker
_ROOM = 1 << 16  # bytes of each


def serve(model: Path, settings: ServeSettings, *, announce: Callable[[str], None] = log.info) -> None:
    """Serve a model folder until SIGTERM or Ctrl-C; the address is announced."""
    read_header(model)
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        with _listening(settings) as listener:
            host, port = listener.getsockname()[:2]
            announce(f"serving {model} at http://{f'[{host}]' if ':' in host else host}:{port}")
            announce("open it in a browser to try the model; Ctrl-C ends it")
            if settings.workers == 1:
                _work(model, settings, listener)
            else:
                _supervise(model, settings, listener)
    except KeyboardInterrupt:
        log.info("ended")
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _leave(_number: int, _frame: FrameType | None) -> None:
    os._exit(0)  # an exception in the middle of an import would break it


def _listening(settings: ServeSettings) -> socket.socket:
    """A socket on which connections already wait."""
    try:
        family = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((settings.host, settings.port), family=family, backlog=_BACKLOG)
    except OSError as error:
        where = f"{settings.host}:{settings.port}"
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise ConfigError(f"{where}: cannot listen there ({why}); choose --host or --port") from error


def _supervise(model: Path, settings: ServeSettings, listener: socket.socket) -> None:
    """Keep so many workers running until told to end.

    It is the end of all if one of the first cannot begin. Of those that replace one that died, the others answer on
    while it is tried again: a model may stand there that is damaged, or half copied.
    """
    with tempfile.TemporaryDirectory(prefix="decaf-") as folder:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder  # read by workers: their measures meet there
        workers: list[SpawnProcess] = []
        try:
            workers.extend(_started(model, settings, listener) for _ in range(settings.workers))
            first = set(workers)
            failed: set[int] = set()  # places whose latest worker could not begin
            while True:
                wait([worker.sentinel for worker in workers])
                for at, worker in enumerate(workers):
                    if worker.is_alive():
                        continue
                    failed = {*failed, at} if worker.exitcode == _FAILED else failed - {at}
                    if at in failed and (worker in first or len(failed) == len(workers)):
                        raise ModelError("a worker could not begin; what it said stands above")
                    _bury(worker)
                    workers[at] = _started(model, settings, listener, pause=_PAUSE if at in failed else 0)
        finally:
            listener.close()  # new connections are refused at once, not left waiting
            _end(workers, settings.drain + _SPARE)
            del os.environ["PROMETHEUS_MULTIPROC_DIR"]


def _started(model: Path, settings: ServeSettings, listener: socket.socket, *, pause: float = 0) -> SpawnProcess:
    arguments = (model, settings, listener, pause)
    process = multiprocessing.get_context("spawn").Process(target=_work_for_another, args=arguments)
    process.start()
    return process


def _bury(worker: SpawnProcess) -> None:
    """Note the end of a worker, for which another one comes."""
    from prometheus_client.multiprocess import mark_process_dead

    log.warning("worker %d ended (%s); starting another", worker.pid, worker.exitcode)
    mark_process_dead(worker.pid)  # type: ignore[no-untyped-call]


def _end(workers: list[SpawnProcess], seconds: float) -> None:
    """Have workers drain; those that do not end in time are killed."""
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.join(seconds)
        if worker.is_alive():
            worker.kill()
            worker.join()


def _work(model: Path, settings: ServeSettings, listener: socket.socket) -> None:
    """Answer requests in this process."""
    from decaf.serving.worker import work  # torch and all: a supervisor does without

    work(model, settings, listener)


def _work_for_another(model: Path, settings: ServeSettings, listener: socket.socket, pause: float) -> None:
    """Answer requests in a process of a supervisor."""
    from decaf import console

    for number in (signal.SIGTERM, signal.SIGINT):  # until the server has its own way to end; nothing is lost yet
        signal.signal(number, _leave)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    time.sleep(pause)
    with console.session():
        _keep_room(Path(os.environ["PROMETHEUS_MULTIPROC_DIR"]))
        try:
            _work(model, settings, listener)
        except DecafError as error:
            log.error("%s", error)
            raise SystemExit(_FAILED) from None


def _keep_room(folder: Path) -> None:
    """Have the disk keep room for this worker's measures.

    They are mapped into memory; whoever writes there when the disk has filled up meanwhile is killed for it.
    """
    files = [folder / f"{kind}_{os.getpid()}.db" for kind in _MEASURES]
    try:
        for file in files:
            file.write_bytes(bytes(_ROOM))
    except OSError as error:
        log.warning("%s: measures of all workers cannot be kept (%s); this one counts alone", folder, error.strerror)
        for file in files:
            file.unlink(missing_ok=True)
        del os.environ["PROMETHEUS_MULTIPROC_DIR"]  # before it is read


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
