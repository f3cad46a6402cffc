"""The adapter for any model: how bits become its input, and how its outputs become a decision.

    >>> import numpy as np
    >>> model = nn.Sequential(nn.Linear(3, 1, bias=False), nn.Sigmoid())
    >>> _ = nn.init.ones_(model[0].weight)
    >>> subject = Subject(model, encoding="signs")
    >>> subject.answers(np.array([[0, 0, 1], [0, 1, 1]]))  # from probabilities, since a sigmoid comes last
    array([1, 0])
    >>> subject.threshold
    0.5

A model is an `nn.Module`, a function of bits, a model of `transformers`, a scikit-learn estimator or an ONNX Runtime
session. All measurements accept any of these and wrap it in a `Subject`, or use a given `Subject`. The possible
encodings and outputs are described in `models.encoding` and `models.outputs`.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import math
import random
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.bits import check_strings
from flipscope.basics.errors import InputError, blamed_on, reason
from flipscope.models.copies import converted, copied
from flipscope.models.deterministic import perturbed
from flipscope.models.devices import CPU, Device, device_of, random_states_kept, usable_device
from flipscope.models.encoding import Encoding, check_encoding, encoded, encoding_name, looks_up
from flipscope.models.modes import eval_mode, modes_kept
from flipscope.models.other_libraries import Estimator, ForeignModel, Session, foreign_model
from flipscope.models.outputs import (
    Output,
    OutputWatch,
    ProbabilityWarning,
    check_output,
    decision_values,
    numbers,
    output_rows,
)

Bits: TypeAlias = NDArray[np.uint8]


class Subject:
    """A model together with the conventions for evaluating it on strings of bits.

    ``encoding`` says how bits [string, position] become the model's input: "bits", "floats", "signs", two token ids, or
    a function of the bits. ``output`` says how the model's output becomes a decision: "logit", "logits", "probability",
    "probabilities", or a function of the output. "auto" is determined from the model's parts and a trial call; if that
    fails, an `InputError` says what to pass. ``device`` is the device of the evaluation, by default that of the
    parameters; a module is copied there while the original stays where it is. A module with NaN or infinity among its
    parameters is rejected unless ``diverged`` allows them, as after a training that diverged.

    A module is evaluated in evaluation mode; afterwards its mode, its gradients and the global random generators are
    restored.
    """

    @checked_arguments
    def __init__(
        self,
        model: Model,
        *,
        encoding: Encoding = "auto",
        output: Output = "auto",
        device: Device | None = None,
        diverged: bool = False,
    ) -> None:
        if isinstance(model, Subject):
            encoding = model._encoding if isinstance(encoding, str) and encoding == "auto" else encoding
            output = model.output if isinstance(output, str) and output == "auto" else output
            device = model.device if device is None else device
            model = model.original
        self.original: Any = model  # the given model
        self.output: Output = check_output(output)
        self._encoding: Encoding = check_encoding(encoding)
        self.foreign: ForeignModel | None = None if isinstance(model, nn.Module) else foreign_model(model)
        if self.foreign is None:
            check_model(model, finite=not diverged)
        self.device: torch.device = self._wanted_device(device)
        self.model: Callable[..., Any] = self.foreign or model  # type: ignore[assignment]  # which is callable
        if isinstance(model, nn.Module) and device_of(model) != self.device:
            self.model = _on_device(model, self.device)
        self.dtype = number_type(self.model)
        self.is_probability: bool | None = None  # None before the trial call
        self._is_converted = False
        self._is_doubtful = self.takes_data_as_they_are and isinstance(model, nn.Module)
        self.classes: int | None = None  # three or more, known after the first evaluation
        self._lowest, self._highest, self._whole = np.inf, -np.inf, True

    def __repr__(self) -> str:
        name = type(self.original).__name__
        output = self.output if isinstance(self.output, str) else "a function"
        return f"Subject({name}, encoding: {encoding_name(self._encoding)}, output: {output}, device: {self.device})"

    @cached_property
    def encoding(self) -> Encoding:
        """How bits become the model's input, with "auto" resolved; InputError if that is impossible."""
        return self._settled_encoding()

    @property
    def takes_data_as_they_are(self) -> bool:
        """Whether no encoding was given, so that inputs may be other data than bits."""
        return isinstance(self._encoding, str) and self._encoding == "auto"

    @property
    def module(self) -> nn.Module | None:
        """The model on the device of its evaluation if it is an nn.Module, else None."""
        return self.model if isinstance(self.model, nn.Module) else None

    def needed_module(self, what: str) -> nn.Module:
        """The same; InputError for models that are not modules."""
        if self.module is None:
            kind = "a function" if self.foreign is None else self.foreign.kind
            raise InputError(f"{what} an nn.Module, and the model is {kind}")
        return self.module

    # ------------------------------------------------------------ evaluation

    def values(self, strings: object) -> NDArray[np.floating]:
        """The logit or probability of each string; for three or more classes one number each, [string, class]."""
        bits = check_strings(strings)
        with self.kept():
            return self.asked_values(bits)

    def answers(self, strings: object) -> NDArray[np.int64]:
        """The model's decision on each string: 0 or 1, or the number of the class."""
        return self.chosen(self.values(strings))

    def chosen(self, values: NDArray[np.floating]) -> NDArray[np.int64]:
        """The decisions for values [string], or the class with the largest value for [string, class]."""
        found: NDArray[np.int64] = (
            values.argmax(axis=1) if values.ndim == 2 else (values > self.threshold).astype(np.int64)
        )
        return found

    @property
    def threshold(self) -> float:
        """The threshold above which the answer is 1: 0.5 for probabilities, else 0.

        Known after the first evaluation, from the way the model computes and not from its outputs.
        """
        return 0.5 if self.output == "probability" or (self.output == "auto" and self.is_probability) else 0.0

    @property
    def output_name(self) -> str:
        """The interpretation of the outputs, in a word or two."""
        if callable(self.output):
            return "a function of the output"
        if self.output != "auto":
            return self.output
        if self.foreign is not None and self.foreign.declared is not None:
            return self.foreign.declared
        if self.threshold == 0.5:
            return "probability"
        return "logit" if self.classes is None else "logits"

    # ------------------------------------------------------------ the steps of a call

    def asked_values(self, bits: Bits) -> NDArray[np.floating]:
        """The same as `values` for checked bits, inside a measurement."""
        if self.is_probability is None:
            if self._is_known():
                self.is_probability = False
            else:
                with contextlib.suppress(InputError):  # a broken model fails again below
                    self.try_out(np.zeros_like(bits[:1]))
        found = self.decided(self.run(bits), len(bits), bits.shape[1])
        self.notice(found)
        return found

    def run(self, bits: Bits) -> Any:
        """The model's raw output for these strings."""
        with self.asked(bits):
            return self.call(self.encode(bits))

    def encode(self, bits: Bits) -> Any:
        """The model's input for these strings."""
        # A copy, since the model may write to it; int64, since uint8 arithmetic wraps around and uint8 indexing masks.
        return self._encoded(torch.from_numpy(bits.astype(np.int64)).to(self.device))

    def outputs(self, bits: Tensor) -> Tensor:
        """The model's outputs for a tensor of bits, with a graph if gradients are enabled, for training."""
        with blamed_on("the model"):
            raw = self.call(self._encoded(bits.long()))
        found = self.output(raw) if callable(self.output) else getattr(raw, "logits", raw)
        if not isinstance(found, Tensor):
            raise InputError(f"the model returned {type(raw).__name__}, not a tensor: give a function of it as output=")
        return found

    def _encoded(self, whole: Tensor) -> Any:
        """The model's input for int64 bits."""
        if self._is_doubtful and self.encoding == "floats":
            self._is_doubtful = False
            few = whole[:1].clone()
            if not self.runs(few.to(self.dtype or torch.float32)) and self.runs(few):
                self.encoding = "bits"
        given = encoded(whole, self.encoding, self.dtype)
        return self._as_keywords(given) if isinstance(self.encoding, tuple) else given

    def runs(self, *arguments: Any, **keywords: Any) -> bool:
        """Whether a trial call with this input succeeds, for models that do not declare their input."""
        try:
            with eval_mode(self.model), torch.no_grad():
                self.model(*arguments, **keywords)
        except Exception:
            return False
        return True

    def call(self, given: Any) -> Any:
        """The model's raw output for an input: a tensor, a tuple of arguments or a mapping of keywords."""
        if isinstance(given, Mapping):
            return self.model(**{name: self.cast(value) for name, value in given.items()})
        if isinstance(given, tuple):
            return self.model(*(self.cast(value) for value in given))
        return self.model(self.cast(given))

    def cast(self, value: Any) -> Any:
        """The output of an encoding function, converted to the model's type and device."""
        if not isinstance(value, Tensor):
            return value
        return value.to(self.device, self.dtype if value.is_floating_point() else None)

    def decided(self, raw: Any, count: int, length: int) -> NDArray[np.floating]:
        """The values of a raw output for strings of this length: [string], or [string, class]."""
        with _blamed_on_output(self.output):
            found = numbers(self.output(raw) if callable(self.output) else raw)
        values = decision_values(found, self.output, count, length if self.foreign is None else None)
        self.classes = values.shape[1] if values.ndim == 2 else None
        # Even without gradients, a parameter that a module returns unchanged requires one.
        out: NDArray[np.floating] = values.detach().cpu().numpy()
        return out

    def rows(self, raw: Any, count: int, source: str = "the model") -> Float[Tensor, "string ..."]:
        """All numbers of a raw output, [string, ...]."""
        with _blamed_on_output(self.output):
            return output_rows(self.output(raw) if callable(self.output) else raw, count, source)

    def try_out(self, bits: Bits) -> list[int]:
        """A trial call that detects probabilities; returns the bytes of every intermediate tensor."""
        return self.watched(lambda: self.run(bits), len(bits), bits.shape[1])

    def watched(self, run: Callable[[], Any], count: int, length: int = 0) -> list[int]:
        """The same for any call of the model with this number of inputs."""
        self.is_probability = False
        with OutputWatch() as watch:
            raw = run()
            with _blamed_on_output(self.output):
                found = self.output(raw) if callable(self.output) else raw
        values = self.decided(raw, count, length)
        single = math.prod(numbers(found).shape) == len(values)
        self.is_probability = single and watch.is_probability(found)
        sizes: list[int] = watch.sizes
        return sizes

    @contextlib.contextmanager
    def asked(self, bits: Bits) -> Iterator[None]:
        """The model in evaluation mode without gradients; an error becomes one sentence."""
        with eval_mode(self.model), torch.no_grad():
            try:
                yield
            except InputError:
                raise
            except Exception as error:
                raise InputError(
                    f"the model failed on {len(bits)} strings of length {bits.shape[1]} with {reason(error)}"
                    f"{self._hint()}"
                ) from error

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Restore modes, gradients and the global random generators after a measurement."""
        with left_as_it_was(self.model):
            yield

    # ------------------------------------------------------------ the same model in other numbers

    def like(self, model: Callable[..., Any]) -> Subject:
        """Another model, such as a changed copy, with the same conventions."""
        other = copy.copy(self)
        other.model, other.dtype = model, number_type(model) or self.dtype
        other._lowest, other._highest, other._whole = np.inf, -np.inf, True
        return other

    def converted(self, dtype: torch.dtype) -> Subject:
        """The same with a copy of the module in another number type."""
        if self.module is None:
            raise InputError(f"a function cannot be run in {dtype}: give an nn.Module, or precision='native'")
        try:
            other = self.like(converted(self.module, dtype))
        except Exception as error:
            raise InputError(
                f"the model cannot be copied into {dtype} ({reason(error)}): say precision='native'"
            ) from error
        other._is_converted, other.dtype = True, dtype
        other.device = device_of(other.model)  # the CPU, where the model's device has no float64
        return other

    def perturbed(self, amount: float) -> Subject:
        """The same with every parameter of a copy of the module moved up or down by this share of itself."""
        assert self.module is not None
        return self.like(perturbed(self.module, amount))

    @property
    def is_mixed(self) -> bool:
        """Whether a module's floating-point tensors have several types."""
        tensors = () if self.module is None else (*self.module.parameters(), *self.module.buffers())
        return len({tensor.dtype for tensor in tensors if tensor.is_floating_point()}) > 1

    # ------------------------------------------------------------ outputs that look like probabilities

    def notice(self, values: NDArray[np.floating]) -> None:
        """Remember the range of the values, for `warn_of_probabilities`."""
        if values.ndim == 1 and len(values):
            finite = bool(np.isfinite(values).all())
            self._lowest = min(self._lowest, float(values.min()) if finite else -np.inf)
            self._highest = max(self._highest, float(values.max()) if finite else np.inf)
            self._whole = self._whole and bool((values == np.floor(values)).all())

    def warn_of_probabilities(self) -> None:
        """Warn once if all outputs were between 0 and 1, one per string, and their meaning is unknown."""
        if self._lowest >= 0 and self._highest <= 1 and not (self._whole or self.is_probability or self._is_known()):
            self._whole = True  # not again
            warnings.warn(
                "all outputs lie between 0 and 1, and the answer was taken to be 1 where the output is above 0: if "
                "they are probabilities, say output='probability' or threshold=0.5; if not, output='logit'",
                ProbabilityWarning,
                stacklevel=_depth_of_caller(),
            )

    # ------------------------------------------------------------ inside

    def _is_known(self) -> bool:
        """Whether the meaning of the outputs is known without a trial call."""
        if self.foreign is not None and self.foreign.declared is not None:
            return True
        own = str(getattr(self.original, "__module__", "")).startswith("flipscope.")  # our networks give logits
        return own or self.output != "auto"

    def _wanted_device(self, device: Device | None) -> torch.device:
        """The device on which to evaluate the model."""
        if self.foreign is not None and str(device) not in ("None", "cpu"):
            raise InputError(f"device={str(device)!r} is for PyTorch models, and the model is {self.foreign.kind}")
        own = device_of(self.original)
        wanted = own if device is None else usable_device(device)
        return own if wanted.index is None and own.type == wanted.type else wanted

    def _settled_encoding(self) -> Encoding:
        if not self.takes_data_as_they_are:
            return self._encoding
        if self.foreign is not None:
            return self.foreign.usual_encoding()
        if self.module is None:
            return "bits"
        own = getattr(self.module, "config", None) if type(self.module).__module__.startswith("flipscope.") else None
        if getattr(own, "inputs", None) in ("patches", "images"):
            raise InputError("the model reads images, which have no bits to flip: token_sensitivity measures it")
        if _reads_tokens(self.module):
            size = getattr(getattr(self.module, "config", None), "vocab_size", None)
            if size != 2:
                raise InputError(
                    f"the {type(self.module).__name__} reads tokens: say which two of them stand for 0 and 1, such as "
                    "encoding=(t0, t1) with two token ids"
                )
            return 0, 1
        return "bits" if looks_up(self.module) else "floats"

    def _as_keywords(self, tokens: Tensor) -> Any:
        """Tokens under the input names of language models; unchanged for other models."""
        ones = {"attention_mask": torch.ones_like(tokens), "token_type_ids": torch.zeros_like(tokens)}
        if self.foreign is not None:
            if not self.foreign.reads("input_ids"):
                return tokens
            return {"input_ids": tokens} | {name: each for name, each in ones.items() if self.foreign.reads(name)}
        if self.module is None or not _reads_tokens(self.module):
            return tokens
        known = "attention_mask" in inspect.signature(self.module.forward).parameters
        return {"input_ids": tokens} | ({"attention_mask": ones["attention_mask"]} if known else {})

    def _hint(self) -> str:
        hints = []
        if not callable(self.encoding):
            other = "floats" if self.encoding == "bits" else "bits"
            hints.append(f"it was given {encoding_name(self.encoding)}: if it wants {other}, say encoding={other!r}")
        if self._is_converted:
            hints.append(f"it was evaluated in {self.dtype}: if it does not support that, say precision='native'")
        return "".join(f"; {hint}" for hint in hints)


Model: TypeAlias = nn.Module | Callable[..., Any] | Subject | Estimator | Session


def as_subject(
    model: Model, encoding: Encoding = "auto", output: Output = "auto", device: Device | None = None
) -> Subject:
    """The model as a `Subject`; a given `Subject` is returned unless arguments change it."""
    plain = isinstance(encoding, str) and encoding == "auto" and isinstance(output, str) and output == "auto"
    if isinstance(model, Subject) and plain and device is None:
        return model
    return Subject(model, encoding=encoding, output=output, device=device)


def check_model(model: object, *, finite: bool = True) -> None:
    """Raise InputError unless the model is callable, has data, and, if required, these are ``finite``."""
    if not callable(model):
        raise InputError(
            "the model must be an nn.Module, a function of bits, a scikit-learn estimator or an ONNX session, not "
            f"a {type(model).__name__}"
        )
    if not isinstance(model, nn.Module):
        return
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if is_lazy(tensor):
            raise InputError(f"the model has no {name} yet: call it on some strings once, then measure it")
    for name, parameter in model.named_parameters():
        if parameter.is_meta or isinstance(parameter, nn.UninitializedParameter):
            raise InputError("the model has shapes but no numbers: build it with a seed")
        if finite and not bool(parameter.detach().isfinite().all()):
            raise InputError(f"the model has NaN or infinite numbers in {name}: nothing can be measured of it")
    for name, buffer in model.named_buffers():  # infinity is usual there, in masks
        if finite and bool(buffer.detach().isnan().any()):
            raise InputError(f"the model has NaN in {name}: nothing can be measured of it")


