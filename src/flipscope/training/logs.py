"""Measurements during training: named measurements at intervals of steps, in a log that figures can plot.

A measurement sees the model in evaluation mode and does not change the training: PyTorch's random generators are put
back after it, and a measurement that changes a weight is an error. The log is part of the training's state, so that an
interrupted training ends with the same log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import Tensor, nn

from flipscope.basics.arguments import check_fields
from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError
from flipscope.basics.estimates import Estimate
from flipscope.models.devices import device_of, random_states_kept
from flipscope.models.modes import eval_mode
from flipscope.models.seal import fingerprint

Found: TypeAlias = float | Estimate | Mapping[str, float]  # result of a measurement
Line: TypeAlias = dict[str, float]  # line of the log: "step", "loss" of that step's batch, and measurements


@dataclass(frozen=True)
class Log:
    """A measurement of the model after every `every`-th step, and before the first.

    A number is logged under the measurement's name, an Estimate under "name", "name.low" and "name.high", and the
    entries of a mapping under "name.entry". A measurement with the attribute ``reads_log = True`` returns mappings, and
    is called with the model and with what it returned before, so that it needs no memory of its own, which an
    interrupted training would lose.
    """

    name: str
    measure: Callable[..., Found]
    every: int = 100

    def __post_init__(self) -> None:
        check_fields(self)
        check_count("every", self.every)
        if not self.name or self.name in ("step", "loss"):
            raise InputError(f"a measurement cannot be called {self.name!r}: give it another name")


class Recorder:
    """The log of one training."""

    def __init__(self, logs: Sequence[Log], model: nn.Module) -> None:
        names = [log.name for log in logs]
        if len(set(names)) != len(names):
            raise InputError(f"two measurements have the same name ({', '.join(names)}): give each its own")
        self._logs, self._model = tuple(logs), model
        self.lines: list[Line] = []

    def see(self, step: int, loss: float | None = None) -> None:
        """Take the measurements that are due after this step."""
        due = [log for log in self._logs if step % log.every == 0]
        if not due or (self.lines and self.lines[-1]["step"] == step):
            return
        line: Line = {"step": step} if loss is None else {"step": step, "loss": loss}
        before = _weights(self._model)
        for log in due:
            line |= _measured(log, self._model, self.lines)
            if _weights(self._model) != before:
                raise InputError(f"the measurement {log.name} changed the weights: let it work on a copy")
        self.lines.append(line)


def _weights(model: nn.Module) -> str:
    """A fingerprint of the model's weights."""
    return fingerprint(value for value in model.state_dict().values() if isinstance(value, Tensor))


def _measured(log: Log, model: nn.Module, lines: Sequence[Line]) -> Line:
    """The result of one measurement, by name."""
    before = [_before(log, lines)] if getattr(log.measure, "reads_log", False) else []
    with random_states_kept(device_of(model)), eval_mode(model):
        found: Any = log.measure(model, *before)
    if isinstance(found, Estimate):
        return {log.name: found.value, f"{log.name}.low": found.low, f"{log.name}.high": found.high}
    if isinstance(found, Mapping):
        return {f"{log.name}.{name}": _number(log, value) for name, value in found.items()}
    return {log.name: _number(log, found)}


def _before(log: Log, lines: Sequence[Line]) -> list[Line]:
    """What a measurement returned before."""
    start = f"{log.name}."
    entries = [{name.removeprefix(start): line[name] for name in line if name.startswith(start)} for line in lines]
    return [entry for entry in entries if entry]


def _number(log: Log, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise InputError(f"the measurement {log.name} gave {type(value).__name__}, which is not a number") from error


def names_in(lines: Sequence[Line]) -> list[str]:
    """The logged names, in the order of their first appearance."""
    return list(dict.fromkeys(name for line in lines for name in line if name != "step"))


def series(lines: Sequence[Line], name: str) -> tuple[list[int], list[float]]:
    """The steps at which something was logged, and its values."""
    rows = [(int(line["step"]), line[name]) for line in lines if name in line]
    if not rows:
        known = ", ".join(names_in(lines)) or "nothing"
        raise InputError(f"{name!r} was not logged: the log has {known}")
    return [step for step, _ in rows], [value for _, value in rows]
