"""Networks: torch modules only; no files, no loops, no choice of device."""

from decaf.networks.classifier import Classifier
from decaf.networks.encoder import Block, DocumentEncoder, FixedBags, FrozenEncoder, token_table

__all__ = ["Block", "Classifier", "DocumentEncoder", "FixedBags", "FrozenEncoder", "token_table"]
