"""Progress: silent unless somebody is showing, and whoever shows is told everything."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from threading import Thread

import numpy as np
import pytest
from rich.console import Console
from scipy import sparse

from decaf import LabelTextScorer, console
from decaf.progress import Advance, progress, showing


class Recorder:
    """A display that keeps what it is told."""

    def __init__(self) -> None:
        self.bars: list[tuple[str, int]] = []
        self.advances: list[int] = []
        self.closed = 0

    @contextmanager
    def __call__(self, title: str, total: int) -> Iterator[Advance]:
        self.bars.append((title, total))
        try:
            yield self.advances.append
        finally:
            self.closed += 1


def work(title: str = "work", total: int = 10) -> None:
    with progress(title, total) as advance:
        advance(3)
        advance(7)


def test_work_is_silent_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    work()
    assert capsys.readouterr() == ("", "")


def test_a_display_gets_titles_totals_and_all_advances() -> None:
    recorder = Recorder()
    with showing(recorder):
        work("reading", 10)
        work("writing", 12)
    assert recorder.bars == [("reading", 10), ("writing", 12)]
    assert recorder.advances == [3, 7, 3, 7]
    assert recorder.closed == 2


def test_after_the_block_it_is_silent_again() -> None:
    recorder = Recorder()
    with showing(recorder):
        pass
    work()
    assert recorder.bars == []


def test_nested_displays_restore_the_outer_one() -> None:
    outer, inner = Recorder(), Recorder()
    with showing(outer):
        work("before", 1)
        with showing(inner):
            work("inside", 2)
        work("after", 3)
    assert outer.bars == [("before", 1), ("after", 3)]
    assert inner.bars == [("inside", 2)]


def test_an_error_restores_the_outer_display_and_closes_the_bar() -> None:
    outer, inner = Recorder(), Recorder()
    with showing(outer):
        with pytest.raises(ZeroDivisionError), showing(inner), progress("fails", 1):
            raise ZeroDivisionError
        work("after", 1)
    work("silent", 1)
    assert inner.closed == 1
    assert outer.bars == [("after", 1)]


def test_another_thread_does_not_show_on_this_ones_display() -> None:
    recorder = Recorder()
    with showing(recorder):
        thread = Thread(target=work)
        thread.start()
        thread.join()
    assert recorder.bars == []


def test_matching_label_texts_advances_to_its_total() -> None:
    recorder = Recorder()
    features = sparse.csr_array(np.ones((600, 2), np.float32))
    with showing(recorder):
        LabelTextScorer(features[:3]).top(features, 2)
    assert recorder.bars == [("matching label texts", 600)]
    assert sum(recorder.advances) == 600


def test_the_command_line_shows_lines_on_standard_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "_EVERY", -1.0)
    with console.session():
        work("reading a file")
        with progress("nothing to do", 0) as advance:
            advance(0)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == ["reading a file: 30 %", "reading a file: 100 %", "nothing to do: 0 %"]


def test_short_work_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with console.session():
        work()
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("patience", "seen"), [(-1.0, True), (3600.0, False)])
def test_a_terminal_gets_a_bar_once_the_work_takes_a_moment(
    monkeypatch: pytest.MonkeyPatch, patience: float, seen: bool
) -> None:
    screen = StringIO()
    monkeypatch.setattr(console, "errors", Console(file=screen, force_terminal=True, width=80))
    monkeypatch.setattr(console, "_PATIENCE", patience)
    with console.session():
        work("reading a file")
    assert ("reading a file" in screen.getvalue()) is seen


def test_warnings_show_on_standard_error_within_a_session_only(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("decaf.datasets.cache")
    handlers = list(logging.getLogger("decaf").handlers)
    with console.session():
        log.warning("the cache is [damaged]")
    assert "the cache is [damaged]" in capsys.readouterr().err
    assert logging.getLogger("decaf").handlers == handlers
