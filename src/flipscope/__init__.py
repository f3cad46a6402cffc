"""flipscope: see what it takes to flip a model's mind."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

__all__ = ["BooleanFunction", "InputError", "__version__", "parse", "sensitivity", "spectrum", "train"]

if TYPE_CHECKING:
    from flipscope.cube.expression import parse
    from flipscope.cube.functions import BooleanFunction
    from flipscope.errors import InputError
    from flipscope.probes.flips import sensitivity, spectrum
    from flipscope.training.train import train
else:
    # Names are fetched on first use: `import flipscope` and `flipscope --help` load neither numba nor torch.
    _HOMES = {
        "BooleanFunction": "flipscope.cube.functions",
        "InputError": "flipscope.errors",
        "parse": "flipscope.cube.expression",
        "sensitivity": "flipscope.probes.flips",
        "spectrum": "flipscope.probes.flips",
        "train": "flipscope.training.train",
    }

    def __getattr__(name: str) -> object:
        """Return the public name from the module it lives in."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        """Return the names of the module, the unfetched ones included."""
        return sorted({*globals(), *_HOMES})
