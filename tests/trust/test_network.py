"""Nothing is asked for over the network: not by training, predicting, evaluating or serving, and nobody is told."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent.parent / "src" / "decaf"
# Python with a network of its own machine alone: whoever asks for another name or address is told no, and noted.
ALONE = """
import json, socket, sys

noted, home = sys.argv[1], {"localhost", "127.0.0.1", "::1", "0.0.0.0", "", None}

def check(event, arguments):
    # Sockets that are made in C, and names that are looked up there, pass here too.
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        address = arguments[1]
        away = isinstance(address, tuple) and address[0] not in home
    elif event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr", "socket.getnameinfo"):
        named = arguments[0]
        away = (named[0] if isinstance(named, tuple) else named) not in home | {b"localhost", socket.gethostname()}
    elif event in ("urllib.Request", "http.client.connect", "ftplib.connect", "smtplib.connect"):
        away = True
    else:
        return
    if away:
        with open(noted, "a") as stream:
            print(event, arguments, file=stream)
        raise OSError(f"{event} {arguments[1:]}: there is no network here")

sys.addaudithook(check)
"""
VERBS = """
from decaf.cli import app
for command in json.loads(sys.argv[2]):
    app(command, standalone_mode=False)
"""
ASKING = "import socket; socket.create_connection(('192.0.2.1', 80), timeout=1)"


def run(script: str, *arguments: str, outside: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """A script in a process of its own."""
    command = [*outside, sys.executable, "-c", script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("network")
    words = ["red apple", "green pear", "yellow banana", "blue plum"]
    for part in ("train", "test"):
        rows = [{"text": f"{words[row % 4]} {row % 5}", "labels": [words[row % 4].split()[1]]} for row in range(40)]
        (folder / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder


def test_a_model_is_trained_evaluated_and_asked_without_a_network(table: Path, tmp_path: Path) -> None:
    noted, model, cut = tmp_path / "noted", str(tmp_path / "model"), ["unshare", "--map-root-user", "--net"]
    # Where a process can be cut off from every network, it is; it is watched in any case.
    outside = cut if shutil.which("unshare") and "unreachable" in run(ASKING, outside=cut).stderr else []
    tiny = ["--device", "cpu", "--set", "model.dim=8", "--set", "tokens.epochs=1", "--set", "ranker.epochs=1"]
    verbs = [
        ["train", str(table), "-o", model, *tiny],
        ["evaluate", model, str(table), "--json"],
        ["predict", model, "red apple", "--json"],
        ["predict", model, "red apple", "--exact", "--explain"],
        ["inspect", model],
    ]
    result = run(ALONE + VERBS, str(noted), json.dumps(verbs), outside=outside)
    assert result.returncode == 0, result.stderr
    assert '"text": "red apple"' in result.stdout
    assert not noted.exists(), noted.read_text(encoding="utf-8")


@pytest.mark.parametrize("script", [ASKING, "import urllib.request\nurllib.request.urlopen('http://example.invalid/')"])
def test_who_asks_is_seen(tmp_path: Path, script: str) -> None:
    noted = tmp_path / "noted"
    result = run(ALONE + script, str(noted))
    assert "there is no network here" in result.stderr
    assert noted.exists()


def test_the_source_names_nobody_to_tell() -> None:
    """Addresses in the package are of this machine, beginnings of one, or the name of a format."""
    known = re.compile(r"https?://(127\.0\.0\.1|localhost|\{|www\.w3\.org/|[a-z]+\.example\b|$)")
    for path in sorted(SOURCE.rglob("*")):
        if path.suffix not in {".py", ".js", ".html", ".css", ".jinja"}:
            continue
        for address in re.findall(r"https?://[^\s\"'<>`)]*", path.read_text(encoding="utf-8")):
            assert known.match(address), f"{path.name}: {address}"
