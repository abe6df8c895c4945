"""Keeping a run: what finished modules learned, where the running one stands, and the record of it all."""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from decaf.datasets.files import is_full
from decaf.errors import TrainingError

__all__ = ["Checkpoint", "Forgetful"]

log = logging.getLogger(__name__)

_SHARE = 0.05  # of the time that keeping the state of a running module may take
_KNOWN = {"checkpoint", "metrics.jsonl"}  # what a run that was stopped leaves
# What is there besides, if it was stopped while the model was written.
_MODEL = re.compile(
    r"(labels\.arrow|(tokenizer|features)\.json|instance-\d+\.safetensors)|"
    r"\.(labels\.arrow|(tokenizer|features|model)\.json|instance-\d+\.safetensors)\.part"
)


class Forgetful:
    """Keeps nothing: for runs that need no folder, and for ranks that are not the first."""

    due = False

    def restore(self, name: str, tensors: dict[str, Tensor]) -> int:
        """Nothing was kept."""
        return 0

    def keep(self, name: str, tensors: dict[str, Tensor], epochs: int) -> None:
        """Nothing is kept."""

    def note(self, **facts: float | str) -> None:
        """Nothing is written."""

    def broke(self, name: str) -> None:
        """Nothing is kept in mind."""

    def finished(self, name: str) -> dict[str, Tensor] | None:
        """Nothing was kept."""
        return None

    def result(self, name: str, make: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
        """What the module learns."""
        return make()


class Checkpoint:
    """Keeps a run in a folder; a file is written aside and renamed, so that what is there is always whole."""

    def __init__(
        self, folder: Path, fingerprint: str, device: torch.device, rates: Mapping[str, float] | None = None
    ) -> None:
        """The fingerprint says nothing of the rates of the modules: one may change where its module broke."""
        self._folder, self._device = folder / "checkpoint", device
        self._record = folder / "metrics.jsonl"
        self._next = time.monotonic()
        self._owner = self._folder / "run.json"
        if folder.exists() and (not folder.is_dir() or _others(folder, begun=self._owner.is_file())):
            raise TrainingError(f"{folder}: is there and holds something else; choose a new folder")
        for path in (self._folder, *(self._folder.iterdir() if self._folder.is_dir() else ()), self._record):
            if path.is_symlink() or (path.exists() and not path.is_file() and path != self._folder):
                raise TrainingError(f"{path}: is no file of a run; remove it, or choose another folder")
        self._run: dict[str, Any] = {"fingerprint": fingerprint, "rates": dict(rates or {})}
        if self._owner.is_file():
            self._go_on(folder)
        else:
            self._own()

    def _go_on(self, folder: Path) -> None:
        """Go on with what is there, if it is the same run: the rate of a module that broke may be another."""
        given = self._run["rates"]
        try:
            kept = json.loads(self._owner.read_text(encoding="utf-8"))
            changed = {name: kept["rates"][name] for name, rate in given.items() if kept["rates"][name] != rate}
            same = kept["fingerprint"] == self._run["fingerprint"] and changed.keys() <= {kept.get("broke")}
        except (ValueError, KeyError, TypeError, RecursionError, OSError) as error:
            advice = "remove the folder to begin anew, or choose another folder"
            raise TrainingError(f"{self._owner}: is damaged, so the run cannot go on; {advice}") from error
        if not same:
            raise TrainingError(
                f"{folder}: holds an unfinished run on other data or with other settings; "
                "run that one again, or choose another folder"
            )
        log.info("going on with the run in %s", folder)
        _drop_half_line(self._record)
        for name, before in changed.items():
            log.warning("%s: goes on with the rate %g; it began with %g", name, given[name], before)
            self.note(module=name, rate=given[name], rate_before=before)
            self._own()

    @property
    def due(self) -> bool:
        """Whether it is time to keep the state of a running module."""
        return time.monotonic() >= self._next

    def restore(self, name: str, tensors: dict[str, Tensor]) -> int:
        """Fill the tensors with what was kept of a running module; the number of epochs done."""
        path = self._path(name, "running")
        kept = self._read(path)
        if kept is None or {key: t.shape for key, t in kept.items()} != _shapes(tensors) | {_EPOCHS: (1,)}:
            return 0
        with torch.no_grad():
            for key, tensor in tensors.items():
                tensor.copy_(kept[key])
        return int(kept[_EPOCHS][0])

    def keep(self, name: str, tensors: dict[str, Tensor], epochs: int) -> None:
        """Keep the state of a running module, every now and then."""
        if self.due:
            began = time.monotonic()
            self._save(self._path(name, "running"), tensors | {_EPOCHS: torch.tensor([epochs])})
            ended = time.monotonic()
            self._next = ended + (ended - began) / _SHARE

    def note(self, **facts: float | str) -> None:
        """Write a line of the run's record."""
        try:
            with self._record.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps({"time": round(time.time(), 3), **facts}) + "\n")
        except OSError as error:
            raise _cannot_write(self._record, error) from error

    def broke(self, name: str) -> None:
        """The module cannot go on at its rate: the next run may have another."""
        self._run["broke"] = name.partition(",")[0]
        self._own()

    def finished(self, name: str) -> dict[str, Tensor] | None:
        """What a finished module learned; None where that was not kept."""
        return self._read(self._path(name, "done"))

    def result(self, name: str, make: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
        """What a module learned: read where it was kept, otherwise made and kept."""
        kept = self.finished(name)
        if kept is None:
            kept = make()
            self._save(self._path(name, "done"), kept)
            self._path(name, "running").unlink(missing_ok=True)
        return kept

    def finish(self) -> None:
        """The run is over: nothing of it needs to be kept."""
        for path in self._folder.iterdir():
            path.unlink()
        self._folder.rmdir()

    def _path(self, name: str, state: str) -> Path:
        return self._folder / f"{name.replace(' ', '-').replace(',', '')}.{state}.safetensors"

    def _save(self, path: Path, tensors: dict[str, Tensor]) -> None:
        whole = {key: tensor.detach().contiguous().cpu().clone() for key, tensor in tensors.items()}
        self._write(path, lambda aside: save_file(whole, aside))

    def _own(self) -> None:
        self._write(self._owner, lambda path: path.write_text(json.dumps(self._run), encoding="utf-8"))

    def _write(self, path: Path, write: Callable[[Path], Any]) -> None:
        aside = path.with_name(f"{path.name}.part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write(aside)
            aside.replace(path)
        except (OSError, SafetensorError) as error:
            aside.unlink(missing_ok=True)
            raise _cannot_write(path, error) from error

    def _read(self, path: Path) -> dict[str, Tensor] | None:
        if not path.is_file():
            return None
        try:
            with safe_open(path, framework="pt", device=str(self._device)) as stored:
                return {key: stored.get_tensor(key) for key in stored.keys()}  # noqa: SIM118 - no mapping
        except (OSError, SafetensorError) as error:
            log.warning("%s: is damaged and will be made again (%s)", path, error)
            return None


_EPOCHS = "epochs"


def _cannot_write(path: Path, error: OSError | SafetensorError) -> TrainingError:
    """The error for a file of a run."""
    full = isinstance(error, SafetensorError) or is_full(error)
    again = "make room and run the same command again: it goes on from here"
    return TrainingError(f"{path}: cannot be written ({error}); {again if full else 'choose another folder'}")


def _others(folder: Path, *, begun: bool) -> list[str]:
    """What does not come from a run that was stopped."""
    names = [path.name for path in folder.iterdir() if path.name not in _KNOWN]
    return [name for name in names if not (begun and _MODEL.fullmatch(name))]


def _drop_half_line(record: Path) -> None:
    """Take off what was being written when the run was stopped."""
    content = record.read_bytes() if record.is_file() else b""
    if content and not content.endswith(b"\n"):
        os.truncate(record, content.rfind(b"\n") + 1)


def _shapes(tensors: dict[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {key: tuple(tensor.shape) for key, tensor in tensors.items()}
