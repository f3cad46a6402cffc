"""Packages of the optional extra `cluster`."""

from __future__ import annotations

import importlib
import signal
from typing import Any

from flipscope.basics.errors import InputError


def imported(package: str) -> Any:
    """A package of the extra `cluster`."""
    interrupted = signal.getsignal(signal.SIGINT)
    try:
        return importlib.import_module(package)
    except ImportError:
        raise InputError("a cluster needs Dask: pip install 'flipscope[cluster]'") from None
    finally:
        # dask_jobqueue lets Ctrl-C end the process with code 0.
        if signal.getsignal(signal.SIGINT) is not interrupted:
            signal.signal(signal.SIGINT, interrupted)
