"""All numbers that describe one Boolean function, exact where possible, otherwise estimated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.errors import InputError
from flipscope.basics.estimates import Estimate
from flipscope.basics.progress import Progress
from flipscope.cube import sensitivity, spectrum
from flipscope.cube.compose import NotExact
from flipscope.cube.estimate import estimate_function
from flipscope.cube.expression import parse
from flipscope.cube.functions import BooleanFunction
from flipscope.cube.notation import notation
from flipscope.figures import Figure, Panel
from flipscope.figures.panels import Number, influences_panel, profile_panel, series_of, weights_panel
from flipscope.figures.results import Result

RHOS = (0.5, 0.8, 0.9, 0.95, 0.99)
MAX_TITLE = 120  # characters that fit above a strip
CAPTION = "Strings by sensitivity, Fourier weight by degree, influences, and stability under noise."
DEFAULT_STRINGS = 2_000
DEFAULT_CELLS = 2_000_000_000  # bits in all queries of a portrait whose number of strings is not given


def default_strings(n: int) -> int:
    """How many strings to sample by default: DEFAULT_STRINGS, or at large n as many as take a few seconds."""
    return max(10, min(DEFAULT_STRINGS, DEFAULT_CELLS // (n * (n + 1))))


@dataclass(frozen=True, repr=False)
class Portrait(Result):
    """Numbers of one function: each exact (int or float) or an ``Estimate``, None where not computed."""

    name: str
    n: int
    exact: bool
    relevant: int  # number of positions it may depend on
    profile: Sequence[int | Estimate]  # counts K_0..K_n, or estimated shares of the 2^n strings
    average_sensitivity: float | Estimate
    max_sensitivity: int | Estimate
    min_sensitivity: int | Estimate
    influences: Sequence[float | Estimate]
    ones_share: float | Estimate
    degree: int | None
    sparsity: int | None
    weight_by_degree: Sequence[float] | None
    noise_stability: dict[float, float | Estimate] | None
    notes: tuple[str, ...] = field(default=())

    @property
    def title(self) -> str:
        """The name, cut where it is too long to stand above a picture."""
        return self.name if len(self.name) <= MAX_TITLE else self.name[: MAX_TITLE - 1] + "…"

    def summary(self) -> dict[str, object]:
        """The main numbers by label."""
        found: dict[str, object] = {
            "function": self.name,
            "bits": f"{self.n:,}, {self.relevant:,} relevant" + ("" if self.exact else "; sampled"),
            "average sensitivity": self.average_sensitivity,
            "share of ones": self.ones_share,
        }
        known = {"degree": self.degree, "sparsity": self.sparsity}
        return found | {name: value for name, value in known.items() if value is not None}

    def plot(self) -> Figure:
        """Profile, weight by degree, influences and noise stability, side by side."""
        return Figure("function", self.title, CAPTION, self.panels(), columns=4)

    def panels(self) -> list[Panel]:
        """The same as panels, for a figure of several functions."""
        missing = "no exact spectrum" if self.exact else "not estimated"
        weights = Panel(missing, "degree |S|", "Fourier weight", [])
        if self.weight_by_degree is not None:
            weights = weights_panel(self.n, dict(enumerate(self.weight_by_degree)))
        profile = profile_panel(self.n, self.profile, self.average_sensitivity, self.title)
        return [profile, weights, influences_panel(self.influences), self._stability()]

    def _stability(self) -> Panel:
        x, y = "correlation ρ", "noise stability"
        if self.weight_by_degree is not None:
            rhos = [i / 100 for i in range(101)]
            curve: dict[float, Number] = {
                rho: sum(w * rho**d for d, w in enumerate(self.weight_by_degree) if w) for rho in rhos
            }
            series = series_of(rhos, curve, "line")
        elif self.noise_stability:
            series = series_of(list(self.noise_stability), dict(self.noise_stability), "points")
        else:
            return Panel("no exact spectrum", x, y, [])
        values = [value for value in (*series.y, *(series.low or ())) if value is not None]
        return Panel("", x, y, [series], x_range=(0, 1.02), y_range=(min(-0.05, *values), 1.05))

    def as_json(self) -> dict[str, Any]:
        """The JSON document of ``flipscope function``: exact integers, and estimates with their intervals."""
        return {
            "function": self.name,
            "n": self.n,
            "exact": self.exact,
            "profile": [k.as_count_json(self.n) if isinstance(k, Estimate) else k for k in self.profile],
            "average_sensitivity": _plain(self.average_sensitivity),
            "max_sensitivity": _plain(self.max_sensitivity),
            "min_sensitivity": _plain(self.min_sensitivity),
            "influences": [_plain(x) for x in self.influences],
            "degree": self.degree,
            "sparsity": self.sparsity,
            "weight_by_degree": None if self.weight_by_degree is None else list(self.weight_by_degree),
            "noise_stability": None
            if self.noise_stability is None
            else {str(rho): _plain(value) for rho, value in self.noise_stability.items()},
            "ones_share": _plain(self.ones_share),
            "notes": list(self.notes),
        }


def _plain(value: float | Estimate) -> Any:
    return value.as_json() if isinstance(value, Estimate) else value


def _check_rhos(rhos: Sequence[float]) -> None:
    for rho in rhos:  # checked here, since a function without a spectrum never uses them
        if not -1 <= rho <= 1:
            raise InputError(f"a correlation is between -1 and 1; rho = {rho} is not.")


@checked_arguments
def exact_portrait(
    f: BooleanFunction, name: str, rhos: Sequence[float] = RHOS, progress: Progress | None = None
) -> Portrait:
    """The portrait by exact methods, or NotExact where the sensitivity has none.

    A spectrum that is out of reach leaves its entries empty and a note, since the profile reaches further.
    """
    _check_rhos(rhos)
    known = sensitivity.facts(f, progress)
    notes: list[str] = []
    scale = 1 << known.bits
    counts = [known.influences.get(position, 0) for position in range(f.n)]
    weights: Sequence[float] | None = None
    degree = sparsity = None
    stability: dict[float, float | Estimate] | None = None
    try:
        weights = spectrum.weight_floats(f)
        degree, sparsity = spectrum.degree(f), spectrum.sparsity(f)
        stability = {float(rho): spectrum.noise_stability(f, rho) for rho in rhos}
    except NotExact as error:
        notes.append(f"No spectrum: {error}")
    return Portrait(
        name=name,
        n=f.n,
        exact=True,
        relevant=len(f.support),
        profile=sensitivity.profile(f),
        average_sensitivity=sum(counts) / scale,
        max_sensitivity=sensitivity.max_sensitivity(f),
        min_sensitivity=sensitivity.min_sensitivity(f),
        influences=[count / scale for count in counts],
        ones_share=known.total(1) / scale,
        degree=degree,
        sparsity=sparsity,
        weight_by_degree=weights,
        noise_stability=stability,
        notes=tuple(notes),
    )


@checked_arguments
def sampled_portrait(
    f: BooleanFunction,
    name: str,
    strings: int | None = None,
    *,
    seed: int = 0,
    confidence: float = 0.95,
    rhos: Sequence[float] = RHOS,
    progress: Progress | None = None,
) -> Portrait:
    """The portrait from uniformly drawn strings and all their flips, for any n."""
    strings = default_strings(f.n) if strings is None else strings
    estimates = estimate_function(f, f.n, strings, seed, confidence, progress, rhos=rhos)
    seen_max, seen_min = estimates.max_observed_sensitivity, estimates.min_observed_sensitivity
    return Portrait(
        name=name,
        n=f.n,
        exact=False,
        relevant=len(f.support),
        profile=estimates.profile,
        average_sensitivity=estimates.average_sensitivity,
        # Observed values bound the extremes from one side with certainty, and not at all from the other.
        max_sensitivity=Estimate(seen_max, seen_max, f.n, confidence, estimates.strings),
        min_sensitivity=Estimate(seen_min, 0, seen_min, confidence, estimates.strings),
        influences=estimates.influences,
        ones_share=estimates.mean,
        degree=None,
        sparsity=None,
        weight_by_degree=None,
        noise_stability=dict(estimates.noise_stability),
        notes=(
            f"Estimated from {estimates.strings:,} strings drawn with seed {seed} ({estimates.queries:,} queries); "
            f"intervals hold for this fixed number of strings with confidence {confidence:g}, those of the "
            "profile all at once and those of the influences all at once.",
            "Degree and sparsity cannot be estimated from uniform strings: use flipscope test-degree and "
            "test-sparsity.",
        ),
    )


@checked_arguments
def describe(
    function: BooleanFunction | str,
    *,
    strings: int | None = None,
    seed: int = 0,
    confidence: float = 0.95,
    rhos: Sequence[float] = RHOS,
    name: str | None = None,
    exact: bool = False,
    notice: Callable[[str], None] | None = None,
    progress: Progress | None = None,
) -> Portrait:
    """All the numbers of a function, or of an expression: exact where they can be, else estimated with intervals.

    With ``strings`` they are always estimated, from that many random strings, by ``seed`` and with ``confidence``;
    with ``exact`` they are never estimated, and InputError says why they would have to be. ``notice`` is called with a
    sentence when exact numbers are out of reach. ``rhos`` are those of the noise stability, ``name`` is what the
    portrait calls the function. The portrait has a field for each number; `as_json()` gives them all.

    >>> portrait = describe("majority(5)")
    >>> portrait.average_sensitivity, portrait.degree
    (1.875, 5)
    """
    if exact and strings is not None:
        raise InputError(f"exact=True and strings={strings} exclude each other: leave one of them out")
    f = parse(function) if isinstance(function, str) else function
    if name is None:
        name = function if isinstance(function, str) else notation(f.node)
    if strings is None:
        try:
            return exact_portrait(f, name, rhos, progress)
        except NotExact as error:
            if exact:
                raise
            strings = default_strings(f.n)
            if notice is not None:
                notice(f"{str(error).partition(';')[0]}: sampling {strings:,} strings instead.")
    return sampled_portrait(f, name, strings, seed=seed, confidence=confidence, rhos=rhos, progress=progress)
