"""Small models of every kind to add labels to, and the same with the changes worked in for good."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
from modules import QUICK_SETTINGS, topics

import decaf
from decaf import Model
from decaf.config import recipe
from decaf.datasets import Items
from decaf.live import Live
from decaf.packed import Packed
from decaf.stores import Change

SPARE = (0, 5)  # topics without training documents
TREE = ("shortlister.kind=tree", "shortlister.clusters=64")
KINDS = {
    "contrastive": ("contrastive", ()),
    "two instances": ("contrastive", ("ensemble.instances=2",)),
    "no words": ("contrastive", ("blend.words=false",)),
    "paper": ("paper", ()),
    "refinement alone": ("paper", ("model.text=false",)),
    "tree": ("contrastive", TREE),
    "tree as in the paper": ("paper", TREE),
    "hnsw": ("contrastive", ("shortlister.kind=hnsw",)),
}
SETTINGS = [*QUICK_SETTINGS, "model.precision=float32", "shortlister.clusters=8", "shortlister.beam=3"]
SETTINGS += ["features.words=true", "features.vocabulary=60", "blend.tail=0.6"]
SETTINGS += ["features.ends=false", "features.shapes=false"]  # texts are two words: it would be most of what they say


@cache
def trained(kind: str) -> Model:
    """A model of 24 topics, two of them without training documents."""
    name, settings = KINDS[kind]
    model = decaf.train(topics(spare=SPARE), recipe(name).with_settings([*SETTINGS, *settings]), device="cpu")
    return replace(model, packed=tuple(map(uneven, model.packed))) if name == "contrastive" else model


def model_of(kind: str = "contrastive", precision: str = "float32") -> Model:
    """The same numbers in any precision, but for rounding."""
    model = trained(kind)
    if precision == "float32":
        return model
    packed = tuple(Packed.of(instance, precision) for instance in model.instances)
    return replace(model, packed=packed, config=model.config.with_settings([f"model.precision={precision}"]))


def uneven(packed: Packed) -> Packed:
    """Some labels are rarer than others, and parts weigh more towards the tail: the dataset is too even for it."""
    assert packed.curve is not None
    steps = np.linspace(0.5, 1.5, len(packed.curve.tails), dtype=np.float32)[:, None]
    rarity = np.linspace(0, 2, len(packed.labels.numbers), dtype=np.float32)
    curve = packed.curve._replace(weights=steps * packed.curve.weights)
    return replace(packed, curve=curve, labels=packed.labels._replace(rarity=rarity))


def changes_of(texts: dict[str, str | None]) -> list[Change]:
    """Changes as they are kept; None hides."""
    return [Change(label, text, "2024-01-02T03:04:05+00:00") for label, text in texts.items()]


def merged(live: Live) -> Model:
    """A model whose own labels are all that are to be found, as if it had been trained with them."""
    model, labels, changes = live.model, live.labels, live.changes
    close_ups = [one.close_up(overlay) for one, overlay in zip(model.packed, changes.overlays, strict=True)]
    left = np.sort(close_ups[0][1])  # numbers of the labels that are not hidden
    packed = []
    for one, known in close_ups:
        assert np.array_equal(np.sort(known), left)
        numbers = np.searchsorted(left, known[one.labels.numbers])
        packed.append(replace(one, labels=one.labels._replace(numbers=numbers)))
    rows = range(labels.count)
    items = Items(labels.count, [labels.id(row) for row in rows], [labels.text(row) for row in rows])
    return replace(model, packed=tuple(packed), kept=changes.rows[left], labels=items)
