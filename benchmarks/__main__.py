"""Run every benchmark that needs no dataset of yours, or one by name: python -m benchmarks [NAME] [ARGUMENTS]."""

from __future__ import annotations

import runpy
import sys

NAMES = ("clustering", "features", "label_text", "metrics", "reading")


def main() -> None:
    """Hand the arguments on to the benchmark."""
    if sys.argv[1:2] in (["-h"], ["--help"]):
        sys.exit(f"{__doc__}\n\nBenchmarks: {', '.join(NAMES)}")
    chosen = sys.argv[1:2] or list(NAMES)
    if unknown := set(chosen) - set(NAMES):
        sys.exit(f"there is no benchmark {unknown.pop()!r}; there are: {', '.join(NAMES)}")
    arguments = sys.argv[2:]
    for name in chosen:
        sys.argv = [name, *arguments]
        runpy.run_module(f"benchmarks.{name}", run_name="__main__")


if __name__ == "__main__":
    main()
