"""Balanced clusters: 131,073 labels into 32,768 clusters, dense and sparse, on the CPU.

python -m benchmarks.clustering [--labels 131073] [--device cpu]
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch

from benchmarks.reading import random_matrix
from benchmarks.report import parser, write_report
from decaf.clusters import balanced_clusters

SEED = 0
DIM, TOKENS, TOKENS_EACH = 300, 40_000, 30
GROUPS = 2_000  # that the vectors lie around, so that there is something to find


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--labels", type=int, default=131_073)
    options.add_argument("--clusters", type=int, default=1 << 15)
    options.add_argument("--device", default="cpu")
    arguments = options.parse_args()
    rng = np.random.default_rng(SEED)
    centres = rng.standard_normal((GROUPS, DIM), dtype=np.float32)
    noise = rng.standard_normal((arguments.labels, DIM), dtype=np.float32)
    dense = centres[rng.integers(GROUPS, size=arguments.labels)] + noise
    sparse = random_matrix(arguments.labels, TOKENS, TOKENS_EACH, rng, ones=False)
    figures: dict[str, Any] = {"labels": arguments.labels, "clusters": arguments.clusters, "device": arguments.device}
    for name, vectors in (("dense", dense), ("sparse", sparse)):
        start = time.perf_counter()
        cluster = balanced_clusters(
            vectors, arguments.clusters, rng=np.random.default_rng(SEED), device=torch.device(arguments.device)
        )
        seconds = time.perf_counter() - start
        sizes = np.bincount(cluster, minlength=arguments.clusters)
        figures[name] = {"seconds": round(seconds, 1), "smallest": int(sizes.min()), "largest": int(sizes.max())}
    write_report("clustering", SEED, figures, save=arguments.save)


if __name__ == "__main__":
    main()
