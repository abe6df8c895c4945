"""Make up a dataset of the size and shape of LF-AmazonTitles-1.3M, with a structure that is known.

    python -m benchmarks.make_catalogue FOLDER [--labels 1305265] [--documents 2248619] [--tests 100000] [--seed 0]

Products belong to families of about four hundred labels, families to categories, and a family has four aspects. A title
is nine made-up words: of the family, of the aspect, of the category, common ones, and a name of its own. The labels of
a document, 22 in the mean, come mostly from its own aspect, then from its family, its category, and the head of all
labels; within each, a few are frequent and most are rare. So a reader who knew the family and the aspect of every
document could say which labels are likeliest; FOLDER/oracle.npz holds these for the test documents, and
`decaf metrics FOLDER FOLDER/oracle.npz` says what can be reached at best.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from decaf.datasets.files import new_folder
from decaf.predictions import Predictions, save_scores

__all__ = ["Shape", "make"]

FAMILY = 400  # labels
ASPECTS = 4  # of a family, with as many labels each
CATEGORY = 20  # families
HEAD = 1000  # labels that any document may have
# Where a label of a document comes from: its aspect, its family, its category, the head.
SOURCES = (0.50, 0.25, 0.15, 0.10)
LABELS_EACH = 22.2
# Words of a title: of the family, of its aspect, of the category, common ones, a name.
WORDS = (3, 1, 2, 2, 1)
POOL = (8, 3, 60)  # words that a family, an aspect and a category have of their own
COMMON = 4000
NAMES = 0.25  # of all words
AT_ONCE = 50_000  # documents
PILOT = 2_000  # documents by which the number of labels is set
TOP = 50  # labels that the oracle names
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Shape:
    """How much there is of everything."""

    labels: int
    documents: int
    tests: int
    seed: int = 0

    @property
    def families(self) -> int:
        """Families of labels; the last ones are not larger than the others."""
        return max(1, self.labels // FAMILY)


class World:
    """Families, their words, and how likely each label is."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        rng = np.random.default_rng([shape.seed, 0])
        self.families, self.categories = shape.families, -(-shape.families // CATEGORY)
        # A label's family and aspect; within an aspect the first is the most frequent. What is left over is spread.
        number = np.arange(shape.labels)
        self.family = number % self.families
        self.place = number // self.families  # in its family: 0, 1, ...
        self.aspect = self.place % ASPECTS
        self.popularity = _falling(self.families, 0.9, rng)  # of families
        sizes = np.bincount(self.family, minlength=self.families)
        self.size = int(sizes.min())  # places that every family has; labels beyond it are found by category alone
        self.in_family = _falling(self.size, 1.0)
        self.in_aspect = _falling(-(-self.size // ASPECTS), 1.0)
        self.head = rng.choice(shape.labels, min(HEAD, shape.labels), replace=False)
        self.in_head = _falling(len(self.head), 1.0)
        self.words = _made_up_words(self._word_count(), rng)
        self.drawn = LABELS_EACH
        family, aspect = self.products(PILOT, rng)
        self.drawn *= LABELS_EACH * PILOT / len(self.labels_of(family, aspect, rng)[0])  # some are drawn twice

    def _word_count(self) -> int:
        own = self.families * (POOL[0] + ASPECTS * POOL[1]) + self.categories * POOL[2] + COMMON
        return int(own / (1 - NAMES))

    def titles(self, family: Ints, aspect: Ints, rng: np.random.Generator) -> list[str]:
        """A title for each product, its words in any order."""
        count, families = len(family), self.families
        starts = np.cumsum([0, families * POOL[0], families * ASPECTS * POOL[1], self.categories * POOL[2], COMMON])

        def drawn(first: Ints | int, pool: int, words: int) -> Ints:
            return np.asarray(first).reshape(-1, 1) + rng.integers(pool, size=(count, words))

        common = np.minimum((COMMON * rng.random((count, WORDS[3])) ** 2).astype(np.int64), COMMON - 1)
        parts = [
            drawn(starts[0] + family * POOL[0], POOL[0], WORDS[0]),
            drawn(starts[1] + (family * ASPECTS + aspect) * POOL[1], POOL[1], WORDS[1]),
            drawn(starts[2] + family // CATEGORY * POOL[2], POOL[2], WORDS[2]),
            starts[3] + common,
            drawn(int(starts[4]), len(self.words) - int(starts[4]), WORDS[4]),
        ]
        chosen = rng.permuted(np.concatenate(parts, axis=1), axis=1)
        return [" ".join(row) for row in self.words[chosen].tolist()]

    def products(self, count: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Families and aspects of so many documents; frequent families have more."""
        family = _sampled(self.popularity, count, rng)
        return family, rng.integers(ASPECTS, size=count)

    def labels_of(self, family: Ints, aspect: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Labels of documents: the document and the label of each pair, once."""
        spread = 0.6
        wanted = rng.lognormal(np.log(self.drawn) - spread**2 / 2, spread, len(family))
        lengths = np.clip(np.rint(wanted), 1, 200).astype(np.int64)
        row = np.repeat(np.arange(len(family)), lengths)
        source = rng.choice(len(SOURCES), size=len(row), p=SOURCES)
        home, kind = family[row], aspect[row]
        category = np.minimum(home // CATEGORY * CATEGORY + rng.integers(CATEGORY, size=len(row)), self.families - 1)
        of_aspect = np.minimum(kind + ASPECTS * _sampled(self.in_aspect, len(row), rng), self.size - 1)
        of_family = _sampled(self.in_family, len(row), rng)
        label = np.choose(
            source,
            [
                of_aspect * self.families + home,
                of_family * self.families + home,
                _sampled(self.in_family, len(row), rng) * self.families + category,
                self.head[_sampled(self.in_head, len(row), rng)],
            ],
        )
        pairs = np.sort(row * np.int64(self.shape.labels) + label)
        pairs = pairs[np.concatenate([[True], np.diff(pairs) > 0])]  # each once; numpy's own way is far slower here
        return pairs // self.shape.labels, pairs % self.shape.labels

    def likeliest(self, family: Ints, aspect: Ints, top: int) -> Predictions:
        """The labels that are likeliest for families and aspects, as a reader would know who made the data."""
        ids, scores = np.full((len(family), top), -1), np.full((len(family), top), -np.inf, np.float32)
        places = np.arange(self.size)
        for row, (home, kind) in enumerate(zip(family.tolist(), aspect.tolist(), strict=True)):
            chance = (SOURCES[1] + SOURCES[2] / CATEGORY) * self.in_family
            chance = chance + SOURCES[0] * np.where(places % ASPECTS == kind, self.in_aspect[places // ASPECTS], 0)
            labels = np.concatenate([places * self.families + home, self.head])
            chances = np.concatenate([chance, SOURCES[3] * self.in_head])
            best = np.argsort(-chances, kind="stable")[:top]
            ids[row, : len(best)], scores[row, : len(best)] = labels[best], chances[best]
        return Predictions(ids, scores)


def _falling(count: int, power: float, rng: np.random.Generator | None = None) -> Floats:
    """Chances that fall with a power of the place; with a generator, in any order."""
    weights = (np.arange(count) + 2.0) ** -power
    if rng is not None:
        weights = rng.permutation(weights)
    chances: Floats = weights / weights.sum()
    return chances


def _sampled(chances: Floats, count: int, rng: np.random.Generator) -> Ints:
    """Numbers drawn with these chances."""
    bounds = np.cumsum(chances)
    found: Ints = np.searchsorted(bounds, rng.random(count) * bounds[-1], side="right").astype(np.int64)
    return found.clip(max=len(chances) - 1)


def _made_up_words(count: int, rng: np.random.Generator) -> NDArray[np.str_]:
    """So many different words of two or three syllables."""
    onsets, vowels, ends = list("bcdfghjklmnprstvwz"), list("aeiou"), ["", "l", "n", "r", "s"]
    syllables = np.array([a + b + c for a in onsets for b in vowels for c in ends])
    found: dict[str, None] = {}
    while len(found) < count:
        parts = syllables[rng.integers(len(syllables), size=(count, 3))]
        short = rng.random(count) < 0.5
        found.update(
            (first + second + ("" if brief else third), None)
            for (first, second, third), brief in zip(parts.tolist(), short, strict=True)
        )
    return np.array(list(found)[:count])


def make(shape: Shape, folder: Path) -> None:
    """Write the dataset in the repository's raw layout, and what the oracle says."""
    world = World(shape)
    with new_folder(folder) as aside:
        rng = np.random.default_rng([shape.seed, 1])
        _write(aside / "lbl.json.gz", _labels(world, rng))
        _write(aside / "trn.json.gz", (line for line, *_ in _documents(world, shape.documents, rng, "d")))
        tests = list(_documents(world, shape.tests, rng, "t"))
        _write(aside / "tst.json.gz", (line for line, *_ in tests))
        family, aspect = (np.array([test[place] for test in tests], dtype=np.int64) for place in (1, 2))
        save_scores(world.likeliest(family, aspect, TOP).to_csr(shape.labels), aside / "oracle.npz")
        about = {"name": folder.name, "task": "made-up titles to related titles", "propensity": {"A": 0.6, "B": 2.6}}
        (aside / "dataset.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def _labels(world: World, rng: np.random.Generator) -> Iterator[str]:
    for start in range(0, world.shape.labels, AT_ONCE):
        part = slice(start, start + AT_ONCE)
        for row, title in enumerate(world.titles(world.family[part], world.aspect[part], rng), start):
            yield json.dumps({"uid": f"l{row}", "title": title})


def _documents(world: World, count: int, rng: np.random.Generator, prefix: str) -> Iterator[tuple[str, int, int]]:
    """Lines of a file, and the family and the aspect of each."""
    for start in range(0, count, AT_ONCE):
        family, aspect = world.products(min(AT_ONCE, count - start), rng)
        titles = world.titles(family, aspect, rng)
        row, label = world.labels_of(family, aspect, rng)
        bounds = np.searchsorted(row, np.arange(len(titles) + 1)).tolist()
        for place, title in enumerate(titles):
            labels = label[bounds[place] : bounds[place + 1]].tolist()
            content = {
                "uid": f"{prefix}{start + place}",
                "title": title,
                "target_ind": labels,
                "target_rel": [1.0] * len(labels),
            }
            yield json.dumps(content), int(family[place]), int(aspect[place])


def _write(path: Path, lines: Iterator[str]) -> None:
    with gzip.open(path, "wt", compresslevel=1, encoding="utf-8") as stream:
        stream.writelines(f"{line}\n" for line in lines)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=Path, metavar="FOLDER")
    options.add_argument("--labels", type=int, default=1_305_265)
    options.add_argument("--documents", type=int, default=2_248_619)
    options.add_argument("--tests", type=int, default=100_000)
    options.add_argument("--seed", type=int, default=0)
    arguments = options.parse_args()
    started = time.perf_counter()
    make(Shape(arguments.labels, arguments.documents, arguments.tests, arguments.seed), arguments.folder)
    print(f"{arguments.folder}: made in {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
