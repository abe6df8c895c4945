"""A hundred spoiled files of every kind: each is used or refused with an error of ours. `make fuzz` spoils 20,000."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))  # where the tools are

from tools.fuzz.__main__ import Limits, Report, fuzz, replay
from tools.fuzz.mutations import make_case
from tools.fuzz.seeds import KINDS, make_seeds

FILES = 100  # of each kind


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    keep = tmp_path_factory.mktemp("faults")
    return fuzz(FILES * len(KINDS), 0, keep, limits=Limits(seconds=120.0))


@pytest.mark.parametrize("kind", KINDS)
def test_spoiled_files_are_used_or_refused_and_do_no_harm(report: Report, kind: str) -> None:
    assert [fault for fault in report.faults if fault["case"]["kind"] == kind] == []
    assert report.files[kind] == FILES
    assert report.used[kind] >= 3  # what is spoiled a little is still read
    if kind != "cache":  # which is made again
        assert FILES - report.used[kind] >= 20


def test_memory_stays_small(report: Report) -> None:
    assert report.grown < 400  # MiB, for files of some kilobytes


def folder_of(path: Path, do: str) -> Path:
    (path / do / "files").mkdir(parents=True)
    (path / do / "case.json").write_text(json.dumps({"kind": "check", "do": do}))
    return path / do


def test_harm_is_seen(tmp_path: Path) -> None:
    """Crashes, hangs, memory and stray exceptions; and none of them ends the run."""
    expected = {
        "error": ("", "this is meant for the user"),
        "nothing": ("", "used"),
        "exception": ("exception", "KeyError: 'nobody expects this'"),
        "command line": ("exception", "SystemExit: 3"),
        "memory": ("memory", "MemoryError"),
        "memory, told well": ("memory", "there is no room"),
        "crash": ("crash", "SIGSEGV"),
        "hang": ("hang", "no answer in 10.0 s"),
    }
    found = replay([folder_of(tmp_path, do) for do in expected], Limits(seconds=10.0))
    assert [answer["fault"] for answer in found] == [fault for fault, _ in expected.values()]
    for answer, (_, told) in zip(found, expected.values(), strict=True):
        assert told in answer["told"]


def test_the_same_numbers_spoil_the_same_way(tmp_path: Path) -> None:
    make_seeds(tmp_path / "seeds")
    for kind in ("raw", "safetensors", "sqlite"):
        for number in range(5):
            made = [make_case(tmp_path / "seeds", kind, 3, number, tmp_path / f"{kind} {number} {n}") for n in (0, 1)]
            assert made[0] == made[1]
            files = [tmp_path / f"{kind} {number} {n}" / made[0]["file"] for n in (0, 1)]
            if files[0].is_file() and not files[0].is_symlink():
                assert files[0].read_bytes() == files[1].read_bytes()
