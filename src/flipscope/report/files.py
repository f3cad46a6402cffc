"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flipscope.errors import InputError


@contextmanager
def replacing(target: Path, what: str) -> Iterator[Path]:
    """A temporary file beside the target, which takes its place at the end; nothing changes where anything fails."""
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=target.name[:80], suffix=target.suffix)
        os.close(handle)
        temporary = Path(name)
        try:
            yield temporary
            temporary.chmod(0o644)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"the {what} cannot be written to {target}: {error.strerror or error}.") from None


def write_bytes(target: Path, content: bytes, what: str) -> Path:
    """Write a file whole or not at all; returns its path."""
    if not target.parent.is_dir():
        raise InputError(f"the {what} cannot be written to {target}: the folder does not exist.")
    with replacing(target, what) as temporary:
        temporary.write_bytes(content)
    return target
