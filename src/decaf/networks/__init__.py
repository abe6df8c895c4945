"""Networks: torch modules only; no files, no loops, no choice of device."""

from decaf.networks.classifier import Classifier, LabelTexts, RowTable
from decaf.networks.encoder import Block, DocumentEncoder, FixedBags, FrozenEncoder, token_table
from decaf.networks.instance import (
    LEANING,
    Blend,
    Instance,
    Level,
    Parts,
    Ranker,
    Shortlister,
    blended,
    first_blend,
    prefixed,
    weighed,
    within,
)
from decaf.networks.network import TextNetwork
from decaf.networks.products import all_products
from decaf.networks.rows import Rows
from decaf.networks.words import Words, heaviest, with_texts

__all__ = [
    "LEANING",
    "Blend",
    "Block",
    "Classifier",
    "DocumentEncoder",
    "FixedBags",
    "FrozenEncoder",
    "Instance",
    "LabelTexts",
    "Level",
    "Parts",
    "Ranker",
    "RowTable",
    "Rows",
    "Shortlister",
    "TextNetwork",
    "Words",
    "all_products",
    "blended",
    "first_blend",
    "heaviest",
    "prefixed",
    "token_table",
    "weighed",
    "with_texts",
    "within",
]
