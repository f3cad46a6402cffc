"""The training protocol: the loss, the optimiser and its learning rate, and the stopping rule."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from flipscope.basics.arguments import check_fields, later, plain_fields
from flipscope.basics.checks import check_count, check_not_negative, check_positive
from flipscope.basics.errors import InputError
from flipscope.training.named import LossTerm
from flipscope.training.targets import Aim, Labels, Loss

Optimiser = Literal["adam", "adamw", "sgd"]
DecayOn = Literal["all", "matrices"]


@dataclass(frozen=True, kw_only=True)
class TrainingProtocol:
    """How a model is trained: the settings of `flipscope.training.fit.fit`, and a part of a `Recipe`.

    learning_rate  at the start; multiplied by `decay_factor` after `decay_after` epochs without a smaller validation
                   loss, and constant with decay_after=None
    decay_every    epochs after which the rate is multiplied by `decay_factor`, whatever the loss; then decay_after=None
    batch          strings per step; None if the source of batches defines it
    optimiser      "adam", "adamw" or "sgd"; `momentum` is that of sgd
    weight_decay   L2 for adam and sgd, decoupled for adamw; decay_on="matrices" exempts biases, norms, embeddings
    clip           the largest norm of the gradient
    loss           "bce": binary cross entropy; "ce": that of classes; "mse": the squared distance to +1 for label 1 and
                   -1 for label 0, with labels="bits" to 1 and 0, or to the labels if they are floating-point numbers
    terms          additional loss terms, made by `flipscope.training.named.loss_term`
    stop_after     epochs without a smaller validation loss after which training ends
    max_epochs     and `max_steps` end it at the latest; a limit in seconds would depend on the machine
    goal           a validation accuracy, and `goal_loss` a mean loss on the strings of an epoch, that end it
    epoch_steps    batches of an epoch if the data of a recipe are drawn fresh
    restore        the final weights of the model: those of the smallest validation loss ("best"), or the "last"

    >>> TrainingProtocol(learning_rate=0.01, batch=32).optimiser
    'adam'
    """

    learning_rate: float
    batch: int | None = None
    optimiser: Optimiser = "adam"
    weight_decay: float = 0.0
    decay_on: DecayOn = "all"
    clip: float | None = None
    loss: Loss = "bce"
    labels: Labels = "signs"
    terms: tuple[LossTerm, ...] = ()
    decay_after: int | None = 5
    decay_factor: float = 0.5
    stop_after: int | None = 10
    max_epochs: int | None = 1_000
    max_steps: int | None = None
    goal: float | None = None
    goal_loss: float | None = None
    epoch_steps: int = 100
    restore: Literal["best", "last"] = "best"
    momentum: float = later(0.0)
    decay_every: int | None = later(None)

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("batch", "epoch_steps", "decay_after", "decay_every", "stop_after", "max_epochs", "max_steps"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        for name in ("learning_rate", "clip", "goal_loss"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name))
        check_not_negative("weight_decay", self.weight_decay)
        if not 0 < self.decay_factor <= 1:
            raise InputError(f"decay_factor={self.decay_factor} must be above 0 and at most 1")
        if self.goal is not None and not 0 < self.goal <= 1:
            raise InputError(f"goal={self.goal} must be an accuracy above 0 and at most 1")
        if not 0 <= self.momentum < 1:
            raise InputError(f"momentum={self.momentum} must be at least 0 and less than 1")
        if self.momentum and self.optimiser != "sgd":
            raise InputError(f"momentum={self.momentum} is for optimiser='sgd', not {self.optimiser!r}")
        if self.decay_every is not None and self.decay_after is not None:
            raise InputError(
                f"decay_every={self.decay_every} and decay_after={self.decay_after} both lower the learning rate: "
                "say None for one of them"
            )
        Aim(self.loss, self.labels)

    @property
    def aim(self) -> Aim:
        """The loss and the scale of labels."""
        return Aim(self.loss, self.labels)

    def most_steps(self, strings: int | None) -> int | None:
        """The largest number of steps, for a training set of this size or for fresh strings."""
        epoch = self.epoch_steps if strings is None or self.batch is None else math.ceil(strings / self.batch)
        limits = (self.max_steps, None if self.max_epochs is None else self.max_epochs * epoch)
        return min((limit for limit in limits if limit is not None), default=None)

    def reached(self, accuracy: float, train_loss: float) -> bool:
        """Whether an epoch with this validation accuracy and this mean loss ends the training."""
        accurate = self.goal is not None and accuracy >= self.goal
        return accurate or (self.goal_loss is not None and train_loss < self.goal_loss)

    def as_json(self) -> dict[str, Any]:
        """Every choice by name."""
        return {**plain_fields(self), "terms": [term.as_json() for term in self.terms]}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> TrainingProtocol:
        """The protocol from the result of `as_json`."""
        return cls(**{**document, "terms": tuple(LossTerm.from_json(term) for term in document.get("terms", ()))})
