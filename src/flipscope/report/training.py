"""Terminal pages of trained models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from flipscope.basics.limits import said_bytes
from flipscope.basics.wording import time_text
from flipscope.data.real import RealData
from flipscope.report.models import facts, note, panel
from flipscope.report.terminal import number
from flipscope.training.fit import Accuracy
from flipscope.training.recipe import Trained

BLOWUP = "How far can its layer norms blow a change up?"
WORDS = {"steps": "all of them", "goal": "its goal was reached", "diverged": "the loss was no number any more"}


def trained_page(
    title: str,
    trained: Trained,
    tested: Accuracy,
    resumed_at: int | None,
    average: Fraction | None,
    path: str,
    following: str,
) -> RenderableType:
    """The page of ``flipscope train``."""
    fitted = trained.fitted
    count = sum(parameter.numel() for parameter in trained.model.parameters())
    again = f", the last of them from step {resumed_at:,} on" if resumed_at else ""
    rows = [
        ("model", f"{shape(trained.model.config.as_dict())}, {count:,} parameters"),
        ("trained", f"{fitted.steps:,} steps, {fitted.strings:,} strings, {time_text(fitted.seconds)}{again}"),
        ("kept", f"epoch {fitted.kept_epoch} of {len(fitted.history)}; {WORDS.get(fitted.stopped, fitted.stopped)}"),
        _told(trained, tested),
        ("file", path),
    ]
    hint = "" if average is None else f" The function itself has {number(float(average))}."
    real = rows[-2][0] != "accuracy"
    parts: list[RenderableType] = [
        facts(rows),
        Text(),
        note(BLOWUP if real else f"What average sensitivity did it learn?{hint}"),
        Text(f"  {following}"),
    ]
    return panel(title, parts)


def _told(trained: Trained, tested: Accuracy) -> tuple[str, str]:
    """How good it is: the accuracy, or the error where values are real."""
    on = f"on {tested.strings:,} random strings"
    if trained.recipe is not None and isinstance(trained.recipe.data, RealData):
        return "squared error", f"{number(tested.loss)}, {on}"
    return "accuracy", f"{number(tested.accuracy)}, {on}"


def models_page(rows: Sequence[Mapping[str, Any]], results: str) -> RenderableType:
    """The page of ``flipscope models``: a few lines per model, so that it fits a narrow terminal."""
    if not rows:
        return Text(f"There is no trained model in {results}.")
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    table.add_column("function, model, file", overflow="fold")
    for heading in ("accuracy", "steps", "size"):
        table.add_column(heading, justify="right", no_wrap=True)
    for place, row in enumerate(rows):
        if place:
            table.add_row()
        name = row["function"] or f"random language of {row['length']} bits"
        about = Text(name, style="cyan")
        about.append(f"\n{shape(row['model'])}, {row['init']}, seed {row['seed']}", style="dim")
        about.append(f"\n{_state(row)}", style="dim")
        about.append(f"\n{row['path']}", style="dim")
        accuracy = "-" if row["accuracy"] is None else f"{row['accuracy']:.3f}"
        table.add_row(about, accuracy, f"{row['steps']:,}", said_bytes(row["size"]))
    notes = note("Accuracy is that on the validation set, of the weights that were kept.")
    return Group(table, Text(), notes)


def _state(row: Mapping[str, Any]) -> str:
    """Whether a model is finished, and since when; and whether it is still used."""
    since = f"finished {row['finished'][:16].replace('T', ' ')} UTC" if row["finished"] else "not finished"
    return since if row["current"] else f"{since}; of older code, not used any more"


def shape(config: Mapping[str, Any]) -> str:
    """The sizes of a transformer in words."""
    plural = "" if config["layers"] == 1 else "s"
    heads = "" if config["heads"] == 1 else "s"
    return f"width {config['width']}, {config['layers']} layer{plural}, {config['heads']} head{heads}"
