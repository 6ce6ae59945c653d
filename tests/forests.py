"""Small models: a few trees of a large one."""

from __future__ import annotations

from ptxgen.tuning.model.model import Model
from ptxgen.tuning.model.model_trees import booster_of, forest_of
from ptxgen.tuning.model.tree_predictor import TreePredictor


def first_trees(model: Model, count: int) -> TreePredictor:
    """The first trees of a trained model."""
    forest = forest_of(model.booster)
    return booster_of({**forest, "trees": forest["trees"][:count]}, len(model.names))
