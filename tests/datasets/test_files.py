"""Files and folders: nothing half-written stays, and reading tells how far it has come."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from decaf.datasets.files import find_file, new_folder, read_bytes, read_lines
from decaf.errors import DataError
from decaf.progress import Advance, showing


def test_a_filled_folder_takes_its_place(tmp_path: Path) -> None:
    with new_folder(tmp_path / "deep" / "set") as folder:
        (folder / "file").write_text("content")
        assert not (tmp_path / "deep" / "set").exists()
    assert (tmp_path / "deep" / "set" / "file").read_text() == "content"
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["set"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("target", ["set", "deep/set"])
def test_an_exception_leaves_nothing(tmp_path: Path, error: type[BaseException], target: str) -> None:
    with pytest.raises(error), new_folder(tmp_path / target) as folder:  # noqa: PT012 - the block is what fails
        (folder / "file").write_text("content")
        raise error
    assert list(tmp_path.iterdir()) == []


def test_an_exception_leaves_the_old_folder(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "old").write_text("old")
    with pytest.raises(RuntimeError), new_folder(tmp_path / "set", replace=True):
        raise RuntimeError
    assert [path.name for path in tmp_path.rglob("*")] == ["set", "old"]


def test_an_existing_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    with pytest.raises(DataError, match="is already there"), new_folder(tmp_path):
        pytest.fail("the block must not run")
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_an_existing_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "set").write_text("old")
    with pytest.raises(DataError, match="is already there"), new_folder(tmp_path / "set"):
        pytest.fail("the block must not run")
    assert (tmp_path / "set").read_text() == "old"


def test_an_empty_folder_may_be_filled(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    with new_folder(tmp_path / "set") as folder:
        (folder / "file").write_text("content")
    assert (tmp_path / "set" / "file").is_file()


def test_replace_puts_the_new_folder_in_the_place_of_the_old(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "old").write_text("old")
    with new_folder(tmp_path / "set", replace=True) as folder:
        (folder / "new").write_text("new")
    assert [path.name for path in (tmp_path / "set").iterdir()] == ["new"]


def test_others_may_enter_a_new_folder_as_far_as_the_mask_lets_them(tmp_path: Path) -> None:
    (tmp_path / "usual").mkdir()
    with new_folder(tmp_path / "set"):
        pass
    assert (tmp_path / "set").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_the_first_name_that_is_there_is_found_plain_or_gzipped(tmp_path: Path) -> None:
    (tmp_path / "b.txt.gz").touch()
    (tmp_path / "c.txt").touch()
    assert find_file(tmp_path, "a.txt", "b.txt", "c.txt") == tmp_path / "b.txt.gz"
    (tmp_path / "b.txt").touch()
    assert find_file(tmp_path, "a.txt", "b.txt") == tmp_path / "b.txt"
    assert find_file(tmp_path, "a.txt") is None


def test_lines_end_at_newlines_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes("a\u2028b\rc\x85\x0cd\r\n\nlast".encode())
    assert list(read_lines(tmp_path / "file")) == [(1, "a\u2028b\rc\x85\x0cd\r\n"), (2, "\n"), (3, "last")]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.txt: cannot be read \(No such file"):
        read_bytes(tmp_path / "nowhere.txt")


@pytest.mark.parametrize("name", ["file", "file.gz"])
def test_reading_reports_every_byte_of_the_file(tmp_path: Path, name: str) -> None:
    content = gzip.compress(bytes(5000)) if name.endswith(".gz") else bytes(5000)
    (tmp_path / name).write_bytes(content)
    seen: list[tuple[str, int]] = []
    read = [0]

    @contextmanager
    def display(title: str, total: int) -> Iterator[Advance]:
        seen.append((title, total))

        def advance(count: int) -> None:
            read[0] += count

        yield advance

    with showing(display):
        assert read_bytes(tmp_path / name) == bytes(5000)
    assert seen == [(f"reading {name}", len(content))]
    assert read[0] == len(content)
