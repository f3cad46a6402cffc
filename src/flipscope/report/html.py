"""The report: one HTML file that needs nothing else, with every claim, figure, table and setting."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flipscope import __version__
from flipscope.basics import wording
from flipscope.basics.files import write_bytes
from flipscope.lab.figures import Figure
from flipscope.lab.rows import Rows
from flipscope.lab.study import Claim
from flipscope.lab.vegalite import specification, theme
from flipscope.lab.verdict import VERDICTS, Judgement
from flipscope.report.drawing import alt_text, file_stems, page_script, render
from flipscope.report.lab import look_view, looks_of

if TYPE_CHECKING:
    from jinja2 import Environment

    from flipscope.lab.run.driver import Run

MAX_ROWS = 200  # of a table
OPEN_ROWS = 25  # a longer table is folded
PAPERS = {  # by the numbers that the studies use; CITATION.cff has them in full
    "000": ("Kövér et al. 2026, parameter-space geometry", "https://arxiv.org/abs/2606.08768"),
    "001": ("Hahn and Rofin 2024, sensitive functions are hard", "https://arxiv.org/abs/2402.09963"),
    "002": ("Lintilhac and Shaikh 2026, a sharper picture", "https://arxiv.org/abs/2605.20988"),
    "003": ("Edelman et al. 2022, sparse variable creation", "https://arxiv.org/abs/2110.10090"),
    "004": ("Vasudeva et al. 2025, low-sensitivity functions", "https://arxiv.org/abs/2403.06925"),
}


@dataclass(frozen=True)
class StudyPage:
    """What the report shows of one study."""

    run: Run
    figures: Sequence[Figure]
    settings: Mapping[str, Sequence[Any]]  # the values of each field of the trials, each once
    machines: Sequence[str]  # what it was measured on, in words
    code: str  # the version of the study's code
    command: str  # which repeats it
    finished: str = ""  # when the last trial was
    notes: Sequence[str] = ()  # what a reader must know first
    version: str = f"flipscope {__version__}"  # and revision of the study, that measured it
    older: bool = False  # whether it was measured by code that has changed since


def html_report(
    pages: Sequence[StudyPage],
    missing: Sequence[tuple[str, str]] = (),
    *,
    title: str = "What was measured, and what it says of the papers",
    made: str = "",
) -> str:
    """The whole document; `missing` are studies that cannot be shown, each with the reason."""
    from markupsafe import Markup

    # What was decided comes first: the claims of a study, and the studies that decided any.
    pages = sorted(pages, key=lambda page: not _decided(page.run))
    judged = [each for page in pages for each in page.run.judgements]
    verdicts = [found.verdict for claim, found in judged if not claim.asymptotic]
    limits = [found.verdict for claim, found in judged if claim.asymptotic]
    drawn = any(page.figures for page in pages)
    scripts = [*([page_script()] if drawn else []), _template("page.js")]
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    return (
        _environment()
        .get_template("report.html.jinja")
        .render(
            title=title,
            version=__version__,
            made=made,
            summary=_summary(pages, len(judged)),
            counts={verdict: [found.verdict for _, found in judged].count(verdict) for verdict in VERDICTS},
            apart=_apart(limits, len(verdicts)),
            pages=[_page(page, number) for number, page in enumerate(pages)],
            missing=missing,
            themes={"light": theme("light"), "dark": theme("dark")},
            style=Markup(_template("style.css")),
            scripts=[Markup(script) for script in scripts],
            allowed=" ".join(f"'sha256-{digest}'" for digest in hashes),  # and no other script runs
        )
    )


def write_report(
    path: str | Path, pages: Sequence[StudyPage], missing: Sequence[tuple[str, str]] = (), *, made: str = ""
) -> Path:
    """Write the report, whole or not at all; returns its path."""
    document = html_report(pages, missing, made=made)
    return write_bytes(Path(path), document.encode("utf-8", errors="replace"), "report")


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
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":"), "ensure_ascii": False}
    return environment


def _template(name: str) -> str:
    """The text of a file that goes into the page as it is."""
    return (Path(__file__).parent / "templates" / name).read_text("utf-8").strip()


def _summary(pages: Sequence[StudyPage], claims: int) -> str:
    if not pages:
        return "No study has results."
    seconds = wording.time_text(sum(page.run.seconds for page in pages))
    judged = wording.count_text(claims, "claim").replace("1 claim", "one claim", claims == 1)
    studies = "1 study" if len(pages) == 1 else f"{len(pages)} studies"
    return f"{studies}, {judged}, {seconds} of computing. Every verdict comes with the interval it rests on."


def _apart(limits: Sequence[str], others: int) -> str:
    """What to know of claims that no measured length can contradict; "" where there are none."""
    if not limits:
        return ""
    held = f"{limits.count('reproduced')} reproduced, {limits.count('undecided')} undecided"
    return (
        f"{len(limits)} of the {len(limits) + others} claims are limit theorems ({held}): they speak of long enough "
        "strings, so that no measured length can contradict them, and their verdicts weigh less than the others'."
    )


def _page(page: StudyPage, number: int) -> dict[str, Any]:
    """What the template needs of a study."""
    run, study = page.run, page.run.study
    paper, link = PAPERS.get(study.paper, (study.paper, ""))
    if not link and re.fullmatch(r"https?://[^\s\"'<>]+", study.paper):
        link = study.paper
    name = f"study-{number}"
    seeds = {key: values for key, values in page.settings.items() if "seed" in key.lower()}
    others = {key: values for key, values in page.settings.items() if key not in seeds}
    scale = study.scales[run.scale]
    known = {each for claim in study.claims for each in (claim.name, *claim.formerly)}
    return {
        "id": name,
        "name": study.name,
        "title": study.title,
        "paper": paper,
        "link": link,
        "where": ", ".join(study.figures),
        "scale": run.scale,
        "scale_note": scale.note,
        "progress": _progress(run),
        "time": wording.time_text(run.seconds),
        "notes": [*_warnings(run), *page.notes],
        "provenance": run.provenance,
        "deviations": study.deviations,
        "differences": [
            (setting, *(wording.values_text(each if isinstance(each, tuple) else [each]) for each in (there, here)))
            for setting, there, here in study.differences(run.scale)
        ],
        "claims": [
            _claim(claim, found, f"{name}-{place}", run) for place, (claim, found) in enumerate(run.decided_first)
        ],
        "gone": [look_view(look, study) for look in run.looks if look.claim not in known],
        "figures": _figures(study.name, page.figures),
        "table": _table(run.table),
        "command": page.command,
        "facts": _facts(page),
        "settings": [(key, wording.values_text(values)) for key, values in others.items()],
        "seeds": [(key, wording.values_text(values)) for key, values in seeds.items()],
    }


def _decided(run: Run) -> bool:
    return any(judgement.verdict != "undecided" for _, judgement in run.judgements)


def _progress(run: Run) -> str:
    if run.complete:
        return wording.count_text(run.trials, "trial")
    failed = f", {run.failed:,} failed" if run.failed else ""
    return f"{run.done:,} of {wording.count_text(run.trials, 'trial')}{failed}"


def _warnings(run: Run) -> list[str]:
    found = []
    if run.missing:
        left = f"{run.missing:,} of {wording.count_text(run.trials, 'trial')}"
        found.append(f"{left} {'is' if run.missing == 1 else 'are'} not measured yet: verdicts are interim.")
    if run.failed:
        found.append(
            f"{wording.count_text(run.failed, 'trial')} failed; flipscope results {run.study.name} --failed tells why."
        )
    return found


def _facts(page: StudyPage) -> list[tuple[str, str]]:
    run = page.run
    facts = [
        ("Trials", f"{run.done:,} of {run.trials:,} done, {run.failed:,} failed"),
        ("Time spent", f"{wording.time_text(run.seconds)}, all trials together"),
        ("Finished", page.finished),
        ("Version", f"flipscope {__version__}, code {page.code[:12]}, revision {run.study.revision}"),
        ("Measured on", "; ".join(page.machines)),
    ]
    return [(name, said) for name, said in facts if said]


def _claim(claim: Claim, found: Judgement, name: str, run: Run) -> dict[str, Any]:
    return {
        "id": name,
        "name": claim.name,
        "source": claim.source,
        "statement": claim.statement,
        "criterion": claim.criterion,
        "exploratory": claim.exploratory,
        "asymptotic": claim.asymptotic,
        **_judgement(found),
        "seen": "" if found.seen is None else found.seen.text,
        "looks": [look_view(look, run.study) for look in looks_of(run, claim)],
        "note": found.note,
        "remedy": found.remedy,
        "bar": wording.interval_places(found.measured, found.low, found.high),
        "parts": [_judgement(part) for part in found.parts],
    }


def _judgement(found: Judgement) -> dict[str, Any]:
    measured = wording.number_text(found.measured)
    return {
        "verdict": found.verdict,
        "interim": found.seen is not None and found.seen.standing == "interim",
        "quantity": found.quantity,
        "measured": measured,
        "interval": wording.interval_text(found.low, found.high) if measured else "",
        "limit": found.limit,
    }


def _figures(study: str, figures: Sequence[Figure]) -> list[dict[str, Any]]:
    stems = file_stems(study, list(figures))
    return [
        {
            "stem": stem,
            "title": figure.title,
            "caption": figure.caption,
            "where": figure.where,
            "alt": alt_text(figure),
            "svg": base64.b64encode(render(figure, "svg")).decode(),
            "pdf": base64.b64encode(render(figure, "pdf")).decode(),
            "data": specification(figure),
        }
        for stem, figure in zip(stems, figures, strict=True)
    ]


def _table(table: Rows) -> dict[str, Any]:
    names = list(dict.fromkeys(name for row in table for name in row))
    numbers = {name: all(wording.is_number(row.get(name)) for row in table) for name in names}

    def cell(name: str, value: Any) -> dict[str, Any]:
        text, value = wording.cell_text(value), wording.sort_value(value)
        return {"text": text, "value": value if value != text else "", "number": numbers[name]}

    return {
        "columns": [{"name": name, "number": numbers[name]} for name in names],
        "rows": [[cell(name, row.get(name)) for name in names] for row in table[:MAX_ROWS]],
        "count": f"{len(table):,}",
        "more": f"{len(table) - MAX_ROWS:,}" if len(table) > MAX_ROWS else "",
        "long": len(table) > OPEN_ROWS,
    }
