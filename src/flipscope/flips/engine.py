"""What computes logits: the interface of every path, and the general path, which takes any model that reads bits."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode

from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError, reason
from flipscope.flips.choice import NEEDS, PATIENCE, Work, native_obstacle, obstacle
from flipscope.models.copies import converted
from flipscope.models.deterministic import Ask, check_deterministic, largest_difference, perturbed
from flipscope.models.hooks import watching
from flipscope.models.modes import eval_mode
from flipscope.models.outputs import binary_logit
from flipscope.models.transformer import Transformer
from flipscope.models.unmodified import difference

if TYPE_CHECKING:
    from flipscope.flips.fast import FastEngine

Bits: TypeAlias = NDArray[np.uint8]
Logits: TypeAlias = NDArray[np.floating]
Model: TypeAlias = nn.Module | Callable[..., Any]
Inputs: TypeAlias = Literal["auto", "bits", "floats"] | Callable[[Tensor], Any]
Path: TypeAlias = Literal["auto", "general", "fast"]

MEMORY_LIMIT = 1 << 30  # bytes that one batch's numbers may take, roughly
_LIVE = 4  # numbers of the largest size that a forward holds at the same time
_CACHE_BYTES = 4 << 20  # beyond this size of the largest intermediate, larger batches are slower on a CPU
_DEVICE_BYTES = 256 << 20  # the same on an accelerator, which needs many strings to be busy
_UNKNOWN_BYTES = _CACHE_BYTES // 32  # taken for the largest intermediate where it cannot be seen
_BATCHES = 4  # that are worth asking for together
_FEWEST, _MOST = 16, 1024  # strings per batch where memory allows: below, the overhead of each call shows


@runtime_checkable
class Engine(Protocol):
    """A way to compute the logits of strings and of all their one-bit flips."""

    path: str  # "general" or "fast"
    why: str  # that path
    length: int | None  # the length it has prepared for, if it prepares
    tolerance: float  # what it leaves out on purpose, beyond rounding; 0 is nothing

    def flip_logits(self, strings: Bits) -> tuple[Logits, Logits]:
        """Logits of the strings [string] and of all their flips [string, position]."""

    def logits(self, strings: Bits) -> Logits:
        """The logit of each string by a plain forward."""

    @property
    def first_order(self) -> Callable[[Bits], Logits] | None:
        """First-order estimates of the changes by all flips, [string, position]; None where there are none."""

    def check_deterministic(self, strings: Bits) -> None:
        """Raise InputError unless the answer to a string is the same again, and together with other strings."""

    def strings_at_once(self, length: int) -> int:
        """Strings of this length, each with all its flips, that are worth giving together."""


def open_engine(
    model: Model,
    *,
    path: Path = "auto",
    dtype: torch.dtype | None = None,
    inputs: Inputs = "auto",
    batch: int | None = None,
    memory_limit: int = MEMORY_LIMIT,
    work: Work | None = None,
) -> Engine:
    """The engine of this path; "auto" is the fast one wherever it knows what the model computes, unless compiling it
    would take longer than the ``work``, if that is known (`flips.choice`).

    Without a ``dtype`` the engine computes in the model's own number type, which the fast path must have too.
    """
    why = "path='general' was given"
    if path not in ("auto", "general", "fast"):
        raise InputError(f"path={path!r} is not one of auto, general, fast")
    if path != "general":
        found = native_obstacle(model) if dtype is None else obstacle(model)
        if inputs not in ("auto", "bits"):
            found = "the model is asked with inputs of another kind"
        if isinstance(model, Transformer) and found is None:
            working = torch.float64 if (dtype or number_type(model)) == torch.float64 else torch.float32
            # What the fast path leaves out must be as small as the rounding of the type it works in.
            open_fast = cache(partial(_fast_engine, model, working, torch.finfo(working).eps / 2))
            if path == "auto" and work is not None:
                seconds, length, flips = work.seconds(model.config), work.length, work.flips
                found = PATIENCE.objection(seconds, lambda: open_fast().needed(length, flips))
            if found is None:
                return open_fast()
        why = str(found)
        if path == "fast":
            raise InputError(f"path='fast' needs {NEEDS}, but {found}: say path='general'")
    return GeneralEngine(model, dtype=dtype, inputs=inputs, batch=batch, memory_limit=memory_limit, why=why)


def _fast_engine(model: Transformer, dtype: torch.dtype, tolerance: float) -> FastEngine:
    """The engine of the fast path, with which numba is loaded."""
    from flipscope.flips.fast import FastEngine

    return FastEngine(model, dtype=dtype, tolerance=tolerance)


class GeneralEngine:
    """Any callable or module, asked in batches that fit the memory and are fast.

    ``inputs`` says what the model is given for bits [string, position]: "bits" are int64 zeros and ones (also the
    numbers of two tokens), "floats" are 0.0 and 1.0 in the model's number type, and a function of the int64 bits may
    return anything else: a tensor of tokens or embeddings, a tuple of arguments, or a dictionary of keywords. "auto"
    gives floats to a module without embedding, else bits. The model answers with one logit per string, [string] or
    [string, 1], with two, [string, 2], of which the difference counts, or with an object that has them as ``logits``.

    With a ``dtype`` other than its own a module is copied. A module is in evaluation mode during each call, and left
    as it was. ``batch`` strings go into one call; by default so many that the largest intermediate result fits into a
    processor's cache, but never more than ``memory_limit`` bytes allow.
    """

    path = "general"
    tolerance = 0.0
    first_order = None

    def __init__(
        self,
        model: Model,
        *,
        dtype: torch.dtype | None = None,
        inputs: Inputs = "auto",
        batch: int | None = None,
        memory_limit: int = MEMORY_LIMIT,
        why: str = "",
    ) -> None:
        check_model(model)
        self.why = why
        if not callable(inputs) and inputs not in ("auto", "bits", "floats"):
            raise InputError(f"inputs={inputs!r} is not one of auto, bits, floats, nor a function of bits")
        self.length: int | None = None
        self.dtype = number_type(model)
        self.model = model
        mixed = dtype == torch.float64 and _is_mixed(model)
        self._is_converted = dtype is not None and (dtype != self.dtype or mixed)
        if dtype is not None and self._is_converted:
            self.model, self.dtype = _converted(model, dtype), dtype
        self.device = _device(model)
        self.batch = 0 if batch is None else check_count("batch", batch)
        self._fixed_batch = batch is not None
        self._memory_limit = check_count("memory_limit", memory_limit)
        self._inputs: Inputs = usual_inputs(model) if inputs == "auto" else inputs

    def logits(self, strings: Bits) -> Logits:
        """The logit of each string, in the model's number type."""
        return self._in_batches(len(strings), strings.shape[1], lambda index: strings[index])

    def flip_logits(self, strings: Bits) -> tuple[Logits, Logits]:
        """Logits of the strings [string] and of all their flips [string, position]."""
        rows = len(strings) * (strings.shape[1] + 1)
        found = self._in_batches(rows, strings.shape[1], lambda index: neighbours(strings, index))
        table = found.reshape(len(strings), -1)
        return table[:, 0], table[:, 1:]

    def outputs(self, strings: Bits, of: str | None = None) -> Float[Tensor, "string number"]:
        """What the model, or the submodule of this name, gives for these strings, all of it in one row per string."""
        return torch.cat([part.flatten(1) for part in self.activations(strings, of)], dim=1)

    def activations(
        self, strings: Bits, of: str | None = None, *, everywhere: bool = False
    ) -> list[Float[Tensor, "string ..."]]:
        """The same in the shape it has, one tensor per call of the submodule; what is a number becomes [string, 1].

        Flipscope's transformer computes its last layer where it is read only: ``everywhere`` means at all positions.
        """
        if of is None:
            return [output_rows(self._run(strings), len(strings), "the model").detach()]
        assert isinstance(self.model, nn.Module)
        seen: list[Any] = []
        part = {of: self.model.get_submodule(of)}
        run = self._run_everywhere if everywhere and self._is_ours() else self._run  # before anything is hooked in
        with watching(part, outputs=lambda _name, _part, output: seen.append(output)):
            run(strings)
        if not seen:
            raise InputError(f"the module {of!r} is not called when the model runs: name another")
        return [output_rows(out, len(strings), f"the module {of!r}").detach() for out in seen]

    def check_deterministic(self, strings: Bits, of: str | None = None) -> None:
        """Raise InputError unless the outputs for a string are the same again, and together with other strings."""
        self.prepare(strings)
        if not callable(self._inputs) and difference(self.model) is None:
            return
        eps = None if self.dtype is None else torch.finfo(self.dtype).eps

        def asking(model: Model) -> Ask:
            engine = self if model is self.model else self._like(model, None)
            return lambda some: engine.outputs(some, of).cpu().numpy()

        check_deterministic(self.model, asking, strings, self.batch, eps)

    def strings_at_once(self, length: int) -> int:
        """A few batches; after the first, which settles their size."""
        return max(1, _BATCHES * self.batch // (length + 1))

    def noise(self, strings: Bits) -> float:
        """How far a logit moves when its string is asked alone instead of together with others."""
        alone = [self._forward(strings[row : row + 1]) for row in range(len(strings))]
        return largest_difference(self.logits(strings), np.concatenate(alone))

    def perturbed(self, amount: float) -> GeneralEngine:
        """The same with every parameter of a copy of the module moved up or down by this share of itself."""
        assert isinstance(self.model, nn.Module)
        return self._like(perturbed(self.model, amount), None)

    def converted(self, dtype: torch.dtype) -> GeneralEngine:
        """The same with a copy of the module in another number type."""
        return self._like(self.model, dtype)

    def _like(self, model: Model, dtype: torch.dtype | None) -> GeneralEngine:
        batch = self.batch or None
        return GeneralEngine(model, dtype=dtype, inputs=self._inputs, batch=batch, memory_limit=self._memory_limit)

    def prepare(self, strings: Bits) -> None:
        """Choose the number of strings per batch for strings of this length."""
        if self.length == strings.shape[1]:
            return
        if not self._fixed_batch:
            each = self._largest_result(strings[:1])
            cache = _CACHE_BYTES if self.device.type == "cpu" else _DEVICE_BYTES
            fast = min(max(cache // each, _FEWEST), _MOST)
            self.batch = max(1, min(fast, self._memory_limit // (_LIVE * each)))
        self.length = strings.shape[1]

    def _in_batches(self, rows: int, length: int, strings: Callable[[NDArray[np.int64]], Bits]) -> Logits:
        self.prepare(strings(np.arange(1)))
        # Batches of equal size: a small rest would waste the overhead of a call.
        parts = np.array_split(np.arange(rows), -(-rows // self.batch))
        return np.concatenate([self._forward(strings(part)) for part in parts])

    def _forward(self, strings: Bits) -> Logits:
        output = self._run(strings)
        logits = binary_logit(_numbers(output))
        if len(logits) != len(strings):
            raise InputError(f"the model gave {len(logits)} logits for {len(strings)} strings: give one per string")
        # Even without gradients, what a module returns of a parameter as it is has one.
        found: Logits = logits.detach().cpu().numpy()
        return found

    def ready(self, strings: Bits) -> Callable[[], Any]:
        """A call of the model on these strings, with what it is given for them made already."""
        with self._asked(strings):
            given = self._given(strings)

        def call() -> Any:
            with self._asked(strings):
                return self._call(given)

        return call

    def _run(self, strings: Bits) -> Any:
        """What the model answers."""
        with self._asked(strings):
            return self._call(self._given(strings))

    def _is_ours(self) -> bool:
        """Whether the model is a transformer just as its configuration says."""
        return isinstance(self.model, Transformer) and difference(self.model) is None

    def _run_everywhere(self, strings: Bits) -> Any:
        """What our transformer answers, after all its layers have been at all positions."""
        assert isinstance(self.model, Transformer)
        with self._asked(strings):
            return self.model.read(self.model.states(self._given(strings))[-1])

    def _given(self, strings: Bits) -> Any:
        """What the model is given for these strings."""
        # A copy, for the model may write to it; int64, since arithmetic on uint8 wraps around and indexing masks.
        bits = torch.from_numpy(strings.astype(np.int64)).to(self.device)
        if callable(self._inputs):
            return self._inputs(bits)
        return bits.to(self.dtype or torch.float32) if self._inputs == "floats" else bits

    @contextlib.contextmanager
    def _asked(self, strings: Bits) -> Iterator[None]:
        """The model in evaluation mode; what goes wrong is told in a sentence."""
        with eval_mode(self.model), torch.no_grad():
            try:
                yield
            except InputError:
                raise
            except Exception as error:
                raise InputError(
                    f"the model failed on {len(strings)} strings of length {strings.shape[1]} with {reason(error)}"
                    f"{self._hint()}"
                ) from error

    def _call(self, given: Any) -> Any:
        if isinstance(given, Mapping):
            return self.model(**{name: self._cast(value) for name, value in given.items()})
        if isinstance(given, tuple):
            return self.model(*(self._cast(value) for value in given))
        return self.model(self._cast(given))

    def _cast(self, value: Any) -> Any:
        """Numbers in the model's type, where the function that made them could not know it."""
        is_float = isinstance(value, Tensor) and value.is_floating_point()
        return value.to(self.dtype) if is_float and self.dtype is not None else value

    def _hint(self) -> str:
        hints = []
        if not callable(self._inputs):
            other = "floats" if self._inputs == "bits" else "bits"
            hints.append(f"it was given {self._inputs}: if it wants {other}, say inputs={other!r}")
        if self._is_converted:
            hints.append(f"it was asked in {self.dtype}: if it cannot compute in that, say precision='native'")
        return "".join(f"; {hint}" for hint in hints)

    def _largest_result(self, string: Bits) -> int:
        """Bytes of the largest intermediate result, a string."""
        sizes = []
        try:
            for count in (1, 2):
                with _Sizes() as seen:
                    self._forward(np.repeat(string, count, axis=0))
                sizes.append(seen.sizes)
        except InputError:  # what is broken will say so again, and some models only cannot be watched
            return _UNKNOWN_BYTES
        one, two = sizes
        if len(one) != len(two):
            return _UNKNOWN_BYTES
        # What does not grow with the number of strings, such as a weight, is no concern of the batch.
        growth = max((after - before for before, after in zip(one, two, strict=True)), default=0)
        return max(growth, string.size)


def as_general(model: Model | GeneralEngine) -> GeneralEngine:
    """The model as an engine, as which a caller may give it who says how it is to be asked."""
    return model if isinstance(model, GeneralEngine) else GeneralEngine(model)


class _Sizes(TorchFunctionMode):
    """Notes the size in bytes of every tensor that PyTorch's functions return."""

    @cached_property
    def sizes(self) -> list[int]:
        return []

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = function(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, Tensor):
                self.sizes.append(tensor.numel() * tensor.element_size())
        return out


# ---------------------------------------------------------------- strings and models


def neighbours(strings: Bits, index: NDArray[np.int64]) -> Bits:
    """The strings and their flips by number: number string * (N + 1) is the string itself, then come its N flips."""
    string, position = np.divmod(index, strings.shape[1] + 1)
    rows = strings[string]
    flipped = np.flatnonzero(position)
    rows[flipped, position[flipped] - 1] ^= 1
    return rows


def check_model(model: object) -> None:
    """Raise InputError unless the model can be called and its numbers are finite."""
    if not callable(model):
        raise InputError(f"the model must be callable on bits [string, position], not a {type(model).__name__}")
    if not isinstance(model, nn.Module):
        return
    if isinstance(model, Transformer) and model.config.inputs == "patches":
        raise InputError("the model reads patches of images, which have no bits to flip")
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if is_lazy(tensor):
            raise InputError(f"the model has no {name} yet: call it on some strings once, then measure it")
    for name, parameter in model.named_parameters():
        if parameter.is_meta or isinstance(parameter, nn.UninitializedParameter):
            raise InputError("the model has shapes but no numbers: build it with a seed")
        if not bool(parameter.detach().isfinite().all()):
            raise InputError(f"the model has NaN or infinite numbers in {name}: nothing can be measured of it")
    for name, buffer in model.named_buffers():  # infinity is usual there, in masks
        if bool(buffer.detach().isnan().any()):
            raise InputError(f"the model has NaN in {name}: nothing can be measured of it")


def refuse_nan(*found: Logits) -> None:
    """Raise InputError if the model gave NaN."""
    broken, total = sum(int(np.isnan(part).sum()) for part in found), sum(part.size for part in found)
    if broken:
        raise InputError(f"the model gave NaN for {broken} of {total} strings (flips included): it is broken on them")


def number_type(model: Model) -> torch.dtype | None:
    """The number type of a module's first parameter, None where there is none."""
    if not isinstance(model, nn.Module):
        return None
    return next((tensor.dtype for tensor in model.parameters() if tensor.is_floating_point()), None)


def _converted(model: Model, dtype: torch.dtype) -> nn.Module:
    """A copy of the module with its numbers in another type."""
    if not isinstance(model, nn.Module):
        raise InputError(f"a function cannot be run in {dtype}: give an nn.Module, or precision='native'")
    try:
        return converted(model, dtype)
    except Exception as error:
        raise InputError(
            f"the model cannot be copied into {dtype} ({reason(error)}): say precision='native'"
        ) from error


def _is_mixed(model: Model) -> bool:
    """Whether a module's floating-point numbers are of several types."""
    numbers = (*model.parameters(), *model.buffers()) if isinstance(model, nn.Module) else ()
    return len({tensor.dtype for tensor in numbers if tensor.is_floating_point()}) > 1


def _device(model: Model) -> torch.device:
    """Where the model's numbers are."""
    if isinstance(model, nn.Module):
        for tensor in (*model.parameters(), *model.buffers()):
            return tensor.device
    return torch.device("cpu")


def usual_inputs(model: Model) -> Literal["bits", "floats"]:
    """What the model is given for bits: numbers to look up where it has a table for them, else floats."""
    if not isinstance(model, nn.Module):
        return "bits"
    looks_up = any(isinstance(module, nn.Embedding | nn.EmbeddingBag) for module in model.modules())
    return "bits" if looks_up else "floats"


def _numbers(output: Any) -> Tensor:
    """The model's answer as a tensor of floating-point numbers."""
    found = getattr(output, "logits", output)
    if isinstance(found, np.ndarray):
        found = torch.from_numpy(found)
    if not isinstance(found, Tensor) or found.is_complex():
        raise InputError(
            f"the model returned {type(output).__name__}, not logits [string] or [string, 2]: wrap it in a function "
            "that returns them"
        )
    if not found.is_floating_point():
        return found.double()
    return found.float() if found.dtype in (torch.float16, torch.bfloat16) else found


def output_rows(output: Any, strings: int, source: str) -> Float[Tensor, "string ..."]:
    """The numbers of an output, of each string at least one; of a tuple its first tensor."""
    if isinstance(output, tuple | list):
        output = next((part for part in output if isinstance(part, Tensor)), output)
    values = _numbers(output)
    if values.ndim == 0 or len(values) != strings:
        raise InputError(
            f"{source} gives numbers of shape {tuple(values.shape)} for {strings} strings: its first axis must be these"
        )
    return values if values.ndim > 1 else values[:, None]
