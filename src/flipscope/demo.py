"""A tour of three minutes: functions, six studies that are large enough to decide most of their claims, the report."""

from __future__ import annotations

import io
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from flipscope import cli
from flipscope.basics.errors import InputError, printable
from flipscope.basics.streams import forgiving
from flipscope.basics.wording import time_text
from flipscope.bounds.geometry import verdict
from flipscope.cli.progress import progress
from flipscope.cli.run import watched
from flipscope.cube.expression import parse
from flipscope.cube.languages import language_of
from flipscope.cube.portrait import exact_portrait
from flipscope.lab import registry
from flipscope.lab.run.driver import Run
from flipscope.lab.run.runner import open_runner
from flipscope.lab.store.store import Store
from flipscope.lab.study import Study, Trial
from flipscope.lab.verdict import VERDICTS
from flipscope.report.lab import MARKS, claims_table
from flipscope.report.terminal import number, show

FUNCTIONS = ("parity(21)", "majority(21)", "first(21)", "maj(x1..x5) ^ (x6 & x7)")
SHAPE = {"width": 64, "layers": 2}  # of the transformers that the theorem is asked about
TERMS = (
    "\ns(x): how many bits of the string x change the value when flipped. Ruled out by Cor 4.6: almost no transformer "
    "of width {width} and {layers} layers (with eps = 0) recognises the family at all lengths."
)
RESULTS = Path("results") / "demo"
PICTURE = RESULTS / "functions.svg"
REPORT = RESULTS / "report.html"


@dataclass(frozen=True)
class Stop:
    """A study on the tour: what it asks, and what to know before its verdicts."""

    study: str
    question: str
    lead: str


TOUR = (
    Stop(
        "random-init",
        "Transformers with random weights: does a flipped bit change the answer?",
        "Of a random function every second flip does. The paper: of a transformer hardly any, however it is drawn.",
    ),
    Stop(
        "trained-profiles",
        "Trained transformers: what do they learn?",
        "The paper: First and Majority, never Parity. Here six small models of each, at most twenty epochs: a claim "
        "on every model falls with one that is stuck.",
    ),
    Stop(
        "zero-strings",
        "Strings that no flip moves",
        "The theorem that rules Parity and First out says how many of them a random transformer has at least. Here "
        "they are counted.",
    ),
    Stop(
        "random-functions",
        "The same strings of random functions",
        "A function drawn at random has one of them on average, and often none.",
    ),
    Stop(
        "low-variance",
        "A lemma under the theorem, by dice",
        "How often is the variance before a layer norm small? The bound as printed, and with its proof put right.",
    ),
    Stop(
        "blowup-tail",
        "The blowup that follows from a small variance",
        "The next lemma: at eps = 0 it is seldom large, and the wider the model the more seldom.",
    ),
)
NEXT = (
    'flipscope function "maj(x1..x5) ^ (x6 & x7)"',
    'flipscope verdict "parity(100)" --width 64 --layers 2',
    "flipscope studies trained-profiles",
    "flipscope run random-init",
)


