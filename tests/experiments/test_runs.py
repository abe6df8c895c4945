"""Runs in processes of their own: kept by content, killed, late, failed, several at a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from threading import Event

import numpy as np
import pytest
from modules import topics

from decaf import Dataset, evaluate, recipe
from decaf.errors import ConfigError
from decaf.experiments import provenance, runs
from decaf.experiments.cli import _check_device
from decaf.experiments.plan import Job
from decaf.experiments.provenance import fingerprint
from decaf.experiments.runs import Outcome, Runner
from decaf.predictions import Predictions, load_scores

MATCH = Job("judge", "match")
PATIENCE = 120.0  # seconds for what takes a few where the machine is busy


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("data") / "tiny"
    topics(labels=24, train=120, test=40).save(place)
    return place


@pytest.fixture(scope="module")
def dataset(folder: Path) -> Dataset:
    return Dataset.load(folder)


@pytest.fixture
def runner(folder: Path, dataset: Dataset, tmp_path: Path) -> Runner:
    return Runner(str(folder), fingerprint(dataset), tmp_path, "cpu", 1)


def never(*_: object) -> None:
    raise AssertionError("a process was started")


def test_a_run_is_kept_and_not_done_again(runner: Runner, dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    some = replace(MATCH, labels=8)
    first = runner.run([MATCH, some])
    assert [outcome.trouble for outcome in first] == ["", ""]
    results = [outcome.result or {} for outcome in first]
    assert [result["labels"] for result in results] == [24, 8]
    assert results[0]["commit"] == provenance.commit()
    assert results[0]["machine"] == provenance.machine()
    assert first[0].folder is not None
    found = Predictions.from_csr(load_scores(first[0].folder / "predictions.npz", *dataset.test.truth.shape), 5)
    figures = evaluate(found, dataset.test.truth, dataset.inverse_propensity, dataset.test.filters)
    assert results[0]["metrics"]["PSP@5"] == pytest.approx(figures["PSP@5"], abs=0.001)
    monkeypatch.setattr(runs.subprocess, "Popen", never)
    assert runner.run([some, MATCH]) == first[::-1]


def test_the_name_of_a_run_tells_data_settings_seed_and_device_apart(runner: Runner, dataset: Dataset) -> None:
    less = replace(dataset, train=dataset.train.take(np.arange(119)))
    runners = [runner, replace(runner, content=fingerprint(less)), replace(runner, device="cuda")]
    jobs = [Job("judge", "decaf"), Job("judge", "decaf-3"), Job("judge", "decaf", 1), Job("judge", "decaf", 0, 8)]
    names = [one.key(job) for one in runners for job in jobs]
    assert len(set(names)) == len(names)
    assert runners[0].key(MATCH) == runners[2].key(MATCH)  # no device of ours has a part in it


def test_a_gpu_is_not_needed_where_the_runs_were_carried_from_one(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    elsewhere, wanted = replace(runner, device="cuda"), [Job("judge", "decaf"), Job("judge", "paper"), MATCH]
    with pytest.raises(ConfigError, match="no GPU"):
        _check_device(elsewhere, wanted)
    _check_device(runner, wanted)
    carried = elsewhere.folder / elsewhere.key(wanted[0])
    carried.mkdir()
    (carried / "result.json").write_text("{}", encoding="utf-8")
    _check_device(elsewhere, wanted)  # what is lacking fails by itself, and the report says so


def test_another_source_is_another_run(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    before = runner.key(MATCH)
    monkeypatch.setattr(runs, "source_digest", lambda: "another")
    assert runner.key(MATCH) != before


def test_a_peer_is_run_anew_for_other_features_and_not_for_another_model(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = Job("judge", "omikuji-bonsai")
    before = runner.key(peer)
    monkeypatch.setattr(runs, "source_digest", lambda: "another")
    assert runner.key(peer) == before
    with monkeypatch.context() as changed:
        changed.setattr(runs, "recipe", lambda: recipe().with_settings(["features.min_count=7"]))
        assert runner.key(peer) != before
    monkeypatch.setattr(runs, "peers_digest", lambda: "another")
    assert runner.key(peer) != before


def test_the_digest_of_the_source_leaves_out_what_only_shows() -> None:
    package = Path(provenance.__file__).parent.parent
    kept = [file for file in package.rglob("*.py") if not file.relative_to(package).as_posix().startswith(OUTER)]
    assert package / "training.py" in kept
    assert package / "experiments" / "judging.py" in kept
    assert package / "cli" / "models.py" not in kept
    for name in (*OUTER, *provenance._OURS):
        assert (package / name).exists(), f"{name} is no longer there"
    for name in (
        "features.py",
        "metrics.py",
        "predictions.py",
        "experiments/judging.py",
        "experiments/peers_worker.py",
    ):
        assert not name.startswith(OUTER + provenance._OURS)


OUTER = provenance._OUTER


def test_what_is_told_apart_in_a_dataset(dataset: Dataset) -> None:
    texts = ["another", *(dataset.labels.texts or [])[1:]]
    others = [
        replace(dataset, labels=replace(dataset.labels, texts=texts)),
        replace(dataset, test=dataset.test.take(np.arange(39))),
        replace(dataset, train=replace(dataset.train, filters=np.array([[0, 0]]))),
    ]
    names = [fingerprint(one) for one in (dataset, *others)]
    assert len(set(names)) == 4
    assert fingerprint(dataset) == names[0]


def test_a_run_that_fails_says_why_and_the_others_go_on(runner: Runner) -> None:
    broken = Job("judge", "omikuji-bonsai")  # there is no interpreter of the peers
    combined = Job("metadata", "omikuji-bonsai")
    first, second, third = replace(runner, at_a_time=2).run([broken, combined, MATCH])
    assert first.result is None
    assert first.trouble
    assert second == Outcome(combined, None, "omikuji Bonsai, 3 trees has no predictions to combine")
    assert third.result is not None


def test_a_run_that_takes_the_predictions_of_another_waits_for_it(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer, combined = Job("judge", "omikuji-bonsai"), Job("metadata", "omikuji-bonsai")
    other = Event()

    def outcome(_: Runner, job: Job, needed: Outcome | None) -> Outcome:
        if job == peer:
            assert other.wait(10)  # the match, which stands behind what has to wait, was run meanwhile
        if job == MATCH:
            other.set()
        return Outcome(job, {"took": None if needed is None else needed.job.kind})

    monkeypatch.setattr(Runner, "_outcome", outcome)
    found = replace(runner, at_a_time=2).run([peer, combined, MATCH])
    assert [one.result for one in found] == [{"took": None}, {"took": "judge"}, {"took": None}]


def test_data_that_changed_since_a_run_was_planned_make_no_result(runner: Runner) -> None:
    (outcome,) = replace(runner, content="of before").run([MATCH])
    assert outcome.result is None
    assert "has changed since this was planned; run the same command again" in outcome.trouble


def test_peers_that_are_missing_are_not_run(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs.subprocess, "Popen", never)
    (outcome,) = replace(runner, missing={"pecos": "no wheel"}).run([Job("judge", "pecos-pifa")])
    assert outcome.trouble == "pecos cannot be installed: no wheel"


def test_a_run_that_is_stopped_before_its_process_starts_starts_none(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ctrl_c(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    def late() -> str:
        while not runner._stopped:
            time.sleep(0.01)
        return provenance.source_digest()

    monkeypatch.setattr(runs, "wait", ctrl_c)
    monkeypatch.setattr(runs, "source_digest", late)
    monkeypatch.setattr(runs.subprocess, "Popen", never)
    with pytest.raises(KeyboardInterrupt):
        runner.run([MATCH])
    assert [file.name for file in runner.folder.glob("*/*.json")] == ["task.json"]  # nor is it called late


def test_a_run_over_its_limit_is_ended_and_tried_again_only_with_more_time(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    (late,) = replace(runner, limit=0.05).run([MATCH])
    assert late.trouble == "took more than 0.05 s"
    with monkeypatch.context() as patched:
        patched.setattr(runs.subprocess, "Popen", never)
        assert replace(runner, limit=0.04).run([MATCH])[0].trouble == "took more than 0.05 s"
    assert runner.run([MATCH])[0].result is not None


def test_a_torn_result_is_made_anew(runner: Runner) -> None:
    (outcome,) = runner.run([MATCH])
    assert outcome.folder is not None
    (outcome.folder / "result.json").write_text('{"job": ', encoding="utf-8")
    (again,) = runner.run([MATCH])
    assert again.result is not None
    assert outcome.result is not None
    assert again.result["metrics"] == outcome.result["metrics"]


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_killed_in_the_middle_it_goes_on_and_leaves_no_process(runner: Runner, folder: Path, tmp_path: Path) -> None:
    code = f"""
from decaf.experiments.plan import Job
from decaf.experiments.runs import Runner
from pathlib import Path
Runner({str(folder)!r}, {runner.content!r}, Path({str(tmp_path)!r}), "cpu", 1).run(
    [Job("judge", "match"), Job("judge", "decaf")]
)
"""
    process = subprocess.Popen([sys.executable, "-c", code])
    first, second = (tmp_path / runner.key(job) for job in (MATCH, Job("judge", "decaf")))
    wait_for(lambda: (second / "task.json").exists())
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_for(lambda: not workers(second))
    assert not (second / "result.json").exists()
    before = (first / "result.json").stat().st_mtime_ns
    done = runner.run([MATCH, Job("judge", "decaf")])
    assert [outcome.trouble for outcome in done] == ["", ""]
    assert (first / "result.json").stat().st_mtime_ns == before


def wait_for(there: object) -> None:
    end = time.monotonic() + PATIENCE
    while not there():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.02)


def workers(folder: Path) -> list[str]:
    """Processes that work on a run."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = place.read_bytes()
        except OSError:
            continue
        if str(folder).encode() in words:
            found.append(place.parent.name)
    return found
