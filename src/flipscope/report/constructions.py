"""The terminal page of a constructed network."""

from __future__ import annotations

from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from flipscope.report.models import facts, note, panel

_MAPPINGS = {
    "deterministic": "bits added to fixed positions",
    "trainable": "bits added to chosen positions",
    "bag": "bits times fixed vectors",
}


def construction_page(name: str, document: dict[str, Any], passed: bool = True) -> RenderableType:
    """The page of ``flipscope construct``; `passed` says whether the check succeeded, if there was one."""
    relevant = ", ".join(f"x{place}" for place in document["positions"])
    limit = "at most" if document["error_holds"] else "ABOVE"
    rows = [
        ("depends on", f"{relevant} of {document['length']:,} bits"),
        ("inputs", f"{_MAPPINGS[document['mapping']]}, width {document['width']:,}, Delta {document['coherence']:.4g}"),
        ("heads", f"{document['heads']} of size {document['head_size']}, {_lemma(document)}"),
        ("gamma, R, gap", f"{document['gamma']:.6g}, {document['R']:.6f}, {document['gap']:.4g}"),
        ("certified error", f"{document['certified_error']:.7g}, {limit} gamma/4 = {document['error_limit']:.4g}"),
    ]
    if document["hidden"]:
        widths = ", ".join(f"{width:,}" for width in document["hidden"])
        said = "exact" if document["exact"] else "NOT exact"
        rows += [
            ("hidden widths", widths),
            ("after the MLP", f"{said}: {document['answer_error']:.2g} from f on the critical strings"),
        ]
    if "check" in document:
        rows.append(("all strings", _verdict(_checked(document["check"]), passed)))
    table = Table(box=None, padding=(0, 1), header_style="bold")
    for heading in ("norm", "actual", "promised", "printed in the paper", ""):
        table.add_column(heading, justify="left" if heading in ("norm", "") else "right", no_wrap=True)
    for norm in document["norms"]:
        printed = "–" if norm["printed"] is None else f"{norm['printed']:.6g}"
        broken = "" if norm["holds"] else "exceeded"
        table.add_row(norm["name"], f"{norm['actual']:.6g}", f"{norm['promised']:.6g}", printed, broken)
    told = note("Frobenius norms of W_Q to W_C (largest head), sum of lengths of P, largest entries of W_1, W_2 and w.")
    return panel(name, [facts(rows), Text(), table, Text(), told])


def fourier_page(name: str, document: dict[str, Any], passed: bool = True) -> RenderableType:
    """The page of ``flipscope construct --fourier`` and ``--steps``; `passed` as for `construction_page`."""
    paper = document["paper"]
    rows = [
        ("class", f"sparsity {document['sparsity']}, degree {document['degree']}, {document['length']:,} bits"),
        (
            "size",
            f"width {document['width']:,}, {document['neurons']:,} neurons, {document['parameters']:,} parameters",
        ),
        ("squared norm", f"{document['squared_norm']:.6g}"),
    ]
    if "mask" in document:
        rows.insert(1, ("mask", f"{document['mask']:g}, read by {document['readout']}"))
        said = "unknown" if document["error_bound"] is None else f"{document['error_bound']:.3g}, up to rounding"
        rows.append(("output error at most", said))
        rows += [
            ("with mask 0: squared norm", _against(paper["squared_norm"], paper["norm_bound"])),
            ("squared gradient, largest", _against(paper["squared_gradient"], paper["gradient_bound"])),
        ]
    else:
        rows.append(("its own bound", f"{document['norm_bound']:.6g}; the paper's is {paper['norm_bound']:.6g}"))
    if "check" in document:
        check = document["check"]
        asked = f"{'all' if check['exhaustive'] else 'of'} {check['strings']:,} strings"
        if "output" in check:
            told = f"{check['output']:.3g} at the output, {check['parity']:.3g} at the parities, {asked}"
        else:
            told = f"{check['wrong_steps']} wrong steps, {asked}"
        rows.append(("largest error found", _verdict(told, passed)))
    return panel(name, [facts(rows)])


def _against(value: float, bound: float | None) -> str:
    return f"{value:.6g}" + (", beyond the paper's class" if bound is None else f"; the paper's bound is {bound:.6g}")


def _lemma(document: dict[str, Any]) -> str:
    said = document["lemma"].replace("ours", "not in the paper")
    if said[0] == "B":
        said = f"Lemma {said}"
    return f"{said}, as printed" if document["as_printed"] else said


def _verdict(told: str, passed: bool) -> str:
    return told if passed else f"NOT exact: {told}"


def _checked(check: dict[str, Any]) -> str:
    if check["strings"] is None:
        return "too many to evaluate; the certificate covers them all"
    answer = "" if check["answer_error"] is None else f", at most {check['answer_error']:.2g} from f"
    return (
        f"{check['strings']:,} evaluated: error {check['error']:.7g}, {check['difference']:.1g} from certified{answer}"
    )
