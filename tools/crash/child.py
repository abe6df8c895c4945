"""The decaf command, killed by its own hand before its n-th step on the disk.

    python -m tools.crash.child STEP FOLDER STEPS train data.csv -o FOLDER/model

A step opens a file below FOLDER for writing, or renames, removes or makes something there. STEP is a number, or a
number and a word: the n-th step with this word in its name, as in "2 os.rename .part-". With step 0 nothing is killed.
What the steps were is written into the file STEPS at the end, one a line.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

_CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"}
_WRITING = os.O_WRONLY | os.O_RDWR


class Steps:
    """Notes steps, and kills the process before one of them."""

    def __init__(self, last: str, folder: Path) -> None:
        self.names: list[str] = []
        count, _, self._word = last.partition(" ")
        self._left, self._folder = int(count), str(folder.resolve()) + os.sep

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        """Look at one event of the interpreter."""
        if event not in _CHANGES and not (event == "open" and _writes(arguments)):
            return
        path = arguments[0]
        if not isinstance(path, str | bytes | os.PathLike):
            return
        name = os.fsdecode(path)
        inside = os.path.abspath(name).startswith(self._folder)  # noqa: PTH100 - cheap: it is asked for very often
        if inside or (event != "open" and not os.path.dirname(name)):  # noqa: PTH120 - shutil.rmtree names files alone
            self.names.append(f"{event} {os.path.basename(name)}")  # noqa: PTH119
            if self._word in self.names[-1]:
                self._left -= 1
                if self._left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)


def _writes(arguments: tuple[object, ...]) -> bool:
    """Whether a file is opened to be written."""
    _, mode, flags = arguments
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return isinstance(flags, int) and bool(flags & _WRITING)


def main() -> None:
    """Run the command that stands behind the first three words."""
    step, folder, kept, *words = sys.argv[1:]
    from decaf.cli import main as decaf

    steps = Steps(step, Path(folder))
    sys.addaudithook(steps)
    sys.argv = ["decaf", *words]
    try:
        decaf()
    finally:
        content = "".join(f"{name}\n" for name in steps.names)
        Path(kept).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
