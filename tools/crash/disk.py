"""A disk that is full: a small file system of its own where root allows that, otherwise files that may not grow."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["Disk", "open_disk"]

_SIZE = 96 << 20  # bytes of a disk


class Disk:
    """A folder whose disk can be filled and emptied."""

    def __init__(self, folder: Path, *, own: bool) -> None:
        self.folder = folder
        self.own = own  # whether it is a file system of its own
        self.most: int | None = None  # bytes that a file may have, where it is not
        self._ballast = folder / ".ballast"

    @property
    def kind(self) -> str:
        """What is done to fill it."""
        return "tmpfs" if self.own else "file size limit"

    def fill(self, left: int, processes: Iterable[int] = ()) -> None:
        """Leave so many bytes; where files are limited, also those of processes that run already."""
        if not self.own:
            self._limit(left, processes)
            return
        facts = os.statvfs(self.folder)
        room = facts.f_bavail * facts.f_frsize - left
        if room > 0:
            with self._ballast.open("wb") as stream:
                os.posix_fallocate(stream.fileno(), 0, room)

    def free(self, processes: Iterable[int] = ()) -> None:
        """Make room."""
        self._ballast.unlink(missing_ok=True)
        if not self.own:
            self._limit(None, processes)

    def _limit(self, most: int | None, processes: Iterable[int]) -> None:
        self.most = most
        for pid in processes:
            with suppress(ProcessLookupError):
                _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard if most is None else most, hard))


@contextmanager
def open_disk(folder: Path, *, mount: bool = True) -> Iterator[Disk]:
    """A disk at this place; `mount`: as a file system, if that is allowed.

    It is gone afterwards with all that is on it; where something failed, a copy of that is left beside it.
    """
    folder.mkdir()
    own = mount and _run("mount", "-t", "tmpfs", "-o", f"size={_SIZE}", "decaf-crash", str(folder))
    disk = Disk(folder, own=own)
    try:
        yield disk
    except Exception:
        disk.free()
        if own:
            shutil.copytree(folder, folder.with_name(f"{folder.name}-kept"))
        raise
    finally:
        disk.free()
        if own:
            _run("umount", "--lazy", str(folder))


def _run(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False
