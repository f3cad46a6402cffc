"""The progress of a running study on standard error: live on a terminal, otherwise a line now and then."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import TextIO

from rich.console import Group, RenderableType
from rich.live import Live as RichLive
from rich.text import Text

from flipscope.basics.wording import time_text
from flipscope.lab.findings import Findings, Judgements
from flipscope.lab.run.events import Advanced, Event, Failed, Finished, Retried, Started
from flipscope.lab.study import Study
from flipscope.report.terminal import SafeConsole, bar, mark_of
from flipscope.report.views import judgement_view

QUIET_SECONDS = 2.0  # shorter runs show no progress
LINE_SECONDS = 10.0
BAR = 30


class Live:
    """Shows the progress of a running study (`lab.run.driver.Observer`)."""

    def __init__(self, stream: TextIO) -> None:
        self._console = SafeConsole(file=stream, highlight=False)
        self._view: RichLive | None = None
        self._study: Study | None = None
        self._scale = ""
        self._total = self._done = self._failed = self._retried = 0
        self._costs: Mapping[str, float] = {}
        # Running sums: adding up all trials at each event would take longer than the trials.
        self._cost = 0.0  # cost of all trials of this run
        self._spent = 0.0  # the part of it that is done: finished trials, and shares of running ones
        self._finished = 0  # finished trials of this run
        self._running: dict[str, float] = {}  # finished share of each running trial
        self._trouble = ""
        self._judgements: Judgements = []
        self._start = self._last_line = time.monotonic()

    def __enter__(self) -> Live:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._view is not None:
            self._view.stop()
        if isinstance(error, KeyboardInterrupt) and self._study is not None:
            kept = f"{self._done:,} of {self._total:,} trials are stored"
            self._console.print(
                f"{self._study.name}: stopped; {kept}, and the same command continues from there.", soft_wrap=True
            )

    def begin(self, study: Study, scale: str, total: int, reused: int, costs: Mapping[str, float]) -> None:
        """Start showing progress."""
        self._study, self._scale, self._total, self._done, self._costs = study, scale, total, reused, costs
        self._cost, self._spent = sum(costs.values()), 0.0
        self._start = self._last_line = time.monotonic()
        # A dumb terminal cannot overwrite its output.
        if self._console.is_terminal and not self._console.is_dumb_terminal and costs:
            # rich calls for the page when it redraws, which is far less often than events occur.
            self._view = RichLive(
                get_renderable=self._page, console=self._console, refresh_per_second=4, transient=True
            )
            self._view.start()

    def event(self, event: Event) -> None:
        """Update the progress after an event."""
        match event:
            case Started(key):
                self._advance(key, 0.0)
            case Advanced(key, share):
                self._advance(key, share)
            case Finished(key):
                self._done += 1
                self._close(key)
            case Failed(key, text):
                self._failed += 1
                self._close(key)
                self._trouble = text.strip().splitlines()[-1]
            case Retried(key, reason):
                self._retried += 1
                self._advance(key, 0.0)
                self._trouble = reason
        self._show()

    def judged(self, judgements: Judgements) -> None:
        """Update the verdicts shown."""
        self._judgements = judgements
        self._show()

    def finished(self, run: Findings) -> None:
        """Stop showing progress."""
        if self._view is not None:
            self._view.stop()
            self._view = None

    def _advance(self, key: str, share: float) -> None:
        self._spent += self._costs[key] * (share - self._running.get(key, 0.0))
        self._running[key] = share

    def _close(self, key: str) -> None:
        self._advance(key, 1.0)
        del self._running[key]
        self._finished += 1

    @property
    def share(self) -> float:
        """The finished share of this run's work."""
        return min(max(0.0, self._spent / self._cost), 1.0) if self._cost else 1.0

    def _show(self) -> None:
        now = time.monotonic()
        due = now - self._start > QUIET_SECONDS and now - self._last_line > LINE_SECONDS
        if self._view is None and due:
            self._last_line = now
            self._console.print(self._line(), soft_wrap=True)

    def _line(self) -> str:
        """The progress on one line."""
        assert self._study is not None
        elapsed, share = time.monotonic() - self._start, self.share
        said = [f"{self._study.name} {self._scale}: {self._done:,} of {self._total:,} trials"]
        if self._failed:
            said.append(f"{self._failed:,} failed")
        if self._retried:
            said.append(f"{self._retried:,} retried")
        if self._finished and elapsed:
            rate = self._finished / elapsed
            said.append(f"{rate:.2g} per second" if rate >= 1 else f"{time_text(1 / rate)} each")
        if share > 0.01:
            said.append(f"about {time_text(elapsed / share - elapsed)} left")
        return ", ".join(said)

    def _page(self) -> RenderableType:
        """The whole page: a bar, the progress, the verdicts so far, the latest problem."""
        width = min(BAR, self._console.width - 1)  # one column for the space after the bar
        filled = bar(self.share, width)
        first = Text(filled, style="cyan")
        first.append("░" * (width - len(filled)) + " ", style="dim")
        first.append(self._line())
        lines: list[RenderableType] = [first]
        for claim, judgement in self._judgements:
            mark, colour = mark_of(judgement_view(judgement))
            lines.append(Text(f"  {mark} {claim.name}: {judgement.note}", style=colour))
        if self._trouble:
            lines.append(Text(f"  {self._trouble}", style="red", no_wrap=True, overflow="ellipsis"))
        return Group(*lines)
