"""Module IV's step on several ranks against one process: documents a second, and what each rank holds.

    python -m benchmarks.ranks DATASET [--ranks 2] [--rounds 5] [--set stage.key=value] [--shared] [--save]

One process with as many threads as there are ranks, and ranks of one thread each that talk by gloo, go through the
documents once a round, in turn; the ratio is that of the medians. Labels' vectors begin at random, shortlists are
random too: a step takes as long as with learned ones. Compare times of one run only.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import socket
from multiprocessing.connection import Connection
from statistics import median
from typing import Any

import torch
from torch import Tensor

from benchmarks.report import parser, write_report
from decaf import Dataset, recipe
from decaf.devices import memory_kept
from decaf.modules.checkpoints import Forgetful
from decaf.modules.loop import Schedule, fit
from decaf.modules.problem import Problem
from decaf.modules.ranker import ChoiceTask
from decaf.modules.shortlister import Shortlist
from decaf.networks import FixedBags, FrozenEncoder, Rows, Shortlister, TextNetwork, token_table
from decaf.ranks import Ranks, joined
from decaf.training import prepared

SEED = 0
WIDTH, BEAM, TEMPERATURE = 4, 16, 40.0  # labels of a cluster, clusters of a document
CPU = torch.device("cpu")


class Times(Forgetful):
    """Notes how long epochs took."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def note(self, **facts: float | str) -> None:
        """A line of the run's record."""
        self.seconds.append(float(facts["seconds"]))


def main() -> None:
    options = parser(__doc__)
    options.add_argument("dataset", metavar="DATASET")
    options.add_argument("--ranks", type=int, default=2)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--set", dest="settings", action="append", default=[], metavar="STAGE.KEY=VALUE")
    arguments = options.parse_args()
    if arguments.ranks < 2 or arguments.rounds < 1:
        options.error("ranks begin at 2, rounds at 1")
    count = arguments.ranks
    alone = begin(arguments.dataset, arguments.settings, [{}], threads=count)
    together = begin(arguments.dataset, arguments.settings, places(count), threads=1)
    facts = {"one process": held(alone), "ranks": held(together)}
    times: dict[str, list[float]] = {"one process": [], "ranks": []}
    epoch(alone), epoch(together)  # to warm up
    for number in range(arguments.rounds):
        times["one process"].append(epoch(alone))
        times["ranks"].append(epoch(together))
        print(f"round {number + 1}:", ", ".join(f"{name} {of[-1]:.2f} s" for name, of in times.items()), flush=True)
    for pipe in (*alone, *together):
        pipe.send(False)
    figures = compared(facts, times, count, shared=arguments.shared)
    write_report(f"ranks-{arguments.dataset}", SEED, figures, save=arguments.save)


def compared(
    facts: dict[str, list[dict[str, Any]]], times: dict[str, list[float]], count: int, *, shared: bool
) -> dict[str, Any]:
    """The figures."""
    whole, parts = facts["one process"][0], facts["ranks"]
    sizes = {name: whole[name] for name in ("documents", "labels", "tokens", "dim", "batch", "negatives", "steps")}
    ratio = median(times["one process"]) / median(times["ranks"])
    speeds = {f"documents_a_second, {name}": round(whole["documents"] / median(of)) for name, of in times.items()}
    return {
        **sizes,
        "ranks": count,
        "rounds": len(times["ranks"]),
        **({} if shared else speeds),
        "times_as_fast": round(ratio, 2),
        "times_as_fast, by round": [
            round(one / many, 2) for one, many in zip(times["one process"], times["ranks"], strict=True)
        ],
        "bytes_of_labels": whole["of_labels"],
        "bytes_of_labels, each rank": [part["of_labels"] for part in parts],
        "share_of_labels, largest": round(max(part["of_labels"] for part in parts) / whole["of_labels"], 3),
        "bytes_shared": whole["shared"],
        "bytes_shared, each rank": [part["shared"] for part in parts],
    }


