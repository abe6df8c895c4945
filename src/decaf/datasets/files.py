"""Reading and writing files so that a bad one is named and a half-written one never stays."""

from __future__ import annotations

import errno
import gzip
import json
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from decaf.config import too_deep
from decaf.errors import ConfigError, DataError
from decaf.progress import Advance, progress

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = [
    "find_file",
    "is_full",
    "most_bytes",
    "new_folder",
    "open_bytes",
    "read_bytes",
    "read_json",
    "read_lines",
    "read_records",
    "share",
    "too_large",
]

_UNPACKED = 256 << 20  # bytes that any file may unpack to
_RATIO = 100  # and times its size; texts seldom shrink to a tenth


def find_file(folder: Path, *names: str) -> Path | None:
    """The first of these files that is there, plain or with `.gz` behind its name."""
    for name in names:
        for path in (folder / name, folder / f"{name}.gz"):
            if path.is_file():
                return path
    return None


def most_bytes(path: Path) -> int:
    """What a file may unpack to, or promise in its header, in bytes: $DECAF_UNPACKED, or by its size."""
    chosen = os.environ.get("DECAF_UNPACKED", "")
    if chosen and not (chosen.isascii() and chosen.isdecimal() and 0 < int(chosen) < 1 << 63):
        raise ConfigError(f"DECAF_UNPACKED must be a number of bytes, not {chosen!r}")
    return int(chosen) if chosen else max(_UNPACKED, _RATIO * path.stat().st_size)


def too_large(path: Path, most: int) -> DataError:
    """The error for a file that takes far more memory than its size lets expect."""
    expected = f"{path.stat().st_size:,} bytes that would take more than {most:,}"
    return DataError(f"{path}: has {expected}; if you trust it, set DECAF_UNPACKED to the bytes it may take")


@contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """Open a plain or gzipped file for reading, with progress; whatever is wrong with the bytes is a DataError."""
    try:
        with path.open("rb") as file, progress(f"reading {path.name}", path.stat().st_size) as advance:
            watched = BufferedReader(_Watched(file, advance), 1 << 16)
            stream: Any = watched
            if path.suffix == ".gz":
                stream = BufferedReader(_Bounded(gzip.GzipFile(fileobj=watched), path), 1 << 16)
            with stream:
                yield stream
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        problem = "is cut short" if isinstance(error, EOFError) else f"is not valid gzip ({error})"
        raise DataError(f"{path}: {problem}; fetch or write the file again") from error
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror or error}); check that you may read it, and that it is a file"
        ) from error


class _Watched(RawIOBase):
    """A file that reports how many bytes were read from it."""

    def __init__(self, file: IO[bytes], advance: Advance) -> None:
        self._file = file
        self._advance = advance

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer)
        data = self._file.read(len(view))
        view[: len(data)] = data
        self._advance(len(data))
        return len(data)


class _Bounded(RawIOBase):
    """A packed file that does not give more than it may."""

    def __init__(self, stream: gzip.GzipFile, path: Path) -> None:
        self._stream, self._path = stream, path
        self._most = self._left = most_bytes(path)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        count = self._stream.readinto(buffer)
        self._left -= count
        if self._left < 0:
            raise too_large(self._path, self._most)
        return count


def read_bytes(path: Path) -> bytes:
    """A whole plain or gzipped file."""
    with open_bytes(path) as stream:
        return stream.read()


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a UTF-8 file with their numbers, from 1, and their line ends."""
    with open_bytes(path) as stream:
        for number, line in enumerate(stream, start=1):
            try:
                yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                problem = f"byte {error.object[error.start]:#04x} at column {error.start + 1} is not UTF-8"
                raise DataError.at(path, number, f"{problem}; save the file as UTF-8") from error


def read_records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSON lines file with their line numbers; blank lines are passed over."""
    for line, text in read_lines(path):
        if not text.strip():
            continue
        try:
            record = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise DataError.at(path, line, f"is not JSON ({error}); expected one object a line") from error
        if not isinstance(record, dict):
            raise DataError.at(path, line, f"expected a JSON object, found {text[:40].strip()!r}")
        yield line, record


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file that holds one object."""
    try:
        value = json.loads(read_bytes(path).decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: is not JSON ({error})") from error
    if not isinstance(value, dict):
        raise DataError(f"{path}: expected a JSON object, found {str(value)[:40]!r}")
    if too_deep(value):
        raise DataError(f"{path}: is nested too deeply")
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise DataError(f"{path}: is not valid Unicode ({error.reason})") from error
    return value


@contextmanager
def new_folder(target: Path, *, replace: bool = False) -> Iterator[Path]:
    """A folder to fill, moved to `target` when the block ends well; otherwise nothing is left behind.

    An existing target is refused, unless it is an empty folder or `replace` says that it may go.
    """
    if target.exists() and not replace and (not target.is_dir() or any(target.iterdir())):
        raise DataError(f"{target}: is already there; choose another place or remove it first")
    made = [folder for folder in target.parents if not folder.exists()]  # innermost first
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise DataError(f"{target.parent}: cannot be written ({error.strerror}); choose another place") from error
    try:
        share(aside)
        yield aside
        if target.is_dir():
            shutil.rmtree(target)
        aside.replace(target)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        for folder in made:
            with suppress(OSError):  # somebody else uses it by now
                folder.rmdir()
        raise


def is_full(error: OSError) -> bool:
    """Whether something could not be written for want of room: on the disk, of a quota, or in a file."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def share(path: Path) -> None:
    """Give a file or folder that a library made for its owner alone the usual permissions."""
    mask = os.umask(0)
    os.umask(mask)
    path.chmod((0o777 if path.is_dir() else 0o666) & ~mask)
