"""Known weaknesses of the packages in requirements.lock, by pip-audit.

    python tools/audit.py [--advisories FOLDER] [--registry ADDRESS]

pip-audit asks PyPI. On a machine without a network, name a folder of advisories in the format of OSV, such as a
checkout of pypa/advisory-database: it is then asked instead, on a port of this machine. A registry that has pages of
packages (ADDRESS/NAME/json), not of their versions, knows the weaknesses of the newest versions; with --registry they
are asked for there, and what the lock has in older versions is named. Both together are asked as one. Advisories that
do not concern decaf are left out, each told with its reason. `make audit` runs this in an environment of its own.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import subprocess
import sys
import threading
import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import Version

LOCK = Path(__file__).resolve().parent.parent / "requirements.lock"
EXPLAINED = {
    "GHSA-6wgj-66m2-xxp2": "ray runs what is sent to its Jobs API, by design and without a fix. decaf brings Ray for "
    "the extra `scale` alone, starts a cluster on this machine only, without the dashboard that has this API, and Ray "
    "asks for a token there. Who lets others reach a cluster of their own has to guard it",
}

Advisory = dict[str, Any]


def read_advisories(folder: Path) -> dict[str, list[Advisory]]:
    """The advisories of a folder, in JSON or YAML, by the package that they are of."""
    import yaml

    found: dict[str, list[Advisory]] = defaultdict(list)
    for file in sorted([*folder.rglob("*.json"), *folder.rglob("*.y*ml")]):
        text = file.read_text(encoding="utf-8")
        try:
            # Versions stay texts: 1.10 is not 1.1.
            advisory = json.loads(text) if file.suffix == ".json" else yaml.load(text, yaml.BaseLoader)  # noqa: S506
        except (ValueError, yaml.YAMLError) as error:
            raise SystemExit(f"{file}: is no advisory ({error}); mend it, or take it out of the folder") from error
        if not isinstance(advisory, dict) or "id" not in advisory:
            continue
        for package in {canonicalize_name(part["package"]["name"]) for part in _affected(advisory)}:
            found[package].append(advisory)
    return found


Pin = tuple[str, Version]


def locked(text: str) -> list[Pin]:
    """The packages of a lock and their versions; one may be there in several, for several Pythons."""
    pins = re.findall(r"^([\w.-]+)(?:\[[\w,.-]+\])?==([^\s\\;]+)", text, re.MULTILINE)
    return [(canonicalize_name(name), Version(version)) for name, version in pins]


def ask_registry(address: str, pins: Sequence[Pin]) -> tuple[dict[str, list[Advisory]], list[str]]:
    """What a registry knows of packages in their newest versions -> advisories, and what it was not asked about."""
    with ThreadPoolExecutor(8) as pool:
        pages = list(pool.map(lambda pin: _page(f"{address.rstrip('/')}/{pin[0]}/json"), pins))
    found: dict[str, list[Advisory]] = {}
    older: list[str] = []
    for (name, version), page in zip(pins, pages, strict=True):
        newest = page["info"]["version"]
        if Version(newest) != version:
            older.append(f"{name} {version} (newest: {newest})")
            continue
        affected = [{"package": {"name": name, "ecosystem": "PyPI"}, "versions": [str(version)]}]
        found[name] = [
            {key: each[key] for key in ("id", "aliases", "withdrawn", "summary", "details") if each.get(key)}
            | {"affected": affected}
            for each in page["vulnerabilities"]
        ]
    return found, older


def _page(address: str) -> Any:  # noqa: ANN401 - JSON
    if not address.startswith(("https://", "http://")):
        raise SystemExit(f"{address}: is no address of a registry; it begins with https://")
    try:
        with urllib.request.urlopen(address, timeout=60) as answer:  # noqa: S310 - looked at above
            return json.load(answer)
    except (OSError, ValueError) as error:
        raise SystemExit(f"{address}: {error}; try again, or another registry") from error


def covers(advisory: Advisory, package: str, version: Version) -> bool:
    """Whether an advisory is of this version of a package."""
    if _given(advisory, "withdrawn"):
        return False
    parts = [part for part in _affected(advisory) if canonicalize_name(part["package"]["name"]) == package]
    return any(
        str(version) in _given(part, "versions")
        or any(_within(each["events"], version) for each in _given(part, "ranges") if each["type"] == "ECOSYSTEM")
        for part in parts
    )


def _affected(advisory: Advisory) -> list[dict[str, Any]]:
    return [part for part in _given(advisory, "affected") if part.get("package", {}).get("ecosystem") == "PyPI"]


def _given(of: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401 - whatever stands there
    """What an advisory says under a name; nothing where it says null, which is a text to the reader of YAML."""
    value = of.get(name)
    return [] if value in (None, "null", "~", "") else value


def _within(events: Sequence[Mapping[str, str]], version: Version) -> bool:
    """Whether a version is in a range: it begins where something is introduced, and ends where that is fixed."""
    inside = False
    pairs = [(Version(text), name) for event in events for name, text in event.items()]
    for at, name in sorted(pairs, key=lambda pair: pair[0]):
        if name == "introduced" and version >= at:
            inside = True
        elif (name == "fixed" and version >= at) or (name == "last_affected" and version > at):
            inside = False
    return inside


@contextmanager
def service(advisories: Mapping[str, Sequence[Advisory]]) -> Iterator[str]:
    """Answer as OSV does -> the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            name, version = canonicalize_name(asked["package"]["name"]), Version(asked["version"])
            found = [advisory for advisory in advisories.get(name, []) if covers(advisory, name, version)]
            answer = json.dumps({"vulns": found} if found else {}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *arguments: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/query"
    finally:
        server.shutdown()
        server.server_close()


def audit(*options: str) -> int:
    """Run pip-audit over the lock -> its exit status, 1 where something was found or could not be asked for."""
    ignored = [word for name in EXPLAINED for word in ("--ignore-vuln", name)]
    command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--require-hashes", "--strict", "-r", str(LOCK)]
    return subprocess.run([*command, *ignored, *options], check=False).returncode


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--advisories", type=Path, metavar="FOLDER", help="of advisories in the format of OSV")
    options.add_argument("--registry", metavar="ADDRESS", help="where ADDRESS/NAME/json is the page of a package")
    arguments = options.parse_args()
    if importlib.util.find_spec("pip_audit") is None:
        options.error("pip-audit is not there; use make audit")
    if arguments.advisories is None and arguments.registry is None:
        return told(audit())
    advisories: dict[str, list[Advisory]] = defaultdict(list)
    older: list[str] = []
    if arguments.advisories is not None:
        if not arguments.advisories.is_dir():
            options.error(f"{arguments.advisories} is no folder")
        advisories |= read_advisories(arguments.advisories)
        count = len({advisory["id"] for several in advisories.values() for advisory in several})
        if not count:
            options.error(f"{arguments.advisories} holds no advisory in the format of OSV")
        print(f"advisories: {count}, of packages: {len(advisories)}", flush=True)
    if arguments.registry is not None:
        pins = locked(LOCK.read_text(encoding="utf-8"))
        known, older = ask_registry(arguments.registry, pins)
        for name, several in known.items():
            advisories[name] = advisories[name] + several
        print(f"asked for in the registry: {len(known)} of {len(pins)} versions", flush=True)
    with service(advisories) as address:
        status = told(audit("--vulnerability-service", "osv", "--osv-url", address))
    if older:
        print(f"not asked for in the registry, which tells of newest versions alone: {', '.join(older)}")
    return status or int(bool(older) and arguments.advisories is None)


def told(status: int) -> int:
    """Say what is ignored, and why."""
    for name, reason in EXPLAINED.items():
        print(f"ignored where it applies: {name}: {reason}.")
    return status


if __name__ == "__main__":
    sys.exit(main())
