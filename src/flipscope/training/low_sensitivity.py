"""Train for low sensitivity to tokens, and watch the sensitivity of a model while it is trained.

Two further parts of the loss (low-sensitivity paper, § 7.1), each from a forward pass on disturbed inputs x~:

    SensitivityPenalty    mean (f(x) - f(x~))^2 over inputs and outputs, where one random token of each x has noise
    NoiseAugmentation     the loss of f(x~) against the same labels, where all of x has noise

Either is mixed with the loss, (1 - p) loss + p part, or added to it, loss + p part. In a loop of one's own:

    penalty = SensitivityPenalty(variance=1.0, strength=0.25, feature_mask=patches(4))
    ...
        outputs = model(images)
        loss = penalty.applied(criterion(outputs, labels), model, images, outputs)

As a term of `flipscope.training.fit.fit` it is terms=[penalty], and in a `transformers` Trainer
callbacks=[trainer_callback(penalty)]. `SensitivityWatch` measures the token sensitivity every so many steps of any loop
and changes nothing in it.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from flipscope.adapters.disturbing import FeatureMask, Given, Layout, main_input, run_changed
from flipscope.adapters.outputs import numbers
from flipscope.basics.arguments import check_fields, checked_arguments
from flipscope.basics.checks import check_not_negative, shown
from flipscope.basics.errors import InputError, blamed_on
from flipscope.basics.estimates import Estimate
from flipscope.models.devices import device_of, random_states_kept
from flipscope.probes.tokens import token_sensitivity
from flipscope.training.logs import Line, Log, Recorder, series

if TYPE_CHECKING:
    from transformers import TrainerCallback

How: TypeAlias = Literal["mix", "add"]
_COUNT = "num_items_in_batch"  # labels of a step of the optimiser, in keywords of `transformers` models
Criterion: TypeAlias = Callable[[Tensor, Tensor], Tensor]  # of outputs and labels


@dataclass(frozen=True, kw_only=True, eq=False)
class _NoisyPart:
    """A part of the loss that runs the model on disturbed inputs.

    variance      of the Gaussian noise on each number of a disturbed token
    strength      p: the share of the part with how="mix", its factor with how="add"
    feature_mask  which numbers make up a token, such as patches(4) of images; by default a position of a sequence
    at            the module whose output is disturbed, such as "bert.embeddings", in place of the model's input
    generator     for the noise; by default PyTorch's own of the CPU, from which dropout draws as well, so that the seed
                  of a training and its checkpoints cover it
    """

    variance: float = 1.0
    strength: float = 0.25
    how: How = "mix"
    feature_mask: FeatureMask | None = None
    at: str | None = None
    generator: torch.Generator | None = None
    _layouts: dict[tuple[int, ...], Layout] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        check_fields(self)
        check_not_negative("variance", self.variance)
        check_not_negative("strength", self.strength)
        if self.how not in ("mix", "add"):
            raise InputError(f"how={self.how!r} is not one of mix, add")
        if self.how == "mix" and self.strength > 1:
            raise InputError(f"strength={self.strength} must be at most 1 with how='mix': it is a share of the loss")
        mask = self.feature_mask
        if isinstance(mask, np.ndarray | Tensor) and not _is_whole(mask):
            raise InputError(f"feature_mask={shown(mask)} must hold whole numbers, the token of each place")

    @property
    def loss_factor(self) -> float:
        """The factor on the loss itself."""
        return 1.0 - self.strength if self.how == "mix" else 1.0

    def together(self, loss: Tensor, part: Tensor) -> Tensor:
        """(1 - p) loss + p part, or loss + p part."""
        if loss.numel() != 1 or part.numel() != 1:
            raise InputError(f"a loss of shape {tuple(loss.shape)} must be one number, the mean over the inputs")
        return self.loss_factor * loss + self.strength * part

    @property
    def _settings(self) -> str:
        """The settings as one line: a checkpoint of a training with others is refused."""
        mask = self.feature_mask
        tokens = _digest(mask) if isinstance(mask, np.ndarray | Tensor) else getattr(mask, "__name__", "by position")
        return f"{self.how} {self.strength:g}, variance {self.variance:g}, at {self.at}, tokens {tokens}"

    def _disturbed(self, values: Tensor, mask: Tensor | None) -> Tensor:
        raise NotImplementedError

    @checked_arguments
    def outputs(self, model: nn.Module, inputs: Given) -> Any:
        """What the model returns for disturbed inputs: a tensor, a tuple of arguments or a mapping of keywords.

        Running averages, such as those of batch norm, are left as they were.
        """
        if not isinstance(main_input(inputs), Tensor):
            raise InputError(f"inputs={shown(main_input(inputs))} must be a tensor, or keywords with tensors")
        mask = inputs.get("attention_mask") if isinstance(inputs, Mapping) else None
        with buffers_kept(model), blamed_on("the model"):
            return run_changed(model, inputs, lambda values: self._disturbed(_floats(values, self.at), mask), self.at)

    def _noise(self, shape: tuple[int, ...], like: Tensor) -> Tensor:
        return math.sqrt(self.variance) * torch.randn(shape, generator=self.generator, device="cpu").to(like)

    def _layout(self, values: Tensor) -> Layout:
        shape = tuple(values.shape[1:])
        if shape not in self._layouts:
            what = "inputs" if self.at is None else f"outputs of {self.at}"
            self._layouts[shape] = Layout.of(shape, self.feature_mask, what)
        return self._layouts[shape]


@dataclass(frozen=True, kw_only=True, eq=False)
class SensitivityPenalty(_NoisyPart):
    """The mean squared change of a model's outputs when one random token of each input gets Gaussian noise.

    Gradients go through both outputs. Padding, where there is an ``attention_mask``, is never disturbed. With dropout
    the two forward passes have masks of their own, so that the penalty is not 0 even without noise. For a linear model
    with weights w_tau of token tau it is variance * mean |w_tau|^2 on average.

    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(4, 1, bias=False))
    >>> inputs, labels = torch.randn(8, 2, 2), torch.zeros(8, 1)
    >>> penalty = SensitivityPenalty(variance=0.5, strength=0.25)
    >>> outputs = model(inputs)
    >>> penalty.applied(nn.functional.mse_loss(outputs, labels), model, inputs, outputs).backward()
    """

    @checked_arguments
    def applied(self, loss: Tensor, model: nn.Module, inputs: Given, outputs: Any) -> Tensor:
        """(1 - p) loss + p penalty, or loss + p penalty; `outputs` are what the model returned for the `inputs`."""
        return self.together(loss, self.penalty(model, inputs, outputs))

    @checked_arguments
    def penalty(self, model: nn.Module, inputs: Given, outputs: Any) -> Tensor:
        """The penalty itself."""
        before, after = numbers(outputs), numbers(self.outputs(model, inputs))
        if before.shape != after.shape:
            shapes = f"{tuple(before.shape)} and of the disturbed ones {tuple(after.shape)}"
            raise InputError(f"the outputs are of shape {shapes}: give the model's own outputs for these inputs")
        return (before - after).square().mean()

    def __call__(self, model: nn.Module, batch: tuple[Tensor, Tensor], outputs: Tensor) -> Tensor:
        """The penalty times its strength: a term of `fit`."""
        return self.strength * self.penalty(model, batch[0], outputs)

    @property
    def __name__(self) -> str:
        """Tells checkpoints of different settings apart."""
        return f"sensitivity penalty: {self._settings}"

    def _disturbed(self, values: Tensor, mask: Tensor | None) -> Tensor:
        layout = self._layout(values)
        token = self._tokens(layout, len(values), mask)
        return layout.added(values, token, self._noise((len(values), layout.width), values))

    def _tokens(self, layout: Layout, rows: int, mask: Tensor | None) -> Tensor:
        """One random token of each input, of those that are no padding."""
        drawn = torch.rand(rows, generator=self.generator, device="cpu")
        if mask is None or self.feature_mask is not None:
            return (drawn * layout.tokens).long().clamp(max=layout.tokens - 1)
        if mask.shape != (rows, layout.tokens):
            raise InputError(
                f"attention_mask of shape {tuple(mask.shape)} does not fit {rows} inputs of {layout.tokens} tokens: "
                "give a feature_mask, or another module as at="
            )
        counted = mask.cpu() > 0
        counts = counted.sum(dim=1)
        if bool((counts == 0).any()):
            raise InputError("attention_mask covers no token of some input: leave empty inputs out")
        wanted = (drawn * counts).long().clamp(max=counts - 1)  # which of the tokens that count
        return ((counted.cumsum(dim=1) - 1 == wanted[:, None]) & counted).int().argmax(dim=1)


@dataclass(frozen=True, kw_only=True, eq=False)
class NoiseAugmentation(_NoisyPart):
    """The loss on inputs with Gaussian noise on all their tokens, in place of the loss or beside it.

    By default the noisy inputs replace the others. In a loop of one's own it is enough to call `outputs` in place of
    the model; `applied` also mixes or adds the loss of the undisturbed inputs. `criterion` is the loss of outputs and
    labels; a term of `fit` needs it.

    >>> noise = NoiseAugmentation(variance=0.1)
    >>> noise.outputs(nn.Linear(4, 2), torch.zeros(3, 4)).shape
    torch.Size([3, 2])
    """

    variance: float = 0.1
    strength: float = 1.0
    criterion: Criterion | None = None

    @checked_arguments
    def applied(self, loss: Tensor, model: nn.Module, inputs: Given, labels: Tensor) -> Tensor:
        """(1 - p) loss + p noisy loss, or loss + p noisy loss."""
        return self.together(loss, self.loss(model, inputs, labels))

    @checked_arguments
    def loss(self, model: nn.Module, inputs: Given, labels: Tensor) -> Tensor:
        """The loss on disturbed inputs."""
        if self.criterion is None:
            raise InputError("NoiseAugmentation needs a criterion here, such as criterion=nn.functional.cross_entropy")
        return self.criterion(numbers(self.outputs(model, inputs)), labels)

    def __call__(self, model: nn.Module, batch: tuple[Tensor, Tensor], outputs: Tensor) -> Tensor:
        """The loss on disturbed inputs times its strength: a term of `fit`."""
        return self.strength * self.loss(model, *batch)

    @property
    def __name__(self) -> str:
        """Tells checkpoints of different settings apart."""
        return f"noise augmentation: {self._settings}"

    def _disturbed(self, values: Tensor, mask: Tensor | None) -> Tensor:
        return values + self._noise(tuple(values.shape), values)


def _digest(mask: np.ndarray | Tensor) -> str:
    """A short text that differs for different masks."""
    array = np.ascontiguousarray(mask.cpu().numpy() if isinstance(mask, Tensor) else mask)
    return f"{array.shape} {hashlib.sha256(array.tobytes()).hexdigest()[:12]}"


def _is_whole(mask: np.ndarray | Tensor) -> bool:
    """Whether an array holds whole numbers."""
    if isinstance(mask, Tensor):
        return not (mask.is_floating_point() or mask.is_complex() or mask.is_meta)
    return mask.dtype.kind in "iu"


def _floats(values: Tensor, at: str | None) -> Tensor:
    """The numbers that noise is added to; InputError where they are token ids."""
    if not values.is_floating_point():
        what = "the inputs" if at is None else f"the outputs of {at}"
        raise InputError(
            f"{what} are whole numbers, to which no noise can be added: say by at= which module's output is disturbed, "
            "such as at='bert.embeddings'"
        )
    return values


@contextlib.contextmanager
def buffers_kept(model: nn.Module) -> Iterator[None]:
    """Copies stand in for buffers meanwhile, such as the running averages of batch norm, so that these do not change.

    Numbers are not put back in place: autograd may need those of the forward pass before.
    """
    places = [
        (module, name, buffer)
        for module in (model.modules() if model.training else ())
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]
    try:
        for module, name, buffer in places:
            module._buffers[name] = buffer.clone()
        yield
    finally:
        for module, name, buffer in places:
            module._buffers[name] = buffer


# ---------------------------------------------------------------- watching


@checked_arguments
def measured_sensitivity(inputs: Any, **options: Any) -> Callable[[nn.Module], Estimate]:
    """A measurement for the `log` of `fit`: the token sensitivity on these inputs, by the definition.

    ``options`` are those of `flipscope.token_sensitivity`. All measurements have the same noise, unless the seed is a
    generator, so that what changes is the model.
    """
    return lambda model: token_sensitivity(model, inputs, **{"whole_variance": 0, **options}).definition


class SensitivityWatch:
    """The token sensitivity of a model in training, every so many steps of any loop, and before the first.

    Call `step` after each step of the optimiser. Measuring changes nothing in the training: modes, gradients, running
    averages and random generators are as before, so the weights come out bit for bit the same. ``options`` are those of
    `flipscope.token_sensitivity`.

    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(4, 1))
    >>> watch = SensitivityWatch(model, torch.randn(20, 2, 2), every=2, variance=1.0)
    >>> for _ in range(4):
    ...     watch.step()
    >>> watch.series()[0]
    [0, 2, 4]
    """

    @checked_arguments
    def __init__(self, model: nn.Module, inputs: Any, *, every: int = 100, **options: Any) -> None:
        self._recorder = Recorder([Log("sensitivity", measured_sensitivity(inputs, **options), every)], model)
        self._steps = 0
        self._recorder.see(0)

    def step(self, loss: float | Tensor | None = None) -> None:
        """Count a step of the training, and measure if it is due; the `loss` is logged beside it."""
        self._steps += 1
        self._recorder.see(self._steps, loss.item() if isinstance(loss, Tensor) else loss)

    @property
    def log(self) -> list[Line]:
        """A line for each measurement: "step", "loss", "sensitivity", and the ends "sensitivity.low" and ".high"."""
        return self._recorder.lines

    def series(self, name: str = "sensitivity") -> tuple[list[int], list[float]]:
        """The steps at which something was logged, and its values."""
        return series(self.log, name)


# ---------------------------------------------------------------- transformers


@checked_arguments
def trainer_callback(
    part: SensitivityPenalty | NoiseAugmentation | None = None, inputs: Any = None, **options: Any
) -> TrainerCallback:
    """A callback for the Trainer of `transformers`: trains with the penalty or the augmentation, and logs sensitivity.

    With a ``part``, the loss that the model returns in training mode becomes `part.applied`. With ``inputs``, what a
    tokenizer returns, each evaluation logs the token sensitivity on these as ``eval_sensitivity``, with its interval as
    ``eval_sensitivity_low`` and ``_high``; ``options`` are those of `flipscope.token_sensitivity`.
    """
    try:
        from transformers import TrainerCallback
    except ImportError as error:
        raise InputError("trainer_callback needs the package transformers: pip install transformers") from error
    if part is None and inputs is None:
        raise InputError("trainer_callback has nothing to do: give a penalty or an augmentation, inputs, or both")
    measure = None if inputs is None else measured_sensitivity(inputs, **options)

    class LowSensitivityCallback(TrainerCallback):
        """Changes the training loss between the beginning and the end of a training, and adds to what is logged."""

        def __init__(self) -> None:
            self._hook: Any = None

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            """Change the loss from now on."""
            self.on_train_end(args, state, control)  # of a training that was broken off
            if part is not None:
                self._hook = kwargs["model"].register_forward_hook(_WithPart(part), with_kwargs=True)

        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            """Leave the loss as it was."""
            if self._hook is not None:
                self._hook.remove()
                self._hook = None

        def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            """Measure, and add the sensitivity to the metrics and to the line of the log that has them."""
            if measure is None:
                return
            recorder = Recorder([Log("eval_sensitivity", measure)], kwargs["model"])
            recorder.see(0)
            found = {name.replace(".", "_"): value for name, value in recorder.lines[0].items() if name != "step"}
            kwargs.get("metrics", {}).update(found)
            if state.log_history:
                state.log_history[-1].update(found)

    return LowSensitivityCallback()


class _WithPart:
    """A forward hook of a `transformers` model that changes the loss it returns."""

    def __init__(self, part: SensitivityPenalty | NoiseAugmentation) -> None:
        self._part, self._inside = part, False
        self._counts: bool | None = None  # whether the model divides its loss by the count that the Trainer gives

    def __call__(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        if self._inside or not model.training:
            return output
        if args or getattr(output, "loss", None) is None:
            raise InputError("the callback changes the loss of a model that is called with keywords and returns a loss")
        self._inside = True  # the disturbed pass calls the model, too
        try:
            if isinstance(self._part, SensitivityPenalty):
                given = {name: value for name, value in kwargs.items() if name not in ("labels", _COUNT)}
                part = self._share(model, kwargs) * self._part.penalty(model, given, output)
            else:
                part = self._part.outputs(model, kwargs).loss
        finally:
            self._inside = False
        output.loss = self._part.together(output.loss, part)
        return output

    def _share(self, model: nn.Module, kwargs: dict[str, Any]) -> float:
        """The share of these inputs in a step of the optimiser, where the model's loss has that factor as well.

        With accumulated gradients, or on several devices, the Trainer tells the model how many labels a step has. Not
        every model listens: two runs that differ in nothing else show it.
        """
        count, labels = kwargs.get(_COUNT), kwargs.get("labels")
        if count is None or labels is None:
            return 1.0
        share = float((labels != -100).sum()) / float(count)
        if share != 1.0 and self._counts is None:
            losses = []
            for factor in (1, 2):
                with torch.no_grad(), buffers_kept(model), random_states_kept(device_of(model)):
                    losses.append(float(model(**{**kwargs, _COUNT: factor * count}).loss))
            self._counts = losses[0] != losses[1]
        return share if self._counts else 1.0
