"""The embedded dataset: names of Debian 12 packages and which packages each relates to (tools/make_catalogue.py)."""

from __future__ import annotations

import json
from pathlib import Path

from decaf.datasets.columns import TargetColumns
from decaf.datasets.files import read_bytes
from decaf.datasets.pairs import with_pair_filters
from decaf.datasets.parts import Items, Part, Parts, no_pairs

__all__ = ["read_catalogue"]

_FILE = Path(__file__).with_name("catalogue.json.gz")


def read_catalogue() -> Parts:
    """Package names as documents, the packages they depend on, recommend, suggest or enhance as labels."""
    content = json.loads(read_bytes(_FILE))
    labels = content["labels"]

    def part(rows: list[tuple[str, list[int]]]) -> Part:
        names = [name for name, _ in rows]
        targets = TargetColumns(_FILE)
        for at, (_, indices) in enumerate(rows):
            targets.add(at, indices, None)
        return Part(Items(len(names), names, names), targets.truth(len(labels)), no_pairs())

    return with_pair_filters(Parts(part(content["train"]), part(content["test"]), Items(len(labels), labels, labels)))
