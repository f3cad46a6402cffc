"""Recipes of trainings: data, model, protocol and seed. The same recipe gives the same model anywhere.

A recipe is frozen and hashable; its `digest` is the same in every process and names the resulting model.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor

from flipscope.basics.arguments import check_fields, plain_fields
from flipscope.basics.checks import check_count, check_positive
from flipscope.basics.errors import InputError
from flipscope.data import kinds as data_kinds
from flipscope.data.batches import Labelled, as_tensors
from flipscope.data.strings import Data
from flipscope.models import kinds as model_kinds
from flipscope.models.baselines.config import BaselineConfig, check_image_shape
from flipscope.models.baselines.images import ImageNetwork
from flipscope.models.baselines.lstm import LSTM
from flipscope.models.config import TransformerConfig
from flipscope.models.devices import Device
from flipscope.models.init import SCHEMES, Scheme, Scope, initialise
from flipscope.models.seq2seq import Seq2Seq
from flipscope.models.seq2seq_config import Seq2SeqConfig
from flipscope.models.transformer import Transformer
from flipscope.training.checkpoints import Keeper
from flipscope.training.fit import Epoch, Fitted, Moment, Term, fit
from flipscope.training.logs import Log
from flipscope.training.named import Around, Measurement
from flipscope.training.protocol import TrainingProtocol
from flipscope.training.targets import Loss

Progress = Callable[[int, int], object]  # (steps done, steps at most)
# Revision of the training code, part of the name of every stored model. Raise it if a recipe gives another model,
# which tests/training/test_golden.py notices: all stored models are then trained anew. It stays when a faster loop
# gives the same weights up to rounding.
REVISION = 1
_FORMAT = 2  # version of the digest's input

Config: TypeAlias = TransformerConfig | Seq2SeqConfig | BaselineConfig
Network: TypeAlias = Transformer | Seq2Seq | ImageNetwork | LSTM


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A training: strings, model, its initialisation, protocol; the seed gives the weights and the order of strings.

    `init`, `init_scope`, `init_scale` and `equal_layers` are arguments of `flipscope.models.initialise`. `log` lists
    measurements during training, made by `named.measurement`; they do not influence the weights.
    """

    data: Data
    model: Config
    protocol: TrainingProtocol
    init: Scheme = "pytorch"
    init_scope: Scope = "all"
    init_scale: float = 1.0
    seed: int = 0
    log: tuple[Measurement, ...] = ()
    equal_layers: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        check_count("seed", self.seed, 0)
        if self.equal_layers and not isinstance(self.model, TransformerConfig):
            raise InputError(
                "equal_layers=True is of a transformer: PyTorch's encoder-decoder draws the matrices of each layer anew"
            )
        if self.init not in SCHEMES:
            raise InputError(f"init={self.init!r} is not one of {', '.join(SCHEMES)}")
        check_positive("init_scale", self.init_scale)
        if self.protocol.batch is None:
            raise InputError("batch must be given in the protocol of a recipe, such as batch=128")
        check_fits(self.model, self.data.length, self.data, self.protocol.loss)

    @property
    def batch(self) -> int:
        """Strings per step."""
        assert self.protocol.batch is not None  # checked by __post_init__
        return self.protocol.batch

    def as_json(self) -> dict[str, Any]:
        """Every choice by name, kinds under their registered names, each number written in one way only."""
        return {
            **plain_fields(self),
            "data": {"kind": data_kinds.KINDS.name_of(type(self.data)), **plain_fields(self.data)},
            "model": {"kind": model_kinds.KINDS.name_of(type(self.model)), **plain_fields(self.model)},
            "protocol": self.protocol.as_json(),
            "log": [each.as_json() for each in self.log],
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Recipe:
        """The recipe from the result of `as_json`; UnknownName if it contains a name unknown to this flipscope."""
        try:
            return cls(
                **{
                    **document,
                    "data": data_kinds.data_from_json(document["data"]),
                    "model": model_kinds.configuration(document["model"]),
                    "protocol": TrainingProtocol.from_json(document["protocol"]),
                    "log": tuple(Measurement.from_json(each) for each in document.get("log", ())),
                }
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"this is not the recipe of a training: {error}") from error

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of all choices: the same for equal recipes in every process, and for no others."""
        text = json.dumps({"format": _FORMAT, **self.as_json()}, sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def train(
        self,
        *,
        device: Device | None = None,
        keeper: Keeper | None = None,
        progress: Progress | None = None,
        step: Callable[[Moment], object] | None = None,
        epoch: Callable[[Epoch], object] | None = None,
    ) -> Trained:
        """Train the model; `progress`, `step` and `epoch` are called during training and do not change it.

        It is drawn on the CPU, trained on the `device` if one is given, and returned on the CPU.
        """
        return train_on(self, self.data, device=device, keeper=keeper, progress=progress, step=step, epoch=epoch)


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained model in evaluation mode with its training history; `recipe` is None for an unnamed function."""

    model: Network
    fitted: Fitted
    recipe: Recipe | None = field(repr=False)

    @property
    def transformer(self) -> Transformer:
        """The model if it is a transformer; InputError for an encoder-decoder."""
        if not isinstance(self.model, Transformer):
            raise InputError(f"the model is a {type(self.model).__name__}, and a transformer is wanted here")
        return self.model

    @property
    def history(self) -> tuple[Epoch, ...]:
        """One line per epoch."""
        return self.fitted.history

    @property
    def accuracy(self) -> float | None:
        """The validation accuracy of the kept weights; None if no epoch was completed."""
        kept = [line.validation_accuracy for line in self.history if line.number == self.fitted.kept_epoch]
        return kept[0] if kept else None


def check_fits(config: Config, length: int, data: Data | None = None, loss: Loss = "bce") -> None:
    """Raise InputError unless the model accepts strings of this length and has the required outputs."""
    if not isinstance(config, TransformerConfig):
        config.check_fits(length, data)
        if isinstance(config, BaselineConfig) and loss != "ce":
            raise InputError(f"{config.name} has an output for each class: say loss='ce', not {loss!r}")
        return
    inputs = "bits" if data is None else data.inputs
    if config.inputs == "patches":
        check_image_shape(config.image_size, config.channels, config.outputs, data)
    elif config.inputs != inputs:
        what = "images" if inputs == "numbers" else inputs
        raise InputError(f"the model reads {config.inputs}, not {what}: take another preset")
    elif config.longest is not None and length > config.longest:
        raise InputError(
            f"the function has {length:,} bits, and the model positions for {config.longest:,}: raise max_length"
        )
    if config.inputs == "tokens" and getattr(data, "padding", None) != config.padding:
        raise InputError(
            f"the texts are filled up with the token {getattr(data, 'padding', None)}, and the model ignores "
            f"{config.padding}: give it the same padding"
        )
    every = data is not None and data.answer != "string"
    if (config.outputs > 2 and loss != "ce") or (config.readout == "every") != every:
        wanted = "one logit or two for each position" if every else "one logit or two train"
        raise InputError(f"the model has {config.outputs} outputs, readout={config.readout!r}: {wanted}")
    if loss == "ce" and config.outputs < 2:
        raise InputError("loss='ce' is of classes: give the model outputs of two or more")
    if every and config.marker != "none":
        raise InputError(f"marker={config.marker!r} is one more position than there are answers: say marker='none'")


def train_on(
    recipe: Recipe,
    data: Data,
    *,
    device: Device | None = None,
    keeper: Keeper | None = None,
    progress: Progress | None = None,
    step: Callable[[Moment], object] | None = None,
    epoch: Callable[[Epoch], object] | None = None,
) -> Trained:
    """Train the model of a recipe on the given data in place of the recipe's."""
    protocol = recipe.protocol
    source = data.source(recipe.batch, protocol.epoch_steps, recipe.seed)
    validation = data.validation_sets()
    model = _network(recipe)
    most = protocol.most_steps(data.train)

    def after_step(moment: Moment) -> None:
        if progress is not None and most is not None:
            progress(moment.step, most)
        if step is not None:
            step(moment)

    terms, log = _named(recipe, data, validation)
    fitted = fit(
        model,
        source,
        validation,
        protocol,
        seed=recipe.seed,
        inputs=data.inputs,
        device=device,
        terms=terms,
        callback=after_step,
        progress=epoch,
        log=log,
        keeper=keeper,
    )
    return Trained(model.eval(), fitted, recipe)


def _network(recipe: Recipe) -> Network:
    """The untrained model of a recipe."""
    model: Network
    if isinstance(recipe.model, TransformerConfig):
        model = Transformer(recipe.model, scheme=recipe.init, seed=recipe.seed)
    else:
        model = recipe.model.network(scheme=recipe.init, seed=recipe.seed)
    options: dict[str, Any] = {"scope": recipe.init_scope, "scale": recipe.init_scale}
    if (recipe.init_scope, recipe.init_scale, recipe.equal_layers) != ("all", 1.0, False):
        initialise(model, recipe.init, recipe.seed, equal_layers=recipe.equal_layers, **options)
    return model


def _named(recipe: Recipe, data: Data, validation: Sequence[Labelled]) -> tuple[list[Term], list[Log]]:
    """The additional loss terms and the logged measurements."""
    if not recipe.protocol.terms and not recipe.log:
        return [], []
    aim = recipe.protocol.aim
    tensors = [as_tensors(each.bits, each.labels, "validation", data.inputs) for each in validation]
    asked = [(inputs, aim.targets(labels, "validation")) for inputs, labels in tensors]
    training = getattr(data, "training_set", None)
    around = Around(aim, data.inputs, data.length, asked, data.draw_inputs, training)
    terms: list[Term] = [_Scaled(term.made(around), term.strength, term.name) for term in recipe.protocol.terms]
    return terms, [Log(each.name, each.made(around), each.every) for each in recipe.log]


@dataclass(frozen=True)
class _Scaled:
    """A term times its strength."""

    term: Term
    strength: float
    __name__: str

    @property
    def loss_factor(self) -> float:
        """The factor on the loss itself, of a term that is mixed with it."""
        return 1.0 - self.strength if getattr(self.term, "how", "add") == "mix" else 1.0

    def __call__(self, model: torch.nn.Module, batch: tuple[Tensor, Tensor], outputs: Tensor) -> Tensor:
        return self.strength * self.term(model, batch, outputs)
