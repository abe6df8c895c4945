"""Datasets: readers of every supported layout, splits, filters, statistics and the embedded catalogue."""

from decaf.datasets.dataset import CATALOGUE, LAYOUTS, Dataset, Propensity
from decaf.datasets.parts import Items, Part, Parts
from decaf.datasets.statistics import FrequencyBand, Statistics, statistics

__all__ = [
    "CATALOGUE",
    "LAYOUTS",
    "Dataset",
    "FrequencyBand",
    "Items",
    "Part",
    "Parts",
    "Propensity",
    "Statistics",
    "statistics",
]
