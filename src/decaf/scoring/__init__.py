"""Scorers: feature rows in, the best labels out, all behind one interface and one contract test."""

from decaf.scoring.label_text import LabelTextScorer
from decaf.scoring.scorer import Scorer

__all__ = ["LabelTextScorer", "Scorer"]
