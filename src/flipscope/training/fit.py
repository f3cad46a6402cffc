"""The training loop: one for every study, the same numbers for the same seed.

An epoch is one pass over a source of batches: a fixed set in a new order (`Shuffled`), fresh strings (`Fresh`), or any
iterable of (strings, labels) that can be gone through again. After each epoch the model is asked on the validation
set, and the plateau rule of App. F.2 sets the learning rate and stops.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from flipscope.adapters.settled import Settled
from flipscope.adapters.subject import Model, Subject, as_subject
from flipscope.basics.arguments import checked_arguments
from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError
from flipscope.basics.estimates import Estimate, proportions
from flipscope.basics.seeds import generators
from flipscope.data.batches import INPUTS, Batch, Inputs, Labelled, Shuffled, as_tensors
from flipscope.models.devices import Device, device_of, moved, on_device, random_states_kept, seed_generators
from flipscope.models.fast_logits import logits_for
from flipscope.models.marker import MarkerLogits
from flipscope.models.modes import eval_mode, first_derivatives, modes_kept
from flipscope.models.transformer import Transformer
from flipscope.training.checkpoints import Keeper
from flipscope.training.logs import Line, Log, Recorder, series
from flipscope.training.memory import Memory
from flipscope.training.protocol import TrainingProtocol
from flipscope.training.targets import Aim, Labels, Loss

# A further part of the loss, from the model, a batch (inputs, targets) and the model's outputs for it: a mean over the
# strings of that batch, for large batches are computed in parts.
Forward: TypeAlias = Callable[[Tensor], Tensor]
Term: TypeAlias = Callable[[nn.Module, tuple[Tensor, Tensor], Tensor], Tensor]
Stop = Literal["patience", "epochs", "steps", "seconds", "goal", "callback", "diverged"]

_OPTIMISERS: Mapping[str, type[torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
}
_POSITIONS = 6_400  # of a part of a batch: with 64 strings of 100 bits the activations of a layer stay in the cache
_IMAGES = 256  # of a part: convolutional networks are fastest on whole batches
_DEVICE_POSITIONS = 1 << 18  # of a part on another device, where small parts would leave most of it idle


@dataclass(frozen=True)
class Epoch:
    """One line of the history; `seconds` since the start, `learning_rate` and `train_loss` during the epoch."""

    number: int
    steps: int  # so far
    train_loss: float  # mean over the epoch's strings, each at the time of its step
    validation_loss: float
    validation_accuracy: float
    learning_rate: float
    seconds: float


@dataclass(frozen=True)
class Moment:
    """What a callback is told after a step; the model is the one in training."""

    step: int
    epoch: int
    loss: float  # of the step's batch, before the step
    learning_rate: float
    model: nn.Module


@dataclass(frozen=True)
class Fitted:
    """How a training went. `kept_epoch` is the epoch whose weights the model now has; 0 are those of the start."""

    history: tuple[Epoch, ...]
    kept_epoch: int
    steps: int
    strings: int  # trained on, each as often as it was used
    seconds: float
    stopped: Stop
    log: tuple[Line, ...] = ()  # what was measured on the way: see `flipscope.training.logs`

    def series(self, name: str) -> tuple[list[int], list[float]]:
        """The steps at which something was logged, and its values."""
        return series(self.log, name)


@dataclass(frozen=True)
class Accuracy:
    """How many strings a model gets right, with the interval of its accuracy on the strings they were drawn from.

    Where the labels are of every position a string is right if each of its positions is.
    """

    correct: int
    strings: int
    loss: float
    accuracy: Estimate


class Plateau:
    """Factor on the learning rate after `decay_after` epochs without a decrease of the loss, stop after `stop_after`.

    A decrease is below the smallest loss so far. A second stretch of `decay_after` epochs brings a second factor.
    """

    def __init__(self, decay_after: int | None = 5, stop_after: int | None = 10) -> None:
        self.decay_after = None if decay_after is None else check_count("decay_after", decay_after)
        self.stop_after = None if stop_after is None else check_count("stop_after", stop_after)
        self.smallest = math.inf
        self.stale = 0  # epochs since then

    def see(self, loss: float) -> tuple[bool, bool]:
        """Whether the learning rate falls now, and whether training stops."""
        self.stale = 0 if loss < self.smallest else self.stale + 1
        self.smallest = min(loss, self.smallest)
        decay = self.decay_after is not None and self.stale > 0 and self.stale % self.decay_after == 0
        return decay, self.stop_after is not None and self.stale >= self.stop_after


@checked_arguments
def fit(
    model: Model,
    train: Labelled | Iterable[Batch],
    validation: Labelled | Sequence[Labelled],
    protocol: TrainingProtocol | None = None,
    *,
    seed: int | np.random.Generator = 0,
    inputs: Inputs = "bits",
    device: Device | None = None,
    terms: Sequence[Term] = (),
    max_seconds: float | None = None,
    every: int = 1,
    callback: Callable[[Moment], object] | None = None,
    until: Callable[[Epoch], bool] | None = None,
    progress: Callable[[Epoch], object] | None = None,
    log: Sequence[Log] = (),
    keeper: Keeper | None = None,
    **choices: Any,
) -> Fitted:
    """Train the model in place and return how it went; it ends with the weights of the smallest validation loss.

    The protocol (`flipscope.training.protocol.TrainingProtocol`) says how: which loss and optimiser, which learning
    rate, when to stop. Its fields may be given here by name instead, or beside it to change them.

    The model is any `nn.Module`, or a `flipscope.Subject` of one. It maps bits [string, position] to one logit per
    string, positive for 1, or to two; with inputs="tokens" it reads whole numbers, with "numbers" anything. How bits
    become its input, the subject says. Labels are one per string, or [string, position]. `validation` may be several
    sets, such as one per length. The protocol's `batch` and the `seed` are for a fixed set; other sources bring their
    own.

    It is trained where its parameters are, or on the `device` that is given ("cpu", "cuda", "mps"), and is afterwards
    where it was before. Batches are moved there.

    `terms` are added to the loss that is differentiated, and are no part of the one that is reported; one that has a
    `loss_factor` multiplies the loss by that, as in (1 - p) loss + p term. `log` measures
    the model every so many steps: see `flipscope.training.logs`.

    Training stops by the rules of the protocol, after max_seconds, when `until` returns True for an epoch, when
    `callback`, called after every `every`-th step, returns True, or at a loss that is not finite ("diverged").
    With restore="last" the model keeps the weights of the last epoch, but never those of a divergence.
    An interrupt or an error in a callback leaves the best weights in the model and goes on to the caller.

    A `keeper` holds the state of the training in a file. Called again with the same arguments, and the model as it
    was at the start, the training goes on from there and ends with the same weights and history, bit for bit, as one
    that was never interrupted (only `seconds` differ). What callbacks remember is their own affair.

    The same seed gives the same weights. Dropout draws from PyTorch's generator of the model's device, which is seeded
    for the time being and put back. The number of threads and the device may change the last bits, since sums are added
    up in another order, and each kind of device has random masks of its own.

    >>> from flipscope.data.languages import draw
    >>> from flipscope.models import Transformer, encoder
    >>> sets = draw(lambda bits: bits[:, 0], 8, {"train": 64, "validation": 32})
    >>> model = Transformer(encoder(width=8, layers=1))
    >>> fit(model, sets["train"], sets["validation"], learning_rate=0.01, batch=32, max_steps=4).steps
    4
    """
    subject = _of_logits(as_subject(model))
    module = subject.needed_module("fit trains the parameters of")
    device = subject.device if device is None else device
    protocol = _protocol(protocol, choices, train, terms)
    if max_seconds is not None and not max_seconds > 0:
        raise InputError(f"max_seconds={max_seconds} must be positive")
    check_count("every", every)
    if inputs not in INPUTS:
        raise InputError(f"inputs={inputs!r} is not one of {', '.join(INPUTS)}")
    order, noise = generators(seed, 2)
    task = _Task(protocol.aim, inputs, tuple(terms), protocol.clip)
    source = _source(train, protocol.batch, order, task)
    sets = [validation] if isinstance(validation, Labelled) else list(validation)
    asked = [task.checked(each.bits, each.labels, "validation") for each in sets]
    if not asked:
        raise InputError("validation has no set: give one or more")
    limits = _Limits(protocol.max_epochs, protocol.max_steps, max_seconds)
    plateau = Plateau(protocol.decay_after, protocol.stop_after)
    dropout = int(noise.integers(2**63))
    was_training = module.training
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(on_device(module, device))
        stack.enter_context(modes_kept(module))
        stack.enter_context(random_states_kept(place))
        seed_generators(place, dropout)
        forward = _forward(subject, inputs, place)
        run = _Run(module, forward, place, _stepper(module, protocol), task, asked, source, Recorder(log, module))
        try:
            if keeper is not None:
                settings = {
                    **protocol.as_json(),
                    "inputs": inputs,
                    "terms": [getattr(term, "__name__", type(term).__name__) for term in terms],
                    "log": [[each.name, each.every] for each in log],
                    "dropout": dropout,
                }
                stack.enter_context(run.kept_by(keeper, plateau, settings))
            if run.steps == 0:
                run.recorder.see(0)
                run.settle()
            while run.stopped is None:
                run.epoch(limits, every, callback)
                if run.stopped != "diverged":
                    if progress is not None:
                        progress(run.history[-1])
                    _decide(run, plateau, limits, protocol, until)
                run.settle()
            run.keep()
        except KeyboardInterrupt:
            run.keep(interrupted=True)
            raise
        finally:
            run.restore(protocol.restore)
            module.train(was_training)
    assert run.stopped is not None
    return Fitted(
        tuple(run.history), run.kept, run.steps, run.strings, run.seconds, run.stopped, tuple(run.recorder.lines)
    )


def _protocol(
    protocol: TrainingProtocol | None,
    choices: Mapping[str, Any],
    train: Labelled | Iterable[Batch],
    terms: Sequence[Term],
) -> TrainingProtocol:
    """The protocol with the choices that were given by name; InputError where they do not fit what is trained on."""
    if choices.get("batch") is not None and not isinstance(train, Labelled):
        raise InputError(f"batch={choices['batch']} is for a fixed training set: this source of batches has its own")
    if "epoch_steps" in choices:
        raise InputError("epoch_steps is for the fresh strings of a recipe: here an epoch is one pass over train")
    found = TrainingProtocol(**choices) if protocol is None else dataclasses.replace(protocol, **choices)
    if len(terms) < len(found.terms):
        raise InputError("the protocol names terms of the loss, which only a recipe can make: give functions as terms")
    return found


def _decide(
    run: _Run,
    plateau: Plateau,
    limits: _Limits,
    protocol: TrainingProtocol,
    until: Callable[[Epoch], bool] | None,
) -> None:
    """Set the learning rate after an epoch, and say whether it was the last."""
    line = run.history[-1]
    decay, stop = plateau.see(line.validation_loss)
    if decay or (protocol.decay_every is not None and line.number % protocol.decay_every == 0):
        for group in run.stepper.param_groups:
            group["lr"] *= protocol.decay_factor
    if protocol.reached(line.validation_accuracy, line.train_loss) or (until is not None and until(line)):
        run.stopped = "goal"
    elif run.stopped is None:
        run.stopped = "patience" if stop else limits.reached(run)


@checked_arguments
def evaluate(
    model: Model,
    data: Labelled,
    *,
    loss: Loss = "bce",
    labels: Labels = "signs",
    inputs: Inputs = "bits",
    device: Device | None = None,
    confidence: float = 0.95,
) -> Accuracy:
    """The model's accuracy and mean loss on the strings; a logit that is not a number is wrong.

    It is asked where its parameters are, or on the `device` that is given.
    """
    subject = _of_logits(as_subject(model)).replaced(diverged=True)
    module = subject.needed_module("evaluate takes")
    task = _Task(Aim(loss, labels), inputs)
    strings, targets = task.checked(data.bits, data.labels, "data")
    with on_device(module, subject.device if device is None else device) as place:
        total, correct = _ask(module, strings, targets, task.aim, _forward(subject, inputs, place))
    [share] = proportions([correct], len(strings), confidence)
    return Accuracy(correct, len(strings), total / len(strings), share)


def answered(
    model: nn.Module, sets: Sequence[tuple[Tensor, Tensor]], aim: Aim, forward: Forward | None = None
) -> tuple[float, float]:
    """The mean loss and the share of right answers on all strings of these sets of inputs and targets."""
    found = [_ask(model, inputs, targets, aim, forward) for inputs, targets in sets]
    strings = sum(len(inputs) for inputs, _ in sets)
    return sum(total for total, _ in found) / strings, sum(correct for _, correct in found) / strings


@dataclass(frozen=True)
class _Task:
    """What a model is to do, and how a gradient is made of that."""

    aim: Aim
    inputs: Inputs
    terms: tuple[Term, ...] = ()
    clip: float | None = None

    def checked(self, inputs: Any, labels: Any, name: str) -> tuple[Tensor, Tensor]:
        """Inputs and targets as tensors, wherever they are."""
        found, wanted = as_tensors(inputs, labels, name, self.inputs)
        return found, self.aim.targets(wanted, name)


@dataclass(frozen=True)
class _Limits:
    epochs: int | None
    steps: int | None
    seconds: float | None

    def reached(self, run: _Run) -> Stop | None:
        """The limit that the training has reached."""
        if self.steps is not None and run.steps >= self.steps:
            return "steps"
        if self.seconds is not None and run.seconds >= self.seconds:
            return "seconds"
        return "epochs" if self.epochs is not None and len(run.history) >= self.epochs else None


class _Run:
    """A training under way: the model, its optimiser, what was counted, and the best weights so far."""

    def __init__(
        self,
        model: nn.Module,
        forward: Forward | None,
        device: torch.device,
        stepper: torch.optim.Optimizer,
        task: _Task,
        validation: Sequence[tuple[Tensor, Tensor]],
        source: Iterable[Batch],
        recorder: Recorder,
    ) -> None:
        self.model, self.stepper, self.task, self.validation, self.source = model, stepper, task, validation, source
        self.forward, self.device, self.recorder = forward, device, recorder
        # Statistics over a batch would not be the same over its parts.
        self.whole = any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules())
        self.history: list[Epoch] = []
        self.steps = self.strings = self.kept = 0
        self.total, self.seen = 0.0, 0  # of the epoch: sum of the losses, strings
        self.stopped: Stop | None = None
        self.smallest = math.inf
        self.best = _weights(model)
        self._before = 0.0  # seconds that earlier processes spent on it
        self._start = time.perf_counter()
        self._memory: Memory | None = None

    @property
    def seconds(self) -> float:
        """Spent on this training, by all the processes that went on with it."""
        return self._before + time.perf_counter() - self._start

    def epoch(self, limits: _Limits, every: int, callback: Callable[[Moment], object] | None) -> None:
        """Go once through the source, or as far as the limits allow, then ask the validation set."""
        self.model.train()
        # Anew, for a callback may have changed what the model computes.
        self.logits = self.forward or logits_for(self.model)
        rate, number = self.stepper.param_groups[0]["lr"], len(self.history) + 1
        for given in self.source:
            inputs, targets = self.task.checked(*given, "the batch")
            mean = self._step(moved(inputs, self.device), moved(targets, self.device))
            if not math.isfinite(mean):
                self.stopped = "diverged"
                return
            self.recorder.see(self.steps, mean)
            if callback is not None and self.steps % every == 0:
                if callback(Moment(self.steps, number, mean, rate, self.model)) is True:
                    self.stopped = "callback"
                self.model.train()
            limit = limits.reached(self)
            if self.stopped is None and limit in ("steps", "seconds"):
                self.stopped = limit
            if self.stopped is not None:
                break
            self.settle()
            self.keep(if_due=True)
        if self.seen == 0:
            raise InputError("train gave no batch in an epoch: give a source that can be gone through again")
        self._validate(number, self.total / self.seen, rate)

    def _step(self, inputs: Tensor, targets: Tensor) -> float:
        """One step of the optimiser; the mean loss before it. Nothing is changed if that is not finite."""
        # In parts that stay in the cache: their gradients add up to that of the whole batch.
        part = len(inputs) if self.whole else _part(self.model, inputs, self.logits, self.device)
        self.stepper.zero_grad()
        mean = 0.0
        # A term may be made of derivatives, which are then differentiated again.
        once = contextlib.nullcontext() if self.task.terms else first_derivatives()
        with once:
            for some, wanted in zip(inputs.split(part), targets.split(part), strict=True):
                outputs = self.logits(some)
                value = self.task.aim.total(outputs, wanted) / len(inputs)
                with_terms = self._with_terms(value, (some, wanted), outputs, len(some) / len(inputs))
                with_terms.backward()
                mean += value.item() if with_terms is value or math.isfinite(with_terms.item()) else math.nan
        if math.isfinite(mean):
            if self.task.clip is not None:
                nn.utils.clip_grad_norm_(self.model.parameters(), self.task.clip)
            self.unsettle()  # until the callback and the limits have said whether this was the last step
            self.stepper.step()
            self.steps += 1
            self.strings += len(inputs)
            self.total, self.seen = self.total + mean * len(inputs), self.seen + len(inputs)
        return mean

    def _with_terms(self, value: Tensor, batch: tuple[Tensor, Tensor], outputs: Tensor, share: float) -> Tensor:
        """The loss of a part of a batch, which is so large a share of it, with the further terms."""
        for factor in (getattr(term, "loss_factor", 1.0) for term in self.task.terms):
            if factor != 1.0:  # of a term that is mixed with the loss, or takes its place and needs no gradient of it
                value = factor * (value if factor else value.detach())
        for term in self.task.terms:
            found = term(self.model, batch, outputs)
            if not isinstance(found, Tensor) or found.numel() != 1:
                raise InputError("a further term of the loss must be one number in a tensor, the mean over the strings")
            value = value + share * found.reshape(())
        return value

    def _validate(self, number: int, train_loss: float, rate: float) -> None:
        """Write the line of the history, and keep the weights if they are the best."""
        mean, accuracy = answered(self.model, self.validation, self.task.aim, self.forward)
        if not math.isfinite(mean):
            self.stopped = "diverged"
            return
        self.unsettle()  # until it is decided whether this was the last epoch
        self.history.append(Epoch(number, self.steps, train_loss, mean, accuracy, rate, self.seconds))
        self.total, self.seen = 0.0, 0
        if mean < self.smallest:
            self.smallest, self.kept, self.best = mean, number, _weights(self.model)

    # ---------------------------------------------------------------- checkpoints

    @contextlib.contextmanager
    def kept_by(self, keeper: Keeper, plateau: Plateau, settings: Mapping[str, Any]) -> Iterator[None]:
        """Let the keeper have the state meanwhile, and go on from the one it has."""
        asked = [tensor for each in self.validation for tensor in each]
        self._memory = Memory(keeper, self.model, self.device, self.stepper, self.source, asked, settings)
        self._plateau = plateau
        if (found := self._memory.recall()) is not None:
            self._resume(*found)
        with self._memory.patient():
            self.settle()
            yield

    def _resume(self, best: dict[str, Tensor], values: dict[str, Any]) -> None:
        """Count on from where another process was."""
        self.best = self.best | best
        self.history = [Epoch(**line) for line in values["history"]]
        self.recorder.lines = values.get("log", [])
        self.steps, self.strings, self.kept = values["steps"], values["strings"], values["kept"]
        self.total, self.seen, self.smallest = values["total"], values["seen"], values["smallest"]
        self.stopped, self._before = values["stopped"], values["seconds"]
        self._plateau.smallest, self._plateau.stale = values["plateau"]
        self._start = time.perf_counter()

    def unsettle(self) -> None:
        """From now on some of the state is of before a step or an epoch, and some of after it."""
        if self._memory is not None:
            self._memory.mark = None

    def settle(self) -> None:
        """Now everything fits together."""
        if self._memory is not None:
            self._memory.settle()

    def keep(self, *, if_due: bool = False, interrupted: bool = False) -> None:
        """Save the state as it was when all of it fitted together."""
        if self._memory is None or (if_due and not self._memory.keeper.due):
            return
        names = ("steps", "strings", "kept", "total", "seen", "smallest", "stopped", "seconds")
        values = {name: getattr(self, name) for name in names}
        values["history"] = [dataclasses.asdict(line) for line in self.history]
        if self.recorder.lines:
            values["log"] = self.recorder.lines
        values["plateau"] = [self._plateau.smallest, self._plateau.stale]
        self._memory.keep(self.best, values, interrupted=interrupted)

    def restore(self, which: Literal["best", "last"]) -> None:
        """Give the model its final weights; those of the last epoch only if it came to a good end."""
        if which == "best" or self.stopped is None or self.stopped == "diverged":
            self.model.load_state_dict(self.best)
        else:
            self.kept = len(self.history)
        self.stepper.zero_grad()


def _source(
    train: Labelled | Iterable[Batch], batch: int | None, order: np.random.Generator, task: _Task
) -> Iterable[Batch]:
    """Where batches come from: a fixed set, checked as a whole, or the source that was given."""
    if isinstance(train, Labelled):
        if batch is None:
            raise InputError("batch must be given for a fixed training set, such as batch=128")
        task.checked(train.bits, train.labels, "train")
        return Shuffled(train, batch, order, task.inputs)
    return train


def _stepper(model: nn.Module, protocol: TrainingProtocol) -> torch.optim.Optimizer:
    """The optimiser of the model's parameters."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not parameters:
        raise InputError("the model has no parameter to train")
    groups: list[Any] = parameters
    if protocol.decay_on == "matrices":
        tables = {id(p) for module in model.modules() if isinstance(module, nn.Embedding) for p in module.parameters()}
        kinds = {id(p): p.ndim >= 2 and id(p) not in tables for p in parameters}
        decayed, others = ([p for p in parameters if kinds[id(p)] is kind] for kind in (True, False))
        groups = [{"params": decayed}, {"params": others, "weight_decay": 0.0}]
    settings: dict[str, Any] = {"lr": protocol.learning_rate, "weight_decay": protocol.weight_decay, "fused": True}
    if protocol.momentum:
        settings["momentum"] = protocol.momentum
    return _OPTIMISERS[protocol.optimiser](groups, **settings)


