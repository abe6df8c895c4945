"""Training on several ranks: real processes that talk by gloo, against one process, and one of them killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from modules import QUICK, topics

import decaf
from decaf import Dataset, Model, Predictor, TrainingError
from decaf.modules.batches import Batches
from decaf.modules.softmax import Candidates
from decaf.networks import Rows
from decaf.ranks import Ranks, joined

from . import ranks as work

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="ranks are forked"),
    pytest.mark.usefixtures("exact_products"),
]
CPU = torch.device("cpu")
PATIENCE = 120.0  # seconds
SETTINGS = [
    *("model.dim=16", "model.precision=float32", "split.validation=0.25", "tokens.rate=0.05", "ranker.rate=0.02"),
    *("tokens.epochs=4", "tokens.batch=64", "shortlister.batch=64", "ranker.epochs=4", "ranker.batch=64"),
]
STILL = [*SETTINGS, "tokens.dropout=0", "ranker.dropout=0"]  # no rank drops anything by itself
EPOCHS = 30
# Long enough to be killed twice, and not stopped for what a few held-out documents say.
LONG = [*STILL, "split.validation=0", "ranker.negatives=8", f"ranker.epochs={EPOCHS}"]


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[work.Launcher]:
    started = work.Launcher(tmp_path_factory.mktemp("logs"))
    yield started
    started.stop()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "topics-0"
    topics().save(folder)
    return folder


def options(assignments: list[str]) -> list[str]:
    return ["--device", "cpu", *(part for assignment in assignments for part in ("--set", assignment))]


def alone(data: Path, assignments: list[str], folder: Path | None = None) -> Model:
    """What one process learns, or goes on to learn."""
    config = decaf.recipe().with_settings(assignments)
    return decaf.train(Dataset.load(data), config, device="cpu", folder=folder)


def precision(model: Model, data: Path) -> float:
    return decaf.evaluate_model(model, Dataset.load(data))["P@1"]


def check_same(model: Model, other: Model, data: Path) -> None:
    """Both give the same labels and scores."""
    texts = list(Dataset.load(data).test.documents.texts or [])
    mine, theirs = (Predictor(one).predict(texts, top=3) for one in (model, other))
    assert np.array_equal(mine.ids[:, 0], theirs.ids[:, 0])
    assert np.allclose(mine.scores, theirs.scores, atol=2e-3)


@pytest.mark.parametrize("count", [2, 3])
def test_a_step_is_that_of_one_process_and_each_rank_holds_its_share(
    launcher: work.Launcher, tmp_path: Path, count: int
) -> None:
    launcher.run(count, "steps", tmp_path)
    found = [torch.load(tmp_path / f"{count}-{rank}.pt") for rank in range(count)]
    for case, (negatives, batch) in enumerate(work.CASES):
        whole, *of_ranks = work.module_four(Ranks(), negatives=negatives, batch=batch), *(of[case] for of in found)
        check_states(whole, of_ranks[0], steps=-(-work.DOCUMENTS // batch))
        check_shares(whole["own"], [of["own"] for of in of_ranks], few=negatives < work.LABELS)


def check_states(whole: dict[str, Any], kept: dict[str, Any], *, steps: int) -> None:
    """The first rank keeps what one process would: after one step, Adam's mean is a tenth of the gradient."""
    assert kept["losses"] == pytest.approx(whole["losses"], rel=1e-5)
    assert kept["state"].keys() == whole["state"].keys()
    gradients = [name for name in whole["state"] if name.endswith("exp_avg")]
    assert len(gradients) > 8
    for name, tensor in whole["state"].items():
        assert kept["state"][name].shape == tensor.shape
        if steps == 1 and name.endswith(("exp_avg", "exp_avg_sq")):
            assert tensor.any(), name
            assert torch.allclose(kept["state"][name], tensor, rtol=1e-3, atol=1e-7), name
        assert torch.allclose(kept["state"][name], tensor, atol=1e-4), name


