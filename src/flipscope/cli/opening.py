"""Opening the MODEL of a measuring command, with the settings it is measured at.

Each setting comes from an option, else from the model's file, else it is a default. A file that `flipscope train` or a
study wrote states function, length, loss and labels of its training (`training.task`). Every page and document says
what was taken from the file, and where an option departs from it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from flipscope.basics.bits import Bits, index_bits
from flipscope.basics.checks import check_confidence, check_count
from flipscope.basics.errors import InputError
from flipscope.basics.estimates import mean_from_samples
from flipscope.basics.seeds import check_strings_fit, generators, random_strings
from flipscope.cli.hours import asking_seconds, check_hours, flipping_seconds
from flipscope.cli.model_options import MOST_BITS
from flipscope.cube.expression import parse
from flipscope.data.real_functions import RealFunction, is_real
from flipscope.models.config import TransformerConfig
from flipscope.models.header import read_header, string_config
from flipscope.models.kinds import StringConfig
from flipscope.models.size import check_attention
from flipscope.training.task import Function, NoFunction, Task, read_task

# PyTorch and the compiled loops are loaded after the sizes have been checked: what is too large is refused at once.
if TYPE_CHECKING:
    from torch import Tensor

    from flipscope.cube.functions import BooleanFunction
    from flipscope.models.checkpoint import StringModel
    from flipscope.models.transformer import Transformer

DEFAULT_LENGTH = 100  # that of the geometry paper's experiments
MAX_STRINGS = 100_000  # that are asked for a precision

# What a command does with the function of a model: nothing, show it, compare with it if there is one, or require one.
Use = Literal["none", "shown", "optional", "required"]


@dataclass(frozen=True)
class Work:
    """How often a model is asked all its strings, in words too, and which options make it less.

    `distinct`: a string that is there several times is asked once, as `probes.asking` does.
    """

    times: int
    what: str = ""
    options: tuple[str, ...] = ("--strings", "--length")
    distinct: bool = False


@dataclass(frozen=True)
class Opened:
    """A model and the settings it is measured at."""

    model: StringModel
    length: int
    task: Task | None  # what the file says of its training
    function: Function | None  # the labels or values that the model is compared with
    function_name: str | None
    loss: Literal["mse", "bce"]
    labels: Literal["signs", "bits"]
    threshold: float
    train_strings: int | None  # of a training set that was drawn once
    from_file: Mapping[str, Any]  # settings that nobody gave and the file states
    differs: Mapping[str, Any]  # settings that were given, as the file states them
    no_function: str | None  # why the file's function cannot be used

    @property
    def notes(self) -> list[str]:
        """Sentences for the page: what came from the file, and what departs from it."""
        found = []
        if self.from_file:
            found.append(f"{_listed(self.from_file)}: from the file.")
        if self.differs:
            found.append(f"The file says {_listed(self.differs)}; the options given here say otherwise.")
        if self.no_function is not None:
            found.append(f"No labels: {self.no_function}; give --function for the loss on another function.")
        return found

    def as_json(self) -> dict[str, Any]:
        """The same for the document."""
        found: dict[str, Any] = {"from_file": dict(self.from_file), "differs_from_file": dict(self.differs)}
        return found if self.no_function is None else found | {"no_function": self.no_function}

    def strings(self, arguments: argparse.Namespace) -> Bits:
        """All strings, or as many random ones as the options say."""
        if getattr(arguments, "exhaustive", False):
            return index_bits(0, 1 << self.length, self.length)
        (stream,) = generators(arguments.seed, 1)
        return random_strings(stream, check_count("strings", arguments.strings), self.length)

    def targets(self, strings: Bits) -> NDArray[np.float64] | None:
        """The labels of strings on the scale of the loss; None without a function."""
        if self.function is None:
            return None
        values = self.function(strings)
        is_binary = values.dtype.kind in "biu"
        targets = values.astype(np.float64)
        return 2 * targets - 1 if is_binary and self.loss == "mse" and self.labels == "signs" else targets


def open_model(
    arguments: argparse.Namespace,
    *,
    work: Work | None = None,
    bits: int | None = None,
    strings: int | None = None,
    function: Use = "none",
) -> Opened:
    """The model of a command; InputError, before anything is loaded, where it would take too much memory or time.

    `work` says how often each string is asked, where that is not once for it and each of its flips. `bits` are those of
    the data that the model is compared with; `strings` is the number of strings where no option says it.
    """
    header = read_header(arguments.model)
    config = string_config(header)
    task = read_task(arguments.model, header.metadata)
    chosen = _Chosen(arguments, task)
    given = _given_function(arguments, task)
    length = chosen.length(config, None if given is None else given.n, bits)
    _check_work(config, arguments, length, work, strings)

    from flipscope.models.checkpoint import load

    model = load(header)
    values, name, missing = chosen.function(given, length, function)
    if values is None and function == "required":
        raise InputError(f"{missing}: give --function" if missing else "a loss needs labels: give --function")
    loss, labels = chosen.loss(values, length)
    return Opened(
        model=model,
        length=length,
        task=task,
        function=values,
        function_name=name,
        loss=loss,
        labels=labels,
        threshold=chosen.threshold(),
        train_strings=chosen.train_strings() if strings is None else strings,
        from_file=chosen.from_file,
        differs=chosen.differs,
        no_function=missing,
    )


@dataclass
class _Chosen:
    """Settings by precedence, option over file over default, and a record of which were taken from the file."""

    arguments: argparse.Namespace
    task: Task | None
    from_file: dict[str, Any] = field(default_factory=dict)
    differs: dict[str, Any] = field(default_factory=dict)

    def _option(self, name: str) -> Any:
        return getattr(self.arguments, name, None)

    def _settle(self, name: str, given: Any, stated: Any) -> Any:
        """The given value, else what the file states; noted down either way."""
        if given is None:
            self.from_file[name] = stated
            return stated
        if given != stated:
            self.differs[name] = stated
        return given

    def length(self, config: StringConfig, of_function: int | None, of_data: int | None) -> int:
        """Bits of each string."""
        if isinstance(config, TransformerConfig) and config.inputs == "patches":
            raise InputError(f"{self.arguments.model} reads patches of images, which have no bits to flip")
        given = self._option("length")
        if given is None:
            given = of_data
        if given is None and of_function is not None and (self.task is None or of_function > self.task.length):
            given = of_function
        if self.task is not None:
            return check_count("length", self._settle("length", given, self.task.length))
        return check_count("length", given if given is not None else config.max_length or DEFAULT_LENGTH)

    def function(
        self, given: BooleanFunction | RealFunction | None, length: int, use: Use
    ) -> tuple[Function | None, str | None, str | None]:
        """The function's values, its name, and why there is none although the file was trained on something."""
        if use == "none":
            return None, None, None
        if given is not None:
            stated = None if self.task is None else self.task.function
            if stated is not None and stated.replace(" ", "") != self.arguments.function.replace(" ", ""):
                self.differs = {"function": stated, **self.differs}
            return self._extended(given, length), self.arguments.function, None
        if self.task is None:
            return None, None, None
        try:
            values = self.task.function_at(length)
        except NoFunction as error:
            return None, None, None if use == "shown" else str(error)
        self.from_file = {"function": self.task.function, **self.from_file}
        return values, self.task.function, None

    def _extended(self, given: BooleanFunction | RealFunction, length: int) -> Function:
        """The function on strings of this length, of whose bits it may ignore the last ones."""
        if given.n == length:
            return given
        return _parsed(self.arguments.function, length)

    def loss(self, values: Function | None, length: int) -> tuple[Literal["mse", "bce"], Literal["signs", "bits"]]:
        """The loss, and for the squared error the numbers that 0 and 1 stand for."""
        loss, labels = self._option("loss"), self._option("labels")
        if values is None or self.task is None or not hasattr(self.arguments, "loss"):
            return loss or "mse", labels or "signs"
        loss = self._settle("loss", loss, self.task.loss)
        if loss == "mse" and values(np.zeros((1, length), np.uint8)).dtype.kind in "biu":
            labels = self._settle("labels", labels, self.task.labels) if self.task.loss == "mse" else labels
        return loss, labels or "signs"

    def threshold(self) -> float:
        """The model decides 1 where its output is above this."""
        given = self._option("threshold")
        if not hasattr(self.arguments, "threshold"):
            return 0.0
        if self.task is not None and self.task.threshold != 0:
            return float(self._settle("threshold", given, self.task.threshold))
        return 0.0 if given is None else float(given)

    def train_strings(self) -> int | None:
        """The size of the training set."""
        given = self._option("train_strings")
        if not hasattr(self.arguments, "train_strings") or self.task is None or self.task.train is None:
            return None if given is None else int(given)
        return int(self._settle("train_strings", given, self.task.train))


