"""What a query costs against the number of labels: models made up by a tree, from 10,000 to 1.3 million labels.

    python -m benchmarks.scaling [--labels 10000,40000,160000,640000,1300000] [--queries 1000] [--save]

Labels hang on a binary tree whose every node adds a direction of its own, so that clusters lie in clusters, as real
ones do. A text is made of tokens of the nodes above its label. All sizes have vectors of 512 and, from a million
labels on, 2^17 clusters. Each model is saved, loaded by another process, and asked one text at a time on one thread.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from benchmarks.latency import agreement, timed
from benchmarks.report import RESULTS, parser, write_report
from decaf import Config, Model
from decaf.datasets import Items
from decaf.packed import Clusters, Curve, Encoder, Floats, Labels, Packed, narrowed, quantised
from decaf.scoring.exact import ExactScorer
from decaf.scoring.fast import FastScorer

DIM, TOKENS, WORDS, TOP = 512, 1 << 17, 32, 5
PART = 1 << 16  # rows made at a time
EXACT = 200  # queries that are also answered exactly
TEMPERATURE = 20.0
CURVE = ([0.0], [[0.5, 0.4, 8.0, 0.5, 0.5, 0.5]], [[1, -1, 0]])  # tails, weights of the parts, chances
Ints = NDArray[np.int64]


class Tree:
    """Clusters as leaves of a binary tree; every node adds a direction, the lower ones shorter ones."""

    def __init__(self, depth: int, rng: np.random.Generator) -> None:
        self.depth = depth
        self.levels: list[Floats] = [np.zeros((1, DIM), dtype=np.float32)]
        for level in range(1, depth + 1):
            step = rng.standard_normal((1 << level, DIM), dtype=np.float32) * np.float32(0.9**level / DIM**0.5)
            self.levels.append(np.repeat(self.levels[-1], 2, axis=0) + step)

    def unit(self, level: int, nodes: Ints, noise: float, rng: np.random.Generator) -> Floats:
        """Directions around nodes of a level, of unit length."""
        rows = _unit(self.levels[level][nodes])
        return _unit(rows + rng.standard_normal(rows.shape, dtype=np.float32) * np.float32(noise / DIM**0.5))


def made(count: int, seed: int = 0) -> tuple[Model, sparse.csr_array]:
    """A model of so many labels, and texts to ask it, as features."""
    rng = np.random.default_rng(seed)
    depth = min(17, max(4, round(np.log2(count / 8))))
    clusters = 1 << depth
    tree = Tree(depth, rng)
    bounds = np.linspace(0, count, clusters + 1).astype(np.int64)
    cluster = np.repeat(np.arange(clusters), np.diff(bounds))
    # A token belongs to a node in the lower half of the tree; most nodes have some.
    level = rng.integers(depth // 2, depth + 1, TOKENS)
    node = (rng.random(TOKENS) * (1 << level)).astype(np.int64)
    table = np.concatenate([tree.unit(at, node[level == at], 0.3, rng) for at in range(depth // 2, depth + 1)])
    order = np.argsort(np.concatenate([np.flatnonzero(level == at) for at in range(depth // 2, depth + 1)]))
    near, far = (_encoder(table[order], rng) for _ in range(2))
    tokens = _Tokens(level, node, depth)
    centres = tree.unit(depth, np.arange(clusters), 0.0, rng)
    weights, texts = (
        _rows((tree.unit(depth, part, noise, rng) * np.float32(TEMPERATURE) for part in _parts(cluster)), "int4")
        for noise in (0.5, 0.7)
    )
    words = np.concatenate([tokens.of(part, WORDS, rng) for part in _parts(cluster)]).astype(np.int32)
    likeness = _rows(_unit(rng.random((len(part), WORDS), np.float32)) for part in _parts(cluster))
    shares = _rows(rng.random((len(part), WORDS), np.float32) / np.float32(50) for part in _parts(cluster))
    floats = rng.standard_normal(count).astype(np.float32)
    cues = np.concatenate([tokens.of(part, WORDS, rng) for part in _parts(cluster)]).astype(np.int32)
    of_cues = _rows(rng.standard_normal((len(part), WORDS), np.float32) for part in _parts(cluster))
    of_text = _rows(_unit(rng.random((len(part), WORDS), np.float32)) for part in _parts(cluster))
    bias, rarity = 0.1 * floats, np.abs(floats)
    about: tuple[Any, ...] = (words, *likeness, *shares, cues, *of_cues, -rarity, *of_text)
    labels = Labels(bounds, np.arange(count), *weights, bias, rarity, *texts, *about)
    packed = Packed(
        near,
        far,
        _clusters(centres * np.float32(TEMPERATURE)),
        labels,
        Curve(
            *(
                np.array(values, dtype=np.float32)
                for values in ([0.0], [[1.0, 0.5, 0.4, 8.0, 0.5, 0.5, 0.5, -2.0, *(5 * [0.1])]], [[1, -1, 0]])
            )
        ),
        beam=100,
    )
    packed.check()
    asked = rng.integers(0, count, 4000)
    model = Model(
        Config(), None, Items(count, None, [f"label {at}" for at in range(count)]), np.arange(count), (packed,), {}
    )
    return model, _documents(tokens.of(cluster[asked], 9, rng), rng)


class _Tokens:
    """Tokens by the node that they belong to, on every level in the order of nodes."""

    def __init__(self, level: Ints, node: Ints, depth: int) -> None:
        self._levels = range(depth // 2, depth + 1)
        self._depth = depth
        self._tokens = {}
        for at in self._levels:
            own = np.flatnonzero(level == at)
            own = own[np.argsort(node[own], kind="stable")]
            self._tokens[at] = own, node[own]

    def of(self, clusters: Ints, count: int, rng: np.random.Generator) -> Ints:
        """Tokens at or next to the nodes above clusters -> [clusters, count]."""
        found = np.empty((len(clusters), count), dtype=np.int64)
        for column in range(count):
            at = self._levels[len(self._levels) * (column + 1) // (count + 1)]
            own, nodes = self._tokens[at]
            place = np.searchsorted(nodes, clusters >> (self._depth - at)) + rng.integers(0, 2, len(clusters))
            found[:, column] = own[np.minimum(place, len(own) - 1)]
        return found


def _unit(rows: Floats) -> Floats:
    unit: Floats = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return unit


def _parts(cluster: Ints) -> Iterator[Ints]:
    """The clusters of labels, some at a time."""
    return (cluster[start : start + PART] for start in range(0, len(cluster), PART))


def _rows(parts: Iterator[Floats], precision: str = "int8") -> tuple[NDArray[Any], Floats]:
    """Quantised rows, made some at a time."""
    values, scales = zip(*(quantised(part, precision) for part in parts), strict=True)
    return np.concatenate(values), np.concatenate(scales)


def _encoder(table: Floats, rng: np.random.Generator) -> Encoder:
    matrix = rng.standard_normal((DIM, DIM), dtype=np.float32) * np.float32(0.1 / DIM**0.5)
    return Encoder(*quantised(table, "int8"), np.ones(DIM, np.float32), matrix, np.zeros(DIM, np.float32), True)


def _clusters(centres: Floats) -> Clusters:
    rotation, first = narrowed(centres)
    return Clusters(
        rotation, *quantised(first, "int8"), *quantised(centres, "int8"), np.zeros(len(centres), np.float32)
    )


def _documents(tokens: Ints, rng: np.random.Generator) -> sparse.csr_array:
    values = rng.random(tokens.shape, dtype=np.float32) + np.float32(0.5)
    bounds = np.arange(0, tokens.size + 1, tokens.shape[1])
    made = sparse.csr_array((_unit(values).ravel(), tokens.ravel(), bounds), shape=(len(tokens), TOKENS))
    made.sum_duplicates()
    return made


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--labels", default="10000,40000,160000,640000,1300000")
    options.add_argument("--queries", type=int, default=1000)
    arguments = options.parse_args()
    lines = []
    for count in map(int, arguments.labels.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            started = time.perf_counter()
            model, rows = made(count)
            model.save(folder)
            sparse.save_npz(Path(folder) / "rows.npz", rows)
            size = sum(file.stat().st_size for file in Path(folder).iterdir() if file.name != "rows.npz")
            del model
            print(f"{count} labels: made in {time.perf_counter() - started:.0f} s", flush=True)
            context = multiprocessing.get_context("spawn")
            for part in (measured, compared):  # each in a process of its own, so that memory is its own
                with context.Pool(1) as pool:
                    found = pool.apply(part, (folder, arguments.queries))
                lines.append(found | {"labels": count, "bytes": size}) if part is measured else lines[-1].update(found)
        print(json.dumps(lines[-1]), flush=True)
    figures: dict[str, Any] = {"dim": DIM, "lines": lines}
    if len(lines) > 1:
        logs = np.log([[line["labels"], line["p50_ms"]] for line in lines])
        figures["exponent"] = round(float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0]), 3)
        print("exponent", figures["exponent"])
    write_report("scaling", 0, figures, save=arguments.save)
    if arguments.save:
        draw(figures, RESULTS / "scaling.png")


def measured(folder: str, queries: int) -> dict[str, Any]:
    """Load, first answer, then one query at a time; what the process holds in memory at the end."""
    torch.set_num_threads(1)
    rows = sparse.csr_array(sparse.load_npz(Path(folder) / "rows.npz"))
    warm, _ = made(2000)
    FastScorer(warm).top(rows[:2], TOP)  # compiled before
    del warm
    started = time.perf_counter()
    model = Model.load(folder, verify=False)
    loaded = time.perf_counter() - started
    scorer = FastScorer(model)
    scorer.top(rows[:1], TOP)
    ready = time.perf_counter() - started
    asked = [rows[at : at + 1] for at in range(min(queries, rows.shape[0]))]
    taken = timed(lambda row: scorer.top(row, TOP), asked)  # type: ignore[arg-type]
    return {
        **taken,
        "load_s": round(loaded, 3),
        "first_answer_s": round(ready, 3),
        "resident_mb": round(_resident() / 1e6, 1),
        "clusters": len(model.packed[0].clusters.bias),
    }


def compared(folder: str, queries: int) -> dict[str, Any]:
    """Checksums too, and agreement with exact answers."""
    rows = sparse.csr_array(sparse.load_npz(Path(folder) / "rows.npz"))[: min(EXACT, queries)]
    started = time.perf_counter()
    model = Model.load(folder)
    verified = time.perf_counter() - started
    found, truth = FastScorer(model).top(rows, TOP), ExactScorer(model, torch.device("cpu")).top(rows, TOP)
    return {"agreement": agreement(found, truth), "verified_load_s": round(verified, 3)}


def _resident() -> float:
    """Bytes of this process that are in memory now, or at most were where that cannot be asked."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return float(pages * resource.getpagesize())
    except OSError:
        return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * 1024


def draw(figures: dict[str, Any], path: Path) -> None:
    """Median and 99th percentile against the number of labels."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    labels = [line["labels"] for line in figures["lines"]]
    for name, marker, colour in (("p50", "o", "#0072B2"), ("p99", "s", "#D55E00")):
        axes.loglog(labels, [line[f"{name}_ms"] for line in figures["lines"]], marker=marker, color=colour, label=name)
    axes.set(xlabel="labels", ylabel="ms a query, one thread")
    axes.set_title(f"cost grows with labels to the power of {figures['exponent']}", fontsize=10)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
