"""The figures of the study `prior-volume`."""

from __future__ import annotations

from collections import Counter

import numpy as np

import flipscope.lab as lab
from flipscope.cube.few_bits import full_table, measures
from flipscope.probes.prior import table_number
from flipscope.studies.geometry._volumes import MEASURES, NAMED, RAREFIED, SHOWN

FEWEST = 3  # drawings of the symbols for an interval


def figures(table: lab.Rows, title: str) -> list[lab.Figure]:
    """Probability against K_0 and by rank; what tells it; named functions; how many functions there are."""
    return [
        _volumes(table, title),
        _ranks(table),
        _correlations(table),
        _named(table),
        _counted(table),
    ]


def _pooled(rows: lab.Rows) -> tuple[list[int], list[float]]:
    """The most probable functions of all drawings of the symbols together, and the probability of each."""
    counts: Counter[int] = Counter()
    for row in rows:
        counts.update(dict(zip(row["shown"], row["shown_draws"], strict=True)))
    most = counts.most_common(SHOWN)
    return [table for table, _ in most], [drawn / (2 * rows.total("draws")) for _, drawn in most]


def _volumes(table: lab.Rows, title: str) -> lab.Figure:
    panels = []
    for (length, eps), rows in table.by("length", "eps"):
        tables, shares = _pooled(rows)
        places = (measures(tables, length).zero_strings / 2**length).tolist() if tables else []
        said = [f"{number:0{1 << length}b}: {share:.2g}" for number, share in zip(tables, shares, strict=True)]
        series = [lab.Series("functions", places, shares, "points", colour=0, hover=said)]
        for colour, (name, make) in enumerate(NAMED.items(), 1):
            number = table_number(make(length))
            own = int(measures([min(number, number ^ int(full_table(length)))], length).zero_strings[0]) / 2**length
            if hits := rows.total(name):
                share = hits / (2 * rows.total("draws"))
                series.append(lab.Series(name.capitalize(), [own], [share], "points", colour=colour))
        panels.append(
            lab.Panel(
                f"N = {length}, eps = {eps:g}",
                "K_0 / 2^N",
                "probability",
                series,
                y_log=True,
                x_range=(-0.05, 1.0),
                rules=[lab.Rule(2.0 ** -(1 << length), "uniform over functions")] if length <= 4 else [],
            )
        )
    caption = (
        f"The {SHOWN} most probable functions that are not constant, each joined with its complement, which is as "
        "probable; of all drawings of the symbols together. Named functions are shown where they were met."
    )
    return lab.Figure("prior-volume", title, caption, panels, where="Fig 1")


def _ranks(table: lab.Rows) -> lab.Figure:
    panels = []
    for eps, own in table.by("eps"):
        series = []
        for length, rows in own.by("length"):
            _, shares = _pooled(rows)
            series.append(lab.Series(f"N = {length}", list(range(1, len(shares) + 1)), shares))
        panels.append(lab.Panel(f"eps = {eps:g}", "rank", "probability", series, x_log=True, y_log=True))
    caption = "Functions that are not constant, the most probable first."
    return lab.Figure("prior-ranks", "Probability of functions by rank", caption, panels, same_axes=True)


def _correlations(table: lab.Rows) -> lab.Figure:
    panels = []
    for eps, own in table.by("eps"):
        series = []
        for colour, (name, label) in enumerate(MEASURES.items()):
            groups = own.having(f"rho_{name}").by("length")
            found = {
                length: lab.student_mean(rows.column(f"rho_{name}")) for length, rows in groups if len(rows) >= FEWEST
            }
            series.append(lab.estimates(label, list(found), list(found.values()), colour=colour))
        panels.append(
            lab.Panel(f"eps = {eps:g}", "N", "rho with probability", series, y_range=(-1, 1), rules=[lab.Rule(0.0, "")])
        )
    caption = "Spearman's rho, constants apart; mean over drawings of the symbols with Student's interval."
    return lab.Figure("prior-measures", "What tells how probable a function is", caption, panels, same_axes=True)


def _named(table: lab.Rows) -> lab.Figure:
    panels = []
    for eps, own in table.by("eps"):
        series = []
        for colour, name in enumerate(NAMED):
            found = {n: lab.share(rows.total(name), rows.total("draws")).scaled(0.5) for n, rows in own.by("length")}
            known = {n: each for n, each in found.items() if each.value}
            label = name.capitalize()
            series.append(lab.estimates(label, list(known), list(known.values()), "points", colour=colour))
            never = {n: each.high for n, each in found.items() if not each.value}
            if never:
                series.append(
                    lab.Series(f"{label}: at most", list(never), list(never.values()), "steps", colour=colour)
                )
        lengths = own.values("length")
        uniform = [2.0 ** -(1 << n) for n in lengths]
        series.append(lab.Series("random function", lengths, uniform, dashed=True, colour=len(NAMED)))
        panels.append(lab.Panel(f"eps = {eps:g}", "N", "probability", series, y_log=True, y_range=(1e-9, 1.0)))
    caption = "With 95 % intervals; of a function that was not met, the upper end."
    return lab.Figure("prior-named", "Volume of Parity, First and Majority", caption, panels, where="Fig 1")


def _counted(table: lab.Rows) -> lab.Figure:
    met, constant = [], []
    for colour, (eps, own) in enumerate(table.by("eps")):
        label = f"eps = {eps:g}"
        met.append(lab.line(own.having("rarefied"), "length", "rarefied", label, "mean", colour=colour))
        constant.append(lab.line(own, "length", "share_more", label, "mean", colour=colour))
    lengths = table.values("length")
    every = [min(2.0 ** (1 << n), float(RAREFIED)) for n in lengths]
    met.append(lab.Series("all, or all draws", lengths, every, dashed=True, colour=2))
    panels = [
        lab.Panel(f"among {RAREFIED:,} draws", "N", "functions recognised", met, y_log=True),
        lab.Panel("not constant", "N", "share of draws", constant, y_range=(0, 1)),
    ]
    total = np.mean(table.column("recognised_functions"))
    caption = (
        f"With margin, mean and range over drawings of the symbols. A sample met {total:,.0f} functions on average: "
        "|F_N| is at least what was met."
    )
    return lab.Figure("prior-functions", "Functions that random recognisers recognise", caption, panels, where="Eq 25")
