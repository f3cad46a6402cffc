"""The measurement `token_sensitivity` of a training: sensitivity at chosen training accuracies.

Models learn at different speeds, so that their sensitivities are comparable at equal training accuracy, not at equal
steps. The accuracy on some training inputs is measured every time, which is cheap, and the sensitivity on the same
inputs only before the first step and when a level of accuracy is reached for the first time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Int64
from torch import Tensor, nn

from flipscope.adapters.disturbing import patches
from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError
from flipscope.basics.estimates import Estimate
from flipscope.data.batches import Examples, Labelled
from flipscope.probes.tokens import token_sensitivity
from flipscope.training.fit import answered
from flipscope.training.named import Around
from flipscope.training.targets import Aim

_STREAM = 0x746F6B73  # separates the choice of inputs from others made with the same seeds
START = 0.0  # the level of an untrained model
HALF = " half-width"  # ends the names of half-widths in a log


@dataclass(frozen=True, eq=False)
class Disturbances:
    """What is done to the tokens of inputs: each of these is measured.

    variances        of Gaussian noise on one random token of each input
    whole_variances  of Gaussian noise on all tokens of an input at once
    places           names of modules whose outputs get the noise; "" is the input itself
    replace          whether a random token is also replaced: by one of the vocabulary, or of another input
    patch            pixels at a side of a patch, where tokens are patches of images
    normalise        whether noise is multiplied by the root mean square of its token, for models without a norm there
    """

    variances: tuple[float, ...] = ()
    whole_variances: tuple[float, ...] = ()
    places: tuple[str, ...] = ("",)
    replace: bool = False
    patch: int | None = None
    normalise: bool = False

    def measured(self, model: Any, inputs: Any, *, seed: int, **options: Any) -> dict[str, Estimate]:
        """The share of changed answers under each disturbance, by its name; `options` are of `token_sensitivity`.

        One random token of each input is disturbed once, which for a given number of forward passes gives the
        narrowest interval; `tokens` and `draws` change that. Equal seeds give equal tokens and noise.
        """
        mask: dict[str, Any] = {} if self.patch is None else {"feature_mask": patches(self.patch)}
        common: dict[str, Any] = {"tokens": 1, "draws": 1, "seed": seed, **mask, **options}
        noise: dict[str, Any] = {"normalise": self.normalise, **common}
        found: dict[str, Estimate] = {}
        for place in self.places:
            at: dict[str, Any] = {"at": place} if place else {}
            wholes = list(self.whole_variances)
            for variance in self.variances:
                whole = wholes.pop(0) if wholes else 0.0
                result = token_sensitivity(model, inputs, variance=variance, whole_variance=whole, **at, **noise)
                found[disturbance_name("noise", variance, place)] = result.definition
                if result.whole is not None:
                    found[disturbance_name("whole", whole, place)] = result.whole
            for whole in wholes:  # more than there are variances of single tokens
                result = token_sensitivity(model, inputs, variance=whole, whole_variance=whole, **at, **noise)
                assert result.whole is not None
                found[disturbance_name("whole", whole, place)] = result.whole
        if self.replace:
            result = token_sensitivity(model, inputs, how="replace", **common)
            found[disturbance_name("replace", None, "")] = result.definition
        return found


def disturbance_name(kind: str, variance: float | None, place: str) -> str:
    """The name of a disturbance in a log.

    >>> disturbance_name("noise", 15.0, "embed"), disturbance_name("whole", 0.025, ""), disturbance_name("replace", None, "")
    ('noise 15 @embed', 'whole 0.025', 'replace')
    """  # noqa: E501 - one example
    return kind + ("" if variance is None else f" {variance:g}") + (f" @{place}" if place else "")


def disturbance(name: str) -> tuple[str, float | None, str]:
    """Kind, variance and place of a disturbance from its name.

    >>> disturbance("noise 15 @embed"), disturbance("replace")
    (('noise', 15.0, 'embed'), ('replace', None, ''))
    """
    what, _, place = name.partition(" @")
    kind, _, variance = what.partition(" ")
    return kind, float(variance) if variance else None, place


@dataclass(frozen=True, eq=False)
class AtLevels:
    """Loss and accuracy on training examples; at a new level of accuracy also their sensitivity, with half-widths.

    After the last level nothing more is measured.
    """

    reads_log: ClassVar[bool] = True
    examples: tuple[Tensor, Tensor]
    aim: Aim
    levels: tuple[float, ...]
    disturbances: Disturbances
    seed: int
    tokens: Literal["all"] | int = 1
    draws: int = 1

    def __call__(self, model: nn.Module, before: Sequence[Mapping[str, float]]) -> dict[str, float]:
        """Measure; `before` are the earlier results of the same training."""
        reached = max((entry["level"] for entry in before if "level" in entry), default=-1.0)
        if reached == max(self.levels, default=None):
            return {}
        loss, accuracy = answered(model, [self.examples], self.aim)
        found = {"loss": loss, "accuracy": accuracy}
        passed = [level for level in (START, *self.levels) if reached < level <= accuracy]
        if not before:
            passed = [START]
        if passed:
            found["level"] = passed[-1]
            options: dict[str, Any] = {"seed": self.seed, "tokens": self.tokens, "draws": self.draws}
            for name, estimate in self.disturbances.measured(model, self.examples[0], **options).items():
                found |= {name: estimate.value, name + HALF: estimate.half_width}
        return found


def at_levels(
    around: Around,
    levels: str,
    variances: str = "1",
    whole_variances: str = "",
    places: str = "",
    replace: bool = False,
    patch: int | None = None,
    inputs: int = 1_000,
    tokens: int | None = 1,
    draws: int = 1,
    seed: int = 0,
    normalise: bool = False,
) -> AtLevels:
    """Token sensitivity when the training accuracy reaches one of the `levels` for the first time.

    Lists are texts with commas, such as levels="0.5,0.8", since a recipe holds plain values. `inputs` training inputs
    are chosen by the seed, which also sets the noise: models that are compared should have the same one. Of each input
    `tokens` random tokens (None: all) are disturbed, each in so many `draws`.
    """
    if around.training is None:
        raise InputError("token_sensitivity needs a fixed training set, such as images or texts")
    examples, _ = chosen_examples(around.training(), inputs, seed)
    wanted = _numbers("levels", levels)
    if list(wanted) != sorted(set(wanted)) or not all(0 < level <= 1 for level in wanted):
        raise InputError(f"levels={levels!r} must be accuracies above 0 and at most 1, in increasing order")
    done = Disturbances(
        _numbers("variances", variances),
        _numbers("whole_variances", whole_variances),
        tuple(part.strip() for part in places.split(",")),
        replace,
        patch,
        normalise,
    )
    labelled = examples.bits, around.aim.targets(examples.labels, "training")
    return AtLevels(labelled, around.aim, wanted, done, seed, "all" if tokens is None else tokens, draws)


def chosen_examples(examples: Labelled, inputs: int, seed: int) -> tuple[Examples, Int64[np.ndarray, " row"]]:
    """So many of these examples, or all where there are fewer, chosen by the seed, and their row numbers."""
    count, stream = len(examples.bits), np.random.default_rng([check_count("seed", seed, 0), _STREAM])
    rows = np.sort(stream.permutation(count)[: check_count("inputs", inputs)])
    return Examples(examples.bits[rows], examples.labels[rows]), rows


def _numbers(name: str, text: str) -> tuple[float, ...]:
    """The numbers of a text with commas."""
    try:
        return tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise InputError(f"{name}={text!r} must be numbers with commas between them") from error


def listed(values: Iterable[object]) -> str:
    """A list as a setting of a recipe.

    >>> listed((0.5, 0.8))
    '0.5,0.8'
    """
    return ",".join(f"{value:g}" if isinstance(value, float) else str(value) for value in values)
