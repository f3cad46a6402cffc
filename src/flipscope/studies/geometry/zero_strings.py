"""How many strings of sensitivity 0, or of low sensitivity, random transformers have, against the length (Thm 4.5).

Up to 16 bits all strings are counted, beyond that a random sample; counts are compared with the theorem's threshold.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

import numpy as np

import flipscope.lab as lab
from flipscope.basics.errors import InputError
from flipscope.basics.seeds import generators, random_strings, seed_of
from flipscope.bounds.geometry import Threshold
from flipscope.models.config import TransformerConfig
from flipscope.models.presets import encoder, recognizer
from flipscope.studies.geometry.shared import flip_work, how_measured

Preset = Literal["recognizer", "encoder"]
PRESETS: tuple[Preset, ...] = get_args(Preset)
# (D-1)/2L - 5 is 2.75 for the first shape, negative for the second; the third has eps > 0, and the last is the model
# of App. F, to which the theorem does not apply literally.
SHAPES: tuple[tuple[Preset, int, int, float], ...] = (
    ("recognizer", 32, 2, 0.0),
    ("recognizer", 16, 2, 0.0),
    ("recognizer", 32, 2, 1.0),
    ("encoder", 32, 2, 1e-5),
)
NAMES = {shape: "{} D={} L={} eps={:g}".format(*shape) for shape in SHAPES}
MAX_EXACT = 16  # bits up to which all strings are evaluated
BESIDES = 2e10  # overhead in multiply-adds: the half second in which a model is built and its precision checked
PARTS = (0.25, 0.5, 0.75, 1.0)  # k as part of N, for strings of sensitivity at most N - k in Thm 4.5
KEPT = 0.5  # least part of the share at the first sampled length that must remain at the longest
FEWEST_LENGTHS = 4  # fewest lengths for a fit of growth, at which the model is not constant


@dataclass(frozen=True)
class Network(lab.Trial):
    """A random transformer, parameters uniform in [-1, 1], on strings of one length.

    A seed stands for the same model at every length, and for unrelated models of different shapes.
    """

    preset: Preset
    width: int
    layers: int
    eps: float
    seed: int
    length: int
    strings: int  # sampled beyond MAX_EXACT bits

    def check(self) -> None:
        if min(self.width, self.layers, self.length, self.strings) < 1 or self.seed < 0:
            raise InputError(f"{self} needs a width, layers, a length, strings, and a seed from 0 on")

    @property
    def config(self) -> TransformerConfig:
        """The model's configuration, with one head."""
        return (recognizer if self.preset == "recognizer" else encoder)(self.width, self.layers, 1, eps=self.eps)

    @property
    def model_seed(self) -> int:
        """The seed of the weights, and together with the length that of the strings."""
        return seed_of(PRESETS.index(self.preset), self.width, self.layers, round(self.eps * 1e9), self.seed)

    @property
    def exact(self) -> bool:
        """Whether all strings are evaluated."""
        return self.length <= MAX_EXACT

    @property
    def asked(self) -> int:
        """The number of strings whose sensitivity is measured."""
        return 1 << self.length if self.exact else self.strings

    @property
    def cost(self) -> float:
        """Multiply-adds with the overhead of a trial; for sampled strings every flip is evaluated as well."""
        work = flip_work(self.config, self.length)
        return BESIDES + self.asked * (work / (self.length + 1) if self.exact else work)

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        """How many strings have each sensitivity, whether the model is constant, and how many signs are near ties."""
        import torch  # imported late, since PyTorch takes a while and the sizes are checked first

        from flipscope.models.transformer import Transformer
        from flipscope.probes.sensitivity import sensitivities, sensitivity_profile

        model = Transformer(self.config, scheme="uniform", seed=self.model_seed)
        if self.exact:
            exact = sensitivity_profile(model, self.length, exhaustive=True, progress=progress)
            # The cube is connected: every string has sensitivity 0 if and only if the function is constant.
            constant = exact.profile[0] == self.asked
            return {"profile": exact.profile, "constant": constant, "near_ties": exact.near_ties}
        (stream,) = generators(seed_of(self.model_seed, self.length), 1)
        strings = random_strings(stream, self.strings, self.length)
        measured = sensitivities(model, strings, progress=progress)
        with torch.no_grad():
            ones = int((model.eval()(torch.from_numpy(strings)) > 0).sum())
        profile = np.bincount(measured.counts, minlength=self.length + 1).tolist()
        constant = profile[0] == len(strings) and ones in (0, len(strings))  # as far as the sample shows
        return {"profile": profile, "constant": constant, "near_ties": measured.near_ties}


