"""Reading sparse files of the size of LF-AmazonTitles-1.3M: time and memory of a first load and of a second one.

    python -m benchmarks.reading [--documents 2248619] [--keep FOLDER]

Each load runs in a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from scipy import sparse

from benchmarks.report import parser, write_report
from decaf.datasets.sparse_text import write_matrix

LABELS, TOKENS = 1_305_265, 128_000
LABELS_EACH, TOKENS_EACH = 22, 9
SEED = 0

LOAD = """
import json, resource, sys, time
start = time.perf_counter()
from decaf import Dataset
dataset = Dataset.load(sys.argv[1])
seconds = time.perf_counter() - start
pairs = int(dataset.train.truth.nnz)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
print(json.dumps({"seconds": round(seconds, 1), "peak_gb": round(peak / 1e9, 2), "pairs": pairs}))
"""


def random_matrix(rows: int, columns: int, each: int, rng: np.random.Generator, *, ones: bool) -> sparse.csr_array:
    """About `each` entries a row, columns by a power law."""
    drawn = (columns * rng.random((rows, each), dtype=np.float32) ** 3).astype(np.int32)
    drawn.sort(axis=1)
    first = np.ones(drawn.shape, dtype=bool)
    first[:, 1:] = drawn[:, 1:] != drawn[:, :-1]
    indptr = np.concatenate([[0], np.cumsum(first.sum(axis=1))])
    indices = drawn[first]
    values = np.ones(len(indices), np.float32) if ones else rng.random(len(indices), dtype=np.float32)
    return sparse.csr_array((values.round(6), indices, indptr), shape=(rows, columns))


def make_files(folder: Path, documents: int) -> int:
    """Write training documents, 43 % as many test documents, and label features; return the bytes written."""
    rng = np.random.default_rng(SEED)
    for prefix, rows in (("trn", documents), ("tst", round(0.4315 * documents))):
        write_matrix(random_matrix(rows, TOKENS, TOKENS_EACH, rng, ones=False), folder / f"{prefix}_X_Xf.txt")
        write_matrix(random_matrix(rows, LABELS, LABELS_EACH, rng, ones=True), folder / f"{prefix}_X_Y.txt")
    write_matrix(random_matrix(LABELS, TOKENS, TOKENS_EACH, rng, ones=False), folder / "lbl_X_Xf.txt")
    return sum(file.stat().st_size for file in folder.iterdir())


def load(folder: Path, cache: Path) -> dict[str, float]:
    """Load in a fresh process."""
    environment = os.environ | {"DECAF_CACHE": str(cache)}
    command = [sys.executable, "-c", LOAD, str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--documents", type=int, default=2_248_619)
    options.add_argument("--keep", type=Path, help="make the files here, or use those that are here")
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.keep or Path(scratch) / "data"
        if folder.is_dir():
            size = sum(file.stat().st_size for file in folder.iterdir())
        else:
            folder.mkdir(parents=True)
            size = make_files(folder, arguments.documents)
        cache = Path(scratch) / "cache"
        figures = {"bytes": size, "first": load(folder, cache), "second": load(folder, cache)}
    write_report("reading", SEED, {"documents": arguments.documents, "labels": LABELS, **figures}, save=arguments.save)


if __name__ == "__main__":
    main()
