"""Networks: torch modules only; no files, no loops, no choice of device."""

from decaf.networks.classifier import Classifier
from decaf.networks.encoder import Block, DocumentEncoder, FixedBags, FrozenEncoder, token_table
from decaf.networks.instance import Instance, Level, Ranker, Shortlister
from decaf.networks.network import TextNetwork

__all__ = [
    "Block",
    "Classifier",
    "DocumentEncoder",
    "FixedBags",
    "FrozenEncoder",
    "Instance",
    "Level",
    "Ranker",
    "Shortlister",
    "TextNetwork",
    "token_table",
]
