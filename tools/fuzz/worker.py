"""A process that reads spoiled folders one after another, within limits. Its parent watches the time."""

from __future__ import annotations

import json
import logging
import os
import resource
import shutil
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

from tools.fuzz.mutations import make_case
from tools.fuzz.targets import warm_up, work

__all__ = ["main"]

_MIB = 1 << 20


def main() -> None:
    """Cases come in as JSON lines, what became of them goes out as such."""
    seeds, scratch, room = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever libraries print
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ["DECAF_UNPACKED"] = str(8 * _MIB)  # what swells is told early
    warm_up()
    most = _address_space() + room * _MIB
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    print(json.dumps({"ready": True}), file=out, flush=True)
    for line in sys.stdin:
        print(json.dumps(_outcome(json.loads(line), seeds, scratch, room)), file=out, flush=True)


def _outcome(task: dict[str, Any], seeds: Path, scratch: Path, room: int) -> dict[str, Any]:
    folder = scratch / "case"
    shutil.rmtree(folder, ignore_errors=True)
    if "folder" in task:  # one that was kept
        kept = Path(task["folder"])
        case = json.loads((kept / "case.json").read_text(encoding="utf-8"))
        os.system(f"cp -a '{kept / 'files'}' '{folder}'")  # noqa: S605 - pipes and links are copied as they are
    else:
        case = make_case(seeds, task["kind"], task["seed"], task["number"], folder)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        found = {"fault": "", "told": work(case, folder)}
    except MemoryError:
        found = {"fault": "memory", "told": traceback.format_exc(limit=-6)}
    except BaseException:
        found = {"fault": "exception", "told": traceback.format_exc(limit=-6)}
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    if not found["fault"] and grown > room // 2:
        found = {"fault": "memory", "told": f"{grown} MiB were taken"}
    return found | {"case": case, "grown": grown}


def _address_space() -> int:
    with Path("/proc/self/statm").open(encoding="ascii") as stream:
        return int(stream.read().split()[0]) * resource.getpagesize()


if __name__ == "__main__":
    main()
