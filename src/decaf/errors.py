"""Everything DECAF raises on purpose.

DecafError
├── ConfigError      a setting that does not exist or is out of range
├── DataError        a dataset or a predictions file that cannot be read, or does not fit
├── FeatureError     text features that cannot be learned or loaded
├── ModelError       a model folder that is damaged, incomplete or of another version
├── StoreError       changes of labels that cannot be read or kept
└── TrainingError    a run that cannot begin or go on

Every message says what was found, what was expected and what to do next.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["ConfigError", "DataError", "DecafError", "FeatureError", "ModelError", "StoreError", "TrainingError"]


class DecafError(Exception):
    """The root of the tree: catch this to catch everything DECAF raises on purpose."""


class ConfigError(DecafError):
    """A setting that does not exist or is out of range."""


class FeatureError(DecafError):
    """Text features that cannot be learned or loaded."""


class ModelError(DecafError):
    """A model folder that is damaged, incomplete or of another version."""


class StoreError(DecafError):
    """Changes of labels that cannot be read or kept."""


class TrainingError(DecafError):
    """A run that cannot begin or go on."""


class DataError(DecafError):
    """A dataset or a predictions file that cannot be read, or does not fit."""

    @classmethod
    def at(cls, path: Path, line: int, problem: str) -> DataError:
        """The error for one place in a file; lines count from 1."""
        return cls(f"{path}, line {line}: {problem}")
