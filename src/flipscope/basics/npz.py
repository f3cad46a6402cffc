"""Arrays in `.npz` files, whose headers are read first: a small file can unpack to more than any machine holds."""

from __future__ import annotations

import math
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from flipscope.basics.files import check_source
from flipscope.basics.limits import check_memory

# What unzipping and numpy raise on damaged bytes.
DAMAGE = (
    EOFError,
    KeyError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


class Header(NamedTuple):
    """What an array will be, known before it is unpacked."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """Bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


class Arrays:
    """The arrays of a file, each unpacked on first use if it fits into memory."""

    def __init__(self, path: Path, opened: np.lib.npyio.NpzFile) -> None:
        self._path, self._opened = path, opened

    @property
    def names(self) -> list[str]:
        """The names of all arrays."""
        return list(self._opened.files)

    def header(self, name: str) -> Header:
        """Shape and type of an array, read without unpacking its numbers."""
        assert self._opened.zip is not None
        with self._opened.zip.open(f"{name}.npy") as member:
            version = npy.read_magic(member)
            read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            shape, _, dtype = read(member)
        return Header(shape, dtype)

    def __getitem__(self, name: str) -> NDArray[Any]:
        size = self.header(name).size
        check_memory(size, f"{name} in {self._path}", "give a file with less in it")
        return np.asarray(self._opened[name])


@contextmanager
def opened(path: Path) -> Iterator[Arrays]:
    """The arrays of a file; a damaged file raises one of DAMAGE."""
    check_source(path)
    # Opened here, because np.load does not close the file when what is inside turns out to be damaged.
    with path.open("rb") as file:
        arrays = np.load(file, allow_pickle=False)
        if not isinstance(arrays, np.lib.npyio.NpzFile):
            raise TypeError(f"{path} holds one array without a name")
        with arrays:
            yield Arrays(path, arrays)
