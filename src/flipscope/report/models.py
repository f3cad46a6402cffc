"""Terminal pages of measurements of models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from flipscope.basics.estimates import Estimate
from flipscope.bounds.covering import Summary as CoveringSummary
from flipscope.bounds.geometry import Summary
from flipscope.bounds.geometry.overview import Row
from flipscope.bounds.hardness import Summary as HardnessSummary
from flipscope.models.config import TransformerConfig
from flipscope.probes.results import Measured, SensitivityProfile
from flipscope.report.terminal import histogram, number

BINS = 12


def sensitivity_page(
    found: SensitivityProfile,
    name: str,
    confidence: float,
    function: tuple[str, float] | None = None,
    notes: Sequence[str] = (),
) -> RenderableType:
    """The page of ``flipscope sensitivity``; `function`: the model's training target and its average sensitivity."""
    rows = [
        ("strings", f"{found.strings:,} of length {found.n:,}" + (", all of this length" if found.exhaustive else "")),
        ("average sensitivity", number(found.average_sensitivity)),
        ("share with sensitivity 0", number(found.zero_share)),
        ("largest, smallest seen", f"{found.largest_seen}, {found.smallest_seen}"),
    ]
    if function is not None:
        rows.insert(2, (f"{function[0]} itself has", number(function[1])))
    parts: list[RenderableType] = [facts(rows), Text(), _profile(found)]
    if not found.exhaustive:
        parts += [Text(), note(f"Intervals hold with confidence {confidence:g}, those of the profile jointly.")]
    parts += [Text(), note(_account(found)), *map(note, notes)]
    return panel(name, parts)


def random_page(
    init: str, shapes: Sequence[TransformerConfig], found: Sequence[SensitivityProfile], summary: dict[str, Any]
) -> RenderableType:
    """The page of ``flipscope random-model``."""
    averages = [_value(spectrum.average_sensitivity) for spectrum in found]
    rows = [
        ("models", f"{summary['models']}, {init}, {found[0].strings} strings of length {found[0].n} each"),
        ("average sensitivity", f"{_interval(summary['average_sensitivity'])}, mean over models"),
        ("median, largest", f"{number(float(np.median(averages)))}, {number(max(averages))}"),
        ("share with sensitivity 0", f"{_interval(summary['zero_share'])}, mean over models"),
        ("no sensitive string found", f"{summary['models_without_sensitive_string']} models"),
        ("path", ", ".join(sorted({spectrum.path for spectrum in found}))),
        ("checked again in float64", f"{summary['rechecked']:,} signs; {summary['near_ties']:,} undetermined"),
        ("time", f"{summary['seconds']:.0f} s"),
    ]
    table = Table(box=None, padding=(0, 1), header_style="bold")
    for heading in ("layers", "width", "heads", "FFN", "average sensitivity", "seconds"):
        table.add_column(heading, justify="right", no_wrap=True)
    for shape, spectrum in zip(shapes, found, strict=True):
        sizes = (shape.layers, shape.width, shape.heads, shape.hidden_width)
        told = (number(spectrum.average_sensitivity), f"{spectrum.seconds:.1f}")
        table.add_row(*(str(size) for size in sizes), *told)
    spread = histogram("average sensitivity", "models", _bins(averages))
    return panel("random transformers", [facts(rows), Text(), spread, Text(), table])


def blowup_page(name: str, document: dict[str, Any], notes: Sequence[str] = ()) -> RenderableType:
    """The page of ``flipscope blowup``."""
    table = Table(box=None, padding=(0, 1), header_style="bold")
    table.add_column("norm", no_wrap=True)
    for heading in ("eps", "smallest", "median", "largest tau"):
        table.add_column(heading, justify="right", no_wrap=True)
    for norm in document["norms"]:
        table.add_row(norm["name"], f"{norm['eps']:g}", *_ends(norm["tau"]))
    table.add_row("all, beta", "", *_ends(document["beta"]))
    table.add_row("all, mean over positions", "", *_ends(document["mean_beta"]))
    parts: list[RenderableType] = [table, Text()]
    bound = "there is no bound on beta" if document["bound"] is None else f"beta cannot exceed {document['bound']:.4g}"
    parts.append(note(f"From {document['strings']:,} random strings of length {document['length']:,}; {bound}."))
    without, with_positions = (document["weight_norm"][key] for key in ("without_positions", "with_positions"))
    parts.append(note(f"The weights have norm {without:.4g}, with learned positions {with_positions:.4g}."))
    if document["infinite"]:
        parts.append(note(f"{document['infinite']:,} vectors with zero variance entered a norm with eps = 0."))
    return panel(name, [*parts, *map(note, notes)])


_MEASURES = {
    "loss": "increase of the loss",
    "prediction": "mean square change of the output",
    "ShOp": "mean change of the output (ShOp)",
    "ShPred": "share of answers that change (ShPred)",
}


