"""A model with the conventions for measuring it: the one way in for everybody's models.

    >>> import numpy as np
    >>> model = nn.Sequential(nn.Linear(3, 1, bias=False), nn.Sigmoid())
    >>> _ = nn.init.ones_(model[0].weight)
    >>> subject = Subject(model, encoding="signs")
    >>> subject.answers(np.array([[0, 0, 1], [0, 1, 1]]))  # from probabilities, since a sigmoid comes last
    array([1, 0])

A model is an `nn.Module`, a function of bits, a model of `transformers`, a scikit-learn estimator or an ONNX Runtime
session. Every measurement takes any of these, or a `Subject` where a convention is to be another than usual; what it
then calls is the `adapters.settled.Settled` of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from flipscope.adapters.encoding import Encoding, check_encoding, encoding_name
from flipscope.adapters.other_libraries import Estimator, ForeignModel, Session, foreign_model
from flipscope.adapters.outputs import Output, check_output
from flipscope.basics.arguments import belong_to, checked_arguments
from flipscope.basics.bits import check_strings
from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError
from flipscope.models.devices import Device, device_of, usable_device

if TYPE_CHECKING:
    from flipscope.adapters.settled import Settled

Precision: TypeAlias = Literal["auto", "float64", "native"]

MEMORY_LIMIT = 1 << 30  # approximate limit for the memory of one batch
CONVENTIONS = ("encoding", "output", "threshold", "precision", "device", "batch", "memory_limit")

belong_to(
    "model",
    CONVENTIONS,
    "{name}= is said once, of the model: write {function}(flipscope.Subject(model, {name}={value}), ...)",
)


class Subject:
    """A model together with the conventions for evaluating it.

    ``encoding``: how strings of bits become the model's input. "bits" (0 and 1 as integers), "floats" (0.0 and 1.0),
    "signs" (1.0 for 0 and -1.0 for 1), two token ids, or a function of the bits [string, position] that returns a
    tensor, a tuple of arguments or a dict of keywords. By default bits if the model has an embedding, else floats.

    ``output``: how its outputs become a decision. "logit", "logits", "probability", "probabilities", "labels", or a
    function of the output that returns one number per string or one per class. By default as `adapters.outputs` says.

    ``threshold``: the answer is 1 where the output is greater. By default 0.5 for a probability, else 0.

    ``precision``: which arithmetic is measured. "auto" is float32 (weights in half precision are copied to it), or
    float64 if that is the weights' type; sensitivities, profiles and truth tables compute doubtful signs again in
    float64. "float64" is float64 throughout. "native" is the model exactly as it computes, without these checks;
    functions, estimators and sessions are always measured so.

    ``device``: where it is evaluated, by default where its parameters are. The model itself stays where it is.

    ``batch``: strings per call; by default as many as are fast within ``memory_limit`` bytes. With batch=1 a model may
    depend on its batch, which then holds one string.

    A module with NaN or infinity among its parameters is refused unless ``diverged`` allows them.
    """

    @checked_arguments
    def __init__(
        self,
        model: Model,
        *,
        encoding: Encoding = "auto",
        output: Output = "auto",
        threshold: float | None = None,
        precision: Precision = "auto",
        device: Device | None = None,
        batch: int | None = None,
        memory_limit: int = MEMORY_LIMIT,
        diverged: bool = False,
    ) -> None:
        check_callable(model)
        if threshold is not None and not math.isfinite(threshold):
            raise InputError(f"threshold={threshold} must be a finite number")
        self.model: Any = _as_written(model)
        self.encoding: Encoding = check_encoding(encoding)
        self.output: Output = check_output(output)
        self.threshold = None if threshold is None else float(threshold)
        self.precision: Precision = precision
        self.batch = None if batch is None else check_count("batch", batch)
        self.memory_limit = check_count("memory_limit", memory_limit)
        self.diverged = diverged
        self.foreign: ForeignModel | None = None
        if not isinstance(self.model, nn.Module):
            self.foreign = foreign_model(self.model)
        self.device: torch.device | None = self._wanted_device(device)

    def __repr__(self) -> str:
        output = self.output if isinstance(self.output, str) else "a function"
        said = [f"encoding: {encoding_name(self.encoding)}", f"output: {output}"]
        told = {"threshold": self.threshold, "device": self.device, "batch": self.batch}
        said += [f"{name}: {value}" for name, value in told.items() if value is not None]
        said += [f"precision: {self.precision}"] * (self.precision != "auto")
        return f"Subject({type(self.model).__name__}, {', '.join(said)})"

    @property
    def module(self) -> nn.Module | None:
        """The model if it is an nn.Module, else None."""
        return self.model if isinstance(self.model, nn.Module) else None

    def needed_module(self, what: str) -> nn.Module:
        """The same; InputError for models that are not modules."""
        if self.module is None:
            raise InputError(f"{what} an nn.Module, and the model is {self.kind}")
        return self.module

    @property
    def kind(self) -> str:
        """What the model is, in a word or two."""
        if self.foreign is not None:
            return self.foreign.kind
        return "a function" if self.module is None else f"a {type(self.model).__name__}"

    @property
    def takes_data_as_they_are(self) -> bool:
        """Whether no encoding was given, so that inputs may be other data than bits."""
        return isinstance(self.encoding, str) and self.encoding == "auto"

    def replaced(self, **conventions: Any) -> Subject:
        """The same model with some conventions changed."""
        own = {name: getattr(self, name) for name in (*CONVENTIONS, "diverged")}
        return Subject(self.model, **own | conventions)

    def settled(self) -> Settled:
        """The model ready to be measured: see `adapters.settled`."""
        from flipscope.adapters.settled import Settled

        return Settled(self)

    def values(self, strings: object) -> NDArray[np.floating]:
        """The logit or probability of each string; for three or more classes one number each, [string, class]."""
        settled = self.settled()
        with settled.measuring():
            return settled.logits(check_strings(strings))

    def answers(self, strings: object) -> NDArray[np.int64]:
        """The model's decision on each string: 0 or 1, or the number of the class."""
        settled = self.settled()
        with settled.measuring():
            values = settled.logits(check_strings(strings))
            settled.check_clear(values)
        if broken := int(np.isnan(values).sum()):
            raise InputError(f"the model gave NaN for {broken} of {values.size} answers: it is broken on these strings")
        return settled.chosen(values)

    def _wanted_device(self, device: Device | None) -> torch.device | None:
        """The device to copy the model to; None is where it is."""
        if device is None:
            return None
        if self.foreign is not None and str(device) != "cpu":
            raise InputError(f"device={str(device)!r} is for PyTorch models, and the model is {self.foreign.kind}")
        wanted, own = usable_device(device), device_of(self.model)
        return own if wanted.index is None and own.type == wanted.type else wanted


Model: TypeAlias = nn.Module | Callable[..., Any] | Subject | Estimator | Session


def as_subject(model: Model) -> Subject:
    """The model as a `Subject`, with the usual conventions where none are given."""
    return model if isinstance(model, Subject) else Subject(model)


def check_callable(model: object) -> None:
    """Raise InputError unless this can be a model."""
    if isinstance(model, Subject):
        raise InputError("the model is a Subject already: give all its conventions to one Subject")
    if not callable(model) and foreign_model(model) is None:
        raise InputError(
            "the model must be an nn.Module, a function of bits, a scikit-learn estimator or an ONNX session, not "
            f"a {type(model).__name__}"
        )


def _as_written(model: Any) -> Any:
    """The module that was compiled, if torch.compile was used: it computes the same and needs no compiler."""
    return getattr(model, "_orig_mod", model) if isinstance(model, nn.Module) else model
