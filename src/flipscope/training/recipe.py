"""A training written down: data, model, protocol and seed. The same recipe gives the same model anywhere.

A recipe is frozen and can be hashed; its `digest` is the same in every process, and names the model that it makes.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError
from flipscope.cube.expression import parse
from flipscope.cube.functions import BooleanFunction, checked_bits
from flipscope.data.languages import LabelledStrings, draw, random_language
from flipscope.models.config import TransformerConfig
from flipscope.models.init import SCHEMES, Scheme, Scope, initialise
from flipscope.models.transformer import Transformer
from flipscope.training.batches import Fresh, Loss
from flipscope.training.checkpoints import Keeper
from flipscope.training.fit import Epoch, Fitted, Moment, Optimiser, check_settings, fit

Progress = Callable[[int, int], object]  # (steps done, steps at most)
_FORMAT = 1  # of what a digest is made of
_FRESH = 0x66726573  # sets the stream of fresh strings apart from all that come from the same seeds


@dataclass(frozen=True, kw_only=True)
class StringData:
    """The strings of a training: uniformly random ones of a function, which is given as an expression.

    `train` strings are drawn once, or fresh ones for every batch where it is None; `validation` ones tell when to stop.
    Without a function the language is random: so many strings with the label of a fair coin each, and these are the
    validation set as well (App. F.2).
    """

    function: str | None
    length: int
    train: int | None = 10_000
    validation: int = 1_000
    seed: int = 0

    def __post_init__(self) -> None:
        checked_bits(self.length)
        for name in ("train", "validation"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        check_count("seed", self.seed, 0)
        if self.function is None and self.train is None:
            raise InputError("train=None has no fresh strings for a random language: give their number")

    def language(self) -> BooleanFunction | None:
        """The function on strings of this length, or None for a random language."""
        return None if self.function is None else parse(self.function, self.length)

    def draw(self, f: BooleanFunction | None) -> dict[str, LabelledStrings]:
        """The sets "train", unless strings are fresh, and "validation"."""
        if f is None:
            assert self.train is not None
            both = random_language(self.length, self.train, self.seed)
            return {"train": both, "validation": both}
        sizes = {"train": self.train} if self.train is not None else {}
        return draw(f, self.length, {**sizes, "validation": self.validation}, self.seed)


@dataclass(frozen=True, kw_only=True)
class TrainingProtocol:
    """How a model is trained; what `fit` takes. `goal` is a validation accuracy at which training may end.

    With fresh strings an epoch is `epoch_steps` batches. A limit in seconds would depend on the machine.
    """

    batch: int
    learning_rate: float
    optimiser: Optimiser = "adam"
    weight_decay: float = 0.0
    loss: Loss = "bce"
    decay_after: int | None = 5
    decay_factor: float = 0.5
    stop_after: int | None = 10
    max_epochs: int | None = 1_000
    max_steps: int | None = None
    epoch_steps: int = 100
    goal: float | None = None
    restore: Literal["best", "last"] = "best"

    def __post_init__(self) -> None:
        for name in ("batch", "epoch_steps", "decay_after", "stop_after", "max_epochs", "max_steps"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        check_settings(
            self.learning_rate, self.weight_decay, self.decay_factor, None, self.optimiser, self.loss, self.restore
        )
        if self.goal is not None and not 0 < self.goal <= 1:
            raise InputError(f"goal={self.goal} must be an accuracy above 0 and at most 1")

    def most_steps(self, strings: int | None) -> int | None:
        """The steps after which training ends at the latest, with a set of so many strings or fresh ones."""
        epoch = self.epoch_steps if strings is None else math.ceil(strings / self.batch)
        limits = (self.max_steps, None if self.max_epochs is None else self.max_epochs * epoch)
        return min((limit for limit in limits if limit is not None), default=None)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A training: strings, model, its initialisation, protocol; the seed gives the weights and the order of strings.

    `init`, `init_scope` and `init_scale` are what `flipscope.models.initialise` takes.
    """

    data: StringData
    model: TransformerConfig
    protocol: TrainingProtocol
    init: Scheme = "pytorch"
    init_scope: Scope = "all"
    init_scale: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("seed", self.seed, 0)
        if self.init not in SCHEMES:
            raise InputError(f"init={self.init!r} is not one of {', '.join(SCHEMES)}")
        if not (math.isfinite(self.init_scale) and self.init_scale > 0):
            raise InputError(f"init_scale={self.init_scale} must be a positive number")
        check_fits(self.model, self.data.length)

    def as_json(self) -> dict[str, Any]:
        """Every choice by name, each number written in one way only."""
        document: dict[str, Any] = {part: _written(getattr(self, part)) for part in ("data", "model", "protocol")}
        start = {"init": self.init, "init_scope": self.init_scope, "init_scale": float(self.init_scale)}
        return {**document, **start, "seed": int(self.seed)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Recipe:
        """The recipe that was written down."""
        try:
            return cls(
                data=StringData(**document["data"]),
                model=TransformerConfig.from_dict(document["model"]),
                protocol=TrainingProtocol(**document["protocol"]),
                **{name: document[name] for name in ("init", "init_scope", "init_scale", "seed")},
            )
        except (KeyError, TypeError) as error:
            raise InputError(f"this is not the recipe of a training: {error}") from error

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of all choices: the same for equal recipes in every process, and for no others."""
        text = json.dumps({"format": _FORMAT, **self.as_json()}, sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def train(
        self,
        *,
        keeper: Keeper | None = None,
        progress: Progress | None = None,
        step: Callable[[Moment], object] | None = None,
        epoch: Callable[[Epoch], object] | None = None,
    ) -> Trained:
        """The trained model; `progress`, `step` and `epoch` are told how it goes, and have no say in it."""
        return train_on(self, self.data.language(), keeper=keeper, progress=progress, step=step, epoch=epoch)


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained model, in evaluation mode, and how its training went; `recipe` is None of a function without a name."""

    model: Transformer
    fitted: Fitted
    recipe: Recipe | None = field(repr=False)

    @property
    def history(self) -> tuple[Epoch, ...]:
        """One line per epoch."""
        return self.fitted.history

    @property
    def accuracy(self) -> float | None:
        """On the validation set, of the weights that were kept; None if no epoch came to an end."""
        kept = [line.validation_accuracy for line in self.history if line.number == self.fitted.kept_epoch]
        return kept[0] if kept else None


def check_fits(config: TransformerConfig, length: int) -> None:
    """Raise InputError unless the model takes strings of so many bits and answers with one logit or two."""
    if config.inputs != "bits":
        raise InputError(f"the model reads {config.inputs}, not bits: take another preset")
    if config.longest is not None and length > config.longest:
        raise InputError(
            f"the function has {length:,} bits, and the model positions for {config.longest:,}: raise max_length"
        )
    if config.outputs > 2 or config.readout == "every":
        raise InputError(f"the model has {config.outputs} outputs, readout={config.readout!r}: one logit or two train")


def train_on(
    recipe: Recipe,
    f: BooleanFunction | None,
    *,
    keeper: Keeper | None = None,
    progress: Progress | None = None,
    step: Callable[[Moment], object] | None = None,
    epoch: Callable[[Epoch], object] | None = None,
) -> Trained:
    """The model of a recipe with this function in place of the recipe's expression."""
    data, protocol = recipe.data, recipe.protocol
    sets = data.draw(f)
    model = Transformer(recipe.model, scheme=recipe.init, seed=recipe.seed)
    if (recipe.init_scope, recipe.init_scale) != ("all", 1.0):
        initialise(model, recipe.init, recipe.seed, scope=recipe.init_scope, scale=recipe.init_scale)
    most = protocol.most_steps(data.train)

    def after_step(moment: Moment) -> None:
        if progress is not None and most is not None:
            progress(moment.step, most)
        if step is not None:
            step(moment)

    goal = protocol.goal
    settings = {name: getattr(protocol, name) for name in _PASSED}
    fitted = fit(
        model,
        sets["train"] if f is None or "train" in sets else _fresh(f, recipe),
        sets["validation"],
        batch=None if data.train is None else protocol.batch,
        seed=recipe.seed,
        callback=after_step,
        until=None if goal is None else lambda line: line.validation_accuracy >= goal,
        progress=epoch,
        keeper=keeper,
        **settings,
    )
    return Trained(model.eval(), fitted, recipe)


_PASSED = (
    "learning_rate", "optimiser", "weight_decay", "loss", "decay_after", "decay_factor", "stop_after", "max_epochs",
    "max_steps", "restore",
)  # fmt: skip


def _fresh(f: BooleanFunction, recipe: Recipe) -> Fresh:
    """Strings that are drawn as they are needed, from a stream that no other part of the training has."""
    stream = np.random.default_rng([recipe.data.seed, recipe.seed, _FRESH])
    return Fresh(f, f.n, recipe.protocol.batch, recipe.protocol.epoch_steps, stream)


def _written(part: Any) -> dict[str, Any]:
    """The fields of a record as JSON holds them: a float is a float, however it was given."""
    found = {}
    for each in dataclasses.fields(part):
        value = getattr(part, each.name)
        if str(each.type).startswith("float") and value is not None:
            value = float(value) + 0.0
        elif str(each.type).startswith("int") and value is not None:
            value = int(value)
        found[each.name] = value
    return found