def number_type(model: object) -> torch.dtype | None:
    """The number type of a module's first parameter, None if there is none."""
    if not isinstance(model, nn.Module):
        return None
    return next((tensor.dtype for tensor in model.parameters() if tensor.is_floating_point()), None)


@contextlib.contextmanager
def left_as_it_was(model: object) -> Iterator[None]:
    """Restore a module's modes and gradients and the global random generators after the context."""
    parameters = list(model.parameters()) if isinstance(model, nn.Module) else []
    before = [(each, each.requires_grad, each.grad) for each in parameters]
    states = random.getstate(), np.random.get_state()  # noqa: NPY002  # which a model may use
    try:
        with modes_kept(model), random_states_kept(parameters[0].device if parameters else CPU):
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        for parameter, needs, gradient in before:
            if parameter.requires_grad is not needs:
                parameter.requires_grad_(needs)
            if parameter.grad is not gradient:
                parameter.grad = gradient


@contextlib.contextmanager
def _blamed_on_output(output: Output) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        if not callable(output):
            raise
        raise InputError(f"the function given as output= failed with {reason(error)}") from error


def _reads_tokens(module: nn.Module) -> bool:
    """Whether the module is a model of `transformers` that is called with token ids; wrappers forward the name."""
    return getattr(module, "main_input_name", None) == "input_ids"


def _on_device(module: nn.Module, device: torch.device) -> nn.Module:
    """A copy of the module on a device."""
    try:
        return copied(module).to(device)
    except Exception as error:
        raise InputError(f"the model cannot be copied to {device}: {reason(error)}") from error


def _depth_of_caller() -> int:
    """The stack level of the first frame outside this package, for `warnings.warn`."""
    depth, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(("flipscope.", "contextlib")):
        depth, frame = depth + 1, frame.f_back
    return depth
