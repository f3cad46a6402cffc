"""Sharpness: how far a model's outputs, or its loss, go when its parameters move a little in a random direction.

With theta the parameters, Delta uniform on the sphere of radius rho and the mean over the strings x given:

    prediction   L_rho = E_Delta  mean_x (T_theta(x) - T_theta+Delta(x))^2              (hardness paper, Thm 6)
    loss         E_Delta  loss(theta + Delta) - loss(theta)                             what the paper's code computes
    ShOp         E_Delta  mean_x |T_theta(x) - T_theta+Delta(x)|                        (low-sensitivity paper, § 7.2)
    ShPred       E_Delta  share of strings whose answer is another                      (the same)

Of a model with several outputs, such as classes, prediction and ShOp are the mean over the outputs or their sum
(`over_outputs`); the code of the low-sensitivity paper takes the sum. ShPred compares the largest output.

In the Gaussian form every number of Delta is normal with standard deviation std, which in many dimensions is the sphere
of radius rho = std sqrt(dim). The adaptive form multiplies the noise of each parameter by its absolute value, so that
scaling one layer of ReLU units up and the next one down changes nothing. `worst_case` takes the direction in which the
loss grows fastest, as sharpness-aware minimisation does, in place of a random one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias, TypedDict, Unpack

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64
from torch import Tensor, nn

from flipscope.adapters.inputs import Inputs
from flipscope.adapters.movable_parameters import MovableParameters
from flipscope.adapters.parameters import Choice, chosen, differentiable
from flipscope.adapters.settled import as_settled
from flipscope.adapters.subject import Model
from flipscope.basics.arguments import Keyword, checked_arguments
from flipscope.basics.checks import check_confidence, check_count, check_positive
from flipscope.basics.errors import InputError
from flipscope.basics.estimates import Estimate, mean_from_samples
from flipscope.basics.limits import check_memory
from flipscope.basics.progress import Progress
from flipscope.basics.resampling import bootstrap_mean, student_mean
from flipscope.basics.seeds import Seed, seed_number, seed_of
from flipscope.basics.wording import count_text
from flipscope.figures import Figure, Panel, Series
from flipscope.figures.panels import histogram_panel
from flipscope.figures.results import Result
from flipscope.models.devices import in_float64
from flipscope.models.transformer import Transformer
from flipscope.probes.asking import Loss, Scorer, as_loss, asked

Measure: TypeAlias = Literal["prediction", "loss", "ShOp", "ShPred"]
MEASURES: tuple[Measure, ...] = ("prediction", "loss", "ShOp", "ShPred")
Interval: TypeAlias = Literal["student", "bootstrap"]
Outputs: TypeAlias = Float[Tensor, "string ..."]


class Options(TypedDict, total=False):
    """The keywords of `sharpnesses` that `sharpness` takes too."""

    rho: Annotated[float | None, Keyword(None, "radius of the sphere that the parameters move to; or give std")]
    std: Annotated[float | None, Keyword(None, "of Gaussian noise on every parameter; or give rho")]
    adaptive: Annotated[bool, Keyword(False, "whether noise is in proportion to each parameter")]
    parameters: Annotated[Choice, Keyword(None, "which move: patterns of names, or a function of a name")]
    draws: Annotated[int, Keyword(100, "perturbations")]
    seed: Annotated[Seed, Keyword(0, "of the perturbations")]
    loss: Annotated[Loss, Keyword("mse", "of outputs and targets: mse, bce, cross_entropy or a function")]
    over_outputs: Annotated[Literal["mean", "sum"], Keyword("mean", "what to take of several outputs of a string")]
    confidence: Annotated[float, Keyword(0.95, "with which the interval holds")]
    interval: Annotated[Interval, Keyword("student", "over draws: Student's, or 'bootstrap'")]
    forward: Annotated[Callable[..., Any] | None, Keyword(None, "what is called instead of the model")]
    progress: Annotated[Progress | None, Keyword(None, "called with (draws done, draws in all)")]


@dataclass(frozen=True, eq=False, repr=False)
class Sharpness(Result):
    """A sharpness with its interval over draws; `draws` has what each perturbation did, `value` is their mean."""

    measure: Measure
    value: Estimate
    draws: Float64[np.ndarray, " draw"]
    rho: float  # radius of the sphere, or std * sqrt(parameters)
    std: float  # of every parameter, or rho / sqrt(parameters)
    noise: Literal["sphere", "gaussian"]
    adaptive: bool
    parameters: int  # numbers that move
    names: tuple[str, ...]  # of the parameters they are in
    strings: int
    loss: float | None  # of the model as it is, where there are targets
    outputs: int  # numbers that the model gives for a string
    over_outputs: Literal["mean", "sum"]  # what prediction and ShOp take of these
    precision: str  # number type in which the model was evaluated

    def summary(self) -> dict[str, object]:
        """The value, and how it was measured."""
        several = self.outputs > 1 and self.measure in ("prediction", "ShOp")
        over = f", {self.over_outputs} over {self.outputs} outputs" if several else ""
        size = f"on a sphere of radius {self.rho:.4g}" if self.noise == "sphere" else f"Gaussian of std {self.std:.4g}"
        return {
            f"{self.measure} sharpness{over}": self.value,
            "noise": size + (", in proportion to each parameter" if self.adaptive else ""),
            "moved": f"{self.parameters:,} parameters, {count_text(len(self.draws), 'draw')}",
            "strings": self.strings,
        }

    def plot(self) -> Figure:
        """What each draw of the noise did."""
        caption = f"What each of {count_text(len(self.draws), 'draw')} of the noise did, with the mean."
        panel = histogram_panel(self.draws, f"{self.measure} sharpness", self.value.value)
        return Figure("sharpness", "Sharpness", caption, [panel], columns=1)

    def as_json(self) -> dict[str, Any]:
        """What a JSON document says of it."""
        return {
            "measure": self.measure,
            "sharpness": self.value.as_json(),
            "rho": self.rho,
            "std": self.std,
            "noise": self.noise,
            "adaptive": self.adaptive,
            "parameters": self.parameters,
            "strings": self.strings,
            "loss": self.loss,
            "outputs": self.outputs,
            "over_outputs": self.over_outputs,
            "precision": self.precision,
        }


@dataclass(frozen=True, eq=False, repr=False)
class WorstCase(Result):
    """The largest increase that gradient steps found on the sphere; a lower bound of the largest there is."""

    measure: Literal["prediction", "loss"]
    value: float
    path: tuple[float, ...]  # the increase after each step
    rho: float
    adaptive: bool
    parameters: int
    strings: int

    def summary(self) -> dict[str, object]:
        """What is read first."""
        return {
            f"largest {self.measure} increase found": self.value,
            "sphere": f"of radius {self.rho:.4g}" + (", adaptive" if self.adaptive else ""),
            "search": f"{count_text(len(self.path), 'step')}, {self.parameters:,} parameters",
            "strings": self.strings,
        }

    def plot(self) -> Figure:
        """The increase after each step of the search."""
        steps = Series("", list(range(1, len(self.path) + 1)), list(self.path), colour=0)
        caption = "Increase after each gradient step on the sphere; the largest there is may be larger."
        return Figure(
            "worst-case", "Worst-case sharpness", caption, [Panel("", "step", self.measure, [steps])], columns=1
        )


@checked_arguments
def sharpness(
    model: Model,
    inputs: Inputs,
    targets: Tensor | np.ndarray | None = None,
    *,
    measure: Measure = "prediction",
    **options: Unpack[Options],
) -> Sharpness:
    """The sharpness of the model on the inputs, whose first axis is the string; options are those of `sharpnesses`.

    >>> strings = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    >>> found = sharpness(nn.Linear(2, 1), strings, std=0.1, draws=2000)
    >>> found.value.low < 0.1**2 * (2 * 0.5 + 1) < found.value.high  # exact: std^2 (mean |x|^2 + 1)
    True
    """
    return sharpnesses(model, inputs, targets, measures=[measure], **options)[measure]


@checked_arguments
def sharpnesses(
    model: Model,
    inputs: Inputs,
    targets: Tensor | np.ndarray | None = None,
    *,
    measures: Sequence[Measure] = MEASURES,
    rho: float | None = None,
    std: float | None = None,
    adaptive: bool = False,
    parameters: Choice = None,
    draws: int = 100,
    seed: Seed = 0,
    loss: Loss = "mse",
    over_outputs: Literal["mean", "sum"] = "mean",
    confidence: float = 0.95,
    interval: Interval = "student",
    forward: Callable[..., Any] | None = None,
    progress: Progress | None = None,
) -> dict[Measure, Sharpness]:
    """Several measures of the same perturbations, each as one would get it alone.

    Either `rho` (sphere) or `std` (Gaussian) is given. `inputs` are what the model is called with: an array of strings,
    images or token ids, a tuple of several, or a mapping of keywords, such as tokenizers of `transformers` return. Of a
    `flipscope.Subject` with an encoding they are strings of bits.
    `parameters`: patterns of names or a function of a name; by default all but learned positions of our transformers.
    `loss` of outputs and targets: "mse", "bce" and "cross_entropy" by name, or a function that returns losses or their
    mean. Where a string has several outputs, prediction and ShOp take their mean or sum, `over_outputs`. An answer of
    ShPred is output > threshold, or the largest of several outputs.

    Draw k depends on the seed and on k alone: not on the number of draws, nor on the batches in which the strings are
    asked, which see the same perturbation. The interval is Student's over draws, or a bootstrap's; that of ShPred holds
    at every number of draws. The model is in evaluation mode meanwhile and left bit for bit as it was.
    """
    wanted = _checked_measures(measures)
    settled = as_settled(model, native=forward is not None)
    module = settled.needed_module("sharpness moves the parameters of")
    numbers = _Noise(chosen(module, parameters), rho, std, adaptive, seed)
    count = check_count("draws", draws, 2)
    check_memory(8 * len(wanted) * count, f"what {count:,} draws do", "give fewer")
    check_confidence(confidence)
    if interval not in ("student", "bootstrap"):
        raise InputError(f"interval={interval!r} is not one of student, bootstrap")
    with asked(settled, inputs, forward) as (asking, before), numbers.moving as moving:
        scorer = as_loss(loss, targets, before) if targets is not None or "loss" in wanted else None
        judge = _Judge(module, before, scorer, wanted, over_outputs, settled.threshold)
        rows = np.empty((count, len(wanted)))
        for number in range(count):
            moving.to(*numbers.draw(number))
            if number == 0:
                moving.check_moved(*numbers.asked)
            rows[number] = judge(asking.outputs())
            if not np.isfinite(rows[number]).all():
                raise InputError(f"draw {number} makes the outputs NaN or infinite: take a smaller rho or std")
            if progress is not None:
                progress(number + 1, count)
    found: dict[Measure, Sharpness] = {}
    for measure, column in zip(wanted, rows.T, strict=True):
        value = _estimate(measure, column, confidence, interval, seed_of(numbers.seed, count))
        about = (numbers.rho, numbers.std, numbers.kind, adaptive, moving.count, moving.names, asking.strings)
        said = (judge.loss, judge.outputs, over_outputs, settled.precision)
        found[measure] = Sharpness(measure, value, column, *about, *said)
    return found


@checked_arguments
def watch(
    inputs: Inputs,
    targets: Tensor | np.ndarray | None = None,
    *,
    draws: int = 20,
    seed: int = 0,
    **options: Any,  # those of `sharpness`
) -> Callable[[nn.Module, int], Sharpness]:
    """A function of a model and the number of its step, for a callback: a few draws on one batch, fresh at each step.

    >>> look = watch(np.array([[0, 1], [1, 1]]), std=0.01, draws=5)
    >>> look(nn.Linear(2, 1), 100).value.samples
    5
    """
    start = check_count("seed", seed, 0)

    def look(model: nn.Module, step: int) -> Sharpness:
        return sharpness(model, inputs, targets, draws=draws, seed=seed_of(start, step), **options)

    return look


@checked_arguments
def worst_case(
    model: Model,
    inputs: Inputs,
    targets: Tensor | np.ndarray | None = None,
    *,
    rho: float,
    steps: int = 1,
    measure: Literal["prediction", "loss"] = "loss",
    adaptive: bool = False,
    parameters: Choice = None,
    seed: Seed = 0,
    loss: Loss = "mse",
    forward: Callable[..., Any] | None = None,
) -> WorstCase:
    """The increase of the loss at the point of the sphere that the gradient leads to, as in SAM; adaptive: as in ASAM.

    Each step goes to the point of the sphere in the direction of the gradient where it stands, so that one step from
    the model itself is SAM's, and on a quadratic further ones are power iteration. The prediction form has no gradient
    at the model: it starts from a random point of the sphere. All strings share one graph, so that memory bounds them.

    >>> model = nn.Linear(1, 1, bias=False)
    >>> with torch.no_grad():
    ...     _ = model.weight.fill_(2.0)
    >>> worst_case(model, np.array([[1]]), np.array([1.0]), rho=0.5).value  # (2.5 - 1)^2 - (2 - 1)^2
    1.25
    """
    if measure not in ("prediction", "loss"):
        raise InputError(f"measure={measure!r} of the worst case is not one of prediction, loss")
    settled = as_settled(model, native=forward is not None)
    module = settled.needed_module("sharpness moves the parameters of")
    numbers = _Noise(chosen(module, parameters), rho, None, adaptive, seed)
    path: list[float] = []
    with asked(settled, inputs, forward) as (asking, before), numbers.moving as moving:
        scorer: Callable[[Tensor], Tensor]
        if measure == "loss":
            scorer = as_loss(loss, targets, before)
            direction, scale = torch.zeros(moving.count, device="cpu"), 0.0
        else:
            scorer = lambda outputs: (in_float64(outputs) - in_float64(before)).square().mean()  # noqa: E731
            direction, scale = numbers.draw(0)
        start = float(scorer(before))
        with differentiable(moving.parameters):
            for _ in range(check_count("steps", steps)):
                moving.to(direction, scale)
                with torch.enable_grad():
                    score = scorer(asking.outputs())
                    if not score.requires_grad:
                        raise InputError("the outputs do not depend on the parameters chosen: choose others")
                    gradients = torch.autograd.grad(score, moving.parameters, allow_unused=True)
                direction, scale = numbers.steepest(gradients)
                moving.to(direction, scale)
                moving.check_moved(*numbers.asked)
                path.append(float(scorer(asking.outputs())) - start)
    if not all(map(math.isfinite, path)):
        raise InputError(f"rho={rho} makes the outputs NaN or infinite: take a smaller one")
    return WorstCase(measure, max(path), tuple(path), rho, adaptive, moving.count, asking.strings)


# ---------------------------------------------------------------- the noise


class _Noise:
    """Perturbations of parameters: draw k of a seed is always the same, whatever else is drawn."""

    def __init__(
        self, parameters: dict[str, nn.Parameter], rho: float | None, std: float | None, adaptive: bool, seed: Seed
    ) -> None:
        if (rho is None) == (std is None):
            raise InputError(f"give either rho (a sphere) or std (Gaussian), not rho={rho} and std={std}")
        for name, value in (("rho", rho), ("std", std)):
            if value is not None:
                check_positive(name, value)
        self.asked = ("std", float(std)) if std is not None else ("rho", float(rho or 0))
        self.seed = seed_number(seed)
        self.moving = MovableParameters(parameters)
        if self.moving.count == 0:
            raise InputError("the parameters chosen hold no numbers: choose others")
        self.moving.check_size(*self.asked)
        root = math.sqrt(self.moving.count)
        self.kind: Literal["sphere", "gaussian"] = "gaussian" if rho is None else "sphere"
        self.rho = float(rho) if rho is not None else float(std or 0) * root
        self.std = float(std) if std is not None else float(rho or 0) / root
        self._scales = self.moving.sizes_of_numbers() if adaptive else None
        self._normals = np.empty(self.moving.count, np.float32)

    def draw(self, number: int) -> tuple[Float32[Tensor, " number"], float]:
        """A direction, in a place that the next draw takes, and what to multiply it by."""
        # numpy's normals are the same on every machine; a stream per draw makes them independent of each other.
        stream = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(number,)))
        stream.standard_normal(out=self._normals, dtype=np.float32)
        direction = torch.from_numpy(self._normals)
        scale = self.std
        if self.kind == "sphere":
            scale = self.rho / float(np.sqrt(np.square(self._normals, dtype=np.float64).sum()))
        return (direction if self._scales is None else direction * self._scales), scale

    def steepest(self, gradients: Sequence[Tensor | None]) -> tuple[Float32[Tensor, " number"], float]:
        """Where on the sphere a linear function with this gradient is largest; adaptive: on its ellipsoid."""
        parameters = self.moving.parameters
        filled = [
            torch.zeros(parameter.numel(), device="cpu") if each is None else each.reshape(-1).float().cpu()
            for each, parameter in zip(gradients, parameters, strict=True)
        ]
        flat = torch.cat(filled)
        scaled = flat if self._scales is None else flat * self._scales
        length = float(scaled.double().norm())
        if not 0 < length < math.inf:
            raise InputError("the loss has no gradient to follow here: try measure='prediction', or another loss")
        return (scaled if self._scales is None else scaled * self._scales), self.rho / length


# ---------------------------------------------------------------- what a perturbation did


class _Judge:
    """What the outputs of a moved model say, one number per measure."""

    def __init__(
        self,
        model: nn.Module,
        before: Outputs,
        scorer: Scorer | None,
        measures: Sequence[Measure],
        over_outputs: str,
        threshold: float,
    ) -> None:
        if over_outputs not in ("mean", "sum"):
            raise InputError(f"over_outputs={over_outputs!r} is not one of mean, sum")
        self._before = in_float64(before)
        self._scorer, self._measures = scorer, measures
        self.loss = None if scorer is None else float(scorer(before))
        if self.loss is not None and not math.isfinite(self.loss):
            raise InputError("the loss of the model is NaN or infinite: check the targets and the loss")
        self.outputs = max(1, self._before[0].numel())
        self._factor = self.outputs if over_outputs == "sum" else 1
        # Of our transformers with one output per position, every position answers for itself.
        single = isinstance(model, Transformer) and model.config.outputs == 1
        self._classes = before.ndim > 1 and before.shape[-1] > 1 and not single
        self._threshold = threshold
        self._answers = self._answered(before)

    def __call__(self, outputs: Outputs) -> list[float]:
        """The value of each measure."""
        return [self._one(measure, outputs) for measure in self._measures]

    def _one(self, measure: Measure, outputs: Outputs) -> float:
        if measure == "loss":
            assert self._scorer is not None
            return float(self._scorer(outputs)) - (self.loss or 0.0)
        if measure == "ShPred":
            if not bool(outputs.isfinite().all()):
                return math.nan
            return float(in_float64(self._answered(outputs) != self._answers).mean())
        change = in_float64(outputs) - self._before
        mean = change.square().mean() if measure == "prediction" else change.abs().mean()
        return float(mean) * self._factor

    def _answered(self, outputs: Outputs) -> Tensor:
        return outputs.argmax(dim=-1) if self._classes else outputs > self._threshold


def _estimate(
    measure: Measure, draws: Float64[np.ndarray, " draw"], confidence: float, interval: Interval, seed: int
) -> Estimate:
    """The mean with its interval; what cannot be negative has no negative end."""
    if measure == "ShPred":
        return mean_from_samples(draws, 0.0, 1.0, confidence)
    samples = draws.tolist()
    found = student_mean(samples, confidence) if interval == "student" else bootstrap_mean(samples, confidence, seed)
    low = found.low if measure == "loss" else min(max(found.low, 0.0), found.value)
    return Estimate(found.value, low, found.high, confidence, found.samples)


def _checked_measures(measures: Sequence[Measure]) -> list[Measure]:
    wanted = list(dict.fromkeys(measures))
    for measure in wanted:
        if measure not in MEASURES:
            raise InputError(f"measure={measure!r} is not one of {', '.join(MEASURES)}")
    if not wanted:
        raise InputError(f"measures is empty: give some of {', '.join(MEASURES)}")
    return wanted