def numbers_of(trial: Network, outcome: lab.Outcome) -> lab.Row:
    """Estimates for all 2^N strings, beside Thm 4.5: logarithms, None where no such string was met."""
    n, threshold, zeros = trial.length, Threshold(trial.width, trial.layers), outcome["profile"][0]
    return {
        "shape": NAMES[trial.preset, trial.width, trial.layers, trial.eps],
        **{"asked": trial.asked, "exact": trial.exact, "exponent": threshold.exponent},
        **{"zeros": zeros, "share": zeros / trial.asked},
        "log2_zeros": n + math.log2(zeros / trial.asked) if zeros else None,
        "log2_threshold": threshold.log2_at(n),
    }


def over_threshold(row: lab.Row, part: float | None, confidence: float) -> float | None:
    """log2 of a model's number of strings of low sensitivity, at its lower end, minus log2 of the promised number.

    Low is sensitivity 0 as in Eq 36, or at most N - k, for k as `part` of N. None where possibly no such string exists.
    """
    n, k = row["length"], None if part is None else math.floor(part * row["length"])
    hits = sum(row["profile"][: 1 if k is None else n - k + 1])
    least = hits / row["asked"] if row["exact"] else lab.share(hits, row["asked"], confidence).low
    return n + math.log2(least) - Threshold(row["width"], row["layers"]).log2_at(n, k) if least else None


def at_longest(rows: lab.Rows) -> lab.Rows:
    """Each model at the longest length; `kept` is its share minus KEPT times that at the first sampled length."""
    sampled = rows.where(exact=False)
    if len(lengths := sampled.values("length")) < 2:
        return lab.Rows()
    pairs = lab.matched(sampled.where(length=lengths[0]), sampled.where(length=lengths[-1]), "seed")
    return lab.Rows({**last, "kept": last["share"] - KEPT * first["share"]} for first, last in pairs)


def as_many_as_promised(*parts: float | None, almost: float) -> lab.Judge:
    """A judge of whether almost all of the theorem's models have as many strings as promised, at their lower ends."""

    def one(part: float | None, rows: lab.Rows, confidence: float) -> lab.Judgement:
        def enough(row: lab.Row) -> bool:
            over = over_threshold(row, part, lab.confidence())
            return over is not None and over >= 0

        low = "0" if part is None else f"at most N - {part:g} N"
        have = lab.share_where(enough, lab.at_least, almost, "share of models")
        return have(f"so many strings of sensitivity {low}, N = {rows[0]['length']}", rows, confidence)

    def judge(table: lab.Rows) -> lab.Judgement:
        last = at_longest(table.where(lambda row: row["exponent"] > 0, preset="recognizer", eps=0))
        missing = "no model of the theorem was sampled at two lengths"
        return lab.for_each([(part, last) for part in parts], one, missing=missing, sort=True, what="k")

    return judge


def shapes_at_longest(table: lab.Rows) -> list[tuple[str, lab.Rows]]:
    """The models of `at_longest` by shape, each group named by shape and length."""
    by_shape = [(shape, at_longest(rows)) for shape, rows in table.each("shape", NAMES.values())]
    return [(f"{shape}, N = {rows[0]['length']}" if rows else shape, rows) for shape, rows in by_shape]


def growths(table: lab.Rows) -> list[tuple[bool, float]]:
    """Whether an exponential of N fits the number of strings of sensitivity 0 better than a power does, and its rate.

    Each model is fitted over the lengths at which all strings were counted and it is not constant, if there are at
    least four: a constant has 2^N such strings, which says nothing about their growth.
    """
    fits = []
    for _, rows in table.where(exact=True, constant=False).by("shape", "seed"):
        if len(rows) >= FEWEST_LENGTHS:
            rows.sort(key=lambda row: int(row["length"]))
            fits.append(lab.growth(rows.column("length"), rows.column("log2_zeros")))
    return fits


LENGTHS = (4, 6, 8, 10, 12, 14, 16, 24, 40, 64, 100)
FIRST_SEED = 1000  # models from 0 on were used to choose the criterion for growth
FLOOR, ALMOST, FEWEST = 0.1, 0.8, 10  # a share that has not vanished; "almost every" model; models that vary, per shape
SHARE = lab.mean_of("share", lab.at_least, FLOOR, "mean share")
CHANGE = lab.mean_of("kept", lab.at_least, 0.0, f"mean share less {KEPT:g} of the first", within=(-KEPT, 1))