def sharpness_page(name: str, document: dict[str, Any], notes: Sequence[str] = ()) -> RenderableType:
    """The page of ``flipscope sharpness``."""
    table = Table(box=None, padding=(0, 1), header_style="bold")
    table.add_column("sharpness", no_wrap=True)
    table.add_column("mean over draws", justify="right", no_wrap=True)
    for measure, estimate in document["sharpness"].items():
        table.add_row(_MEASURES[measure], _interval(estimate))
    kind = "a random direction of length rho" if document["noise"] == "sphere" else "Gaussian noise of std"
    size = document["rho"] if document["noise"] == "sphere" else document["std"]
    said = "all" if document["exhaustive"] else f"{document['strings']:,} random"
    draws, confidence = (document["sharpness"]["prediction"][key] for key in ("samples", "confidence"))
    rows = [
        ("noise", f"{kind} {size:.4g}" + (", in proportion to each parameter" if document["adaptive"] else "")),
        ("parameters", f"{document['parameters']:,} (rho {document['rho']:.4g}, std {document['std']:.4g})"),
        ("strings", f"{said} strings of length {document['length']:,}"),
    ]
    if document["loss"] is not None:
        rows.append(
            (document["loss"]["name"], f"{document['loss']['value']:.4g} on {document['function']}, without noise")
        )
    told = note(f"Intervals over {draws:,} draws hold with confidence {confidence:g}.")
    return panel(name, [facts(rows), Text(), table, Text(), told, *map(note, notes)])


def bounds_page(name: str, found: Summary, flips: HardnessSummary, notes: Sequence[str] = ()) -> RenderableType:
    """The page of ``flipscope bounds``."""
    cube = "" if found.radius is None else f", Theta = [-{found.radius:.4g}, {found.radius:.4g}]^{found.parameters}"
    shape = f"N = {found.length:,}, D = {found.width}, L = {found.layers}"
    parts: list[RenderableType] = [note(f"{shape}, eps = {found.eps:g}, xi = {found.margin:g}{cube}"), Text()]
    if found.fails is not None:
        parts += [Text(f"Most of the geometry paper does not apply: {found.fails}."), Text()]
    parts += [_bounds_table(found.rows), Text()]
    if flips.fails is not None:
        return panel(name, [*parts, Text(f"The hardness paper does not apply: {flips.fails}."), *map(note, notes)])
    seen = f"largest {flips.measured:.4g}, mean {flips.measured_mean:.4g}"
    told = f"Hardness paper: outputs differ by {flips.span:.4g} at most; measured s(x, T) of the strings: {seen}"
    return panel(name, [*parts, note(told), Text(), _bounds_table(flips.rows), *map(note, notes)])


def covering_page(name: str, found: CoveringSummary, notes: Sequence[str] = ()) -> RenderableType:
    """The page of ``flipscope bound covering``."""
    kind = Text(found.kind[0].upper() + found.kind[1:], style="bold green" if found.is_bound else "bold yellow")
    said = (
        f"gap of the logistic loss, m = {found.samples:,} strings of length {found.length:,}, delta = {found.delta:g}"
    )
    parts: list[RenderableType] = [kind + Text(f": {said}", style="not bold default"), Text()]
    if found.broken:
        listed = [Text(f"- {each}") for each in found.broken]
        parts += [Text("The theorem does not apply to this model, which has"), *listed, Text()]
    names = (
        ("gap at most", "trivial bound", "the bound is") if found.is_bound else ("score", "of at most", "as a bound")
    )
    table = Table(box=None, padding=(0, 1), header_style="bold")
    for heading in ("form", "ln N at eps 1", *names, "non-vacuous from m"):
        left = heading in ("form", names[2])
        table.add_column(heading, justify="left" if left else "right", no_wrap=heading != "form")
    verb = "" if found.is_bound else "would be "
    for row in (each.as_json() for each in found.bounds):
        says = Text(f"{verb}vacuous", style="yellow")
        if not row["vacuous"]:
            says = Text(f"{verb}non-vacuous", style="green" if found.is_bound else "")
        needed = row["log10_samples_needed"]
        capacity, told = _size(None, row["log10_capacity"]), "never" if needed is None else f"10^{needed:.3g}"
        table.add_row(row["what"], capacity, f"{row['gap']:.4g}", f"{row['trivial']:.4g}", says, told)
    norms = f"||w|| = {found.norms.readout:.4g}, inputs of norm {found.norms.radius:.4g} at most"
    parts += [table, Text(), note(f"{norms}; norms are rounded up, since they were not fixed before training.")]
    return panel(name, [*parts, *map(note, notes)])


def pac_bayes_page(name: str, document: dict[str, Any], notes: Sequence[str] = ()) -> RenderableType:
    """The page of ``flipscope bound pac-bayes``."""
    told = Text("vacuous", style="bold yellow") if document["vacuous"] else Text("non-vacuous", style="bold green")
    head = Text(f"loss at most {document['bound']:.4g}: ", style="bold") + told
    rows = [("form", document["form"] + (", certified" if document["certified"] else ", not certified"))]
    shown = {
        "degree": "degree found",
        "sparsity": "sparsity found",
        "gradient_bound": "squared gradient at most",
        "norm_bound": "squared norm",
        "perturbation": "perturbation term P",
        "sigma": "sigma of the noise",
        "sigma_limit": "no neuron flips up to",
        "lambda": "lambda",
        "sharpness_term": "sharpness term",
        "norm_term": "norm term",
        "mcallester": "McAllester's bound",
        "catoni": "Catoni's bound",
        "training_loss": "training loss, truncated",
    }
    rows += [(said, f"{document[key]:.6g}") for key, said in shown.items() if document.get(key) is not None]
    needed = document["samples_needed"]
    rows.append(("non-vacuous from", "never" if needed is None else f"{needed:,} samples"))
    why = [Text(), Text(document["reason"], style="yellow")] if document.get("reason") else []
    assumed = [Text(f"- {each}") for each in document["assumptions"]]
    return panel(name, [head, Text(), facts(rows), *why, Text(), note("Assumptions:"), *assumed, *map(note, notes)])


def _bounds_table(rows: Sequence[Row]) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="bold")
    for heading, side in (
        ("result", "left"),
        ("bound", "left"),
        ("value", "right"),
        ("here", "left"),
        ("from N", "right"),
    ):
        table.add_column(heading, justify=side, no_wrap=heading != "bound")  # type: ignore[arg-type]
    for row in (each.as_json() for each in rows):
        says = {True: Text("non-vacuous", style="green"), False: Text("vacuous", style="yellow")}
        told = says.get(row["says_something"], Text("does not apply", style="dim"))
        table.add_row(row["result"], row["what"], _size(row["value"], row["log10"]), told, _length(row))
        table.add_row("", Text(row["note"], style="italic dim"), "", "", "")
    return table


def _size(value: float | None, log10: float | None) -> str:
    if value is not None:
        return f"{value:.4g}"
    return "∞" if log10 is None else f"10^{log10:.4g}"


def _length(row: dict[str, Any]) -> str:
    if row["log10_from_length"] is None:
        return "-"
    return f"{row['from_length']:,}" if row["from_length"] is not None else f"10^{row['log10_from_length']:.4g}"


def facts(rows: Sequence[tuple[str, str]]) -> Table:
    """A table of names and values in two columns."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for row in rows:
        table.add_row(*row)
    return table


def _profile(found: SensitivityProfile) -> Table:
    rows = []
    for sensitivity, entry in enumerate(found.profile):
        share = entry.value if isinstance(entry, Estimate) else entry / (1 << found.n)
        if share:
            rows.append((number(sensitivity), number(entry), share))
    return histogram("sensitivity", "strings" if found.exhaustive else "share of strings", rows)


def _bins(averages: Sequence[float]) -> list[tuple[str, str, float]]:
    """A histogram of averages: zeros apart, the others in ranges of equal, round width."""
    largest = max(averages)
    rough = largest / BINS or 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
    zeros = sum(average == 0 for average in averages)
    rows = [("0", str(zeros), float(zeros))]
    for index in range(math.ceil(largest / step - 1e-9)):
        low, high = index * step, (index + 1) * step
        count = sum(low < average <= high for average in averages)
        rows.append((f"{low:g} to {high:g}", str(count), float(count)))
    return rows


def _account(found: Measured) -> str:
    """A sentence on how the result was measured."""
    checked = (
        ""
        if found.margin == 0
        else f"; {found.rechecked:,} signs within {found.margin:.2g} of the threshold were checked again"
    )
    sentence = (
        f"Measured by the {found.path} path ({found.path_reason}) in {found.precision} in {found.seconds:.1f} s"
        f"{checked}; {found.near_ties:,} signs within {found.tolerance:.2g} remain undetermined."
    )
    if found.screening is not None:
        rate = found.screening.error_rate
        sentence += f" Heuristic: {found.screening.skipped:,} of {found.screening.flips:,} flips were skipped"
        sentence += (
            "." if rate is None else f", {found.screening.wrong:,} of {found.screening.audited:,} audited ones wrongly."
        )
    if found.one_sided is not None:
        sentence += f" {found.one_sided[0].upper()}{found.one_sided[1:]}."
    return sentence


def _interval(estimate: dict[str, float]) -> str:
    return f"{estimate['value']:.4g} [{estimate['low']:.4g}, {estimate['high']:.4g}]"


def _ends(spread: dict[str, float | None]) -> list[str]:
    return ["∞" if value is None else f"{value:.4g}" for value in spread.values()]


def _value(found: float | Estimate) -> float:
    return found.value if isinstance(found, Estimate) else found


def note(sentence: str) -> Text:
    """A sentence in the style of notes."""
    return Text(sentence, style="italic dim")


def panel(title: str, parts: Sequence[RenderableType]) -> Panel:
    """A page with a frame and a title."""
    return Panel(Group(*parts), title=Text(title), title_align="left", expand=False, padding=(1, 2))