def places(count: int) -> list[dict[str, str]]:
    """The environment of each rank."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return [common | {"RANK": str(number), "LOCAL_RANK": str(number)} for number in range(count)]


def begin(dataset: str, settings: list[str], environments: list[dict[str, str]], *, threads: int) -> list[Connection]:
    """Begin a process for each environment -> how to talk to them."""
    context = multiprocessing.get_context("spawn")
    pipes = []
    for environment in environments:
        mine, theirs = context.Pipe()
        context.Process(target=work, args=(dataset, settings, environment, threads, theirs), daemon=True).start()
        theirs.close()
        pipes.append(mine)
    return pipes


def held(pipes: list[Connection]) -> list[dict[str, Any]]:
    """What each process says of itself when it is ready."""
    return [pipe.recv() for pipe in pipes]


def epoch(pipes: list[Connection]) -> float:
    """All documents once -> seconds of the slowest."""
    for pipe in pipes:
        pipe.send(True)
    return max(float(pipe.recv()) for pipe in pipes)


def work(dataset: str, settings: list[str], environment: dict[str, str], threads: int, pipe: Connection) -> None:
    """One process or rank: an epoch whenever it is asked for."""
    os.environ.update(environment)
    torch.set_num_threads(threads)
    with joined("cpu") as ranks, memory_kept():
        config = recipe().with_settings(settings)
        _, problem, config = prepared(Dataset.load(dataset), config, CPU)
        problem = dataclasses.replace(problem, held=None)
        few = config.ranker.negatives < len(problem.kept)
        network = made(problem, config.model.dim, config.ranker.dropout, ranks, few=few)
        negatives = config.ranker.negatives if few else 0
        shortlist = random_shortlist(problem, network.table)
        task = ChoiceTask(network, shortlist, problem, negatives=negatives, hard=config.ranker.hard, ranks=ranks)
        documents, positives = Rows.of(problem.documents, CPU), Rows.of(problem.known(), CPU)
        of_labels, shared = sizes(task)
        pipe.send(
            {
                "documents": len(documents),
                "labels": len(problem.kept),
                "tokens": problem.documents.shape[1],
                "dim": config.model.dim,
                "batch": config.ranker.batch,
                "negatives": config.ranker.negatives,
                "steps": -(-len(documents) // config.ranker.batch),
                "of_labels": of_labels,
                "shared": shared,
            }
        )
        while pipe.recv():
            times = Times()
            schedule = Schedule(1, config.ranker.batch, config.ranker.rate)
            fit("module IV", task, documents, positives, schedule, seed=SEED, keeper=times)
            pipe.send(times.seconds[0])


def made(problem: Problem, dim: int, dropout: float, ranks: Ranks, *, few: bool) -> TextNetwork:
    """The network of module IV before it has learned."""
    table = token_table(problem.documents.shape[1], dim, torch.Generator().manual_seed(SEED))
    texts = FixedBags(ranks.own_rows(problem.labels), CPU)
    settings: dict[str, Any] = {"text": True, "refinement": "text", "learn_table": True, "temperature": TEMPERATURE}
    return TextNetwork(table, texts, dropout, by_rows=few, **settings)


def random_shortlist(problem: Problem, table: Tensor) -> Shortlist:
    """Clusters of labels by their numbers, and random ones for each document."""
    labels = len(problem.kept)
    count = -(-labels // WIDTH)
    members = torch.full((count * WIDTH,), -1)
    members[:labels] = torch.arange(labels)
    generator = torch.Generator().manual_seed(SEED)
    clusters = torch.randint(count, (problem.documents.shape[0], BEAM), generator=generator, dtype=torch.int32)
    nothing = torch.zeros(0)
    shortlister = Shortlister(
        FrozenEncoder(nothing, nothing, nothing, nothing), nothing, nothing, members.view(count, WIDTH)
    )
    return Shortlist(shortlister, torch.arange(labels) // WIDTH, table.detach(), clusters)


def sizes(task: ChoiceTask) -> tuple[int, int]:
    """Bytes of parameters and of what optimizers remember: of this process's labels, and of what all share."""
    own = {id(parameter) for parameter in task.split()[0]}
    found = {True: 0, False: 0}
    for parameter in task.network.parameters():
        found[id(parameter) in own] += _bytes(parameter)
    for optimizer in task.optimizers():
        for of, memory in optimizer.state.items():
            found[id(of) in own] += sum(_bytes(tensor) for tensor in memory.values())
    return found[True], found[False]


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


if __name__ == "__main__":
    main()
