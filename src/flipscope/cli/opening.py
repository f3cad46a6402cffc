"""Opening the MODEL of a measuring command, with the settings of the measurement.

MODEL is a flipscope file, `package.module:factory` or an ONNX file (`cli.other_models`); --encoding, --decision and
--device define how it is evaluated (`adapters.subject`).

Each setting comes from an option, else from the model's file, else it has a default. A file written by `flipscope
train` or a study records function, length, loss and labels of its training (`training.task`). Every page and document
states which settings were taken from the file, and where an option differs from it.
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
from flipscope.basics.importing import imported
from flipscope.basics.seeds import check_strings_fit, generators, random_strings
from flipscope.cli.hours import asking_seconds, check_hours, flipping_seconds, timed_seconds
from flipscope.cli.model_options import MOST_BITS
from flipscope.cli.other_models import is_other_model, other_model, own_length
from flipscope.cube.expression import parse
from flipscope.data.real_functions import RealFunction, is_real
from flipscope.models.baselines.config import BaselineConfig
from flipscope.models.config import TransformerConfig
from flipscope.models.header import read_header, string_config
from flipscope.models.kinds import StringConfig
from flipscope.models.size import check_attention
from flipscope.training.task import Function, NoFunction, Task, read_task

# PyTorch and the compiled loops are loaded after the sizes have been checked, so that errors appear at once.
if TYPE_CHECKING:
    from torch import Tensor, nn

    from flipscope.adapters.settled import Settled
    from flipscope.adapters.subject import Subject
    from flipscope.cube.functions import BooleanFunction
    from flipscope.models.transformer import Transformer

DEFAULT_LENGTH = 100  # as in the geometry paper's experiments
MAX_STRINGS = 100_000  # most strings drawn to reach a --precision

# How a command uses the function of a model: not at all, to show it, to compare with it if there is one, or always.
Use = Literal["none", "shown", "optional", "required"]


@dataclass(frozen=True)
class Work:
    """The number of evaluations of all strings, its description, and the options that reduce it.

    `distinct`: duplicate strings are evaluated once, as in `probes.asking`.
    """

    times: int
    what: str = ""
    options: tuple[str, ...] = ("--strings", "--length")
    distinct: bool = False


@dataclass(frozen=True)
class Opened:
    """A model and the settings of its measurement."""

    model: Any  # for probes: the model itself, or a `Subject` if it is not flipscope's or options describe it
    original: Any  # the model itself
    length: int
    task: Task | None  # the training recorded in the file
    function: Function | None  # the labels or values that the model is compared with
    function_name: str | None
    loss: Literal["mse", "bce"]
    labels: Literal["signs", "bits"]
    train_strings: int | None  # size of a fixed training set
    from_file: Mapping[str, Any]  # settings taken from the file
    differs: Mapping[str, Any]  # the file's values of settings that options override
    no_function: str | None  # why the file's function cannot be used

    @property
    def notes(self) -> list[str]:
        """Sentences for the page: which settings came from the file, and which differ from it."""
        found = []
        if self.from_file:
            found.append(f"{_listed(self.from_file)}: from the file.")
        if self.differs:
            found.append(f"The file says {_listed(self.differs)}; the options given here say otherwise.")
        if self.no_function is not None:
            found.append(f"No labels: {self.no_function}; give --function for the loss on another function.")
        return found

    def as_json(self) -> dict[str, Any]:
        """The same for the JSON document."""
        found: dict[str, Any] = {"from_file": dict(self.from_file), "differs_from_file": dict(self.differs)}
        return found if self.no_function is None else found | {"no_function": self.no_function}

    def strings(self, arguments: argparse.Namespace) -> Bits:
        """All strings, or the number of random ones that the options request."""
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

    def one_number(self) -> Subject:
        """The model with one output per string, which a loss compares with the targets.

        Two outputs become their difference, and for bce a probability becomes its logit.
        """
        from flipscope.adapters.subject import as_subject

        subject = as_subject(self.model)
        return subject.replaced(output=_one_number(_tried(subject, self.length), self.loss))

    def module(self, what: str) -> nn.Module:
        """The model as a module; for other models an InputError, in which `what` names the purpose."""
        from flipscope.adapters.subject import as_subject

        return as_subject(self.model).needed_module(what)


def open_model(
    arguments: argparse.Namespace,
    *,
    work: Work | None = None,
    bits: int | None = None,
    strings: int | None = None,
    function: Use = "none",
    double: bool = False,
) -> Opened:
    """The model of a command; InputError, before anything is loaded, if it would need too much memory or time.

    `work` is the number of evaluations of each string, by default one for it and one for each of its flips. `bits` is
    the length of the data that the model is compared with; `strings` is the number of strings if no option sets it;
    `double` converts the model to float64.
    """
    model: Any = None
    if is_other_model(arguments.model):
        header = task = None
        model = other_model(arguments.model)
        config = _own_config(model)
    else:
        header = read_header(arguments.model)
        config = string_config(header)
        task = read_task(arguments.model, header.metadata)
    chosen = _Chosen(arguments, task)
    given = _given_function(arguments, task)
    length = chosen.length(config, None if given is None else given.n, bits, model)
    strings_asked = _check_strings(config, arguments, length, work, strings)
    if config is not None and strings_asked is not None:
        _check_hours(config, arguments, length, strings_asked, work)
    if header is not None:
        from flipscope.models.checkpoint import load

        model = load(header)
    if double and callable(getattr(model, "double", None)):
        model = model.double()
    asked = _subject(arguments, model, length, chosen.threshold(), is_ours=header is not None)
    if config is None and strings_asked is not None:
        _check_measured_hours(asked, arguments, length, strings_asked, work)
    values, name, missing = chosen.function(given, length, function)
    if values is None and function == "required":
        raise InputError(f"{missing}: give --function" if missing else "a loss needs labels: give --function")
    loss, labels = chosen.loss(values, length)
    return Opened(
        model=asked,
        original=model,
        length=length,
        task=task,
        function=values,
        function_name=name,
        loss=loss,
        labels=labels,
        train_strings=chosen.train_strings() if strings is None else strings,
        from_file=chosen.from_file,
        differs=chosen.differs,
        no_function=missing,
    )


@dataclass
class _Chosen:
    """Settings by precedence (option, file, default), and a record of those taken from the file."""

    arguments: argparse.Namespace
    task: Task | None
    from_file: dict[str, Any] = field(default_factory=dict)
    differs: dict[str, Any] = field(default_factory=dict)

    def _option(self, name: str) -> Any:
        return getattr(self.arguments, name, None)

    def _settle(self, name: str, given: Any, stated: Any) -> Any:
        """The given value, else the file's; recorded either way."""
        if given is None:
            self.from_file[name] = stated
            return stated
        if given != stated:
            self.differs[name] = stated
        return given

    def length(self, config: StringConfig | None, of_function: int | None, of_data: int | None, model: object) -> int:
        """Bits of each string."""
        if isinstance(config, TransformerConfig | BaselineConfig) and config.inputs in ("patches", "images"):
            raise InputError(
                f"{self.arguments.model} reads images, which have no bits to flip: flipscope tokens measures it"
            )
        given = self._option("length")
        if given is None:
            given = of_data
        if given is None and of_function is not None and (self.task is None or of_function > self.task.length):
            given = of_function
        if self.task is not None:
            return check_count("length", self._settle("length", given, self.task.length))
        if given is None:
            given = own_length(model) if config is None else config.max_length or DEFAULT_LENGTH
        if given is None:
            raise InputError(f"{self.arguments.model} does not say how many bits it reads: give --length")
        return check_count("length", given)

    def function(
        self, given: BooleanFunction | RealFunction | None, length: int, use: Use
    ) -> tuple[Function | None, str | None, str | None]:
        """The function's values, its name, and the reason if the file's training gives no function."""
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
        """The function on strings of this length; it may ignore the last bits."""
        if given.n == length:
            return given
        return _parsed(self.arguments.function, length)

    def loss(self, values: Function | None, length: int) -> tuple[Literal["mse", "bce"], Literal["signs", "bits"]]:
        """The loss, and for the squared error the labels that stand for 0 and 1."""
        loss, labels = self._option("loss"), self._option("labels")
        if values is None or self.task is None or not hasattr(self.arguments, "loss"):
            return loss or "mse", labels or "signs"
        loss = self._settle("loss", loss, self.task.loss)
        if loss == "mse" and values(np.zeros((1, length), np.uint8)).dtype.kind in "biu":
            labels = self._settle("labels", labels, self.task.labels) if self.task.loss == "mse" else labels
        return loss, labels or "signs"

    def threshold(self) -> float | None:
        """The output above which the model decides 1; None if the kind of its outputs determines it."""
        given = self._option("threshold")
        if not hasattr(self.arguments, "threshold"):
            return None
        if self.task is not None and self.task.threshold != 0:
            return float(self._settle("threshold", given, self.task.threshold))
        return None if given is None else float(given)

    def train_strings(self) -> int | None:
        """The size of the training set."""
        given = self._option("train_strings")
        if not hasattr(self.arguments, "train_strings") or self.task is None or self.task.train is None:
            return None if given is None else int(given)
        return int(self._settle("train_strings", given, self.task.train))


