"""Networks: torch modules only; no files, no loops, no choice of device."""

from decaf.networks.classifier import Classifier
from decaf.networks.encoder import Block, DocumentEncoder, FixedBags, FrozenEncoder, token_table
from decaf.networks.instance import Instance, Level, Ranker, Shortlister
from decaf.networks.network import TextNetwork
from decaf.networks.rows import Rows

__all__ = [
    "Block",
    "Classifier",
    "DocumentEncoder",
    "FixedBags",
    "FrozenEncoder",
    "Instance",
    "Level",
    "Ranker",
    "Rows",
    "Shortlister",
    "TextNetwork",
    "token_table",
]
