"""A model ready to be measured: copied where needed, tried out once, and ending in one function, `Settled.logits`.

A measurement settles its model at its start and examines it nowhere else. `Settled(subject)` checks the numbers of a
module and makes the copy that is measured, if that is not the module itself: on another device, or in another number
type. The first strings of each length are then tried in three calls, which tell

- the encoding, if a module without an embedding takes integers only,
- whether the outputs are probabilities, logits or classes, and that there is one answer per string,
- whether an output is reproducible and independent of the other strings, their number and its place among them,
- the sizes of all intermediate results, and so the number of strings per call.

    >>> import numpy as np
    >>> from flipscope.adapters.subject import Subject
    >>> settled = Settled(Subject(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1), nn.Sigmoid())))
    >>> with settled.measuring():
    ...     settled.logits(np.eye(3, dtype=np.uint8)).shape
    (3,)
    >>> settled.meaning, settled.threshold
    ('probability', 0.5)
"""

from __future__ import annotations

import cmath
import contextlib
import copy
import inspect
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from flipscope.adapters.batches import fast_batch
from flipscope.adapters.copies import converted, copied, moved_by
from flipscope.adapters.deterministic import check_alike, trial_rows
from flipscope.adapters.encoding import Encoding, encoded, encoding_name, looks_up
from flipscope.adapters.outputs import OutputWatch, decision_values, numbers, output_rows
from flipscope.adapters.subject import Model, Subject, as_subject
from flipscope.basics.errors import InputError, blamed_on, reason
from flipscope.basics.limits import check_memory
from flipscope.models.devices import CPU, device_of, random_states_kept
from flipscope.models.modes import eval_mode
from flipscope.models.size import largest_activation
from flipscope.models.transformer import Transformer
from flipscope.models.unmodified import difference

Bits: TypeAlias = NDArray[np.uint8]
Logits: TypeAlias = NDArray[np.floating]
Ask: TypeAlias = Callable[[Any], NDArray[np.floating]]

_WHOLE = 2.0**24  # from here on all numbers in float32 are whole
_HALF = (torch.float16, torch.bfloat16)