def _given_function(arguments: argparse.Namespace, task: Task | None) -> BooleanFunction | RealFunction | None:
    """The function of --function, on --length bits or on as many as it uses."""
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


def _check_strings(
    config: StringConfig | None, arguments: argparse.Namespace, length: int, work: Work | None, strings: int | None
) -> int | None:
    """The number of strings, if known; InputError if they do not fit into memory."""
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
    if getattr(arguments, "precision", None) is not None:
        _check_precision(arguments.precision, length, check_confidence(arguments.confidence))
    return strings


def _check_hours(
    config: StringConfig, arguments: argparse.Namespace, length: int, strings: int, work: Work | None
) -> None:
    """Raise InputError if evaluating one of flipscope's models takes too long, judged by its sizes."""
    if work is None:
        general, screened = getattr(arguments, "path", "auto") == "general", getattr(arguments, "heuristic", False)
        seconds = flipping_seconds(config, length, strings, general=general, screened=screened)
    else:
        seconds = asking_seconds(config, length, strings, work.times, distinct=work.distinct)
    _refuse_hours(seconds, arguments, length, strings, work)


def _check_measured_hours(
    subject: Subject, arguments: argparse.Namespace, length: int, strings: int, work: Work | None
) -> None:
    """Raise InputError if evaluating another model takes too long, judged by the time for a few strings."""
    times = length + 1 if work is None else work.times
    _refuse_hours(timed_seconds(subject.values, length, strings * times), arguments, length, strings, work)