def _weights(model: nn.Module) -> dict[str, Any]:
    return {
        name: value.detach().clone() if isinstance(value, Tensor) else value
        for name, value in model.state_dict().items()
    }


def _part(model: nn.Module, inputs: Tensor, logits: Callable[[Tensor], Tensor], device: torch.device) -> int:
    """Strings to be computed together on a device."""
    if isinstance(logits, MarkerLogits):
        return logits.strings(inputs)
    positions = inputs.shape[1]
    if inputs.ndim > 2:
        if not isinstance(model, Transformer):
            return _IMAGES
        positions = model.config.longest or 1  # patches
    most = _POSITIONS if device.type == "cpu" else _DEVICE_POSITIONS
    return max(16, most // max(1, positions))


def _of_logits(subject: Subject) -> Subject:
    """The subject; InputError if its outputs are said to be other than logits, which losses and labels are of."""
    if subject.threshold is not None or subject.output in ("probability", "probabilities", "labels"):
        raise InputError(
            "training and evaluation are of logits: leave threshold and output out, or give output='logit'"
        )
    return subject


def _forward(subject: Subject, inputs: Inputs, device: torch.device) -> Forward | None:
    """The model as a function of bits by its encoding; None where it takes batches as they are, as our networks do."""
    own = type(subject.model).__module__.startswith("flipscope.")
    if subject.takes_data_as_they_are and (own or inputs != "bits"):
        return None
    if inputs != "bits":
        raise InputError(f"encoding is for inputs='bits', not for inputs={inputs!r}: leave it out")
    settled = Settled(subject.replaced(device=None, diverged=True), native=True)  # the module itself
    settled.device = device
    return settled.outputs


@torch.no_grad()
def _ask(
    model: nn.Module, inputs: Tensor, targets: Tensor, aim: Aim, forward: Forward | None = None
) -> tuple[float, int]:
    """The sum of the losses and the number of right answers, in evaluation mode."""
    logits, device, total, correct = forward or logits_for(model), device_of(model), 0.0, 0
    with eval_mode(model, own=True):
        part = _part(model, inputs, logits, device)
        for some, wanted in zip(inputs.split(part), targets.cpu().split(part), strict=True):
            found = logits(moved(some, device)).cpu()  # where there is float64, which some devices have not
            total += float(aim.total(found.double(), wanted))
            correct += int(aim.right(found, wanted).sum())
    return total, correct
