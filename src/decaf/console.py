"""What the command line shows: results on standard output; progress, warnings and errors on standard error."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from rich.console import Console
from rich.logging import RichHandler
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from decaf.progress import Advance, showing

if TYPE_CHECKING:
    from decaf.config import Config
    from decaf.datasets import Items, Statistics
    from decaf.live import LabelView
    from decaf.metrics import Quantile
    from decaf.predictions import Predictions
    from decaf.scoring.explain import Explanation
    from decaf.stores import Change

__all__ = [
    "errors",
    "out",
    "say",
    "session",
    "show_changes",
    "show_facts",
    "show_metrics",
    "show_predictions",
    "show_quantiles",
    "show_settings",
    "show_statistics",
]

out = Console(highlight=False, emoji=False)
errors = Console(stderr=True, highlight=False, emoji=False)

_PATIENCE = 0.5  # seconds of work before a bar appears
_EVERY = 10.0  # seconds between two lines where there is no terminal


@contextmanager
def session(*, quiet: bool = False, silent: bool = False) -> Iterator[None]:
    """Show messages and the progress of long work; when quiet, warnings alone; when silent, errors alone."""
    handler: logging.Handler = _PlainHandler()
    if errors.is_terminal:
        handler = RichHandler(console=errors, show_time=False, show_path=False, markup=False)
    logger = logging.getLogger("decaf")
    before = logger.level
    logger.setLevel(logging.ERROR if silent else logging.WARNING if quiet else logging.INFO)
    logger.addHandler(handler)
    try:
        with nullcontext() if quiet or silent else showing(_bar if errors.is_terminal else _lines):
            yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


class _PlainHandler(logging.Handler):
    """One whole line a message, for pipes and files."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write the message."""
        say(f"{record.levelname.lower()}: {record.getMessage()}")


@contextmanager
def _bar(title: str, total: int) -> Iterator[Advance]:
    """A bar that appears once the work has taken a moment, and goes when it is done."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    bars = Progress(*columns, console=errors, transient=True)
    task = bars.add_task(escape(title), total=total)
    patience = threading.Timer(_PATIENCE, bars.start)
    patience.daemon = True
    patience.start()
    try:
        yield lambda amount: bars.advance(task, amount)
    finally:
        patience.cancel()
        patience.join()
        if bars.live.is_started:
            bars.stop()


@contextmanager
def _lines(title: str, total: int) -> Iterator[Advance]:
    """A plain line now and then."""
    done, last = 0, time.monotonic()

    def advance(amount: int) -> None:
        nonlocal done, last
        done += amount
        if time.monotonic() - last > _EVERY:
            last = time.monotonic()
            say(f"{title}: {100 * done / max(total, 1):.0f} %")

    yield advance


def _table(title: str | None = None, *, header: bool = True) -> Table:
    if title is not None:
        out.print(f"\n[bold]{title}[/bold]")
    return Table(show_header=header, box=None, padding=(0, 1, 0, 0))


def show_statistics(facts: Statistics) -> None:
    """The paper's statistics table and the label-frequency profile."""
    table = _table(escape(facts.name), header=False)
    table.add_column()
    table.add_column(justify="right")
    rows: list[tuple[str, float | None]] = [
        ("training documents N", facts.train_documents),
        ("labels L", facts.labels),
        ("tokens V", facts.tokens),
        ("test documents N'", facts.test_documents),
        ("labels per document", facts.labels_per_document),
        ("documents per label", facts.documents_per_label),
        ("tokens per document", facts.tokens_per_document),
        ("tokens per label", facts.tokens_per_label),
        ("filter pairs, training", facts.train_filters),
        ("filter pairs, test", facts.test_filters),
    ]
    for name, value in rows:
        table.add_row(name, "-" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:,.2f}")
    out.print(table)
    profile = _table("labels by training documents")
    profile.add_column("documents", no_wrap=True)
    for heading in ("labels", "of labels", "of pairs"):
        profile.add_column(heading, justify="right", no_wrap=True)
    profile.add_column("")
    for band in facts.frequency:
        cells = (f"{band.labels:,}", f"{band.labels_percent:.1f} %", f"{band.pairs_percent:.1f} %")
        profile.add_row(band.name, *cells, "█" * max(1, round(band.labels_percent / 2.5)))
    out.print(profile)