def _refuse_hours(seconds: float, arguments: argparse.Namespace, length: int, strings: int, work: Work | None) -> None:
    options = ["--strings", "--length"]
    what = f"{strings:,} strings of {length:,} bits"
    if work is None:
        what += " with all their flips"
    else:
        exhaustive = getattr(arguments, "exhaustive", False)
        options = ["--length" if exhaustive and each == "--strings" else each for each in work.options]
        what = f"{work.what} on {what}" if work.what else what
    check_hours(arguments, seconds, what, options)


def _check_precision(precision: float, length: int, confidence: float) -> None:
    """Raise InputError if the largest allowed number of strings cannot reach this precision."""
    most = MAX_STRINGS
    # The interval is narrowest if no flip matters.
    least = mean_from_samples(np.zeros(most), 0, length, confidence, "anytime").half_width
    if 0 < precision < least:
        enough = f"{1.06 * least:.2g}"  # rounding must not make it smaller
        raise InputError(
            f"precision {precision:g} cannot be reached with {most:,} strings of {length:,} bits: give {enough} or more"
        )


# ---------------------------------------------------------------- input and output of a model


def _own_config(model: object) -> StringConfig | None:
    """The configuration of a flipscope model returned by a factory; None for other models."""
    found = getattr(model, "config", None)
    return found if isinstance(found, StringConfig) else None


def _subject(arguments: argparse.Namespace, model: Any, length: int, threshold: float | None, *, is_ours: bool) -> Any:
    """The model in the form that probes accept, with a fixed encoding, so that all probes evaluate it alike."""
    encoding = _encoding(getattr(arguments, "encoding", "auto"))
    output = output_of(getattr(arguments, "decision", "auto"))
    device = getattr(arguments, "device", None)
    precision: Literal["auto", "float64"] = "float64" if getattr(arguments, "float64", False) else "auto"
    from flipscope.adapters.subject import Subject

    subject = Subject(model, encoding=encoding, output=output, threshold=threshold, precision=precision, device=device)
    if is_ours and encoding == "auto":
        plain = (output, threshold, precision, device) == ("auto", None, "auto", None)
        return model if plain else subject
    return subject.replaced(encoding=_tried(subject, length).encoding)


def _tried(subject: Subject, length: int) -> Settled:
    """The model after a trial call, which tells what its inputs and outputs are."""
    settled = subject.settled()
    with settled.measuring():
        settled.prepare(np.zeros((1, length), np.uint8))
    return settled


def _encoding(text: str) -> Any:
    if ":" in text:
        return imported(text, "encoding")
    if "," not in text:
        return text
    try:
        zero, one = (int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--encoding {text} is not a pair of token ids: write for example 5,6") from None
    return zero, one


def output_of(text: str) -> Any:
    """What --decision means for `Subject`: a word, or the function that it names."""
    return imported(text, "decision") if ":" in text else text


def _one_number(settled: Settled, loss: str) -> Callable[[Any], Tensor]:
    """The function that turns raw outputs into one number per string."""
    import torch

    from flipscope.adapters.outputs import binary_logit, numbers

    is_logit = settled.meaning not in ("probability", "probabilities") or loss != "bce"

    def found(raw: Any) -> Tensor:
        values = numbers(settled.chosen_part(raw))
        if is_logit:
            return binary_logit(values)
        # The logit is the difference of the logarithms of two probabilities.
        pair = values.ndim == 2 and values.shape[1] == 2
        return binary_logit(values.log()) if pair else torch.logit(binary_logit(values))

    return found


def standard(opened: Opened, what: str) -> Transformer:
    """The model, if it is a standard transformer; InputError otherwise."""
    from flipscope.models.transformer import Transformer

    model = opened.original
    if isinstance(model, Transformer):
        return model
    config = _own_config(model)
    if config is None:
        raise InputError(f"{what}, and the model is a {type(model).__name__}: give a transformer of flipscope")
    if isinstance(config, BaselineConfig):
        raise InputError(f"the file holds {config.name}, and {what}: give a standard transformer")
    kind = config.as_dict()["kind"].replace("-", " ").replace("fourier", "Fourier")
    article = "an" if kind[0] in "aeiou" else "a"
    raise InputError(f"the file holds {article} {kind}, and {what}: give a standard transformer")
