"""How tests call the command line: the type of the fixture `run`, and the document that a call printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

Called = tuple[Any, str, str]  # exit code, standard output, standard error
Run = Callable[..., Called]


def document(found: Called, *, quiet: bool = True) -> Any:
    """The one JSON document of a call that ended well and, if it is to be quiet, said nothing else."""
    code, out, err = found
    assert code == 0, err
    assert err == "" or not quiet
    assert out.count("\n") == 1
    return json.loads(out)
