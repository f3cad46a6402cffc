"""How many functions random recognisers with eps > 0 recognise, and how often more than constants (Eq 25, Cor 3.4).

|F_N| cannot be counted by draws, only what they meet: it is compared between lengths among as many draws of each.
"""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
from numpy.typing import NDArray

import flipscope.lab as lab
from flipscope.cube.few_bits import full_table
from flipscope.models.presets import recognizer
from flipscope.probes.prior import realised
from flipscope.studies.geometry.prior_volume import LAYERS, MARGIN, WIDTH, Volume
from flipscope.studies.geometry.volumes import FEWEST, SYMBOLS, how_drawn

RAREFIED = 1_000  # draws among which functions are counted, so that samples of any size compare
LENGTHS = (2, 3, 4, 5, 6)  # of which all strings fit into a table


def rarefied(counts: NDArray[np.int64], draws: int) -> float | None:
    """How many functions RAREFIED of the draws meet on average; each is left out with about (1 - share)^its draws."""
    return None if draws < RAREFIED else float((1 - (1 - RAREFIED / draws) ** counts).sum())


def _falling(column: str, quantity: str, table: lab.Rows) -> lab.Judgement:
    judge = partial(lab.mean_slope, fewest=FEWEST, per="symbols", unit=SYMBOLS)
    said = f"slope against N of {quantity}, eps > 0"
    return lab.asymptotic(judge(table.having(column), "length", column, lab.at_most, 0.0, said))


class FunctionCount(lab.Study):
    """Whether the functions that recognisers with eps > 0 recognise grow fewer with the length."""

    name, paper = "function-count", "000"
    title = "Functions that random recognisers with eps > 0 recognise, by N"
    scales = lab.scales(
        "width 8, 2 layers, eps = 1, {symbols} drawings of the symbols, each with {draws:,} draws at N in {lengths}",
        smoke=(0.05, {"symbols": 2, "draws": 1_000, "lengths": LENGTHS[:3]}),
        demo=(0.4, {"symbols": 10, "draws": 20_000, "lengths": LENGTHS}),
        laptop=(3, {"symbols": 16, "draws": 10**5, "lengths": LENGTHS}),
        paper=(180, {"symbols": 100, "draws": 10**6, "lengths": LENGTHS}),
    )
    deviations = lab.deviations(
        ("experiment", "silent: a limit", "counted draws of theta", "the paper has no data behind it"),
        ("lengths", "sufficiently large", "2 to 6", "every function is met or not only where all can be tabulated"),
        ("|F_N|", "all functions of some theta", f"those met by {RAREFIED:,} draws", "a lower bound of it"),
        ("Theta", "a compact set", "the cube [-1, 1]^M", "silent"),
        ("symbols, positions", "fixed", "symbols uniform in [-1, 1], drawn some times; sinusoidal", "silent"),
        ("recognition", "margin xi", f"xi = {MARGIN:g}", "xi is not given"),
        ("eps > 0", "small", "1", "at six bits a small eps is as none"),
    )
    claims = (
        lab.Claim(
            "eps > 0: ever fewer functions",
            "Eq 25",
            "|F_N| tends to 2 as N grows",
            f"mean slope against N of the number of functions that {RAREFIED:,} draws recognise, below 0",
            partial(_falling, "rarefied", f"functions among {RAREFIED:,} draws"),
            exploratory=True,
        ),
        lab.Claim(
            "eps > 0: ever fewer recognisers of functions that are not constant",
            "Cor 3.4",
            "a recogniser with eps > 0 is constant for all large N",
            "mean slope against N of the share of draws that recognise such a function, below 0",
            partial(_falling, "share_more", "share of draws that recognise more than constants"),
            exploratory=True,
        ),
    )

    def trials(self, scale: str) -> list[Volume]:
        plan = self.scales[scale].settings
        chosen = itertools.product(plan["lengths"], range(plan["symbols"]))
        return [Volume(length, 1.0, symbols, plan["draws"]) for length, symbols in chosen]

    def measure(self, trial: Volume, progress: lab.Progress) -> lab.Outcome:
        found = realised(
            recognizer(WIDTH, LAYERS, eps=trial.eps), trial.length, trial.draws,
            seed=trial.symbols, symbols=trial.symbols, margin=MARGIN, progress=progress,
        )  # fmt: skip
        return {name: getattr(found, name) for name in ("tables", "recognised", "near_ties", "asked_again")}

    def row(self, trial: Volume, outcome: lab.Outcome) -> lab.Row:
        tables, recognised = outcome["tables"], outcome["recognised"]
        constant = (tables == 0) | (tables == full_table(trial.length))
        return {
            **trial.content(),
            "share_more": int(recognised[~constant].sum()) / trial.draws,
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
        met = [
            lab.line(rows.having("rarefied"), "place", "rarefied", "functions met", "mean", colour=0),
            lab.Series("all, or all draws", list(range(len(names))), every, dashed=True, colour=1),
        ]
        more = [lab.line(rows, "place", "share_more", "not constant", "mean", colour=0)]
        panels = [
            lab.Panel(f"among {RAREFIED:,} draws", "N", "functions recognised", met, y_log=True, categories=names),
            lab.Panel("not constant", "N", "share of draws", more, y_range=(0, 1), categories=names),
        ]
        total = np.mean(table.column("recognised_functions"))
        caption = (
            f"With margin, mean and range over drawings of the symbols. A sample met {total:,.0f} functions on "
            "average: |F_N| is at least what was met."
        )
        return [lab.Figure("function-count", self.title, caption, panels, where="Eq 25, Cor 3.4")]


STUDY = FunctionCount()