def _judge_shares(table: lab.Rows) -> lab.Judgement:
    def one(shape: str, rows: lab.Rows, confidence: float) -> lab.Judgement:
        return lab.all_of(lab.weakest_first([judge(shape, rows, confidence) for judge in (SHARE, CHANGE)]))

    missing = "no model at two lengths beyond N = 16"
    return lab.for_each(shapes_at_longest(table), one, missing=missing, intervals=2, sort=True, what="shapes")


def _judge_varied(table: lab.Rows) -> lab.Judgement:
    def one(shape: str, rows: lab.Rows, confidence: float) -> lab.Judgement:
        judged, what = SHARE(shape, rows, confidence), f"models that vary, {shape}"
        if judged.verdict == "contradicted" or len(rows) >= FEWEST:
            return judged
        return judged.left_open(f"too few {what}: {len(rows)}", f"at least {FEWEST} {what}")

    varied = [(shape, rows.where(constant=False)) for shape, rows in shapes_at_longest(table)]
    return lab.for_each(varied, one, missing="no model that varies", sort=True, what="shapes")


def _judge_growth(table: lab.Rows) -> lab.Judgement:
    name = "share of models whose K_0 an exponential of N fits better than a power"
    missing = "no model varies at four lengths at which all strings were counted"
    return lab.mostly([fits for fits, _ in growths(table)], 0.5, name, missing=missing)


def _shapes(table: lab.Rows) -> list[tuple[int, tuple[str, lab.Rows]]]:
    """The shapes that were measured, each with the number of its colour."""
    return [(colour, group) for colour, group in enumerate(table.each("shape", NAMES.values())) if group[1]]


def growth_text(table: lab.Rows) -> list[str]:
    """The rates at which the number of strings of sensitivity 0 grows, as text."""
    if not (rates := [rate for _, rate in growths(table)]):
        return []
    low, middle, high = np.quantile(rates, (0.25, 0.5, 0.75))
    return [f"b of K_0 = 2^(bN) in {len(rates)} models that vary: {middle:.3g}, quartiles {low:.3g} and {high:.3g}"]


def figure_by_length(table: lab.Rows) -> lab.Figure:
    """Share and number of strings of sensitivity 0 against N, and strings of low sensitivity at the longest N."""
    caption = (
        "Left: mean share over models with its interval (dashed: of models that are not constant at that length). "
        "Right: log2 of their number, median over models that have any, beside the theorem's threshold and all 2^N "
        "(both dashed). Below: mean share of the strings whose sensitivity is at most N - k, at the longest N."
    )
    title = "Strings of sensitivity 0 and of low sensitivity in random transformers"
    panels = _share_panel(table), _number_panel(table), _low_panel(table)
    return lab.Figure("zero-strings-by-length", title, caption, panels, where="Thm 4.5")


def _share_panel(table: lab.Rows) -> lab.Panel:
    """The mean share of strings of sensitivity 0 against N, for all models and for those that are not constant."""
    series = []
    for colour, (shape, rows) in _shapes(table):
        varied, name = rows.where(constant=False), f"{shape}, not constant"
        series.append(lab.means(rows, "length", "share", shape, colour=colour))
        series.append(lab.line(varied, "length", "share", name, "mean", band=False, dashed=True, colour=colour))
    return lab.Panel("Share", "N", "share of strings", series, x_log=True, y_range=(0, 1))


def _number_panel(table: lab.Rows) -> lab.Panel:
    """The median number of such strings over the models with any, beside the theorem's threshold and all strings."""
    series = []
    for colour, (shape, rows) in _shapes(table):
        line = partial(lab.line, x="length", band=False, colour=colour)
        series.append(line(rows.having("log2_zeros"), y="log2_zeros", label=shape, centre="median", kind="points"))
        if rows[0]["exponent"] > 0 and rows[0]["eps"] == 0:
            series.append(line(rows, y="log2_threshold", label=f"threshold, {shape}", centre="mean", dashed=True))
    every = table.values("length")
    series.append(lab.Series("all strings", every, every, dashed=True))
    return lab.Panel("Number", "N", "log2 of the number", series)


def _low_panel(table: lab.Rows) -> lab.Panel:
    """The mean share of strings of sensitivity at most N - k, by k, at the longest length."""
    length = table.values("length")[-1]
    series = []
    for colour, (shape, rows) in _shapes(table.where(length=length)):
        for kind, models in (("", rows), (", not constant", rows.where(constant=False))):
            shares = [np.cumsum(row["profile"])[::-1] / row["asked"] for row in models]  # k = 0, 1, ..., N
            y = np.mean(shares, axis=0).tolist() if shares else []
            series.append(lab.Series(shape + kind, list(range(len(y))), y, dashed=bool(kind), colour=colour))
    return lab.Panel(f"Low sensitivity, N = {length}", "k", "share with s(x) ≤ N - k", series, y_range=(0, 1))


