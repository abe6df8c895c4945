"""Make the model folders that keep a format readable: python -m tools.make_format.

Run it once, right after `decaf.header.FORMAT` was raised, and commit what it wrote: tests/trust/test_formats.py loads
the folders of every format from then on and compares their answers. A format that is there is never written again.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import numpy as np
from scipy import sparse

import decaf
from decaf import Dataset, Model, Predictor
from decaf.config import recipe
from decaf.datasets import Items, Part
from decaf.datasets.parts import no_pairs
from decaf.header import FORMAT

__all__ = ["FORMATS", "KINDS", "TEXTS", "answers", "kept_models", "main"]

FORMATS = Path(__file__).parent.parent / "tests" / "trust" / "formats"
_LABELS, _DOCUMENTS = 20, 160
_WORDS = "amber basalt cedar delta ember fjord garnet harbour indigo juniper kelp lagoon maple nectar opal".split()
TEXTS = ["red amber basalt", "blue cedar delta stone", "garnet harbour", "nothing known zzz", ""]
_QUICK = [
    "model.dim=8",
    *("shortlister.clusters=8", "shortlister.beam=3", "features.words=true", "features.vocabulary=80"),
    *(f"{stage}.epochs=4" for stage in ("tokens", "shortlister", "ranker")),
    *(f"{stage}.batch=32" for stage in ("tokens", "shortlister", "ranker")),
]
# Every kind of array that a folder may hold is in one of them.
KINDS = {
    "contrastive": ("contrastive", ["split.validation=0.4"]),
    "tree": ("paper", ["shortlister.kind=tree", "model.precision=float32", "ensemble.instances=1"]),
    "graph": ("contrastive", ["shortlister.kind=hnsw", "ensemble.instances=2", "blend.words=false"]),
}


def _dataset() -> Dataset:
    """Labels are two words; their documents have both, and a colour."""
    rng = random.Random(5)  # noqa: S311 - texts, no secrets
    names = [" ".join(rng.sample(_WORDS, 2)) for _ in range(_LABELS)]
    rows = [row % (_LABELS - 1) for row in range(_DOCUMENTS)]  # the last label has none
    texts = [f"{rng.choice(['red', 'blue', 'green'])} {names[row]} {rng.choice(_WORDS)}" for row in rows]
    ones = np.ones(_DOCUMENTS, dtype=np.float32)
    truth = sparse.csr_array((ones, (np.arange(_DOCUMENTS), rows)), shape=(_DOCUMENTS, _LABELS))
    part = Part(Items(_DOCUMENTS, None, texts), truth, no_pairs())
    ids = [f"L{row}" for row in range(_LABELS)]
    return Dataset("small", part, part, Items(_LABELS, ids, names))


def kept_models() -> list[Path]:
    """The model folders of all formats that are kept, the newest format first."""
    return sorted(FORMATS.glob("v*/*/model"), key=lambda path: (-int(path.parts[-3][1:]), path))


def answers(model: Model) -> list[list[tuple[str, float]]]:
    """The best labels of some texts, by id, and their scores."""
    found = Predictor(model).predict(TEXTS, top=5)
    return [[(model.labels.id(label), round(score, 6)) for label, score in matches] for matches in found]


def main() -> None:
    """Write the folders of the format that this decaf writes."""
    target = FORMATS / f"v{FORMAT}"
    if target.exists():
        sys.exit(f"{target}: is there; a format is kept as it was first written")
    for kind, (name, settings) in KINDS.items():
        model = decaf.train(_dataset(), recipe(name).with_settings([*_QUICK, *settings]), device="cpu")
        model.save(target / kind / "model")
        expected = {"texts": TEXTS, "answers": answers(Model.load(target / kind / "model"))}
        (target / kind / "answers.json").write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {target}; commit it")


if __name__ == "__main__":
    main()
