"""One torch thread for each test process: several processes share the machine's cores."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
