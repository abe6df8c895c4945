"""Tests at the edges of what pyproject.toml allows: the lowest version of every direct dependency, or the newest.

    python tools/versions.py lowest|newest [--extra scale] [--tests all | PATH...]

Makes an environment of its own under .scratch/versions with the pip, and so the indexes, of this machine, says which
versions it holds, and runs a quick part of the suite there; what only another library warns of does not fail it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
# Every dependency is used for real by one of these; none needs a browser, a database or a cluster.
QUICK = (
    "tests/datasets",
    "tests/modules",
    "tests/networks",
    "tests/serving/test_app.py",
    "tests/serving/test_batching.py",
    "tests/test_batch.py",
    "tests/test_cli.py",
    "tests/test_contrastive.py",
    "tests/test_estimator.py",
    "tests/test_fast.py",
    "tests/test_features.py",
    "tests/test_live.py",
    "tests/test_model.py",
    "tests/test_package.py",
    "tests/test_predictor.py",
    "tests/test_scoring_contract.py",
    "tests/test_train_cli.py",
    "tests/test_training.py",
)


def direct(extras: Iterable[str]) -> list[Requirement]:
    """What pyproject.toml asks for, with these extras, on this machine."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [*project["dependencies"], *(line for extra in extras for line in project["optional-dependencies"][extra])]
    required = [Requirement(line) for line in named]
    return [each for each in required if each.marker is None or each.marker.evaluate()]


def lowest(required: Requirement) -> str:
    """The requirement pinned to the lower bound of its range."""
    bounds = [Version(spec.version) for spec in required.specifier if spec.operator == ">="]
    if len(bounds) != 1:
        raise SystemExit(f"pyproject.toml: {required} has no lower bound; write {required.name}>=VERSION")
    return f"{required.name}=={bounds[0]}"


def environment(edge: str, extras: list[str]) -> Path:
    """The Python of an environment with decaf, its tools and these versions."""
    folder = ROOT / ".scratch" / "versions" / f"{edge}-{sys.version_info.major}.{sys.version_info.minor}"
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    constraints = folder / "constraints.txt"
    pins = [lowest(required) for required in direct(extras)] if edge == "lowest" else []
    constraints.write_text("".join(f"{pin}\n" for pin in pins), encoding="utf-8")
    options = ["--quiet", "--disable-pip-version-check", "--upgrade", "--constraint", str(constraints)]
    command = [str(python), "-m", "pip", "install", *options, "--editable", f".[{','.join(extras)}]"]
    subprocess.run(command, cwd=ROOT, check=True)
    return python


def main() -> None:
    """Make the environment and run the tests."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("edge", choices=("lowest", "newest"))
    options.add_argument("--extra", action="append", default=[], help="an extra beside dev")
    options.add_argument("--tests", nargs="+", default=list(QUICK), help="paths, or all")
    arguments = options.parse_args()
    extras = ["dev", *arguments.extra]
    python = environment(arguments.edge, extras)
    asked = "import importlib.metadata as m, sys; print(*(f'{n} {m.version(n)}' for n in sys.argv[1:]), sep=', ')"
    names = [required.name for required in direct(extras)]
    subprocess.run([python, "-c", asked, *names], check=True)
    tests = [] if arguments.tests == ["all"] else arguments.tests
    warned = ["-W", "default", "-W", "error:::decaf"]  # the later one wins
    command = [python, "-m", "pytest", "-n", "auto", "--dist", "loadfile", *warned, *tests]
    sys.exit(subprocess.run(command, cwd=ROOT, check=False).returncode)


if __name__ == "__main__":
    main()