class ZeroStrings(lab.Study):
    """Whether random transformers have strings that no flip moves, and how many."""

    name, paper = "zero-strings", "000"
    title = "The number of sensitivity-0 strings of random transformers, by N"
    scales = lab.scales(
        "{models} transformers of each of 4 shapes, N in {lengths}, {strings} strings beyond N = 16",
        common={"first_seed": FIRST_SEED},
        smoke=(0.1, {"models": 3, "lengths": (4, 8, 24), "strings": 20}),
        demo=(0.7, {"models": 30, "lengths": (6, 8, 10, 12, 24, 64), "strings": 30}),
        # Enough models that a share of 0 in all of them contradicts the claim.
        laptop=(8, {"models": 64, "lengths": LENGTHS, "strings": 100}),
        paper=(4_500, {"models": 500, "lengths": (*LENGTHS, 150, 250, 400), "strings": 1_000}),
    )
    deviations = lab.deviations(
        ("experiment", "a theorem, nothing measured", "counted, all strings up to N = 16", "§ 7 appeals to counts"),
        ("beyond N = 16", "all strings", "a random sample", "there are 2^N"),
        ("lengths", "all large N", "up to 100; demo 64, paper 400", "the paper does not say how large"),
        ("models, strings (up to laptop)", "not stated", "fewer than at scale paper", "to take minutes"),
        ("shapes", "(D-1)/2L > 5", "that, a narrower one, eps > 0, App. F's", "cases outside the theorem"),
        ("K_0 against N", "exponential, from N = 100 alone", "fitted over all N up to 16", "§ 6 has one length"),
    )
    claims = (
        lab.Claim(
            "random transformers: the share of strings of sensitivity 0 does not vanish",
            "Thm 4.5, §6",
            "random transformers have strings of sensitivity 0 at every large N",
            f"mean share at the longest N: {FLOOR} or more, and {KEPT:g} of that at the first sampled N, in each shape",
            _judge_shares,
        ),
        lab.Claim(
            "random transformers: more strings of sensitivity 0 than the threshold",
            "Thm 4.5",
            "almost every transformer has at least N^((D-1)/2L - 5) strings of sensitivity 0 once N is large",
            f"share of models that have so many at the longest N: at least {ALMOST}",
            as_many_as_promised(None, almost=ALMOST),
            asymptotic=True,
        ),
        lab.Claim(
            "random transformers: more strings of low sensitivity than the threshold",
            "Thm 4.5",
            "almost every transformer has at least N^((D-1)/2L - 4)/(k+1) strings of sensitivity at most N - k",
            f"share of models that have so many at the longest N: at least {ALMOST} for k = N/4, N/2, 3N/4 and N (a "
            "random function has as many unless k is near N)",
            as_many_as_promised(*PARTS, almost=ALMOST),
            asymptotic=True,
        ),
        lab.Claim(
            "models that are not constant: the share does not vanish",
            "§6",
            "left open: whether this is due to models that always give the same answer",
            f"mean share at the longest N over the models that are not constant there: at least {FLOOR} in every "
            f"shape, with at least {FEWEST} such models",
            _judge_varied,
            exploratory=True,
        ),
        lab.Claim(
            "the number of strings of sensitivity 0 grows exponentially",
            "§7",
            "the experiments suggest exponential growth of K_0; a polynomial lower bound is proved",
            "straight lines for log K_0 against N and log N, by AIC, over the N at which all strings are counted and "
            "the model varies, four or more; share of such models for which N fits better: more than 0.5",
            _judge_growth,
            exploratory=True,
        ),
    )

    def trials(self, scale: str) -> list[Network]:
        plan = self.scales[scale].settings
        seeds = range(plan["first_seed"], plan["first_seed"] + plan["models"])
        chosen = itertools.product(SHAPES, seeds, plan["lengths"])
        return [Network(*shape, seed, length, plan["strings"]) for shape, seed, length in chosen]

    def row(self, trial: Network, outcome: lab.Outcome) -> lab.Row:
        return {**super().row(trial, outcome), **numbers_of(trial, outcome)}

    def provenance(self, table: lab.Rows) -> list[str]:
        return [*how_measured(table), *growth_text(table)]

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        return [figure_by_length(table)]


STUDY = ZeroStrings()
