"""One torch thread for each test process: several processes share the machine's cores.

Ctrl-C is heard by what tests start, also where the tests run as a job of a shell that has its jobs ignore it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # which processes hand down
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module")
def exact_products() -> Iterator[None]:
    """Training in single precision, also where the processor has bfloat16: for what must agree to the last digits."""
    from decaf.networks import products

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "_has_bfloat16", lambda: False)
        yield
