"""The one exception that means "the caller can fix this"."""

from __future__ import annotations


class InputError(ValueError):
    """Bad input, said in one clear sentence; the command line turns it into exit code 2."""
