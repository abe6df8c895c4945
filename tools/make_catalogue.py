"""Make the embedded catalogue from Debian's package lists: names, and which packages each relates to.

    apt-cache dumpavail | python tools/make_catalogue.py src/decaf/datasets/catalogue.json.gz

Facts only: package names and the names in Depends, Recommends, Suggests and Enhances. Packages that more than one in
a hundred relate to (the C library, Perl, ...) are left out as labels: they say nothing about a package.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from decaf.config import SplitSettings
from decaf.datasets.columns import TargetColumns
from decaf.datasets.parts import Items, Part, Parts, empty_part, no_pairs
from decaf.datasets.splits import split_parts

FIELDS = ("Depends", "Recommends", "Suggests", "Enhances")
COMMONEST = 0.01  # share of the packages above which a label is left out
NAME = re.compile(r"[a-z0-9][a-z0-9+.-]+")


def read_relations(lines: Iterable[str]) -> dict[str, set[str]]:
    """Package -> names it relates to; several versions of one package are joined."""
    relations: dict[str, set[str]] = {}
    package, wanted = "", False
    for line in lines:
        key, colon, value = line.partition(":")
        if line.startswith((" ", "\t")):
            value, colon = line, ":"  # a field goes on
        elif key == "Package":
            package = value.strip()
            relations.setdefault(package, set())
        else:
            wanted = key in FIELDS
        if wanted and colon:
            for alternative in re.split(r"[,|]", value):
                if name := NAME.match(alternative.strip()):
                    relations[package].add(name[0])
    return relations


def make_parts(relations: dict[str, set[str]]) -> Parts:
    """Packages as documents, what they relate to as labels, shared out by the paper's rule."""
    counts = Counter(name for package, names in relations.items() for name in names - {package})
    labels = sorted(n for n, count in counts.items() if n in relations and count <= COMMONEST * len(relations))
    row = {name: at for at, name in enumerate(labels)}
    packages = sorted(relations)
    targets = TargetColumns(Path("stdin"))
    for line, package in enumerate(packages):
        targets.add(line, [row[name] for name in relations[package] - {package} if name in row], None)
    pool = Part(Items(len(packages), packages, packages), targets.truth(len(labels)), no_pairs())
    return split_parts(Parts(pool, empty_part(len(labels)), Items(len(labels), labels, labels)), SplitSettings())


def part_rows(part: Part) -> list[tuple[str, list[int]]]:
    bounds, indices = part.truth.indptr.tolist(), part.truth.indices.tolist()
    return [(part.documents.text(at), indices[bounds[at] : bounds[at + 1]]) for at in range(part.documents.count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    output: Path = parser.parse_args().output
    parts = make_parts(read_relations(sys.stdin))
    content = {"labels": parts.labels.texts, "train": part_rows(parts.train), "test": part_rows(parts.test)}
    with output.open("wb") as out, gzip.GzipFile("", "wb", 9, out, mtime=0) as stream:
        stream.write(json.dumps(content, separators=(",", ":")).encode())
    sizes = (parts.train.documents.count, parts.test.documents.count, parts.labels.count, output.stat().st_size)
    print("{} training documents, {} test documents, {} labels, {} bytes".format(*sizes))


if __name__ == "__main__":
    main()
