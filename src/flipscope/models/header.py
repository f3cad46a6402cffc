"""The header of a model's file, read without PyTorch, so that a model that is too large is rejected at once."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flipscope.basics.errors import InputError
from flipscope.basics.files import check_source
from flipscope.basics.registry import UnknownName
from flipscope.models.config import TransformerConfig
from flipscope.models.kinds import AnyConfig, StringConfig, configuration
from flipscope.models.seq2seq_config import Seq2SeqConfig
from flipscope.models.size import check_model

VERSION = 1
KEY = "flipscope.transformer"  # metadata entry: {"version": ..., "config": ...} as JSON
LARGEST = 100_000_000  # largest header in bytes, as in safetensors


@dataclass(frozen=True)
class Header:
    """The part of a model's file before its tensors."""

    path: Path
    config: AnyConfig
    metadata: Mapping[str, str]  # all entries, including the configuration
    tensors: int  # number of tensors


def read_header(path: str | os.PathLike[str]) -> Header:
    """The header of a model's file of any kind; InputError if it cannot be read."""
    source = Path(path)
    try:
        check_source(source)
        if not source.exists():
            raise InputError(f"{source} is not a file")
        with source.open("rb") as file:
            (size,) = struct.unpack("<Q", file.read(8))
            if size > LARGEST:
                raise ValueError
            header: Any = json.loads(file.read(size))
        metadata = dict(header.pop("__metadata__", {}))
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"{source} cannot be read as safetensors: {error.strerror or error}") from error
    except (ValueError, TypeError, AttributeError, RecursionError, struct.error) as error:
        raise InputError(f"{source} cannot be read as safetensors: it does not begin with a header") from error
    return Header(source, read_config(source, metadata), metadata, len(header))


def string_config(header: Header) -> StringConfig:
    """The configuration of a model with one answer per string.

    InputError if it is another model, or too large for its file or for this machine.
    """
    config = header.config
    if isinstance(config, Seq2SeqConfig):
        raise InputError(f"{header.path} is an encoder-decoder, and a transformer is wanted here: give another file")
    if config.layers > 2 * header.tensors:
        raise InputError(f"{header.path} is far too small for the sizes in its configuration")
    if isinstance(config, TransformerConfig):
        check_model(config, number=2)  # half precision at the least
    else:
        config.check_size(number=2)
    return config


def read_config(source: Path, metadata: Mapping[str, str]) -> AnyConfig:
    """The configuration in a file's metadata."""
    if KEY not in metadata:
        raise InputError(f"{source} is not a flipscope model: its metadata has no entry {KEY!r}")
    try:
        record: Any = json.loads(metadata[KEY])
        version, fields = record["version"], record["config"]
        newer = version > VERSION
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{source} has a damaged metadata entry {KEY!r}") from error
    if newer:
        raise InputError(f"{source} has format version {version}, but this flipscope reads {VERSION}: update it")
    if version != VERSION or not isinstance(fields, dict):
        raise InputError(f"{source} has a damaged metadata entry {KEY!r}")
    try:
        return configuration(fields)
    except UnknownName as error:
        raise UnknownName(f"{source} cannot be read: {error}") from error
    except InputError as error:
        raise InputError(f"{source} has a configuration that is not valid: {error}") from error
