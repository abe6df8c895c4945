"""DECAF: out of a hundred thousand or a million labels with text, which few belong to this short text?

Public names are imported when first used, so that `import decaf` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from decaf.config import Config, FeatureSettings, SplitSettings, TableSettings
    from decaf.datasets import Dataset, Propensity, statistics
    from decaf.errors import ConfigError, DataError, DecafError, FeatureError
    from decaf.features import Features, with_features
    from decaf.metrics import evaluate, frequency_quantiles
    from decaf.predictions import Match, Predictions
    from decaf.scoring import LabelTextScorer, Scorer

__all__ = [
    "Config",
    "ConfigError",
    "DataError",
    "Dataset",
    "DecafError",
    "FeatureError",
    "FeatureSettings",
    "Features",
    "LabelTextScorer",
    "Match",
    "Predictions",
    "Propensity",
    "Scorer",
    "SplitSettings",
    "TableSettings",
    "evaluate",
    "frequency_quantiles",
    "statistics",
    "with_features",
]

__version__ = "0.1.0"

_HOMES = {
    "decaf.config": ("Config", "FeatureSettings", "SplitSettings", "TableSettings"),
    "decaf.datasets": ("Dataset", "Propensity", "statistics"),
    "decaf.errors": ("ConfigError", "DataError", "DecafError", "FeatureError"),
    "decaf.features": ("Features", "with_features"),
    "decaf.metrics": ("evaluate", "frequency_quantiles"),
    "decaf.predictions": ("Match", "Predictions"),
    "decaf.scoring": ("LabelTextScorer", "Scorer"),
}


def __getattr__(name: str) -> object:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'decaf' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