def check_shares(whole: dict[str, int], shares: list[dict[str, int]], *, few: bool) -> None:
    """Refinement vectors, biases and what Adam remembers of both are split; everything else everybody has."""
    names = {name for name in whole if any(share[name] != whole[name] for share in shares)}
    assert len(names) == 6
    assert {name for name in names if "labels" in name} == {
        f"network.labels.{part}{'.values' if few else ''}" for part in ("refinement", "bias")
    }
    for name in names:
        width = work.DIM if whole[name] >= work.LABELS * work.DIM else 1
        rows = [share[name] // width - few for share in shares]  # nobody's row is everywhere where few are read
        assert sum(rows) == work.LABELS == whole[name] // width - few
        assert max(rows) - min(rows) <= 1


def torchrun(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run this in two processes, to a good end."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *arguments]
    done = subprocess.run(command, env=work.environment(), capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return done


THREADS_LEFT = """
import pathlib
import torch
from decaf.ranks import joined

def talking():
    names = [task.joinpath("comm").read_text() for task in pathlib.Path("/proc/self/task").iterdir()]
    return [name for name in names if "gloo" in name]

with joined("cpu") as ranks:
    parameter = torch.ones(3, requires_grad=True)
    ranks.sum(parameter.detach())
    parameter.sum().backward()
    torch.optim.Adam([parameter]).step()  # imports what may hold on to the group
    assert talking()
assert not talking(), talking()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="threads are seen in /proc")
def test_no_thread_talks_on_when_ranks_have_parted(tmp_path: Path) -> None:
    # One that is still there when the interpreter ends takes the process down with it, now and then.
    (tmp_path / "part.py").write_text(THREADS_LEFT, encoding="utf-8")
    torchrun(str(tmp_path / "part.py"))


def test_torchrun_trains_as_well_as_one_process(data: Path, tmp_path: Path) -> None:
    done = torchrun("-m", "decaf", "train", str(data), "-o", str(tmp_path / "model"), *options(SETTINGS))
    assert done.stderr.count("module IV: done") == 1  # one of them talks
    assert done.stderr.count("is ready") == 1
    folder = {path.name for path in (tmp_path / "model").iterdir()}
    assert {"model.json", "metrics.jsonl", "training.png"} <= folder
    assert "checkpoint" not in folder
    model = Model.load(tmp_path / "model")
    assert abs(precision(model, data) - precision(alone(data, SETTINGS), data)) <= 5


def test_three_ranks_learn_what_one_process_learns(launcher: work.Launcher, data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    said = launcher.run(3, "train", data, "-o", folder, *options(STILL))
    assert not said[1] + said[2]
    check_same(Model.load(folder), alone(data, STILL), data)
    before = (folder / "model.json").read_bytes()
    assert "is trained already" in launcher.run(2, "train", data, "-o", folder, *options(STILL))[0]
    assert (folder / "model.json").read_bytes() == before


def epochs_of(folder: Path, module: str) -> list[int]:
    record = folder / "metrics.jsonl"
    lines = record.read_text(encoding="utf-8").splitlines() if record.exists() else []
    facts = [json.loads(line) for line in lines if line.endswith("}")]
    return [line["epoch"] for line in facts if line["module"] == module and "epoch" in line]


def kill_one(launcher: work.Launcher, folder: Path, processes: list[int], victim: int) -> None:
    """In the middle of module IV; the others say so and end."""
    epochs, kept = len(epochs_of(folder, "module IV")), folder / "checkpoint" / "module-IV.running.safetensors"
    end = time.monotonic() + PATIENCE
    while len(epochs_of(folder, "module IV")) < epochs + 2 or not kept.exists():
        assert time.monotonic() < end, launcher.says(0)
        time.sleep(0.005)
    os.kill(processes[victim], signal.SIGKILL)
    ends = launcher.ends()
    assert ends[victim] == -signal.SIGKILL
    for rank in set(range(len(processes))) - {victim}:
        assert ends[rank] == 1
        assert "decaf: another rank has stopped (" in launcher.says(rank)
        assert "run the same command again: it goes on from the checkpoint" in launcher.says(rank)
        assert "Traceback" not in launcher.says(rank)
    assert not (folder / "model.json").exists()


def test_when_a_rank_is_killed_the_others_stop_and_any_number_goes_on(
    launcher: work.Launcher, data: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    arguments = ("train", data, "-o", folder, *options(LONG))
    kill_one(launcher, folder, launcher.start(3, *arguments), 1)
    processes = launcher.start(2, *arguments)
    kill_one(launcher, folder, processes, 0)
    assert "module IV: going on after epoch" in launcher.says(0)
    model = alone(data, LONG, folder)
    epochs = epochs_of(folder, "module IV")
    assert epochs[-1] == EPOCHS
    assert epochs.count(EPOCHS) == 1
    assert epochs.count(1) == 1  # no run began anew
    assert len(epochs_of(folder, "module I")) == 4
    check_same(model, alone(data, LONG), data)


def test_ranks_with_other_data_are_refused(launcher: work.Launcher, data: Path, tmp_path: Path) -> None:
    topics(train=239).save(data.parent / "topics-1")
    launcher.start(2, "train", data.parent / "topics-{rank}", "-o", tmp_path / "model", *options(SETTINGS))
    assert launcher.ends() == [1, 1]
    assert "decaf: rank 1 has other data or settings than rank 0" in launcher.says(0)
    assert "start the same command on the same files everywhere" in launcher.says(1)
    assert not (tmp_path / "model").exists()


@pytest.fixture
def one_gpu_for_two(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": 1, "WORLD_SIZE": 4, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 2}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)


@pytest.mark.usefixtures("one_gpu_for_two")
def test_ranks_that_would_have_to_share_a_gpu_are_refused_before_they_talk() -> None:
    told = r"2 ranks on this machine but 1 GPU, .* use --nproc-per-node 1, or"
    with pytest.raises(TrainingError, match=told), joined("auto"):
        pass


@pytest.mark.usefixtures("one_gpu_for_two")
def test_a_rank_that_is_shown_one_gpu_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    taken: list[object] = []
    monkeypatch.setattr("torch.cuda.set_device", taken.append)
    monkeypatch.setattr("torch.distributed.init_process_group", lambda *given, **_: taken.extend(given))
    monkeypatch.setattr("torch.distributed.get_rank", lambda: 1)
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: 4)
    monkeypatch.setattr("torch.distributed.destroy_process_group", lambda: None)
    with joined("auto") as ranks:
        assert ranks == Ranks(1, 4, 2)
    assert taken == [0, "cpu:gloo,cuda:nccl"]


def test_what_several_ranks_cannot_train_is_refused_before_they_talk(tmp_path: Path) -> None:
    two, small = Ranks(1, 2), decaf.recipe().with_settings(SETTINGS)
    with pytest.raises(TrainingError, match=r"default recipe alone, not model\.loss, tokens\.kind; use one process"):
        decaf.train(topics(), QUICK, device="cpu", folder=tmp_path, ranks=two)
    with pytest.raises(TrainingError, match="need a folder that all can read"):
        decaf.train(topics(), small, device="cpu", ranks=two)
    with pytest.raises(TrainingError, match="9 ranks are too many for 8 clusters of labels; use 8 or fewer"):
        decaf.train(topics(), small, device="cpu", folder=tmp_path, ranks=Ranks(1, 9))


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(total=st.integers(0, 1000), count=st.integers(1, 9))
def test_ranks_own_every_row_once_and_as_many_as_the_others(total: int, count: int) -> None:
    owned = [Ranks(number, count).own(total) for number in range(count)]
    assert [row for own in owned for row in range(own.start, own.stop)] == list(range(total))
    sizes = [own.stop - own.start for own in owned]
    assert max(sizes) - min(sizes) <= 1
    assert [Ranks(0, count).own(total, number) for number in range(count)] == owned


@settings(max_examples=80, deadline=None, derandomize=True, database=None)
@given(named=st.lists(st.integers(0, 9), min_size=1, max_size=12), count=st.integers(1, 4), drawn=st.integers(0, 3))
def test_each_candidate_is_that_of_the_rank_that_owns_it(named: list[int], count: int, drawn: int) -> None:
    candidates = Candidates.of(torch.tensor(named), 9, min(drawn, len(named)))
    found = {}
    for number in range(count):
        own = Ranks(number, count).own(9)
        mine = candidates.among(own)
        assert mine.labels is not None
        counts = mine.weight > -1
        assert counts.tolist() == (mine.labels < own.stop - own.start).tolist()
        assert not counts[-1]  # nobody, so that there always is somebody to compare with
        at, there = mine.find(torch.arange(9) - own.start)
        for label in torch.arange(9)[there].tolist():
            assert own.start <= label < own.stop
            assert int(mine.labels[at[label]]) == label - own.start
        labels = (mine.labels[counts] + own.start).tolist()
        found |= dict(zip(labels, mine.weight[counts].tolist(), strict=True))
    assert candidates.labels is not None
    there = candidates.labels < 9
    assert found == dict(zip(candidates.labels[there].tolist(), candidates.weight[there].tolist(), strict=True))


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_ranks_encode_every_document_of_a_batch_once(count: int) -> None:
    documents = Rows.of(work.random_rows(5, 9, seed=2), CPU)
    batches = Batches(documents, documents, 3)
    batches.shuffle(torch.tensor([4, 1, 3, 0, 2]))
    for step in range(2):
        batch = batches.batch(torch.tensor([step]))
        tokens, starts, weights = zip(*(batch.documents(Ranks(number, count)) for number in range(count)), strict=True)
        assert torch.equal(torch.cat(tokens), batch.tokens)
        assert torch.equal(torch.cat(weights), batch.weights)
        before = np.cumsum([0, *(len(part) for part in tokens)])
        assert torch.equal(torch.cat([part + shift for part, shift in zip(starts, before, strict=False)]), batch.starts)
