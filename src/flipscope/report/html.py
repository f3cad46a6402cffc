"""The report: one HTML file that needs nothing else, with every claim, figure, table and setting."""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flipscope.basics.files import write_bytes
from flipscope.basics.progress import Progress
from flipscope.figures.vegalite import theme
from flipscope.report.drawing import page_script, render
from flipscope.report.maths import typeset
from flipscope.report.views import StudyPage, in_order, report_view

if TYPE_CHECKING:
    from jinja2 import Environment


def html_report(
    pages: Sequence[StudyPage],
    missing: Sequence[tuple[str, str]] = (),
    *,
    title: str = "What was measured, and what it says about the papers",
    made: str = "",
    progress: Progress | None = None,
) -> str:
    """The whole HTML document; `missing` lists studies that cannot be shown, each with the reason."""
    from markupsafe import Markup

    drawn = any(page.figures for page in pages)
    scripts = [*([page_script()] if drawn else []), _template("page.js")]
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    return (
        _environment()
        .get_template("report.html.jinja")
        .render(
            title=title,
            made=made,
            **report_view(pages, missing),
            files=_figure_files(in_order(pages), progress),
            glossary=glossary(),
            themes={"light": theme("light"), "dark": theme("dark")},
            style=Markup(_template("style.css")),
            scripts=[Markup(script) for script in scripts],
            allowed=" ".join(f"'sha256-{digest}'" for digest in hashes),  # no other script may run
        )
    )


def _figure_files(pages: Sequence[StudyPage], progress: Progress | None) -> list[list[dict[str, str]]]:
    """The figures of each study as files, in base64."""
    found = []
    for number, page in enumerate(pages):
        found.append(
            [
                {format: base64.b64encode(render(figure, format)).decode() for format in ("svg", "pdf")}
                for figure in page.figures
            ]
        )
        if progress is not None:
            progress(number + 1, len(pages))
    return found


def write_report(
    path: str | Path,
    pages: Sequence[StudyPage],
    missing: Sequence[tuple[str, str]] = (),
    *,
    made: str = "",
    progress: Progress | None = None,
) -> Path:
    """Write the report atomically and return its path."""
    document = html_report(pages, missing, made=made, progress=progress)
    return write_bytes(Path(path), document.encode("utf-8", errors="replace"), "report")


@functools.cache
def glossary() -> dict[str, list[tuple[str, str]]]:
    """The terms of the report by subject, each with its meaning, from the tables of glossary.md."""
    found: dict[str, list[tuple[str, str]]] = {}
    for line in (Path(__file__).parent / "glossary.md").read_text("utf-8").splitlines():
        if line.startswith("## "):
            found[line.removeprefix("## ")] = []
        elif line.startswith("| ") and line != "| word | meaning |":
            word, meaning = line.strip("| ").split(" | ", 1)
            found[next(reversed(found))].append((word, meaning))
    return found


@functools.cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("flipscope.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["maths"] = typeset
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":"), "ensure_ascii": False}
    return environment


def _template(name: str) -> str:
    """The text of a file that is inserted into the page unchanged."""
    return (Path(__file__).parent / "templates" / name).read_text("utf-8").strip()
