"""How often the suite repeats a random check: seldom in `make test`, often with HYPOTHESIS_PROFILE=dev."""

from __future__ import annotations

import os

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev")


def repeated(often: int, seldom: int) -> int:
    """The number of repetitions or examples; `seldom` is still enough to find the faults that the check names."""
    return seldom if PROFILE == "ci" else often
