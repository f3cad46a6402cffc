"""Terminal pages of trained models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from flipscope.basics.limits import said_bytes
from flipscope.basics.wording import count_text, time_text
from flipscope.data.real import RealData
from flipscope.models.kinds import configuration
from flipscope.report.models import facts, note, panel
from flipscope.report.terminal import number
from flipscope.training.fit import Accuracy
from flipscope.training.recipe import Trained

BLOWUP = "How much can its layer norms amplify a change?"
LEARNED = "How sensitive is the function that it learned?"
ENDS = {"goal": "the goal was reached", "diverged": "the loss became infinite or not a number"}


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
    again = f", resumed at step {resumed_at:,}" if resumed_at else ""
    rows = [
        ("model", f"{shape(trained.model.config.as_dict())}, {count:,} parameters"),
        (
            "trained",
            f"{fitted.steps:,} steps, {fitted.strings:,} {_inputs(trained)}, {time_text(fitted.seconds)}{again}",
        ),
        ("kept", _kept(fitted.kept_epoch, len(fitted.history), fitted.stopped)),
        _quality(trained, tested),
        ("file", path),
    ]
    hint = "" if average is None else f" The target has average sensitivity {number(float(average))}."
    real = rows[-2][0] != "accuracy"
    on_set = trained.recipe is not None and trained.recipe.data.inputs != "bits"
    question = "How sensitive is it to noise on a patch, or to another word?" if on_set else LEARNED
    parts: list[RenderableType] = [
        facts(rows),
        Text(),
        note(BLOWUP if real else f"{question}{hint}"),
        Text(f"  {following}"),
    ]
    return panel(title, parts)


def _kept(epoch: int, ran: int, stopped: str) -> str:
    """A text on which epoch's weights were kept and why the training ended.

    >>> _kept(10, 10, "steps"), _kept(3, 5, "no better for 2 epochs")
    ('epoch 10 (all 10 ran)', 'epoch 3 (5 ran: no better for 2 epochs)')
    """
    return (
        f"epoch {epoch} (all {ran} ran)"
        if stopped in ("steps", "epochs")
        else f"epoch {epoch} ({ran} ran: {ENDS.get(stopped, stopped)})"
    )


def _inputs(trained: Trained) -> str:
    """What the inputs of the training are called."""
    names = {"numbers": "images", "tokens": "texts"}
    return "strings" if trained.recipe is None else names.get(trained.recipe.data.inputs, "strings")


def _quality(trained: Trained, tested: Accuracy) -> tuple[str, str]:
    """Label and text of the accuracy, or of the error if values are real."""
    on = f"on {tested.strings:,} random strings"
    if trained.recipe is not None and trained.recipe.data.inputs != "bits":
        on = f"on {tested.strings:,} test {_inputs(trained)}"
    if trained.recipe is not None and isinstance(trained.recipe.data, RealData):
        return "squared error", f"{number(tested.loss)}, {on}"
    return "accuracy", f"{number(tested.accuracy)}, {on}"


def models_page(rows: Sequence[Mapping[str, Any]], results: str) -> RenderableType:
    """The page of ``flipscope models``: a few lines per model, so that it fits a narrow terminal."""
    if not rows:
        return Text(f"There are no trained models in {results}.")
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
    notes = note("Accuracy of the kept weights on the validation set.")
    return Group(table, Text(), notes)


def _state(row: Mapping[str, Any]) -> str:
    """Whether and when the training of a model finished, and whether the model is still used."""
    since = f"finished {row['finished'][:16].replace('T', ' ')} UTC" if row["finished"] else "not finished"
    return since if row["current"] else f"{since}; trained by older code, no longer used"


def shape(config: Mapping[str, Any]) -> str:
    """The sizes of a model in words."""
    if "heads" not in config:  # a baseline
        found = configuration(config)
        return f"{config['kind']}, {count_text(found.layers, 'linear map')}"
    plural = "" if config["layers"] == 1 else "s"
    heads = "" if config["heads"] == 1 else "s"
    return f"width {config['width']}, {config['layers']} layer{plural}, {config['heads']} head{heads}"
