"""Every study is tested on one thread, as workers run it: the suite runs its workers side by side."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flipscope.lab.run.resources import one_thread


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield
