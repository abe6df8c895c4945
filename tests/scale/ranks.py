"""Ranks for the tests: one process imports everything and forks them, which is quicker than beginning each anew.

It reads what to do as JSON, a line for each run, and answers with the numbers of the processes, then with their ends.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from modules import random_rows
from torch import Tensor

from decaf.config import recipe
from decaf.modules import loop
from decaf.modules.checkpoints import Forgetful
from decaf.modules.problem import Problem
from decaf.modules.ranker import learn_ranker
from decaf.modules.shortlister import Shortlist
from decaf.networks import FrozenEncoder, Shortlister, products
from decaf.ranks import Ranks, joined

DOCUMENTS, LABELS, TOKENS, DIM = 40, 23, 30, 8  # no two ranks, nor three, have the same share of them
TESTS = Path(__file__).parent.parent


def environment() -> dict[str, str]:
    """Of a process that finds decaf and these tests."""
    import decaf

    places = [str(Path(decaf.__file__).parent.parent), str(TESTS)]
    return os.environ | {"PYTHONPATH": os.pathsep.join(places), "OMP_NUM_THREADS": "1"}


class Launcher:
    """The process that forks."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._process = subprocess.Popen(
            [sys.executable, "-m", "scale.ranks"],
            cwd=TESTS,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, count: int, *arguments: object) -> list[int]:
        """Begin so many ranks -> the numbers of their processes; `{rank}` in an argument is a rank's own number."""
        for log in self._logs.iterdir():
            log.unlink()
        asked = {"count": count, "arguments": [str(argument) for argument in arguments], "logs": str(self._logs)}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return list(self._answer())

    def ends(self) -> list[int]:
        """The exit codes of all ranks; below 0, the signal that ended one."""
        return list(self._answer())

    def says(self, rank: int) -> str:
        """What a rank has written."""
        return (self._logs / f"{rank}.txt").read_text(encoding="utf-8")

    def run(self, count: int, *arguments: object) -> list[str]:
        """Begin so many ranks, wait for their good end, and tell what they have written."""
        self.start(count, *arguments)
        ends = self.ends()
        said = [self.says(rank) for rank in range(count)]
        assert ends == [0] * count, "\n".join(said)
        return said

    def stop(self) -> None:
        """No more runs."""
        self._process.communicate()

    def _answer(self) -> Any:  # noqa: ANN401
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())


class Memory(Forgetful):
    """Remembers what it is given to keep, and what was noted."""

    due = True

    def __init__(self) -> None:
        self.state: dict[str, Tensor] = {}
        self.losses: list[float] = []

    def keep(self, name: str, tensors: dict[str, Tensor], epochs: int) -> None:
        """After every epoch."""
        self.state = {key: tensor.detach().clone() for key, tensor in tensors.items()}

    def note(self, **facts: float | str) -> None:
        """Every line of the record."""
        self.losses.append(float(facts["loss"]))


def module_four(ranks: Ranks, *, negatives: int, batch: int) -> dict[str, Any]:
    """An epoch of module IV on random data: what is kept of it, its loss, and how much this rank itself holds."""
    generator = torch.Generator().manual_seed(1)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    truth = random_rows(DOCUMENTS, LABELS, seed=3, most=3)
    truth.data[:] = 1
    filters = np.array([[0, 1], [1, 22], [2, 3], [39, 0]])
    texts = random_rows(LABELS, TOKENS, seed=1)
    problem = Problem(random_rows(DOCUMENTS, TOKENS, seed=2), texts, truth, np.arange(LABELS), filters, np.ones(LABELS))
    members = torch.cat([torch.arange(LABELS), torch.tensor([-1])]).view(8, 3)
    encoder = FrozenEncoder(random(TOKENS, DIM), torch.ones(DIM), torch.zeros(DIM, DIM), torch.zeros(DIM), True)
    shortlister = Shortlister(encoder, random(8, DIM), torch.zeros(8), members)
    clusters = torch.randint(8, (DOCUMENTS, 4), generator=generator, dtype=torch.int32)
    shortlist = Shortlist(shortlister, torch.arange(LABELS) // 3, random(TOKENS, DIM), clusters, random(LABELS, DIM))
    config = recipe().with_settings(
        [f"ranker.negatives={negatives}", f"ranker.batch={batch}", "ranker.epochs=1", "ranker.dropout=0"]
    )
    own: dict[str, int] = {}
    state_of = loop._state

    def noted(*parts: Any) -> dict[str, Tensor]:  # noqa: ANN401
        tensors = state_of(*parts)
        own.update({name: tensor.numel() for name, tensor in tensors.items()})
        return tensors

    loop._state = noted
    try:
        keeper = Memory()
        ranker = learn_ranker("module IV", problem, shortlist, config, seed=0, keeper=keeper, ranks=ranks)
    finally:
        loop._state = state_of
    kept = keeper.state | {"ranker": ranker.weights, "ranker bias": ranker.bias}
    return {"state": kept, "losses": keeper.losses, "own": own}


CASES = [(LABELS, 64), (LABELS, 24), (6, 64), (6, 24)]  # negatives and batch: all labels and few; one step and two


def _steps(folder: str) -> None:
    """All cases, one after another."""
    with joined("cpu") as ranks:
        found = [module_four(ranks, negatives=negatives, batch=batch) for negatives, batch in CASES]
    torch.save(found, f"{folder}/{ranks.count}-{ranks.number}.pt")


def _train(*arguments: str) -> None:
    """The command line."""
    from decaf.cli import main

    products._has_bfloat16 = lambda: False  # type: ignore[assignment]  # as one process of the tests does without
    sys.argv = ["decaf", "train", *arguments]
    main()


# What training imports when it needs it.
_USED = (
    "torch._dynamo",
    "matplotlib.figure",
    "matplotlib.backends.backend_agg",
    "decaf.modules.linear",
    "decaf.training",
)
_WORK: dict[str, Callable[..., None]] = {"steps": _steps, "train": _train}


def _rank(work: Callable[..., None], arguments: list[str], log: Path) -> int:
    """Do the work of one rank -> the exit code."""
    out = os.open(log, os.O_WRONLY | os.O_CREAT)
    os.dup2(out, 1)
    os.dup2(out, 2)
    try:
        work(*arguments)
    except SystemExit as error:
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr, flush=True)
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
        return 2
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def main() -> None:
    for name in _USED:
        importlib.import_module(name)
    for line in sys.stdin:
        asked = json.loads(line)
        count, (work, *arguments) = asked["count"], asked["arguments"]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        processes = []
        for rank in range(count):
            process = os.fork()
            if not process:
                own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
                os.environ |= {name: str(value) for name, value in own.items()}
                os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
                filled = [argument.replace("{rank}", str(rank)) for argument in arguments]
                os._exit(_rank(_WORK[work], filled, Path(asked["logs"]) / f"{rank}.txt"))
            processes.append(process)
        print(json.dumps(processes), flush=True)
        ends = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]
        print(json.dumps(ends), flush=True)


if __name__ == "__main__":
    main()
