"""Compiled loops: what was compiled of other sources is forgotten, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from decaf.compiled import drop_stale

TIMES = {"kernels.py": 200, "types.py": 250, "kernels.rank-1.nbi": 100, "kernels.scan-2.nbi": 225}
TIMES |= {"kernels.best-3.nbi": 300, "other.rank-1.nbi": 100, "kernels.rank-1.1.nbc": 100}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Sources, and beside them what was compiled at these times."""
    (tmp_path / "__pycache__").mkdir()
    for name, at in TIMES.items():
        path = tmp_path / name if name.endswith(".py") else tmp_path / "__pycache__" / name
        path.write_text("")
        os.utime(path, (at, at))
    return tmp_path


def left(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


def test_what_was_compiled_before_the_source_changed_is_forgotten(folder: Path) -> None:
    drop_stale(str(folder / "kernels.py"))
    assert left(folder) == set(TIMES) - {"kernels.rank-1.nbi"}
    drop_stale(str(folder / "kernels.py"))
    assert left(folder) == set(TIMES) - {"kernels.rank-1.nbi"}


def test_and_before_others_changed_that_it_takes_types_from(folder: Path) -> None:
    drop_stale(str(folder / "kernels.py"), [str(folder / "types.py")])
    assert left(folder) == set(TIMES) - {"kernels.rank-1.nbi", "kernels.scan-2.nbi"}


def test_without_a_source_or_anything_compiled_nothing_happens(folder: Path) -> None:
    drop_stale(str(folder / "missing.py"))
    drop_stale(str(folder / "kernels.py"), [str(folder / "missing.py")])
    drop_stale(str(folder / "types.py"))
    assert left(folder) == set(TIMES)
