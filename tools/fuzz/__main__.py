"""The command: spoil many files, read each in a process with limits, and keep what went wrong."""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.fuzz.seeds import KINDS, make_seeds

__all__ = ["Limits", "Report", "fuzz", "main", "replay"]

_ROOT = Path(__file__).parents[2]
_CASES = 2000  # of one process
_START = 900.0  # seconds until a process is ready: loops may have to be compiled


@dataclass(frozen=True)
class Limits:
    """What one file may take."""

    seconds: float = 30.0  # of wall time
    room: int = 1024  # MiB of address space beside what the process has when it begins


@dataclass
class Report:
    """What became of the files."""

    files: Counter[str] = field(default_factory=Counter)  # by kind
    used: Counter[str] = field(default_factory=Counter)  # could be read, and were used
    faults: list[dict[str, Any]] = field(default_factory=list)
    grown: int = 0  # MiB, the most that one file took
    seconds: float = 0.0

    def lines(self) -> Iterator[str]:
        """The report as a table."""
        yield f"{'kind':16}{'files':>8}{'used':>8}{'refused':>9}{'faults':>8}"
        bad = Counter(fault["case"]["kind"] for fault in self.faults)
        for kind, count in sorted(self.files.items()):
            refused = count - self.used[kind] - bad[kind]
            yield f"{kind:16}{count:8}{self.used[kind]:8}{refused:9}{bad[kind]:8}"
        total, used, faults = sum(self.files.values()), sum(self.used.values()), len(self.faults)
        yield f"{'all':16}{total:8}{used:8}{total - used - faults:9}{faults:8}"
        kinds = Counter(fault["fault"] for fault in self.faults)
        yield f"{self.seconds:.0f} s; most memory for one file: {self.grown} MiB; faults: {dict(kinds) or 'none'}"


