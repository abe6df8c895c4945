"""decaf-experiments as a user calls it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from modules import topics
from typer.testing import CliRunner

from decaf.experiments import plan as planning
from decaf.experiments.cli import app
from decaf.experiments.plan import Job

COMMAND = [sys.executable, "-c", "from decaf.experiments.cli import main; main()"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("data") / "tiny"
    topics(labels=24, train=120, test=40).save(place)
    return place


def test_a_report_is_written_and_what_failed_is_told(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [Job("judge", "match"), Job("judge", "paper", 0, 10**6), Job("judge", "pecos-pifa")]
    monkeypatch.setattr(planning, "plan", lambda *_: jobs)
    result = CliRunner().invoke(app, [str(data), "-o", str(tmp_path / "out"), "--no-peers", "--device", "cpu"])
    assert result.exit_code == 0, result.output
    report = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))
    assert [run["job"]["system"] for run in report["runs"]] == ["match", "paper"]
    assert report["dataset"]["labels"] == 24
    assert [one["title"] for one in report["troubles"]] == ["PECOS XR-Linear, seed 0"]
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "label-text match" in page
    assert "PECOS XR-Linear, seed 0" in page
    settings = report["runs"][1]["settings"]
    assert settings["ensemble.instances"] == "1"
    assert settings["model.loss"] == '"logistic"'


def test_runs_of_another_report_are_taken_over(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "plan", lambda *_: [Job("judge", "paper"), Job("judge", "pecos-pifa")])
    first = CliRunner().invoke(app, [str(data), "-o", str(tmp_path / "one"), "--no-peers", "--device", "cpu"])
    assert first.exit_code == 0, first.output
    monkeypatch.undo()
    joined = ["-o", str(tmp_path / "two"), "--no-peers", "--join", str(tmp_path / "one" / "report.json")]
    second = CliRunner().invoke(app, [str(data), *joined, "--only", "match"])
    assert second.exit_code == 0, second.output
    report = json.loads((tmp_path / "two" / "report.json").read_text(encoding="utf-8"))
    assert {run["job"]["system"] for run in report["runs"]} == {"match", "paper"}
    assert [one["job"]["system"] for one in report["troubles"]] == ["pecos-pifa"]
    assert not list((tmp_path / "two" / "runs").glob("*paper*"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--only", "parabel", "--no-peers"], "there is no system 'parabel' to run; there are: decaf, decaf-3, match"),
        (["--only", "paper-5"], "the profile quick has no runs of paper-5; try --profile full"),
        (["--join", "nothing.json"], "nothing.json: is no report"),
        (["--profile", "slow"], "there is no profile 'slow'; there are: quick, full"),
        (["nowhere"], "nowhere"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], said: str, tmp_path: Path) -> None:
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_help_names_every_option_and_loads_nothing_heavy() -> None:
    code = "import sys; sys.argv = ['x', '--help']\nimport atexit; atexit.register(lambda: print(*sys.modules))\n"
    done = subprocess.run(
        [sys.executable, "-c", code + COMMAND[2]], capture_output=True, text=True, check=True, env=os.environ | WIDE
    )
    for option in (
        "--output",
        "--profile",
        "--labels",
        "--seeds",
        "--device",
        "--jobs",
        "--limit",
        "--no-peers",
        "--only",
        "--join",
    ):
        assert option in done.stdout
    assert "torch" not in done.stdout.split()


WIDE = {"COLUMNS": "200", "TERM": "dumb"}


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_ctrl_c_says_how_to_go_on(data: Path, tmp_path: Path) -> None:
    command = [*COMMAND, str(data), "-o", str(tmp_path / "out"), "--no-peers", "--device", "cpu"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while not list((tmp_path / "out").glob("runs/*/task.json")):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert "stopped; run the same command again to go on" in process.communicate()[1]
    assert process.returncode == 130
    assert not list((tmp_path / "out").glob("runs/*/result.json"))  # what ran was ended, not waited for