class Settled:
    """A subject's model as it is measured, with all that was found out about it.

    ``model`` is what is called: the subject's own, or a copy. ``dtype`` is the number type of its parameters, None for
    other models than modules. ``batch`` is the number of strings per call.
    """

    def __init__(self, subject: Subject, *, native: bool = False) -> None:
        """``native``: the module itself in its own type whatever the precision, for what moves or trains it."""
        self.subject = subject
        self.model: Callable[..., Any] = subject.foreign or subject.model
        self.is_copy = False  # whether the module is ours to change
        if subject.module is not None:
            check_numbers(subject.module, finite=not subject.diverged)
            own = device_of(subject.module)
            if subject.device not in (None, own):
                self._take(_on_device(subject.module, subject.device))
        self.device = device_of(self.model)
        self.dtype = number_type(self.model)
        self.encoding: Encoding = self._known_encoding()
        self.is_known = subject.module is not None and difference(self.model) is None
        self.meaning = self._declared()  # of the outputs; "auto" before the trial
        self.classes: int | None = None  # three or more
        self.batch = subject.batch or 0  # 0 before the trial
        self.noise = 0.0  # the largest difference between outputs for one string, which is rounding
        self._length: int | None = None
        self._is_unclear = False  # whether numbers may mean two things, as far as they were seen
        self._wholes: set[float] = set()  # some of the whole numbers that were seen as outputs
        self._is_wide = False  # whether the module was converted to float64
        wanted = None if native else self._measured_type()
        if wanted is not None and (wanted != self.dtype or (wanted == torch.float64 and self._is_mixed())):
            self._convert(wanted)

    # ------------------------------------------------------------ evaluation

    def logits(self, strings: Bits) -> Logits:
        """The logit or probability of each string, or its classes' logits [string, class], in the model's own type."""
        self.prepare(strings)
        # Batches of equal size: a small remainder would waste the overhead of a call.
        parts = np.array_split(strings, -(-len(strings) // self.batch))
        found = [self.decided(self.run(part), len(part), part.shape[1]) for part in parts]
        return found[0] if len(found) == 1 else np.concatenate(found)

    def prepare(self, strings: Bits, ask: Ask | None = None) -> None:
        """Try the model out on a few of these strings, unless it was on others of this length.

        ``ask`` replaces the output that is examined by other numbers of each string, such as a module's inside.
        """
        if self._length == strings.shape[1]:
            return
        if self.is_known:
            self._prepare_known(strings.shape[1])
        else:
            self._try_out(strings, ask)
        self._length = strings.shape[1]

    def run(self, strings: Bits) -> Any:
        """The model's raw output for these strings."""
        try:
            return self.call(self.encode(strings))
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f"the model failed on {len(strings)} strings of length {strings.shape[1]} with {reason(error)}"
                f"{self._hint()}"
            ) from error

    def encode(self, strings: Bits) -> Any:
        """The model's input for these strings, which the model may write to."""
        bits = torch.from_numpy(np.ascontiguousarray(strings))
        if self.encoding == "auto":
            self._refuse_bits()
        if self.encoding == "floats":
            return bits.to(self.device, self.dtype or torch.float32)
        # int64, since uint8 arithmetic wraps around and uint8 indexing masks
        return self._encoded(bits.to(self.device, torch.int64))

    def outputs(self, bits: Tensor) -> Tensor:
        """The model's outputs for a tensor of bits, with a graph if gradients are enabled, for training."""
        if self._length is None:
            with self.measuring():
                self._first_run(bits[:1].cpu().numpy())  # which settles the encoding
            self._length = bits.shape[1]
        with blamed_on("the model"):
            raw = self.call(self._encoded(bits.long()))
        output = self.subject.output
        found = output(raw) if callable(output) else getattr(raw, "logits", raw)
        if not isinstance(found, Tensor):
            raise InputError(f"the model returned {type(raw).__name__}, not a tensor: give a function of it as output=")
        return found

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

    def decided(self, raw: Any, count: int, length: int) -> Logits:
        """The values of a raw output for strings of this length: [string], or [string, class]."""
        found = numbers(self.chosen_part(raw))
        values = decision_values(found, self.subject.output, count, None if self.subject.foreign else length)
        self.classes = values.shape[1] if values.ndim == 2 else None
        if self.subject.threshold is not None:
            if self.classes is not None or self.meaning == "labels":
                raise InputError("a threshold is for one number per string, and the model decides between classes")
            if self.meaning == "probabilities" and found.ndim == 2:
                values = found[:, -1]  # the probability of 1, not its lead over that of 0
        # Even without gradients, a parameter that a module returns unchanged requires one. A copy, since some models
        # write every output to the same place.
        out: Logits = values.detach().cpu().numpy().copy()
        return out

    def rows(self, raw: Any, count: int, source: str = "the model") -> Float[Tensor, "string ..."]:
        """All numbers of a raw output, [string, ...]."""
        return output_rows(self.chosen_part(raw), count, source)

    # ------------------------------------------------------------ decisions

    @property
    def threshold(self) -> float:
        """The threshold above which the answer is 1: the given one, else 0.5 for probabilities and 0 for logits."""
        if self.subject.threshold is not None:
            return self.subject.threshold
        return 0.5 if self.meaning == "probability" else 0.0

    @property
    def output_name(self) -> str:
        """What the outputs were taken for, in a word or two."""
        if callable(self.subject.output):
            kind = " with probabilities" if self.meaning == "probability" else ""
            return f"a function of the output{kind}"
        return self.meaning if self.meaning != "auto" else "logit" if self.classes is None else "logits"

    def chosen(self, values: Logits) -> NDArray[np.int64]:
        """The decisions for values [string], or the class with the largest value for [string, class]."""
        labels = values if self.meaning == "labels" else values > self.threshold
        found: NDArray[np.int64] = values.argmax(axis=1) if values.ndim == 2 else labels.astype(np.int64)
        return found

    def check_clear(self, values: Logits) -> None:
        """Raise InputError if these outputs, with those seen before, may mean either of two things as decisions."""
        if self.meaning == "labels" and values.ndim == 1:
            if not bool((values == np.floor(values)).all()):
                raise InputError("output='labels' needs whole numbers, one for each answer, and the model gives others")
            return
        if values.ndim == 2 or self.meaning != "auto" or self.subject.threshold is not None or not self._is_unclear:
            return
        finite, regressor = values[np.isfinite(values)], getattr(self.subject.foreign, "is_regressor", False)
        if bool(((finite == 0) | (finite == 1)).all()):
            self._wholes |= {float(finite.min()), float(finite.max())} if len(finite) else set()
        elif bool((finite == np.floor(finite)).all()) and float(np.abs(finite).max()) < _WHOLE:
            self._wholes |= set(np.unique(finite)[:3].tolist())
        elif (finite.min() >= 0 and finite.max() <= 1) or regressor:
            self._refuse_numbers("the estimator predicts numbers" if regressor else "all outputs lie between 0 and 1")
        else:
            self._is_unclear = False  # real numbers that are no probabilities
        one_side = bool(self._wholes) and (min(self._wholes) > 0 or max(self._wholes) < 0)
        if self._is_unclear and (len(self._wholes) > 2 or (len(self._wholes) == 2 and one_side)):
            some = ", ".join(f"{value:g}" for value in sorted(self._wholes)[:3])
            both = (
                "threshold=0 if they are a score, or give a function that returns one number per class if they are not"
            )
            if not callable(self.subject.output):
                both = "output='labels' if each is an answer of its own, or output='logit' for the answer 1 where the "
                both += "number is positive"
            raise InputError(
                f"the model gives whole numbers such as {some}, which may be classes or a score: say {both}"
            )

    def _refuse_numbers(self, what: str) -> None:
        both = "output='probability' for the answer 1 above 0.5, or output='logit' for the answer 1 above 0"
        if callable(self.subject.output):
            both = "threshold=0.5 for probabilities, or threshold=0 for logits"
        raise InputError(f"{what}, and whether they are probabilities is not to be seen: say {both}")

    # ------------------------------------------------------------ around a measurement

    @contextlib.contextmanager
    def measuring(self) -> Iterator[None]:
        """The model in evaluation mode, without gradients; afterwards it and the random generators are as before."""
        parameters = list(self.model.parameters()) if isinstance(self.model, nn.Module) else []
        before = [(each, each.requires_grad, each.grad) for each in parameters]
        states = random.getstate(), np.random.get_state()  # noqa: NPY002  # which a model may use
        try:
            with (
                eval_mode(self.model),
                random_states_kept(parameters[0].device if parameters else CPU),
                torch.no_grad(),
            ):
                yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])  # noqa: NPY002
            for parameter, needs, gradient in before:
                if parameter.requires_grad is not needs:
                    parameter.requires_grad_(needs)
                if parameter.grad is not gradient:
                    parameter.grad = gradient

    # ------------------------------------------------------------ the same model in other numbers

    @property
    def module(self) -> nn.Module | None:
        """The module that is called, or None."""
        return self.model if isinstance(self.model, nn.Module) else None

    @property
    def may_overflow(self) -> bool:
        """Whether numbers that overflow are to be computed again in float64."""
        return self.dtype == torch.float32 and self.subject.precision != "native"

    def converted(self, dtype: torch.dtype) -> Settled:
        """The same with a copy of the module in another number type."""
        other = copy.copy(self)
        other._convert(dtype)
        return other

    def like(self, model: Callable[..., Any]) -> Settled:
        """Another model, such as a changed copy, evaluated in the same way."""
        other = copy.copy(self)
        other.model, other.dtype = model, number_type(model) or self.dtype
        other.is_copy = True
        return other

    @contextlib.contextmanager
    def perturbed(self, amount: float) -> Iterator[Settled]:
        """The same with every parameter moved up or down by this share of itself, in a copy of the module."""
        assert self.module is not None
        other = self if self.is_copy else self.like(copied(self.module))
        assert other.module is not None
        with moved_by(other.module, amount):
            yield other

    def needed_module(self, what: str) -> nn.Module:
        """The module that is called; InputError for models that are not modules."""
        self.subject.needed_module(what)
        assert self.module is not None
        return self.module

    @property
    def precision(self) -> str:
        """In which arithmetic the model is measured, for results."""
        if self.module is None or self.dtype is None:
            return "native"
        own = number_type(self.subject.model)
        return _name(self.dtype) if own == self.dtype else f"{_name(self.dtype)} copy of {_name(own)} weights"

    def _convert(self, dtype: torch.dtype) -> None:
        if self.module is None:
            raise InputError(
                f"precision='float64' needs an nn.Module, and the model is {self.subject.kind}: say precision='native'"
            )
        need = sum(each.numel() for each in self.module.parameters()) * dtype.itemsize
        check_memory(
            need, f"a copy of the model in {_name(dtype)}", "say precision='native' to measure the model itself"
        )
        try:
            self._take(converted(self.module, dtype))
        except Exception as error:
            raise InputError(
                f"the model cannot be copied into {_name(dtype)} ({reason(error)}): say precision='native'"
            ) from error
        self.dtype, self.device = dtype, device_of(self.model)  # the CPU, where the device has no float64
        self._is_wide = True
        if self.batch and self.subject.batch is None and dtype == torch.float64:
            self.batch = max(1, self.batch // 2)

    def _take(self, module: nn.Module) -> None:
        """Use this copy from now on."""
        for each in module.modules():
            if hasattr(each, "training"):
                each.training = False
        self.model, self.is_copy = module, True

    def _measured_type(self) -> torch.dtype | None:
        """The number type to evaluate in, by the subject's precision; None is the model's own."""
        precision = self.subject.precision
        if precision == "float64":
            return torch.float64
        if precision == "native" or self.dtype is None:
            return None
        return torch.float32 if self.dtype in _HALF else self.dtype

    def _is_mixed(self) -> bool:
        """Whether a module's floating-point tensors have several types."""
        tensors = () if self.module is None else (*self.module.parameters(), *self.module.buffers())
        return len({tensor.dtype for tensor in tensors if tensor.is_floating_point()}) > 1

    # ------------------------------------------------------------ the trial

    def _try_out(self, strings: Bits, ask: Ask | None) -> None:
        """Three calls: of several strings, and twice of copies of one of them."""
        few, again = trial_rows(strings, self.subject.batch)
        sizes: list[list[int]] = []

        def examined(some: Bits) -> NDArray[np.floating]:
            if ask is not None:
                found: NDArray[np.floating]
                found, seen = self.watched(lambda: ask(some))
                sizes.append(seen.sizes)
                return found
            part, seen = self._first_run(some) if not sizes else self.watched(lambda: self._part(some))
            if not sizes:
                self.interpret(part, seen, len(some))
            sizes.append(seen.sizes)
            rows = output_rows(part, len(some), "the model").flatten(1).detach().cpu()
            seen_now: NDArray[np.floating] = rows.numpy().copy()  # the next call may write to the same place
            return seen_now

        first = examined(few)
        row = int(np.argsort(first[:, 0], kind="stable")[len(first) // 4])
        copies = np.repeat(few[row : row + 1], again, axis=0)
        second = [examined(copies) for _ in range(2)]  # what a call leaves behind shows in the next one of that size
        self.noise = check_alike(self, few, first, row, np.concatenate(second), ask)
        del sizes[2:]
        if self.subject.batch is None:
            width = few.shape[1] * (self.dtype or torch.float32).itemsize
            self.batch = self.fast_batch(sizes, (len(few), again), width)

    def _part(self, some: Bits) -> Any:
        return self.chosen_part(self.run(some))

    def _first_run(self, some: Bits) -> tuple[Any, OutputWatch]:
        """The first output; a module without an embedding that refuses floats is given bits from now on."""
        try:
            return self.watched(lambda: self._part(some))
        except InputError:
            if self.encoding != "floats" or not self.subject.takes_data_as_they_are or self._length is not None:
                raise
            self.encoding = "bits"
            try:
                return self.watched(lambda: self._part(some))
            except InputError:
                self.encoding = "floats"
            raise

    def watched(self, run: Callable[[], Any]) -> tuple[Any, OutputWatch]:
        """What a call returns, and a note of what PyTorch did meanwhile, which is empty if it cannot be watched."""
        watch = OutputWatch()
        try:
            with watch:
                return run(), watch
        except InputError:
            return run(), OutputWatch()

    def fast_batch(self, sizes: list[list[int]], counts: tuple[int, int], smallest: int) -> int:
        """Inputs per call, by the bytes of all intermediate results of two calls with so many inputs."""
        is_foreign = self.subject.foreign is not None
        return fast_batch(sizes, counts, smallest, self.device, self.subject.memory_limit, is_foreign)

    def interpret(self, part: Any, watch: OutputWatch, count: int) -> None:
        """Note whether the outputs are probabilities, and whether that can be seen."""
        if self.meaning not in ("auto", "probabilities") or self.subject.output == "probabilities":
            return
        try:
            found = numbers(part)
            values = decision_values(found, "auto", count, None)
        except InputError:  # no decision: a measurement that needs one will say so
            return
        maker = "probability" if self.meaning == "probabilities" else watch.maker(part)
        if values.ndim == 2 or found.numel() != len(values):
            if maker == "probability" and values.ndim == 1:
                self.meaning = "probabilities"
            return
        if maker == "probability":
            self.meaning = "probability"
        elif maker is None:
            self._is_unclear = True

    def _prepare_known(self, length: int) -> None:
        """The number of strings per call of our own transformer, whose computation is known."""
        assert isinstance(self.model, Transformer)
        if self.subject.batch is None:
            each = largest_activation(self.model.config, length) * (self.dtype or torch.float32).itemsize
            self.batch = self.fast_batch([[0], [each]], (0, 1), 1)

    def _declared(self) -> str:
        """What the outputs are, where it is said or known without a trial; "auto" where it is not."""
        output, foreign = self.subject.output, self.subject.foreign
        if isinstance(output, str) and output != "auto":
            return output
        if isinstance(output, str) and foreign is not None and foreign.declared is not None:
            return str(foreign.declared)
        ours = str(getattr(type(self.subject.model), "__module__", "")).startswith("flipscope.")
        return "logit" if ours and isinstance(output, str) and self._is_single() else "auto"

    def _is_single(self) -> bool:
        """Whether one of our own networks or functions has one output."""
        return getattr(getattr(self.subject.model, "config", None), "outputs", 1) == 1

    # ------------------------------------------------------------ inputs

    def _encoded(self, bits: Tensor) -> Any:
        given = encoded(bits, self.encoding, self.dtype)
        return self._as_keywords(given) if isinstance(self.encoding, tuple) else given

    def _known_encoding(self) -> Encoding:
        """The encoding as far as the model's parts tell it."""
        subject = self.subject
        if not subject.takes_data_as_they_are:
            return subject.encoding
        if subject.foreign is not None:
            return subject.foreign.usual_encoding()
        if subject.module is None:
            return "bits"
        config = getattr(subject.module, "config", None)
        if type(subject.module).__module__.startswith("flipscope.") and getattr(config, "inputs", None) in (
            "patches",
            "images",
        ):
            return "auto"  # refused where strings of bits are asked for
        if _reads_tokens(subject.module):
            return (0, 1) if getattr(config, "vocab_size", None) == 2 else "auto"
        return "bits" if looks_up(subject.module) else "floats"

    def _refuse_bits(self) -> None:
        """Say what is missing for strings of bits to be the model's input."""
        name = type(self.subject.model).__name__
        if str(type(self.subject.model).__module__).startswith("flipscope."):
            raise InputError("the model reads images, which have no bits to flip: token_sensitivity measures it")
        raise InputError(
            f"the {name} reads tokens: say which two of them stand for 0 and 1, such as encoding=(t0, t1) with two "
            "token ids"
        )

    def _as_keywords(self, tokens: Tensor) -> Any:
        """Tokens under the input names of language models; unchanged for other models."""
        foreign, module = self.subject.foreign, self.module
        ones = {"attention_mask": torch.ones_like(tokens), "token_type_ids": torch.zeros_like(tokens)}
        if foreign is not None:
            if not foreign.reads("input_ids"):
                return tokens
            return {"input_ids": tokens} | {name: each for name, each in ones.items() if foreign.reads(name)}
        if module is None or not _reads_tokens(module):
            return tokens
        known = "attention_mask" in inspect.signature(module.forward).parameters
        return {"input_ids": tokens} | ({"attention_mask": ones["attention_mask"]} if known else {})

    def chosen_part(self, raw: Any) -> Any:
        """The part of a raw output that the subject's ``output`` selects, if that is a function."""
        output = self.subject.output
        if not callable(output):
            return raw
        with blamed_on("the function given as output="):
            return output(raw)

    def _hint(self) -> str:
        hints = []
        if not callable(self.encoding) and not self._is_wide:
            other = "floats" if self.encoding == "bits" else "bits"
            hints.append(f"it was given {encoding_name(self.encoding)}: if it wants {other}, say encoding={other!r}")
        if self._is_wide:
            hints.append(
                f"it was evaluated in {_name(self.dtype)}: if it does not support that, say precision='native'"
            )
        return "".join(f"; {hint}" for hint in hints)


def as_settled(model: Model | Settled, *, native: bool = False) -> Settled:
    """The model settled, if it is not yet; ``native``: the module itself, which a caller's own function calls."""
    return model if isinstance(model, Settled) else Settled(as_subject(model), native=native)


def check_numbers(module: nn.Module, *, finite: bool = True) -> None:
    """Raise InputError unless the module has numbers, and, if required, these are ``finite``."""
    for name, parameter in module.named_parameters():
        _check_data(name, parameter)
        if finite and _is_plain(parameter) and not _all_finite(parameter.detach()):
            raise InputError(f"the model has NaN or infinite numbers in {name}: nothing can be measured of it")
    for name, buffer in module.named_buffers():
        _check_data(name, buffer)
        if finite and _is_plain(buffer) and bool(buffer.detach().isnan().any()):  # infinity is usual there, in masks
            raise InputError(f"the model has NaN in {name}: nothing can be measured of it")


def _check_data(name: str, tensor: Tensor) -> None:
    if is_lazy(tensor):
        raise InputError(f"the model has no {name} yet: call it on some strings once, then measure it")
    if tensor.is_meta:
        raise InputError("the model has shapes but no numbers: build it with a seed")


def _is_plain(tensor: Tensor) -> bool:
    """Whether PyTorch can look through its numbers."""
    return tensor.layout is torch.strided and not tensor.is_quantized and tensor.element_size() > 1


def _all_finite(numbers: Tensor) -> bool:
    """Whether all are finite, as they are if their sum is."""
    total = numbers.sum().item()
    return cmath.isfinite(total) or bool(numbers.isfinite().all())


def number_type(model: object) -> torch.dtype | None:
    """The number type of a module's first parameter, None if there is none."""
    if not isinstance(model, nn.Module):
        return None
    return next((tensor.dtype for tensor in model.parameters() if tensor.is_floating_point()), None)


def _reads_tokens(module: nn.Module) -> bool:
    """Whether the module is a model of `transformers` that is called with token ids; wrappers forward the name."""
    return getattr(module, "main_input_name", None) == "input_ids"


def _on_device(module: nn.Module, device: Any) -> nn.Module:
    """A copy of the module on a device."""
    try:
        return copied(module).to(device)
    except Exception as error:
        raise InputError(f"the model cannot be copied to {device}: {reason(error)}") from error


def _name(dtype: torch.dtype | None) -> str:
    return str(dtype).removeprefix("torch.")
