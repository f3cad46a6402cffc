"""What models with a scratchpad need at each length: judges of its growth, panels."""

from __future__ import annotations

import numpy as np

import flipscope.lab as lab
from flipscope.studies.hardness._shared import kept, slope

FEWEST = 3  # lengths with kept models, for a line through them
MEASURED = {
    "sharpness": "average-direction sharpness (× 4)",
    "encoder_paper": "blowup of the encoder, the paper's proxy",
    "decoder_paper": "blowup of the decoder, the paper's proxy",
    "norm": "weight norm",
    "encoder": "blowup of the encoder, all positions and norms",
    "decoder": "blowup of the decoder, all positions and norms",
}
BLOWUPS = [column for column in MEASURED if column.partition("_")[0] in ("encoder", "decoder")]


def grows(column: str, limit: float, quantity: str, *, power: bool = True, beyond: str = "") -> lab.Judge:
    """A judge of the line through a column of all kept models: its exponent of n, or its rise over all lengths.

    `beyond` is a column whose own growth does not count: the exponent is that of the quotient.
    """

    def judge(table: lab.Rows) -> lab.Judgement:
        rows = kept(table).having(column)
        lengths = rows.values("length") if rows else []
        x, y = np.array(rows.column("length"), np.float64), np.array(rows.column(column), np.float64)
        if beyond:
            y = y / np.array(rows.column(beyond), np.float64)
        if power:
            x, y = np.log(x), np.log(y)
        found = slope(y.tolist(), x.tolist()) if len(lengths) >= FEWEST else None
        if found is None:
            said = f"{len(rows)} of {len(table)} models are kept, at {len(lengths)} lengths: too few for a line"
            return lab.Judgement.without(said, f"more steps or seeds, until {FEWEST} lengths are learned")
        said = f"n from {lengths[0]} to {lengths[-1]}, {len(rows)} of {len(table)} models kept"
        return lab.at_most(found if power else found.scaled(lengths[-1] - lengths[0]), limit, quantity, said, "models")

    return judge


def panel(table: lab.Rows, column: str) -> lab.Panel:
    """A column against n, models that are not kept apart; a blowup with that of the same models before training."""
    rows, apart = kept(table).having(column), table.where(kept=False).having(column)
    series = [lab.line(rows, "length", column, "kept: mean, least and largest", "mean", colour=0)] if rows else []
    if apart:
        hover = [f"seed {row['seed']}: {row['tokens']:.3f} of the bits right" for row in apart]
        places = (apart.column("length"), apart.column(column))
        series.append(lab.Series("not kept", *places, "points", colour=1, hover=hover))
    if column in BLOWUPS and table:
        started = lab.line(table, "length", start_of(column), "before training", "mean", band=False, colour=2)
        series.append(started)
    rules = (lab.Rule(1, "PARITY without a scratchpad, n → ∞ (Thm 6)"),) if column == "sharpness" else ()
    return lab.Panel("", "length n", MEASURED[column], series, y_log=column in BLOWUPS, rules=rules)


def start_of(column: str) -> str:
    """The column that has the same of the model before its training."""
    return f"{column}_start"
