"""Where to compute: the device of a name, how much memory it has free, and keeping what was had."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from decaf.errors import ConfigError

__all__ = ["choose_device", "few_heaps", "free_memory", "hand_back", "memory_kept", "on_gpu"]

# glibc's malloc: the option's number, its value while memory is kept, and its default.
_TRIM_THRESHOLD = (-1, -1, 128 * 1024)
_MMAP_MAX = (-4, 0, 65536)
_ARENA_MAX = -8


def choose_device(name: str) -> torch.device:
    """The device of this name; "auto" takes a GPU where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"there is no device {name!r}; choose auto, cpu or cuda") from error
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"the device {name!r} is not supported; choose auto, cpu or cuda")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError("no GPU can be used here; choose the device cpu, or auto")
    return device


def on_gpu(device: torch.device) -> bool:
    """Whether steps are recorded once and replayed there, so that tensors must keep their shapes."""
    return device.type == "cuda"


def free_memory(device: torch.device) -> int | None:
    """Bytes that can be had on the device; None where the system does not tell."""
    if on_gpu(device):
        return torch.cuda.mem_get_info(device)[0]
    meminfo = Path("/proc/meminfo")
    if meminfo.is_file():
        for line in meminfo.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    if hasattr(os, "sysconf") and "SC_AVPHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


@contextmanager
def memory_kept() -> Iterator[None]:
    """Large arrays that are freed stay with the process, for the next ones.

    Otherwise glibc hands them back to the system at once, which must clear the pages of each new one: that takes
    longer than most of what a training step does with them. Elsewhere nothing is changed.
    """
    options = (_TRIM_THRESHOLD, _MMAP_MAX)
    for option, kept, _ in options:
        _set_malloc(option, kept)
    try:
        yield
    finally:
        for option, _, default in options:
            _set_malloc(option, default)


def few_heaps() -> None:
    """Have all threads of this process take their memory from two heaps, where glibc would make eight a core.

    Each heap keeps what it once grew to, so memory goes up with their number under load that comes and goes.
    Elsewhere nothing is changed.
    """
    _set_malloc(_ARENA_MAX, 2)


def hand_back() -> None:
    """Hand memory that was freed back to the system, where glibc keeps what lies between what is used."""
    with suppress(AttributeError, OSError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def _set_malloc(option: int, value: int) -> None:
    with suppress(AttributeError, OSError, TypeError):  # another C library
        ctypes.CDLL(None).mallopt(option, value)
