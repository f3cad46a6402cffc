"""The state of a training in one file, from which it resumes as if it had never been interrupted.

It is a safetensors file with the tensors; its metadata hold the settings of the training, its progress, and a checksum
over everything. It is written under another name and renamed, so a complete one exists whenever the process is killed.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.checks import check_not_negative
from flipscope.basics.errors import InputError
from flipscope.basics.files import check_source
from flipscope.models.checkpoint import write_tensors
from flipscope.models.seal import SEAL, NotWhole, seal

VERSION = 1
KEY = "flipscope.checkpoint"  # metadata entry: {"version", "about", "values"} as JSON
SECONDS = 30.0  # between two checkpoints
SHARE = 20  # and at least this many times the duration of writing one


@dataclass(frozen=True)
class State:
    """A training between two steps."""

    tensors: dict[str, Tensor]
    values: dict[str, Any]  # JSON values


class Keeper:
    """Stores the state of one training in a file (`fit(keeper=...)`), at most every `seconds` (30), and at the end.

    With 0 seconds it is stored after every step.

    `about` identifies the training by JSON values: the checkpoint of another training, an unrelated file or a damaged
    one is rejected. With `lenient` these are overwritten with a warning instead. `advice` ends the error message.
    """

    @checked_arguments
    def __init__(
        self,
        path: str | os.PathLike[str],
        about: Mapping[str, Any] | None = None,
        *,
        seconds: float | None = None,
        lenient: bool = False,
        advice: str = "remove it to start again",
    ) -> None:
        seconds = SECONDS if seconds is None else check_not_negative("seconds between checkpoints", seconds)
        self.path = Path(path)
        self.about = dict(about or {})
        self.resumed_at: int | None = None  # the step from which the training was resumed
        self._seconds, self._lenient, self._advice = seconds, lenient, advice
        self._next = time.monotonic() + seconds
        self._trouble = ""
        self.kept_at: int | None = None  # the step of the stored state

    @property
    def due(self) -> bool:
        """Whether it is time for the next checkpoint."""
        return time.monotonic() >= self._next

    def load(self, about: Mapping[str, Any]) -> State | None:
        """The stored state of this training, or None if there is none."""
        try:
            state, found = read(self.path)
            if (reason := difference(found, json.loads(json.dumps(about)))) is not None:
                raise NotWhole(f"{self.path} belongs to a training with other settings ({reason})")
        except FileNotFoundError:
            return None
        except NotWhole as error:
            if not self._lenient:
                raise InputError(f"{error}: {self._advice}") from error
            logging.getLogger("flipscope").warning("%s, and the training begins anew", error)
            return None
        self.resumed_at = self.kept_at = state.values.get("steps")
        return state

    def save(self, state: State, about: Mapping[str, Any]) -> None:
        """Write the state; if that fails, warn once and continue the training."""
        start = time.monotonic()
        try:
            write(self.path, state, about)
            self._trouble, self.kept_at = "", state.values.get("steps")
        except InputError as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                logging.getLogger("flipscope").warning("%s; the training continues without a new checkpoint", error)
        if self._seconds:
            self._next = time.monotonic() + max(self._seconds, SHARE * (time.monotonic() - start))

    def clear(self) -> None:
        """Remove the checkpoint and unfinished files of killed processes, once the outcome is stored."""
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)
        sweep(self.path)


def sweep(path: Path) -> None:
    """Remove unfinished temporary files of this path; only for its sole writer."""
    with contextlib.suppress(OSError):
        for entry in list(path.parent.iterdir()):
            if entry.name.startswith(f".{path.name}.") and entry.name.endswith(".part"):
                entry.unlink(missing_ok=True)


def write(path: Path, state: State, about: Mapping[str, Any]) -> None:
    """Write a checkpoint atomically; InputError if that fails."""
    document = {"version": VERSION, "about": about, "values": state.values}
    metadata = {KEY: json.dumps(document, default=_plain)}
    write_tensors(path, state.tensors, {**metadata, SEAL: seal(state.tensors, metadata)})


def read(path: Path) -> tuple[State, dict[str, Any]]:
    """The state in a file, and the settings of its training; FileNotFoundError, or NotWhole."""
    metadata, tensors = _opened(path)
    text = metadata.get(KEY)
    if text is None:
        raise NotWhole(f"{path} is not a checkpoint of a training")
    if metadata.get(SEAL) != seal(tensors, {KEY: text}):
        raise NotWhole(f"{path} is damaged: its content has changed")
    document = json.loads(text)
    if document["version"] != VERSION:
        raise NotWhole(f"{path} is of format {document['version']}, and this flipscope reads {VERSION}")
    return State(tensors, document["values"]), document["about"]


def about(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings and progress of a checkpoint for a list, without reading tensors or checking the checksum."""
    check_source(path)
    try:
        with safe_open(path, framework="pt") as file:
            document = json.loads((file.metadata() or {})[KEY])
            return dict(document["about"]), dict(document["values"])
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise NotWhole(f"{path} is not a checkpoint of a training") from error


def _opened(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    if not path.exists():
        raise FileNotFoundError(path)
    check_source(path)
    try:
        with safe_open(path, framework="pt") as file:
            # Copies, since the file behind a memory map may change.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
            return file.metadata() or {}, tensors
    except FileNotFoundError:
        raise
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    except SafetensorError as error:
        raise NotWhole(f"{path} is not a checkpoint of a training, or is damaged") from error


def _plain(value: Any) -> Any:
    """Arrays in the state of a random stream, as lists."""
    return value.tolist()


def difference(there: Mapping[str, Any], here: Mapping[str, Any]) -> str | None:
    """A text on the first setting in which two trainings differ; None if there is none."""
    first, second = dict(_flat(there)), dict(_flat(here))
    for name in [*second, *(name for name in first if name not in second)]:
        a, b = first.get(name), second.get(name)
        if name not in first or name not in second or a != b:
            long = any(isinstance(value, str) and len(value) == 64 for value in (a, b))  # a fingerprint
            return f"another {name}" if long else f"{name} is {a} there and {b} here"
    return None


def _flat(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in content.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