def say(message: str) -> None:
    """A message to the person at the terminal, in one line however long."""
    errors.print(message, markup=False, soft_wrap=True)


def show_facts(name: str, facts: Mapping[str, object]) -> None:
    """Names and values, a row each."""
    table = _table(escape(name), header=False)
    for key, value in facts.items():
        shown = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
        if isinstance(value, list):
            shown = ", ".join(str(one) for one in value)
        table.add_row(key.replace("_", " "), escape(shown))
    out.print(table)


def show_settings(config: Config, stage: str | None = None) -> None:
    """Every setting, or those of one stage, with its value and what it does."""
    table = _table()
    for heading in ("setting", "value", "what it does"):
        table.add_column(heading)
    for name, value, help_text in config.describe(stage):
        table.add_row(name, value, help_text)
    out.print(table, markup=False)


def show_metrics(systems: Mapping[str, Mapping[str, float]]) -> None:
    """Figures of one or more systems, a row each."""
    for prefixes in (("P@", "PSP@", "R@", "C@"), ("N@", "PSN@")):
        table = _table()
        table.add_column("", no_wrap=True)
        names = [name for name in next(iter(systems.values())) if name.startswith(prefixes)]
        for name in names:
            table.add_column(name, justify="right", no_wrap=True)
        for system, scores in systems.items():
            table.add_row(escape(system), *(f"{scores[name]:.2f}" for name in names))
        out.print(table)


def show_quantiles(systems: Mapping[str, Sequence[Quantile]]) -> None:
    """What labels from rare to frequent contribute to P@5, a column for each system."""
    table = _table("contribution to P@5 of labels from rare to frequent")
    for heading in ("labels", "training documents each", *map(escape, systems)):
        table.add_column(heading, justify="right", no_wrap=True)
    for quantiles in zip(*systems.values(), strict=True):
        facts = (f"{quantiles[0].labels:,}", f"{quantiles[0].mean_frequency:.1f}")
        table.add_row(*facts, *(f"{quantile.contribution:.2f}" for quantile in quantiles))
    out.print(table)


def show_predictions(
    texts: Iterable[str],
    predictions: Predictions,
    labels: Items | LabelView,
    right: Sequence[Collection[int]] | None = None,
    reasons: Sequence[Sequence[Explanation]] | None = None,
) -> None:
    """The best labels of each text; where it is known which are right, they are ticked, and those missed named."""
    for at, (text, matches) in enumerate(zip(texts, predictions, strict=True)):
        out.print(text or "(empty text)", style="bold", markup=False)
        for rank, match in enumerate(matches):
            tick = "" if right is None else "✓ " if match.label in right[at] else "  "
            out.print(f"  {match.score:6.3f}  {tick}{labels.text(match.label)}", markup=False, soft_wrap=True)
            if reasons is not None:
                reason = reasons[at][rank]
                for name, values in (("parts", reason.parts), ("tokens", reason.tokens)):
                    out.print(f"          {name}: {_largest(values)}", style="dim", markup=False, soft_wrap=True)
        if not matches:
            out.print("  no label", style="dim")
        found = {match.label for match in matches}
        missed = [] if right is None else [labels.text(label) for label in right[at] if label not in found]
        if missed:
            out.print(f"  missed: {_some(missed)}", style="dim", markup=False, soft_wrap=True)


def show_changes(changes: Sequence[Change]) -> None:
    """Labels that were changed since training, a row each."""
    table = _table()
    for heading in ("id", "text", "since"):
        table.add_column(heading)
    for change in changes:
        shown = "(hidden)" if change.text is None else escape(change.text)
        table.add_row(escape(change.id), shown, change.at)
    out.print(table if changes else "no label was changed since training")


def _largest(values: Mapping[str, float], most: int = 8) -> str:
    """The values that count most, the largest first."""
    ordered = sorted(values.items(), key=lambda item: -abs(item[1]))[:most]
    return ", ".join(f"{name} {value:+.2f}" for name, value in ordered if value)


def _some(names: Sequence[str], most: int = 5) -> str:
    """The first of these names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
