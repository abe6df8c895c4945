"""A tiny model, and a PostgreSQL server of its own for the tests, begun where its programs are installed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest
from modules import topics

import decaf

PATIENCE = 60.0  # seconds


@dataclass
class Postgres:
    """A server that can be stopped and begun again."""

    programs: Path
    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None
    _numbers: Iterator[int] = field(default_factory=count)

    def start(self) -> None:
        with (self.folder / "log.txt").open("ab") as log:
            self.process = subprocess.Popen(
                self._as_user(
                    "postgres",
                    *("-D", self.folder / "data", "-k", self.folder, "-p", self.port),
                    *("-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"),
                ),
                stdout=log,
                stderr=log,
            )
        end = time.monotonic() + PATIENCE
        while not self._answers():
            assert time.monotonic() < end, (self.folder / "log.txt").read_text()
            time.sleep(0.05)

    def _answers(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self._address("postgres")).close()
        except psycopg.OperationalError:
            return False
        return True

    def stop(self) -> None:
        assert self.process is not None
        self._do("pg_ctl", "stop", "-D", self.folder / "data", "-m", "immediate")
        self.process.wait(PATIENCE)

    def begin(self) -> None:
        self._do("initdb", "-D", self.folder / "data", "-A", "trust", "-U", "decaf", "--no-sync", "-E", "UTF8")
        self.start()

    def database(self) -> str:
        """The address of a new database."""
        import psycopg

        name = f"labels{next(self._numbers)}"
        with psycopg.connect(self._address("postgres"), autocommit=True) as connection:
            connection.execute(f"create database {name}")
        return self._address(name)

    def _address(self, name: str) -> str:
        return f"postgresql://decaf:secret@127.0.0.1:{self.port}/{name}"

    def _do(self, program: str, *arguments: object) -> None:
        subprocess.run(self._as_user(program, *arguments), check=True, capture_output=True)

    def _as_user(self, program: str, *arguments: object) -> list[str]:
        """As somebody else where we are root, whom PostgreSQL refuses."""
        other = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.getuid() == 0 else []
        return [*other, str(self.programs / program), *map(str, arguments)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "model"
    quick = ["model.dim=16", "tokens.epochs=1", "shortlister.epochs=1", "ranker.epochs=1"]
    decaf.train(topics(), decaf.recipe().with_settings(quick), device="cpu", folder=folder)
    return folder


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    found = shutil.which("initdb")
    places = [*([Path(found).resolve()] if found else []), *sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))]
    if not places or os.name != "posix":
        pytest.skip("there is no PostgreSQL; apt install postgresql for the tests of shared labels")
    pytest.importorskip("psycopg", reason="there is no psycopg; pip install 'decaf[scale]'")
    folder = Path(tempfile.mkdtemp(prefix="decaf-pg-"))
    if os.getuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = Postgres(places[-1].parent, folder, port)
    try:
        server.begin()
        yield server
    finally:
        if server.process is not None:
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def address(postgres: Postgres) -> str:
    return postgres.database()
