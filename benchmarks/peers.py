"""PECOS, napkinXC and omikuji on datasets, with our features and our ruler: accuracy and times.

    python -m benchmarks.peers DATASET... [--peers pecos,napkinxc,omikuji] [--environment FOLDER] [--save]

The peers get a virtual environment of their own, made by pip where it is not there yet, two threads, and the features
of the default recipe. Writes one file a dataset; systems measured before stay in it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.report import figures_before, parser, write_report
from decaf import Dataset, evaluate
from decaf.experiments.peers import PACKAGES, featured, install, of_peer
from decaf.experiments.systems import METADATA, SYSTEMS
from decaf.predictions import Predictions

SEED = 0
THREADS = 2
SLOW = ("napkinxc-br",)  # an hour and more where labels are many


def main() -> None:
    options = parser(__doc__)
    options.add_argument("datasets", nargs="+", metavar="DATASET")
    options.add_argument("--peers", default=",".join(PACKAGES), help="peers, separated by commas")
    options.add_argument("--environment", type=Path, default=Path(".scratch/peers"), help="folder of their packages")
    arguments = options.parse_args()
    peers = arguments.peers.split(",")
    if unknown := set(peers) - set(PACKAGES):
        options.error(f"there is no peer {unknown.pop()!r}; there are: {', '.join(PACKAGES)}")
    python, failed = install(arguments.environment, peers)
    for path in arguments.datasets:
        title = f"peers-{Path(path).name}"
        figures = compare(Dataset.load(path), python, [peer for peer in peers if peer not in failed])
        if arguments.shared:
            untimed = {"training_seconds": None, "ms_per_document": None}
            figures["systems"] = {name: of | untimed for name, of in figures["systems"].items()}
        figures["systems"] = figures_before(title).get("systems", {}) | figures["systems"]
        write_report(title, SEED, figures | {"not_installed": failed}, save=arguments.save)


def compare(dataset: Dataset, python: Path, peers: list[str]) -> dict[str, Any]:
    """All systems of these peers, one after the other."""
    ready, times = featured(dataset)
    systems = {}
    for name in METADATA:
        if SYSTEMS[name].maker in peers and name not in SLOW:
            found, facts = of_peer(ready, times, name, python, threads=THREADS, seed=SEED)
            systems[name] = judge(found, dataset) | facts
            print(name, systems[name], flush=True)
    return {"dataset": dataset.name, "threads": THREADS, "systems": systems}


def judge(predictions: Predictions, dataset: Dataset) -> dict[str, float]:
    """All figures on the test documents, the filter applied."""
    figures = evaluate(predictions, dataset.test.truth, dataset.inverse_propensity, dataset.test.filters)
    return {name: round(value, 2) for name, value in figures.items()}


if __name__ == "__main__":
    main()
