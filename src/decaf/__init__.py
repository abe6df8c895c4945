"""DECAF: out of a hundred thousand or a million labels with text, which few belong to this short text?

Public names are imported when first used, so that `import decaf` costs nothing.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from decaf.config import Config, FeatureSettings, SplitSettings, TableSettings, recipe
    from decaf.datasets import Dataset, Propensity, statistics
    from decaf.errors import ConfigError, DataError, DecafError, FeatureError, ModelError, TrainingError
    from decaf.estimator import DecafClassifier
    from decaf.evaluation import evaluate_model
    from decaf.features import Features, with_features
    from decaf.metrics import evaluate, frequency_quantiles
    from decaf.model import Model
    from decaf.predictions import Match, Predictions
    from decaf.predictor import Predictor
    from decaf.scoring import LabelTextScorer, Scorer
    from decaf.training import train

__all__ = [
    "Config",
    "ConfigError",
    "DataError",
    "Dataset",
    "DecafClassifier",
    "DecafError",
    "FeatureError",
    "FeatureSettings",
    "Features",
    "LabelTextScorer",
    "Match",
    "Model",
    "ModelError",
    "Predictions",
    "Predictor",
    "Propensity",
    "Scorer",
    "SplitSettings",
    "TableSettings",
    "TrainingError",
    "evaluate",
    "evaluate_model",
    "frequency_quantiles",
    "recipe",
    "statistics",
    "train",
    "with_features",
]

__version__ = "0.1.0"

# Read when torch is first imported: threads wait without spinning. On a shared machine, or with small steps, a spinning
# thread keeps the others from their work.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

_HOMES = {
    "decaf.config": ("Config", "FeatureSettings", "SplitSettings", "TableSettings", "recipe"),
    "decaf.datasets": ("Dataset", "Propensity", "statistics"),
    "decaf.errors": ("ConfigError", "DataError", "DecafError", "FeatureError", "ModelError", "TrainingError"),
    "decaf.estimator": ("DecafClassifier",),
    "decaf.evaluation": ("evaluate_model",),
    "decaf.features": ("Features", "with_features"),
    "decaf.metrics": ("evaluate", "frequency_quantiles"),
    "decaf.model": ("Model",),
    "decaf.predictions": ("Match", "Predictions"),
    "decaf.predictor": ("Predictor",),
    "decaf.scoring": ("LabelTextScorer", "Scorer"),
    "decaf.training": ("train",),
}


def __getattr__(name: str) -> object:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'decaf' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
