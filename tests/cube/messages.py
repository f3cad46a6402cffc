"""What an error message must be: one sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from flipscope.basics.errors import InputError


@contextmanager
def one_sentence(match: str = "") -> Iterator[None]:
    """The block must raise InputError with exactly one sentence, in which ``match`` is found."""
    with pytest.raises(InputError, match=match or None) as caught:
        yield
    message = str(caught.value)
    assert message.endswith("."), message
    assert "\n" not in message, message
    assert len(message) < 1000, message
    assert not re.search(r"[.!?] +[A-Z]", message), message
    assert not re.search(r"[.!?] ", message), message
