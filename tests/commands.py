"""How tests call the command line: the type of the fixture `run`, and the document that a call printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

Called = tuple[Any, str, str]  # exit code, standard output, standard error
Run = Callable[..., Called]


def document(found: Called) -> Any:
    """The one JSON document of a call that ended well and said nothing else."""
    code, out, err = found
    assert (code, err) == (0, "")
    assert out.count("\n") == 1
    return json.loads(out)