def _given_function(arguments: argparse.Namespace, task: Task | None) -> BooleanFunction | RealFunction | None:
    """The function of --function, on as many bits as it uses or --length says."""
    text = getattr(arguments, "function", None)
    if text is None:
        return None
    length = arguments.length
    if length is None and task is not None and is_real(text):
        length = task.length
    return _parsed(text, length)


def _parsed(text: str, length: int | None) -> BooleanFunction | RealFunction:
    """The function of an expression, or a real-valued one such as "mean"."""
    if not is_real(text):
        return parse(text, length)
    if length is None:
        raise InputError(f"{text!r} is a real-valued function of any number of bits: give --length")
    return RealFunction(text, length)


def _listed(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items())


# ---------------------------------------------------------------- refusals before any work


def _check_work(
    config: StringConfig, arguments: argparse.Namespace, length: int, work: Work | None, strings: int | None
) -> None:
    """Raise InputError if the strings do not fit into memory, or asking them would take too long."""
    if isinstance(config, TransformerConfig) and config.layers > 1:  # a single layer may need one row only
        check_attention(config, length, length)
    if work is not None and getattr(arguments, "exhaustive", False):
        if length > MOST_BITS:
            raise InputError(f"all strings of {length} bits are too many: give --strings, or at most {MOST_BITS} bits")
        strings = 1 << length
    elif strings is None and arguments.strings is not None:
        strings = check_count("strings", arguments.strings)
    if strings is not None:
        check_strings_fit(strings, length)
        _check_hours(config, arguments, length, strings, work)
    if getattr(arguments, "precision", None) is not None:
        _check_precision(arguments.precision, length, check_confidence(arguments.confidence))


