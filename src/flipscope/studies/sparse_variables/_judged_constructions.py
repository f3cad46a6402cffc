"""Judges and figures of the study `sparse-constructions`."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import flipscope.lab as lab
from flipscope.studies.sparse_variables._constructions import NORMS, TILT

FEWEST = 30  # cases that reproduce a claim of all
ROUNDING = 1e-12
ROUTES = {
    "mean": "B.2, B.3: one head",
    "select": "B.2, B.3: s heads",
    "powers": "one head, any function",
    "bag": "B.4: scalar",
    "bag-vector": "B.4: s-dimensional",
    "bag-select": "bag, s heads",
}


def _ours(table: lab.Rows) -> lab.Rows:
    return table.where(printed=False).having("error")


def judged(column: str, limit: str, what: str) -> lab.Judge:
    """A judge: of our constructions none has the column above that of its limit."""
    judge = lab.never_exceeds(column, limit, what, fewest=FEWEST)
    return lambda table: judge(_ours(table).having(column))


def judge_printed(table: lab.Rows) -> lab.Judgement:
    """Each slip must show wherever it is said to, and the heads must be right elsewhere."""
    printed = table.where(printed=True).having("error")
    tilted = printed.where(lambda row: row["sparsity"] >= 3, basis="tilted", mapping="deterministic", route="mean")
    straight = printed.where(lambda row: (row["route"], row["mapping"]) != ("select", "deterministic"))
    cases: list[tuple[str, lab.Rows, Callable[[lab.Row], bool]]] = [
        ("s heads with W_V W_C = 0, error not 1", printed.where(mapping="deterministic", route="select"), _is_one),
        (f"one head, Delta = {TILT}, s >= 3: error at most gamma/4", tilted, lambda row: row["error"] > row["limit"]),
        ("printed MLP: right on all strings", printed, lambda row: row["answer_error"] >= 0.5),
        ("printed bumps: W_1 within its bound", printed.having("ratio W_1"), lambda row: row["ratio W_1"] > 1),
        ("other heads, orthonormal: error above gamma/4", straight.where(basis="orthonormal"), _is_small),
    ]
    return lab.all_of([
        lab.unless_few(lab.never(sum(not fails(row) for row in rows), len(rows), what), len(rows), 5, "cases")
        for what, rows, fails in cases
    ])  # fmt: skip


def _is_one(row: lab.Row) -> bool:
    return bool(abs(row["error"] - 1) <= ROUNDING)


def _is_small(row: lab.Row) -> bool:
    return bool(row["error"] <= row["limit"] + ROUNDING)


def figure_of_errors(table: lab.Rows, title: str) -> lab.Figure:
    """The largest certified error over its limit against T, of each kind of heads."""
    panels = []
    for (printed, said), basis in itertools.product(((False, "ours"), (True, "printed")), ("orthonormal", "tilted")):
        rows = table.where(printed=printed, basis=basis).having("error")
        series = [_largest(rows.where(route=route), "length", "quotient", route) for route in ROUTES]
        shown = [each for each in series if each.x]
        rules = [lab.Rule(1.0, "gamma/4")]
        what = f"{said}, {basis}"
        panels.append(lab.Panel(what, "T", "error / (gamma/4)", shown, x_log=True, y_log=True, rules=rules))
    caption = f"Largest certified error over all strings and functions; tilted: relevant vectors with products ±{TILT}."
    return lab.Figure("sparse-constructions-error", title, caption, panels, same_axes=True)


def figure_of_norms(table: lab.Rows) -> lab.Figure:
    """Norms over their bounds against s, of the lemmas' own constructions on an orthonormal basis."""
    panels = []
    for route, mapping in (
        ("mean", "deterministic"),
        ("select", "deterministic"),
        ("bag", "bag"),
        ("bag-vector", "bag"),
    ):
        rows = _ours(table).where(route=route, mapping=mapping, basis="orthonormal")
        series = [
            lab.line(own, "sparsity", f"ratio {name}", name, "mean", band=False, colour=place)
            for place, name in enumerate(NORMS)
            if (own := rows.having(f"ratio {name}"))
        ]
        rules = [lab.Rule(1.0, "bound")]
        panels.append(lab.Panel(ROUTES[route], "relevant bits s", "actual / promised norm", series, rules=rules))
    told = "Orthonormal positions or vectors; W_Q and w are as large as promised."
    return lab.Figure("sparse-constructions-norms", "Norms against their bounds", told, panels, same_axes=True)


def _largest(rows: lab.Rows, x: str, y: str, route: str) -> lab.Series:
    found = {place: max(own.column(y)) for place, own in rows.by(x)}
    return lab.Series(ROUTES[route], list(found), list(found.values()), colour=list(ROUTES).index(route))
