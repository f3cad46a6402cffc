"""Standard output and error that never stop the work: what cannot be written is dropped, and the reason kept.

A reader that goes away, a full disk or a closed descriptor is no reason to lose hours of measuring. Code prints as
usual; the command line looks at `trouble` at the end and reports it.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any, TextIO, cast


class Outlet:
    """A text stream whose writes do not raise; `trouble` is the first error, and nothing is written after it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.trouble: OSError | ValueError | None = None

    def write(self, text: str) -> int:
        """Write the text, unless a write has failed."""
        if self.trouble is None:
            with self._forgiven():
                self._stream.write(text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write the lines, unless a write has failed."""
        self.write("".join(lines))

    def flush(self) -> None:
        """Flush the stream, unless a write has failed."""
        if self.trouble is None:
            with self._forgiven():
                self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @contextlib.contextmanager
    def _forgiven(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.trouble = error
            # Send the rest of the buffer nowhere: otherwise the interpreter tries again at exit, and complains.
            with contextlib.suppress(OSError), open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), self._stream.fileno())
        except ValueError as error:
            if not self._stream.closed:
                raise
            self.trouble = error


@contextlib.contextmanager
def forgiving() -> Iterator[Outlet]:
    """Both standard streams as outlets; yields that of standard output."""
    stand_in_for_closed()
    before = sys.stdout, sys.stderr
    out, err = Outlet(sys.stdout), Outlet(sys.stderr)
    sys.stdout, sys.stderr = cast(TextIO, out), cast(TextIO, err)
    try:
        yield out
    finally:
        out.flush()
        err.flush()
        sys.stdout, sys.stderr = before


def stand_in_for_closed() -> None:
    """Open standard streams that were closed at the start, so that no other file gets their descriptors and their text.

    Standard output then refuses every write, so that the loss is reported; standard error and input are empty.
    """
    if sys.stdin is None:
        sys.stdin = os.fdopen(_null(os.O_RDONLY), closefd=False)
    if sys.stdout is None:
        sys.stdout = os.fdopen(_null(os.O_RDONLY), "w", errors="replace", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(_null(os.O_WRONLY), "w", errors="replace", closefd=False)


def _null(flags: int) -> int:
    """The null device, under the lowest number that is free, for worker processes too."""
    handle = os.open(os.devnull, flags)
    os.set_inheritable(handle, True)
    return handle