def _check_hours(
    config: StringConfig, arguments: argparse.Namespace, length: int, strings: int, work: Work | None
) -> None:
    """Raise InputError if asking the model takes too long."""
    options = ["--strings", "--length"]
    what = f"{strings:,} strings of {length:,} bits"
    if work is None:
        what += " with all their flips"
        general, screened = getattr(arguments, "path", "auto") == "general", getattr(arguments, "heuristic", False)
        seconds = flipping_seconds(config, length, strings, general=general, screened=screened)
    else:
        exhaustive = getattr(arguments, "exhaustive", False)
        options = ["--length" if exhaustive and each == "--strings" else each for each in work.options]
        what = f"{work.what} on {what}" if work.what else what
        seconds = asking_seconds(config, length, strings, work.times, distinct=work.distinct)
    check_hours(arguments, seconds, what, options)


def _check_precision(precision: float, length: int, confidence: float) -> None:
    """Raise InputError if the largest number of strings that is drawn cannot reach this precision."""
    most = MAX_STRINGS
    # The narrowest interval is that of strings without any flip that matters.
    least = mean_from_samples(np.zeros(most), 0, length, confidence, "anytime").half_width
    if 0 < precision < least:
        enough = f"{1.06 * least:.2g}"  # and not less, by rounding
        raise InputError(
            f"precision {precision:g} cannot be reached with {most:,} strings of {length:,} bits: give {enough} or more"
        )


# ---------------------------------------------------------------- models that a command takes


def standard(model: StringModel, what: str) -> Transformer:
    """The model, if it is a standard transformer; InputError otherwise."""
    from flipscope.models.transformer import Transformer

    if not isinstance(model, Transformer):
        kind = model.config.as_dict()["kind"].replace("-", " ").replace("fourier", "Fourier")
        article = "an" if kind[0] in "aeiou" else "a"
        raise InputError(f"the file holds {article} {kind}, and {what}: give a standard transformer")
    return model


def answering(model: StringModel) -> Callable[[Tensor], Tensor] | None:
    """How to get one logit per string from a model that has two outputs; None where it has one anyway."""
    if not isinstance(model.config, TransformerConfig) or model.config.outputs != 2:
        return None
    from flipscope.models.fast_logits import logits_for
    from flipscope.models.outputs import binary_logit

    logits = logits_for(model)
    return lambda bits: binary_logit(logits(bits))