class _Worker:
    """A process that reads spoiled folders; a new one takes its place when it has gone."""

    def __init__(self, seeds: Path, scratch: Path, limits: Limits) -> None:
        self._arguments = [str(seeds), str(scratch), str(limits.room)]
        self._limits, self._scratch = limits, scratch
        self._process: subprocess.Popen[bytes] | None = None
        self._done = 0

    def ask(self, task: dict[str, Any]) -> dict[str, Any]:
        """What became of a case."""
        if self._process is None or self._done >= _CASES:
            self.close()
            self._begin()
        process = self._process
        assert process is not None and process.stdin is not None  # noqa: PT018, S101 - it was begun
        process.stdin.write(json.dumps(task).encode() + b"\n")
        process.stdin.flush()
        self._done += 1
        answer = self._answer(self._limits.seconds)
        if answer is None:
            ended = process.poll()
            self.close()
            last = (self._scratch / "log.txt").read_bytes()[-2000:].decode("utf-8", "replace")
            if ended is None:
                return {"fault": "hang", "told": f"no answer in {self._limits.seconds} s"}
            name = signal.Signals(-ended).name if ended < 0 else f"exit code {ended}"
            return {"fault": "crash", "told": f"{name}\n{last}"}
        return answer

    def _begin(self) -> None:
        self._scratch.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-X", "faulthandler", "-m", "tools.fuzz.worker", *self._arguments]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
        with (self._scratch / "log.txt").open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment, cwd=_ROOT
            )
        self._done = 0
        if self._answer(_START) is None:
            log_text = (self._scratch / "log.txt").read_text(encoding="utf-8", errors="replace")
            raise RuntimeError(f"a process does not begin: {log_text[-3000:]}")

    def _answer(self, seconds: float) -> dict[str, Any] | None:
        """One line, or nothing if the process ends or takes too long."""
        assert self._process is not None and self._process.stdout is not None  # noqa: PT018, S101 - it was begun
        stream, line, until = self._process.stdout, b"", time.monotonic() + seconds
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([stream], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                return None
            part = os.read(stream.fileno(), 1 << 16)
            if not part:
                self._process.wait()
                return None
            line += part
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    try:
                        stream.close()
                    except BrokenPipeError:
                        continue
            self._process = None


def fuzz(
    files: int,
    seed: int,
    keep: Path,
    *,
    kinds: Sequence[str] = KINDS,
    seconds: float = 0.0,
    workers: int = 1,
    limits: Limits | None = None,
    say: bool = False,
) -> Report:
    """Spoil so many files of these kinds, in turn, until the time is up; folders that do harm are kept."""
    report, lock, began = Report(), threading.Lock(), time.monotonic()
    tasks = iter([{"kind": kinds[at % len(kinds)], "seed": seed, "number": at // len(kinds)} for at in range(files)])
    with tempfile.TemporaryDirectory(prefix="fuzz-", ignore_cleanup_errors=True) as scratch:
        seeds = Path(scratch) / "seeds"
        make_seeds(seeds)

        def drive(number: int) -> None:
            worker = _Worker(seeds, Path(scratch) / f"worker-{number}", limits or Limits())
            try:
                while not seconds or time.monotonic() < began + seconds:
                    with lock:
                        task = next(tasks, None)
                    if task is None:
                        return
                    answer = worker.ask(task)
                    with lock:
                        _note(report, task, answer, seeds, keep, say)
            finally:
                worker.close()

        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(drive, range(workers)))
    report.seconds = time.monotonic() - began
    return report


def _note(report: Report, task: dict[str, Any], answer: dict[str, Any], seeds: Path, keep: Path, say: bool) -> None:
    kind = str(task["kind"])
    report.files[kind] += 1
    report.used[kind] += answer["told"] == "used"
    report.grown = max(report.grown, answer.get("grown", 0))
    if not answer["fault"]:
        return
    folder = keep.resolve() / f"{kind}-{task['seed']}-{task['number']}"
    if not folder.exists():
        folder.mkdir(parents=True)
        given = (seeds, kind, task["seed"], task["number"], folder / "files")  # made anew, as it was before it was read
        with (folder / "case.json").open("wb") as out:
            command = [sys.executable, "-m", "tools.fuzz.mutations", *map(str, given)]
            subprocess.run(command, stdout=out, check=False, cwd=_ROOT)
        (folder / "told.txt").write_text(f"{answer['fault']}\n{answer['told']}\n", encoding="utf-8")
    report.faults.append({"case": task, "fault": answer["fault"], "told": answer["told"], "folder": str(folder)})
    if say:
        print(f"{answer['fault']}: {folder}\n{answer['told']}", flush=True)


def replay(folders: Sequence[Path], limits: Limits | None = None) -> list[dict[str, Any]]:
    """What becomes of folders that were kept."""
    with tempfile.TemporaryDirectory(prefix="fuzz-", ignore_cleanup_errors=True) as scratch:
        worker = _Worker(Path(scratch), Path(scratch) / "worker", limits or Limits())
        try:
            return [worker.ask({"folder": str(folder.resolve())}) for folder in folders]
        finally:
            worker.close()


def main() -> None:
    """Spoil files, or read again what was kept."""
    shown = argparse.ArgumentDefaultsHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz", description=__doc__, formatter_class=shown)
    parser.add_argument("--files", type=int, default=20_000, help="how many to spoil")
    parser.add_argument("--seed", type=int, default=0, help="another seed spoils them otherwise")
    parser.add_argument("--seconds", type=float, default=1500.0, help="stop after so long; 0: when all are done")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes at once")
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=KINDS, help="what to spoil; all")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-faults"), help="where folders that do harm are kept")
    parser.add_argument("--timeout", type=float, default=Limits.seconds, help="seconds for one file")
    parser.add_argument("--room", type=int, default=Limits.room, help="MiB for one file")
    parser.add_argument("--replay", type=Path, metavar="FOLDER", help="read a folder that was kept again")
    chosen = parser.parse_args()
    limits = Limits(chosen.timeout, chosen.room)
    if chosen.files < 1:
        parser.error("--files begins at 1")
    if chosen.replay is not None:
        if not (chosen.replay / "case.json").is_file():
            parser.error(f"--replay: {chosen.replay} holds no case.json; folders that do harm are kept with one")
        (answer,) = replay([chosen.replay], limits)
        print(answer["fault"] or "no fault", answer["told"], sep="\n")
        sys.exit(1 if answer["fault"] else 0)
    given = {"kinds": chosen.kinds, "seconds": chosen.seconds, "workers": chosen.workers, "limits": limits}
    report = fuzz(chosen.files, chosen.seed, chosen.keep, say=True, **given)
    print(*report.lines(), sep="\n")
    if (left := chosen.files - sum(report.files.values())) > 0:
        print(f"{chosen.seconds:g} s are over: {left} files were not spoiled")
    if report.faults:
        print(f"kept in {chosen.keep}; again: python -m tools.fuzz --replay {report.faults[0]['folder']}")
    if report.faults or not report.files:
        sys.exit(1)


if __name__ == "__main__":
    main()
