"""Runs: done in processes of their own, kept by content, so that a report stopped anywhere goes on."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from decaf.config import recipe
from decaf.experiments.peers_worker import SYSTEMS as PEERS
from decaf.experiments.plan import Job
from decaf.experiments.provenance import peers_digest, source_digest
from decaf.experiments.systems import SYSTEMS
from decaf.experiments.work import Task
from decaf.progress import progress

__all__ = ["Outcome", "Runner"]

log = logging.getLogger(__name__)

_FORMAT = 1


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    job: Job
    result: dict[str, Any] | None  # what it found
    trouble: str = ""  # why there is no result
    folder: Path | None = None
    kept: bool = field(default=False, compare=False)  # from before


@dataclass
class Runner:
    """Does jobs on one dataset; what was done before is not done again."""

    dataset: str  # its path
    content: str  # its fingerprint
    folder: Path  # of all runs
    device: str  # cpu or cuda
    threads: int  # of each run
    at_a_time: int = 1
    limit: float = 0.0  # seconds for a run; 0: none
    python: Path | None = None  # the peers' interpreter
    missing: Mapping[str, str] = field(default_factory=dict)  # why peers are not there
    _alive: set[subprocess.Popen[bytes]] = field(default_factory=set, init=False, repr=False)
    _stopped: bool = field(default=False, init=False, repr=False)  # nothing is started any more
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def run(self, jobs: Sequence[Job]) -> list[Outcome]:
        """All outcomes, in the order of the jobs; a run that fails does not stop the others."""
        done: dict[Job, Outcome] = {}
        waiting = list(jobs)
        with ThreadPoolExecutor(self.at_a_time) as pool, self._ended(), progress("runs", len(jobs)) as advance:
            running: dict[Future[Outcome], Job] = {}
            while waiting or running:
                while len(running) < self.at_a_time and (job := _next(waiting, running.values())) is not None:
                    waiting.remove(job)
                    needed = _needed(job)
                    running[pool.submit(self._outcome, job, None if needed is None else done.get(needed))] = job
                finished, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    job = running.pop(future)
                    done[job] = future.result()
                    level = logging.INFO if done[job].result is not None else logging.WARNING
                    log.log(level, "%d of %d: %s", len(done), len(jobs), _told(done[job]))
                    advance(1)
        return [done[job] for job in jobs]

    def lacking(self, jobs: Sequence[Job]) -> list[Job]:
        """The jobs that were not done before."""
        return [job for job in jobs if _read(self.folder / self.key(job) / "result.json") is None]

    def key(self, job: Job) -> str:
        """A name for a run: its data, settings, seed and source."""
        system = SYSTEMS[job.system]
        settings: Any = system.settings
        if system.maker == "decaf":
            settings = [recipe(system.recipe).to_json(), settings, self.device]
        elif job.system in PEERS:
            settings = [PEERS[job.system].settings, asdict(recipe().features)]
        source = peers_digest() if job.system in PEERS else source_digest()
        content = [_FORMAT, self.content, asdict(job), settings, source]
        digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]
        return f"{job.kind}-{job.system}-{job.labels or 'all'}-{job.seed}-{digest}"

    def _outcome(self, job: Job, needed: Outcome | None) -> Outcome:
        maker, folder = SYSTEMS[job.system].maker, self.folder / self.key(job)
        if (known := _read(folder / "result.json")) is not None:
            return Outcome(job, known, folder=folder, kept=True)
        if trouble := self.missing.get(maker):
            return Outcome(job, None, f"{maker} cannot be installed: {trouble}")
        if job.kind == "metadata" and (needed is None or needed.folder is None):
            return Outcome(job, None, f"{SYSTEMS[job.system].title} has no predictions to combine")
        late = _read(folder / "late.json")
        if late is not None and 0 < self.limit <= late["limit"] and self.threads <= late["threads"]:
            return Outcome(job, None, f"took more than {late['limit']:g} s")
        return self._made(job, folder, "" if needed is None else str(needed.folder))

    def _made(self, job: Job, folder: Path, scores: str) -> Outcome:
        """Run it in a process of its own."""
        folder.mkdir(parents=True, exist_ok=True)
        task = Task(
            job,
            dataset=self.dataset,
            folder=str(folder),
            device=self.device,
            threads=self.threads,
            beside=self.at_a_time,
            parent=os.getpid(),
            content=self.content,
            source=source_digest(),
            python=str(self.python or ""),
            scores=scores,
        )
        (folder / "task.json").write_text(json.dumps(asdict(task), indent=1) + "\n", encoding="utf-8")
        with (folder / "log.txt").open("w", encoding="utf-8") as output:
            in_time = self._wait(folder / "task.json", output.fileno())
        if (found := _read(folder / "result.json")) is not None:
            return Outcome(job, found, folder=folder)
        if not in_time:
            (folder / "late.json").write_text(
                json.dumps({"limit": self.limit, "threads": self.threads}) + "\n", encoding="utf-8"
            )
            return Outcome(job, None, f"took more than {self.limit:g} s")
        return Outcome(job, None, _last_line(folder / "log.txt"))

    def _wait(self, task: Path, output: int) -> bool:
        """Whether the process ended in time; it is gone in any case."""
        command = [sys.executable, "-m", "decaf.experiments.work", str(task)]
        threads = {"OMP_NUM_THREADS": str(self.threads), "OPENBLAS_NUM_THREADS": str(self.threads)}
        # In a session of its own, so that all that it starts can be ended with it.
        with self._lock:
            if self._stopped:
                return True
            process = subprocess.Popen(  # noqa: S603 - our own words
                command, stdout=output, stderr=output, env=os.environ | threads, start_new_session=True
            )
            self._alive.add(process)
        try:
            process.wait(self.limit or None)
        except subprocess.TimeoutExpired:
            return False
        finally:
            _end(process)
            with self._lock:
                self._alive.discard(process)
        return True

    @contextmanager
    def _ended(self) -> Iterator[None]:
        """No process is left behind, whatever happens."""
        try:
            yield
        except BaseException:
            with self._lock:
                self._stopped = True
                for process in self._alive:
                    _end(process)
            raise


def _next(waiting: Sequence[Job], running: Collection[Job]) -> Job | None:
    """The first job that needs no other which is yet to be done."""
    yet = {*waiting, *running}
    return next((job for job in waiting if _needed(job) not in yet), None)


def _needed(job: Job) -> Job | None:
    """The run whose predictions a job takes."""
    return Job("judge", job.system, job.seed, job.labels) if job.kind == "metadata" else None


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if os.name == "posix":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    process.wait()


def _read(file: Path) -> dict[str, Any] | None:
    """What a file holds, if it is there and whole."""
    try:
        content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content


def _last_line(file: Path) -> str:
    lines = [line for line in file.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else "ended without a word"


def _told(outcome: Outcome) -> str:
    """One line about a run."""
    job = outcome.job
    what = {"judge": "", "metadata": " with label text", "theorem": ": the theorem"}[job.kind]
    some = f", {job.labels:,} labels" if job.labels else ""
    name = f"{SYSTEMS[job.system].title}{what}{some}, seed {job.seed}"
    if outcome.result is None:
        return f"{name}: {outcome.trouble}"
    metrics, seconds = outcome.result.get("metrics"), outcome.result.get("training_seconds")
    precision = f", P@1 {metrics['P@1']:.2f}" if metrics else ""
    trained = "" if seconds is None else f", trained in {seconds:.1f} s"
    return f"{name}: {'kept from before' if outcome.kept else 'done'}{precision}{trained}"
