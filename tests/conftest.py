"""One torch thread for each test process: several processes share the machine's cores.

Ctrl-C is heard by what tests start, also where the tests run as a job of a shell that has its jobs ignore it.
"""

from __future__ import annotations

import os
import signal

os.environ.setdefault("OMP_NUM_THREADS", "1")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # which processes hand down
    signal.signal(signal.SIGINT, signal.default_int_handler)
