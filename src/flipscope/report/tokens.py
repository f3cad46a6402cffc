"""The terminal page of token sensitivity."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.console import RenderableType
from rich.text import Text

from flipscope.basics.errors import printable
from flipscope.basics.estimates import Estimate
from flipscope.probes.token_results import TokenSensitivity
from flipscope.report.models import facts, note, panel
from flipscope.report.terminal import number

_SHOWN = 5  # inputs, the most sensitive ones
_WORDS = 12  # of each


def tokens_page(found: TokenSensitivity, model: str, names: Sequence[str] = ()) -> RenderableType:
    """The page of ``flipscope tokens``: estimates, and which tokens of the most sensitive inputs matter."""
    rows = [
        (name, number(value) if isinstance(value, Estimate | float) else str(value))
        for name, value in found.summary().items()
    ]
    parts: list[RenderableType] = [facts(rows), Text()]
    shares = np.nan_to_num(found.per_input, nan=-1.0)
    most = [int(each) for each in np.argsort(-shares, kind="stable")[:_SHOWN] if shares[each] > 0]
    if most:
        parts += [
            Text("most sensitive inputs, and the tokens that they depend on"),
            facts([_row(found, i, names) for i in most]),
        ]
        parts.append(Text())
    parts.append(note(f"Intervals hold with confidence {found.definition.confidence:g} for inputs like these."))
    return panel(model, parts)


def _row(found: TokenSensitivity, index: int, names: Sequence[str]) -> tuple[str, str]:
    """An input and its tokens that changed the answer most."""
    shares = np.nan_to_num(found.changed[index], nan=0.0)
    order = [int(token) for token in np.argsort(-shares, kind="stable")[:_WORDS] if shares[token] > 0]
    words = [f"{_word(found, index, token)} {shares[token]:.2g}" for token in order]
    name = printable(names[index]) if names else f"input {index}"
    name = name if len(name) <= 40 else f"{name[:39]}…"
    return f"{name}  {found.per_input[index]:.2g}", ", ".join(words)


def _word(found: TokenSensitivity, index: int, token: int) -> str:
    return f"token {token}" if found.words is None else printable(found.words[index][token])
