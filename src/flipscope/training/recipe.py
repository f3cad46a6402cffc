"""A training written down: data, model, protocol and seed. The same recipe gives the same model anywhere.

A recipe is frozen and can be hashed; its `digest` is the same in every process, and names the model that it makes.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from flipscope.basics.arguments import check_fields
from flipscope.basics.checks import check_count, check_positive
from flipscope.basics.errors import InputError
from flipscope.cube.functions import BooleanFunction
from flipscope.data.batches import Batch, Fresh, Labelled, as_tensors
from flipscope.data.strings import Data, StringData
from flipscope.models.config import TransformerConfig
from flipscope.models.init import SCHEMES, Scheme, Scope, initialise
from flipscope.models.seq2seq import Seq2Seq
from flipscope.models.seq2seq_config import Seq2SeqConfig
from flipscope.models.transformer import Transformer
from flipscope.training import named
from flipscope.training.checkpoints import Keeper
from flipscope.training.fit import DecayOn, Epoch, Fitted, Moment, Optimiser, Term, check_settings, fit
from flipscope.training.logs import Log
from flipscope.training.named import Around, LossTerm, Measurement
from flipscope.training.targets import Aim, Labels, Loss

Progress = Callable[[int, int], object]  # (steps done, steps at most)
_FORMAT = 1  # of what a digest is made of
_FRESH = 0x66726573  # sets the stream of fresh strings apart from all that come from the same seeds
_LATER: Any = {"later": True}  # of fields that a recipe mentions only where they are not as they always were


@dataclass(frozen=True, kw_only=True)
class TrainingProtocol:
    """How a model is trained; what `fit` takes. `goal` is a validation accuracy at which training may end, `goal_loss`
    a mean loss on the strings of an epoch below which it does. `terms` are made by `named.loss_term`.

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
    labels: Labels = field(default="signs", metadata=_LATER)
    clip: float | None = field(default=None, metadata=_LATER)
    decay_on: DecayOn = field(default="all", metadata=_LATER)
    terms: tuple[LossTerm, ...] = field(default=(), metadata=_LATER)
    goal_loss: float | None = field(default=None, metadata=_LATER)

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("batch", "epoch_steps", "decay_after", "stop_after", "max_epochs", "max_steps"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        numbers = (self.learning_rate, self.weight_decay, self.decay_factor, None)
        check_settings(*numbers, self.optimiser, self.restore, self.clip, self.decay_on)
        Aim(self.loss, self.labels)
        if self.goal_loss is not None:
            check_positive("goal_loss", self.goal_loss)
        if self.goal is not None and not 0 < self.goal <= 1:
            raise InputError(f"goal={self.goal} must be an accuracy above 0 and at most 1")

    @property
    def aim(self) -> Aim:
        """The loss and the scale of labels."""
        return Aim(self.loss, self.labels)

    def most_steps(self, strings: int | None) -> int | None:
        """The steps after which training ends at the latest, with a set of so many strings or fresh ones."""
        epoch = self.epoch_steps if strings is None else math.ceil(strings / self.batch)
        limits = (self.max_steps, None if self.max_epochs is None else self.max_epochs * epoch)
        return min((limit for limit in limits if limit is not None), default=None)


AnyData: TypeAlias = StringData | Data
# As text, which the version of the code does not follow: a change to one kind of model renames no model of the other.
AnyConfig: TypeAlias = "TransformerConfig | Seq2SeqConfig"
Network: TypeAlias = "Transformer | Seq2Seq"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A training: strings, model, its initialisation, protocol; the seed gives the weights and the order of strings.

    `init`, `init_scope`, `init_scale` and `equal_layers` are what `flipscope.models.initialise` takes. `log` are
    measurements on the way, made by `named.measurement`; they have no say in what the weights become.
    """

    data: AnyData
    model: AnyConfig
    protocol: TrainingProtocol
    init: Scheme = "pytorch"
    init_scope: Scope = "all"
    init_scale: float = 1.0
    seed: int = 0
    log: tuple[Measurement, ...] = field(default=(), metadata=_LATER)
    equal_layers: bool = field(default=False, metadata=_LATER)

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
        check_fits(self.model, self.data.length, self.data, self.protocol.loss)

    def as_json(self) -> dict[str, Any]:
        """Every choice by name, each number written in one way only."""
        document: dict[str, Any] = {part: _written(getattr(self, part)) for part in ("data", "model", "protocol")}
        start = {"init": self.init, "init_scope": self.init_scope, "init_scale": float(self.init_scale)}
        log = {"log": [_plain(each) for each in self.log]} if self.log else {}
        copies = {"equal_layers": True} if self.equal_layers else {}
        return {**document, **start, "seed": int(self.seed), **log, **copies}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Recipe:
        """The recipe that was written down."""
        try:
            protocol = dict(document["protocol"])
            terms = tuple(_from_plain(LossTerm, term) for term in protocol.pop("terms", ()))
            return cls(
                data=_tagged("kind of data", document["data"], lambda fields: StringData(**fields)),
                model=_tagged("kind of model", document["model"], TransformerConfig.from_dict),
                protocol=TrainingProtocol(**protocol, terms=terms),
                log=tuple(_from_plain(Measurement, each) for each in document.get("log", ())),
                equal_layers=document.get("equal_layers", False),
                **{name: document[name] for name in ("init", "init_scope", "init_scale", "seed")},
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"this is not the recipe of a training: {error}") from error

    def definitions(self) -> list[tuple[str, str]]:
        """Module and name of what the recipe refers to by name, so that whoever stores its model can tell versions."""
        found = []
        if not isinstance(self.data, StringData):
            found.append(_place(self.data))
        if not isinstance(self.model, TransformerConfig):
            found.append(_place(self.model))
        found += [named.place("term", term.name) for term in self.protocol.terms]
        found += [named.place("measurement", each.name) for each in self.log]
        return sorted(set(found))

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
        language = self.data.language() if isinstance(self.data, StringData) else None
        return train_on(self, language, keeper=keeper, progress=progress, step=step, epoch=epoch)


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained model, in evaluation mode, and how its training went; `recipe` is None of a function without a name."""

    model: Network
    fitted: Fitted
    recipe: Recipe | None = field(repr=False)

    @property
    def transformer(self) -> Transformer:
        """The model, where it is a transformer and no encoder-decoder."""
        if not isinstance(self.model, Transformer):
            raise InputError(f"the model is a {type(self.model).__name__}, and a transformer is wanted here")
        return self.model

    @property
    def history(self) -> tuple[Epoch, ...]:
        """One line per epoch."""
        return self.fitted.history

    @property
    def accuracy(self) -> float | None:
        """On the validation set, of the weights that were kept; None if no epoch came to an end."""
        kept = [line.validation_accuracy for line in self.history if line.number == self.fitted.kept_epoch]
        return kept[0] if kept else None


def check_fits(config: AnyConfig, length: int, data: AnyData | None = None, loss: Loss = "bce") -> None:
    """Raise InputError unless the model takes strings of so many bits and answers what is asked."""
    if not isinstance(config, TransformerConfig):
        config.check_fits(length, data)
        return
    inputs = "bits" if data is None else data.inputs
    if config.inputs != inputs:
        raise InputError(f"the model reads {config.inputs}, not {inputs}: take another preset")
    if config.longest is not None and length > config.longest:
        raise InputError(
            f"the function has {length:,} bits, and the model positions for {config.longest:,}: raise max_length"
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
    f: BooleanFunction | None,
    *,
    keeper: Keeper | None = None,
    progress: Progress | None = None,
    step: Callable[[Moment], object] | None = None,
    epoch: Callable[[Epoch], object] | None = None,
) -> Trained:
    """The model of a recipe with this function in place of the recipe's expression."""
    data, protocol = recipe.data, recipe.protocol
    source, validation = _material(recipe, f)
    model = _network(recipe)
    most = protocol.most_steps(data.train)

    def after_step(moment: Moment) -> None:
        if progress is not None and most is not None:
            progress(moment.step, most)
        if step is not None:
            step(moment)

    terms, log = _named(recipe, validation)
    settings = {name: getattr(protocol, name) for name in _PASSED}
    fitted = fit(
        model,
        source,
        validation,
        batch=None if data.train is None else protocol.batch,
        seed=recipe.seed,
        inputs=data.inputs,
        terms=terms,
        callback=after_step,
        until=None if protocol.goal is None and protocol.goal_loss is None else functools.partial(_reached, protocol),
        progress=epoch,
        log=log,
        keeper=keeper,
        **settings,
    )
    return Trained(model.eval(), fitted, recipe)


_PASSED = (
    "learning_rate", "optimiser", "weight_decay", "loss", "decay_after", "decay_factor", "stop_after", "max_epochs",
    "max_steps", "restore", "labels", "clip", "decay_on",
)  # fmt: skip


def _reached(protocol: TrainingProtocol, line: Epoch) -> bool:
    """Whether an epoch brought the goal."""
    accurate = protocol.goal is not None and line.validation_accuracy >= protocol.goal
    return accurate or (protocol.goal_loss is not None and line.train_loss < protocol.goal_loss)


def _material(recipe: Recipe, f: BooleanFunction | None) -> tuple[Labelled | Iterable[Batch], Sequence[Labelled]]:
    """Where batches come from, and the validation sets."""
    data, protocol = recipe.data, recipe.protocol
    if not isinstance(data, StringData):
        return data.source(protocol.batch, protocol.epoch_steps, recipe.seed), data.validation_sets()
    sets = data.draw(f)
    return sets["train"] if f is None or "train" in sets else _fresh(f, recipe), [sets["validation"]]


def _network(recipe: Recipe) -> Network:
    """The model of a recipe at its start."""
    model: Network
    if isinstance(recipe.model, TransformerConfig):
        model = Transformer(recipe.model, scheme=recipe.init, seed=recipe.seed)
    else:
        model = recipe.model.network(scheme=recipe.init, seed=recipe.seed)
    options: dict[str, Any] = {"scope": recipe.init_scope, "scale": recipe.init_scale}
    if (recipe.init_scope, recipe.init_scale, recipe.equal_layers) != ("all", 1.0, False):
        initialise(model, recipe.init, recipe.seed, equal_layers=recipe.equal_layers, **options)
    return model


def _named(recipe: Recipe, validation: Sequence[Labelled]) -> tuple[list[Term], list[Log]]:
    """The further terms of the loss, and what is logged."""
    if not recipe.protocol.terms and not recipe.log:
        return [], []
    data, aim = recipe.data, recipe.protocol.aim
    tensors = [as_tensors(each.bits, each.labels, "validation", data.inputs) for each in validation]
    asked = [(inputs, aim.targets(labels, "validation")) for inputs, labels in tensors]
    around = Around(aim, data.inputs, data.length, asked, data.draw_inputs)
    terms: list[Term] = []
    for term in recipe.protocol.terms:
        made: Term = named.called("term", term.name, around, term.settings)
        terms.append(_Scaled(made, term.strength, term.name))
    log = [
        Log(each.name, named.called("measurement", each.name, around, each.settings), each.every) for each in recipe.log
    ]
    return terms, log


@dataclass(frozen=True)
class _Scaled:
    """A term times its strength."""

    term: Term
    strength: float
    __name__: str

    def __call__(self, model: torch.nn.Module, batch: tuple[Tensor, Tensor], outputs: Tensor) -> Tensor:
        return self.strength * self.term(model, batch, outputs)


def _fresh(f: BooleanFunction, recipe: Recipe) -> Fresh:
    """Strings that are drawn as they are needed, from a stream that no other part of the training has."""
    stream = np.random.default_rng([recipe.data.seed, recipe.seed, _FRESH])
    return Fresh(f, f.n, recipe.protocol.batch, recipe.protocol.epoch_steps, stream)


def _written(part: Any) -> dict[str, Any]:
    """The fields of a record as JSON holds them: a float is a float, however it was given; with its kind, if it has
    one, and without later fields that are as they always were."""
    found = {} if (kind := _kind(part)) is None else {"kind": kind}
    for each in dataclasses.fields(part):
        value = getattr(part, each.name)
        if each.metadata.get("later") and value == each.default:
            continue
        if str(each.type).startswith("float") and value is not None:
            value = float(value) + 0.0
        elif str(each.type).startswith("int") and value is not None:
            value = int(value)
        elif isinstance(value, tuple):
            value = [_plain(entry) for entry in value]
        found[each.name] = value
    return found


def _plain(entry: Measurement | LossTerm) -> dict[str, Any]:
    """A measurement or a term as JSON holds it."""
    return {**dataclasses.asdict(entry), "settings": dict(entry.settings)}


def _from_plain(kind: Any, document: Mapping[str, Any]) -> Any:
    return kind(**{**document, "settings": tuple(sorted(document["settings"].items()))})


def _kind(part: Any) -> str | None:
    """The tag of a kind of data or model, None of those that always were."""
    if isinstance(part, StringData | TransformerConfig | TrainingProtocol):
        return None
    return named.name_of("kind of data" if hasattr(part, "validation_sets") else "kind of model", type(part))


def _place(part: Any) -> tuple[str, str]:
    return type(part).__module__, type(part).__qualname__


def _tagged(what: named.What, document: Mapping[str, Any], usual: Callable[[dict[str, Any]], Any]) -> Any:
    """The record that was written down, of the kind that its tag names."""
    fields = dict(document)
    return named.fetch(what, fields.pop("kind"))(**fields) if "kind" in fields else usual(fields)
