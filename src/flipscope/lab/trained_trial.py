"""Trials that measure a trained model: their cost and memory follow from the recipe."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flipscope.lab.study import DEFAULT_MEMORY, Trial

if TYPE_CHECKING:
    from flipscope.training.recipe import Recipe

STEP = 1e8  # the fixed cost of a step, in multiply-adds of the same duration
UNLIMITED = 10_000  # assumed number of steps if the protocol sets no limit


@dataclass(frozen=True)
class TrainedTrial(Trial):
    """A trial of a trained model: a subclass defines its `recipe` and measures `lab.trained(trial.recipe)`."""

    @property
    def recipe(self) -> Recipe:
        """The training of the model."""
        raise TypeError(f"{type(self).__name__} is a trained trial and must define its recipe")

    @property
    def cost(self) -> float:
        """Multiply-adds of the whole training, including the fixed cost of each step."""
        recipe = self.recipe
        tokens = recipe.batch * (recipe.data.length + 1)
        steps = recipe.protocol.most_steps(recipe.data.train) or UNLIMITED
        # Six: a multiply and an add forwards, twice as many backwards; attention also compares all pairs of tokens.
        work = 3.0 * tokens * (self._weights() + 2 * recipe.model.layers * recipe.model.width * recipe.data.length)
        return steps * (STEP + work)

    @property
    def memory(self) -> int:
        """Bytes of the weights with their gradients and moments, and of the activations of a batch."""
        recipe = self.recipe
        length, model = recipe.data.length + 1, recipe.model
        attention = model.heads * length
        activations = 4 * recipe.batch * length * model.layers * (16 * model.width + 4 * attention)
        return max(DEFAULT_MEMORY, (1 << 29) + 16 * math.ceil(self._weights()) + activations)

    def _weights(self) -> float:
        """The approximate number of weights of the layers."""
        model = self.recipe.model
        hidden = getattr(model, "hidden_width", None) or getattr(model, "ffn_width", None) or 4 * model.width
        return float(model.layers * model.width * (4 * model.width + 2 * hidden))
