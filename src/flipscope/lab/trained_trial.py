"""Trials that measure a trained model: their cost and memory follow from the recipe."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flipscope.lab.study import DEFAULT_MEMORY, Trial
from flipscope.models.baselines.config import BaselineConfig
from flipscope.models.config import TransformerConfig

if TYPE_CHECKING:
    from flipscope.training.recipe import Recipe

STEP = 1e8  # the fixed cost of a step, in multiply-adds of the same duration
UNLIMITED = 10_000  # assumed number of steps if the protocol sets no limit


@dataclass(frozen=True)
class TrainedTrial(Trial):
    """A trial of a trained model: a subclass defines its `recipe` and measures `lab.trained(self.recipe)`."""

    @property
    def recipe(self) -> Recipe:
        """The training of the model."""
        raise TypeError(f"{type(self).__name__} is a trained trial and must define its recipe")

    @property
    def cost(self) -> float:
        """Multiply-adds of the whole training, including the fixed cost of each step."""
        recipe = self.recipe
        steps = recipe.protocol.most_steps(recipe.data.train) or UNLIMITED
        if isinstance(recipe.model, BaselineConfig):
            return steps * (STEP + 3.0 * recipe.batch * recipe.model.multiplications(recipe.data.length))
        tokens = recipe.batch * (self._length + 1)
        # Six: a multiply and an add forwards, twice as many backwards; attention also compares all pairs of tokens.
        work = 3.0 * tokens * (self._weights() + 2 * recipe.model.layers * recipe.model.width * self._length)
        return steps * (STEP + work)

    @property
    def memory(self) -> int:
        """Bytes of the weights with their gradients and moments, and of the activations of a batch."""
        recipe = self.recipe
        if isinstance(recipe.model, BaselineConfig):
            # Behind each linear map come a norm and an activation, with gradients.
            numbers = 16 * recipe.model.numbers() + 4 * 6 * recipe.batch * recipe.model.activations(recipe.data.length)
            return max(DEFAULT_MEMORY, (1 << 29) + numbers)
        length, model = self._length + 1, recipe.model
        attention = model.heads * length
        activations = 4 * recipe.batch * length * model.layers * (16 * model.width + 4 * attention)
        return max(DEFAULT_MEMORY, (1 << 29) + 16 * math.ceil(self._weights()) + activations)

    @property
    def _length(self) -> int:
        """Tokens of an input, the marker not counted."""
        model = self.recipe.model
        if isinstance(model, TransformerConfig) and model.inputs == "patches":
            return model.longest or 1
        return self.recipe.data.length

    def _weights(self) -> float:
        """The approximate number of weights of the layers."""
        model = self.recipe.model
        hidden = getattr(model, "hidden_width", None) or getattr(model, "ffn_width", None) or 4 * model.width
        return float(model.layers * model.width * (4 * model.width + 2 * hidden))
