"""How many functions random recognisers with eps > 0 recognise, and how often more than constants (Eq 25, Cor 3.4).

Draws do not count |F_N|, only the functions that they meet, which are compared between lengths at equal numbers of
draws. A margin that must be kept on 2^N strings makes recognisers rare as N grows, whatever eps is. So the same weights
are evaluated with eps = 0 as well, where the corollary does not apply: the effect of eps > 0 is the ratio of the two.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import flipscope.lab as lab
from flipscope.cube.few_bits import full_table
from flipscope.studies.geometry.recogniser_draws import FEWEST, MARGIN, SYMBOLS, Draws, how_drawn

RAREFIED = 1_000  # draws among which functions are counted, so that samples of any size compare
LENGTHS = (2, 3, 4, 5, 6)  # lengths at which all strings fit into one table
# Symbols from 0 on were used to choose the present criteria, so they may not be used to judge by them.
FIRST_SYMBOLS = 2000


@dataclass(frozen=True)
class Count(Draws):
    """Recognisers whose functions are counted."""

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        functions = self.functions(progress)
        return {name: getattr(functions, name) for name in ("tables", "recognised", "near_ties", "asked_again")}


def rarefied(counts: NDArray[np.int64], draws: int) -> float | None:
    """The mean number of functions among RAREFIED of the draws: one with k draws is missed with about (1 - share)^k."""
    return None if draws < RAREFIED else float((1 - (1 - RAREFIED / draws) ** counts).sum())


def _falling(column: str, quantity: str, table: lab.Rows) -> lab.Judgement:
    """Whether a column falls faster with N at the largest eps than at eps = 0, with the same symbols and weights."""
    rows, positive = lab.Rows(), max(table.column("eps"))
    for (length, symbols), pair in table.having(column).by("length", "symbols"):
        ours, theirs = (pair.where(eps=eps).column(column) for eps in (positive, 0.0))
        if positive and ours and theirs:
            rows.append({"length": length, "symbols": symbols, "log": math.log(ours[0] / theirs[0])})
    judge = partial(lab.mean_slope, fewest=FEWEST, per="symbols", unit=SYMBOLS)
    name = f"slope against N of log({quantity}, eps = {positive:g} over eps = 0)"
    return judge(rows, "length", "log", lab.at_most, 0.0, name)


class FunctionCount(lab.Study):
    """Whether the functions that recognisers with eps > 0 recognise grow fewer with the length."""

    name, paper = "function-count", "000"
    title = "Functions that random recognisers with eps > 0 recognise, by N"
    sample_sizes = ("symbols",)
    scales = lab.scales(
        "width 8, 2 layers, eps = 1 and 0, {symbols} drawings of the symbols, each {draws:,} draws at N in {lengths}",
        common={"first_seed": FIRST_SYMBOLS},
        smoke=(0.1, {"symbols": 2, "draws": 1_000, "lengths": LENGTHS[:3]}),
        demo=(0.4, {"symbols": 10, "draws": 10_000, "lengths": LENGTHS}),
        laptop=(3, {"symbols": 16, "draws": 50_000, "lengths": LENGTHS}),
        paper=(360, {"symbols": 100, "draws": 10**6, "lengths": LENGTHS}),
    )
    deviations = lab.deviations(
        ("experiment", "a limit, nothing measured", "counted draws of theta", "the paper has no data behind it"),
        ("lengths", "sufficiently large", "2 to 6", "every function is met or not only where all can be tabulated"),
        ("lengths (smoke)", "sufficiently large", "2 to 4", "to take seconds"),
        ("draws, symbols (up to laptop)", "no data", "fewer than at scale paper", "to take minutes"),
        ("|F_N|", "all functions of some theta", f"those met by {RAREFIED:,} draws", "a lower bound of it"),
        ("Theta", "a compact set", "the cube [-1, 1]^M", "not stated"),
        (
            "symbols, positions",
            "fixed",
            "symbols uniform in [-1, 1], drawn several times; sinusoidal positions",
            "not stated",
        ),
        ("recognition", "margin xi", f"xi = {MARGIN:g}", "xi is not given"),
        ("eps > 0", "small", "1", "at six bits a small eps has no visible effect"),
        ("compared with", "nothing", "the same weights at eps = 0", "a margin on all 2^N strings is rare at any eps"),
    )
    claims = (
        lab.Claim(
            "eps > 0: functions grow fewer faster than at eps = 0",
            "Eq 25",
            "|F_N| tends to 2 as N grows; left open: whether this shows at lengths small enough to tabulate",
            f"mean slope against N of the logarithm of the number of functions that {RAREFIED:,} draws recognise, less "
            "that of the same weights at eps = 0: at most 0",
            partial(_falling, "rarefied", f"functions among {RAREFIED:,} draws"),
            exploratory=True,
        ),
        lab.Claim(
            "eps > 0: recognisers of more than constants grow rarer faster than at eps = 0",
            "Cor 3.4",
            "a recogniser with eps > 0 is constant for all large N; left open: whether this shows at such lengths",
            "mean slope against N of the logarithm of the share of draws that recognise such a function, less that of "
            "the same weights at eps = 0: at most 0",
            partial(_falling, "more", "draws that recognise more than constants"),
            exploratory=True,
        ),
    )

    def trials(self, scale: str) -> list[Count]:
        plan = self.scales[scale].settings
        chosen = itertools.product(plan["lengths"], (1.0, 0.0), range(plan["symbols"]))
        return [Count(length, eps, plan["first_seed"] + number, plan["draws"]) for length, eps, number in chosen]

    def row(self, trial: Count, outcome: lab.Outcome) -> lab.Row:
        tables, recognised = outcome["tables"], outcome["recognised"]
        constant = (tables == 0) | (tables == full_table(trial.length))
        return {
            **trial.content(),
            "share_more": int(recognised[~constant].sum()) / trial.draws,
            "more": int(recognised[~constant].sum()) + 0.5,  # plus a half, so that 0 has a logarithm
            "recognised_functions": int((recognised > 0).sum()),
            "rarefied": rarefied(recognised, trial.draws),
            **{name: outcome[name] for name in ("near_ties", "asked_again")},
        }

    def provenance(self, table: lab.Rows) -> list[str]:
        return how_drawn(table)

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        lengths = table.values("length")
        rows, names = lab.Rows({**row, "place": lengths.index(row["length"])} for row in table), list(map(str, lengths))
        every = [min(2.0 ** (1 << length), float(RAREFIED)) for length in lengths]
        top = 1.1 * max(table.column("share_more")) or 1.0
        look: Any = {"by": "eps", "labels": "eps = {:g}", "order": (1.0, 0.0), "x_label": "N", "categories": names}
        panels = [
            lab.chart(
                rows,
                "place",
                "rarefied",
                extra=[lab.Series("all, or all draws", list(range(len(names))), every, dashed=True, colour=2)],
                title=f"among {RAREFIED:,} draws",
                y_label="functions recognised",
                y_log=True,
                **look,
            ),
            lab.chart(
                rows, "place", "share_more", title="not constant", y_label="share of draws", y_range=(0, top), **look
            ),
        ]
        total = np.mean(table.column("recognised_functions"))
        caption = (
            f"With margin, mean and range over drawings of the symbols. A sample met {total:,.0f} functions on "
            "average: |F_N| is at least what was met."
        )
        return [lab.Figure("function-count", self.title, caption, panels, where="Eq 25, Cor 3.4")]


STUDY = FunctionCount()
