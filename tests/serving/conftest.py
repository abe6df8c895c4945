"""Two tiny models, and a server of the first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from modules import QUICK, topics

import decaf
from decaf import recipe
from serving import Running, running

TINY = recipe().with_settings(
    ["model.dim=16", "tokens.epochs=3", "shortlister.epochs=2", "ranker.epochs=3", "split.validation=0"]
)


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that can lean, of labels L0 (topic aa) to L23 (topic ax)."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    decaf.train(topics(), TINY, device="cpu", folder=folder)
    return folder


@pytest.fixture(scope="session")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that cannot lean, of labels L0 to L29."""
    folder = tmp_path_factory.mktemp("models") / "other"
    decaf.train(topics(labels=30), QUICK, device="cpu", folder=folder)
    return folder


@pytest.fixture(scope="session")
def shared(model: Path) -> Iterator[Running]:
    """A server that tests share: they leave its labels as they found them."""
    with running(model) as server:
        yield server
