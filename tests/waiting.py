"""How tests wait: for something to be so, however busy the machine is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

LIMIT = 300  # seconds after which it is taken for granted that it will not happen


def waited_for(what: Callable[[], Any]) -> Any:
    """What it returns when that becomes true."""
    deadline = time.monotonic() + LIMIT
    while True:
        if found := what():
            return found
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def answered(call: Callable[[], Any]) -> Any:
    """What a call returns, or the exception that it raised; it fails where the call waits for something forever."""
    found: list[Any] = []

    def ask() -> None:
        try:
            found.append(call())
        except Exception as error:
            found.append(error)

    asker = threading.Thread(target=ask, daemon=True)
    asker.start()
    asker.join(LIMIT / 10)
    assert found, "it still waits"
    return found[0]
