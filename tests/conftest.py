"""One torch thread for each test process: several processes share the machine's cores, and begin with what takes long.

Ctrl-C is heard by what tests start, also where the tests run as a job of a shell that has its jobs ignore it.
"""

from __future__ import annotations

import os
import signal

import pytest

_LONG = ("trust", "scale", "serving", "experiments")  # folders of few tests that wait for processes

os.environ.setdefault("OMP_NUM_THREADS", "1")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # which processes hand down
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long first, so that in the end no process waits for another."""
    items.sort(key=lambda item: item.path.parent.name not in _LONG)