def main() -> int:
    """The tour; 0 unless something failed, 130 after Ctrl-C."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal without Unicode gets "?" instead of a traceback
        sys.stdout.reconfigure(errors="replace")
    with forgiving():
        try:
            return tour(TOUR)
        except InputError as error:
            print(f"flipscope: {printable(str(error)).rstrip('.')}.", file=sys.stderr)
            return error.exit_code
        except OSError as error:
            if error.filename is None:
                raise
            print(f"flipscope: {error.filename} cannot be used: {error.strerror}.", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            print("flipscope: interrupted; the same command goes on from here.", file=sys.stderr)
            return 130


def tour(stops: Sequence[Stop], scale: str = "demo", workers: int | None = None) -> int:
    """Show the functions, run the studies, write the report, count what was decided; 1 if a trial failed."""
    start, steps, runs = time.monotonic(), len(stops) + 2, []
    RESULTS.mkdir(parents=True, exist_ok=True)
    _head(1, steps, "Four Boolean functions, exactly")
    _functions()
    studies = [registry.find(stop.study) for stop in stops]
    plans = [(study, study.checked_trials(scale)) for study in studies]
    _compile(*plans[0])
    with open_runner(workers) as runner, Store(RESULTS) as store:
        for place, (stop, (study, trials)) in enumerate(zip(stops, plans, strict=True)):
            _head(2 + place, steps, stop.question, stop.lead)
            runs.append(watched(study, scale, trials, store, runner))
            show(stop_page(runs[-1]))
    _head(steps, steps, "What was decided")
    if code := cli.main(["report", *(s.study for s in stops), "--results", str(RESULTS), "-o", str(REPORT)]):
        return code
    show(last_page(runs, time.monotonic() - start))
    return 1 if any(run.failed for run in runs) else 0


def _head(place: int, of: int, text: str, lead: str = "") -> None:
    told = Text(f"\n{place} of {of}. {text}\n", style="bold")
    show(told.append(f"{lead}\n", style="not bold") if lead else told)
    sys.stdout.flush()


def _compile(study: Study, trials: Sequence[Trial]) -> None:
    """Measure two trials of a study: they compile the loops, which each worker would do by itself, unseen."""
    by_cost = sorted(trials, key=lambda trial: trial.cost)
    print("\nCompiling, which takes half a minute after an installation ...", file=sys.stderr, flush=True)
    for trial in (by_cost[0], by_cost[-1]):
        study.measure(trial, lambda done, total: None)


def stop_page(run: Run) -> RenderableType:
    """What a study found: a line per decided claim, and one sentence on those that need more data."""
    title = Text(run.study.name, style="bold").append(f"  {run.study.scales[run.scale].note}", style="not bold dim")
    decided = [each for each in run.judgements if each[1].verdict != "undecided"]
    parts: list[RenderableType] = [title, Text(), claims_table(replace(run, judgements=decided))]
    if still_open := [claim.name for claim, judgement in run.judgements if judgement.verdict == "undecided"]:
        mark, colour = MARKS["undecided"]
        beside = Table.grid(padding=(0, 2, 0, 0))
        beside.add_row(Text(mark, style=colour), Text(_open_text(run, still_open), style="dim"))
        parts.append(beside)
    failed = f", {run.failed:,} failed" if run.failed else ""
    reused = f", {run.reused:,} of them from before" if run.reused else ""
    said = f"{run.done:,} of {run.trials:,} trials{failed}{reused}, {time_text(run.seconds)}."
    parts += [Text(), Text(said, style="dim")]
    return Group(*parts)


def _open_text(run: Run, names: Sequence[str]) -> str:
    """Which claims so few data leave open, and what has more."""
    scales = list(run.study.scales)
    said = f"open: {'; '.join(names)}"
    for larger in scales[scales.index(run.scale) + 1 :][:1]:
        minutes = time_text(60 * run.study.scales[larger].minutes)
        said += f". More data: flipscope run {registry.address(run.study)} --scale {larger} (about {minutes})"
    return f"{said}."


def last_page(runs: Sequence[Run], seconds: float) -> RenderableType:
    """The verdicts of all studies, counted; which claims are contradicted; where to go from here."""
    found = [(run.study.name, Counter(judgement.verdict for _, judgement in run.judgements)) for run in runs]
    whole = sum((counts for _, counts in found), Counter())
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    table.add_column("")
    for name in VERDICTS:
        table.add_column(name, justify="right", header_style=f"bold {MARKS[name][1]}")
    for study, counts in found:
        table.add_row(study, *(str(counts[name] or "·") for name in VERDICTS))
    decided = whole["reproduced"] + whole["contradicted"]
    said = Text(f"{decided} of {whole.total()} claims are decided by data made here", style="bold")
    said.append(f", in {time_text(seconds)}: {whole['reproduced']} reproduced, {whole['contradicted']} contradicted.")
    parts: list[RenderableType] = [table, Text(), said]
    mark, colour = MARKS["contradicted"]
    for run in runs:
        against = (claim for claim, judgement in run.judgements if judgement.verdict == "contradicted")
        parts += [Text(f"{mark}  {claim.name} ({claim.source})", style=colour) for claim in against]
    parts += [Text(f"\nThe report: {REPORT}, one file for any browser: verdicts, figures, tables, settings.")]
    parts += [Text(f"The four functions: {PICTURE}. Next, with .venv/bin on your PATH:\n")]
    parts += [Text(f"  {line}", style="cyan") for line in NEXT]
    return Group(*parts)


def _functions() -> None:
    """The numbers of the four functions, what the theorem says of their families, and their picture."""
    from flipscope.report.drawing import save_figure
    from flipscope.report.figures import function_figure

    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    table.add_column("function")
    for heading in ("mean of\ns(x)", "\nmax", "strings with\ns(x) = 0", "ruled out\nby Cor 4.6"):
        table.add_column(heading, justify="right", no_wrap=True)
    portraits = []
    with progress("four functions") as report:
        for text in FUNCTIONS:
            f = parse(text)
            found = exact_portrait(f, text)
            numbers = (found.average_sensitivity, found.max_sensitivity, found.profile[0])
            ruled_out = verdict(f, language_of(text, f), text, **SHAPE).ruled_out
            table.add_row(found.name, *map(number, numbers), "yes" if ruled_out else "no")
            portraits.append(found)
            report(len(portraits), len(FUNCTIONS) + 1)
        save_figure(function_figure(portraits), PICTURE)
    show(table)
    show(Text(TERMS.format(**SHAPE), style="dim"))


if __name__ == "__main__":
    sys.exit(main())
