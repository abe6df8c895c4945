"""A whole file predicted on Ray, beside the same file predicted by one process on the same cores.

    python -m benchmarks.engines MODEL DATASET [--copies 25] [--rounds 2] [--save]

The test documents of DATASET, several times over, are written to Parquet and predicted into Parquet: by one process
with a thread for each core, and by Ray with a worker for each core, by turns. All of it is timed, the loading of models
by the workers too; the cluster is there before. The best round counts.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.report import parser, write_report
from decaf import Dataset
from decaf.batch import here, predict_file
from decaf.cluster import on_ray


def main() -> None:
    import ray

    options = parser(__doc__)
    options.add_argument("model", type=Path, metavar="MODEL")
    options.add_argument("dataset", metavar="DATASET")
    options.add_argument("--copies", type=int, default=25)
    options.add_argument("--rounds", type=int, default=2)
    arguments = options.parse_args()
    texts = list(Dataset.load(arguments.dataset).test.documents.texts or []) * arguments.copies
    cores = os.cpu_count() or 1
    ray.init(num_cpus=cores, include_dashboard=False, log_to_driver=False)
    seconds: dict[str, list[float]] = {"one process": [], "ray": []}
    with tempfile.TemporaryDirectory() as place:
        source = Path(place) / "in.parquet"
        pq.write_table(pa.table({"text": texts}), source)
        outputs = set()
        for number in range(arguments.rounds):
            for name, engine, threads in (("one process", here, cores), ("ray", on_ray(cores), 1)):
                output = Path(place) / f"{number}-{name}.parquet"
                started = time.perf_counter()
                count = predict_file(arguments.model, source, output, threads=threads, engine=engine)
                seconds[name].append(time.perf_counter() - started)
                outputs.add(hashlib.sha256(output.read_bytes()).hexdigest())
                print(f"round {number + 1}, {name}: {count:,} documents, {seconds[name][-1]:.2f} s", flush=True)
    best = {name: min(of) for name, of in seconds.items()}
    figures = {
        "dataset": Path(arguments.dataset).name,
        "documents": len(texts),
        "cores": cores,
        "documents_per_second": {name: round(len(texts) / of) for name, of in best.items()},
        "ray_to_one_process": round(best["one process"] / best["ray"], 3),
        "outputs_alike": len(outputs) == 1,
    }
    write_report(f"engines-{figures['dataset']}", 0, figures, save=arguments.save)


if __name__ == "__main__":
    main()
