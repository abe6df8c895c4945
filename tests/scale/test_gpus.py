"""Ranks on a GPU, where there is one: by NCCL, as far as one card can tell."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from modules import topics

import decaf
from decaf import Dataset, Model

from . import ranks as work

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
SETTINGS = [
    *("model.dim=16", "model.precision=float32", "split.validation=0.25", "tokens.rate=0.05", "ranker.rate=0.02"),
    *("tokens.epochs=4", "tokens.batch=64", "shortlister.batch=64", "ranker.epochs=4", "ranker.batch=64"),
]
# NCCL wants a card for each rank, so with one card its group has one rank, which says everything to itself alone.
ALONE_BY_NCCL = """
import sys
from unittest import mock

import torch.distributed as dist
import decaf
from decaf import Dataset, ranks

with (
    mock.patch.object(ranks, "launched", lambda: (0, 2)),
    mock.patch.object(ranks.Ranks, "many", True),
    mock.patch.object(dist, "all_reduce", wraps=dist.all_reduce) as summed,
    ranks.joined("cuda") as joined,
):
    data, folder, *assignments = sys.argv[1:]
    config = decaf.recipe().with_settings(assignments)
    decaf.train(Dataset.load(data), config, device="cuda", folder=folder, ranks=joined)
    print("by", dist.get_backend_config(), "sums on the card:", sum(one.args[0].is_cuda for one in summed.mock_calls))
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "topics"
    topics().save(folder)
    return folder


def torchrun(count: int, *arguments: object) -> str:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", count, *arguments]
    done = subprocess.run(
        [str(word) for word in command], env=work.environment(), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_as_good_as_alone(folder: Path, data: Path, assignments: list[str]) -> None:
    config = decaf.recipe().with_settings(assignments)
    alone = decaf.train(Dataset.load(data), config, device="cuda")
    one, other = (decaf.evaluate_model(model, Dataset.load(data)) for model in (alone, Model.load(folder)))
    assert one["P@1"] > 30
    assert abs(one["P@1"] - other["P@1"]) <= 5


@pytest.mark.parametrize("negatives", [8, 10_000], ids=["some labels", "all labels"])
def test_a_rank_learns_by_nccl_what_one_process_learns(data: Path, tmp_path: Path, negatives: int) -> None:
    (tmp_path / "alone.py").write_text(ALONE_BY_NCCL, encoding="utf-8")
    assignments = [*SETTINGS, f"ranker.negatives={negatives}"]
    said = torchrun(1, tmp_path / "alone.py", data, tmp_path / "model", *assignments)
    assert "cuda:nccl" in said
    assert int(said.split()[-1]) > 10
    check_as_good_as_alone(tmp_path / "model", data, assignments)
