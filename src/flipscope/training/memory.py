"""The state that the training loop exchanges with its keeper: when it is consistent, and how it is restored."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from flipscope.basics.errors import InputError
from flipscope.data.batches import Batch, Resumable
from flipscope.models.devices import random_states, set_random_states
from flipscope.models.seal import fingerprint
from flipscope.training.checkpoints import Keeper, State

_MODEL, _BEST, _OPTIMISER, _DROPOUT = "model.", "best.", "optimiser.", "dropout"


class Memory:
    """The part of a training's state that is in PyTorch and in the source of batches.

    `mark` holds the random streams at the last consistent state; None during a step or the end of an epoch. Between two
    marks the weights do not change, so an interrupt in the middle of a gradient still finds the state of the last mark.
    """

    def __init__(
        self,
        keeper: Keeper,
        model: nn.Module,
        device: torch.device,
        stepper: torch.optim.Optimizer,
        source: Iterable[Batch],
        validation: Iterable[Tensor],
        settings: Mapping[str, Any],
    ) -> None:
        if not isinstance(source, Resumable):
            kind = type(source).__name__
            raise InputError(f"a {kind} of batches cannot be resumed in the middle: with a keeper, give a set or Fresh")
        self.keeper, self.model, self.device, self.stepper, self.source = keeper, model, device, stepper, source
        weights = self._tensors(model.state_dict())
        self.about = {
            **keeper.about,
            "settings": dict(settings),
            "initial weights": fingerprint(weights.values()),
            "training set": source.fingerprint(),
            "order of the strings": fingerprint([torch.tensor(list(repr(source.state()).encode()), device="cpu")]),
            "validation set": fingerprint(validation),
        }
        self.mark: tuple[dict[str, Tensor], dict[str, Any]] | None = None
        self._noted: tuple[Any, int] | None = None  # a postponed stop signal and its handler

    def _tensors(self, content: Mapping[str, Any]) -> dict[str, Tensor]:
        for name, value in content.items():
            if not isinstance(value, Tensor):
                raise InputError(
                    f"the model's state {name} is a {type(value).__name__}: a checkpoint holds tensors only"
                )
        return dict(content)

    def settle(self) -> None:
        """Mark the state as consistent."""
        self.mark = random_states(self.device), self.source.state()
        if self._noted is not None:
            (hearer, number), self._noted = self._noted, None
            hearer(number, None)

    @contextlib.contextmanager
    def patient(self) -> Iterator[None]:
        """Within this context, Ctrl-C and SIGTERM wait until the state is consistent; a second one does not wait."""
        found = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        if threading.current_thread() is not threading.main_thread():
            found = {}

        def note(number: int, frame: Any) -> None:
            hearer: Any = found[signal.Signals(number)]
            if self.mark is None and self._noted is None:
                self._noted = hearer, number
            else:
                hearer(number, frame)

        wrapped = [number for number, hearer in found.items() if callable(hearer)]
        try:
            for number in wrapped:
                signal.signal(number, note)
            yield
        finally:
            for number in wrapped:
                signal.signal(number, found[number])

    def recall(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Restore the keeper's state; returns the best weights and the loop's values, or None if there is no state."""
        found = self.keeper.load(self.about)
        if found is None:
            return None
        tensors, values = found.tensors, found.values
        self.model.load_state_dict(_under(tensors, _MODEL))
        moments: dict[int, dict[str, Tensor]] = {}
        for name, tensor in _under(tensors, _OPTIMISER).items():
            index, _, kind = name.partition(".")
            moments.setdefault(int(index), {})[kind] = tensor
        groups = [{**group, "lr": values["learning_rate"]} for group in self.stepper.state_dict()["param_groups"]]
        self.stepper.load_state_dict({"state": moments, "param_groups": groups})
        # There is no state for another kind of device: its generator has been seeded and not been used yet.
        kinds = {name.partition(".")[2] or "cpu": state for name, state in tensors.items() if _is_noise(name)}
        set_random_states(self.device, kinds)
        self.source.resume(values["source"])
        return _under(tensors, _BEST), values

    def keep(self, best: Mapping[str, Any], values: dict[str, Any], *, interrupted: bool) -> None:
        """Pass the state to the keeper if it is consistent."""
        # An interrupted gradient has changed running statistics, such as those of batch norms.
        if self.mark is None or (interrupted and next(self.model.buffers(), None) is not None):
            return
        noise, source = self.mark
        tensors = {_DROPOUT if kind == "cpu" else f"{_DROPOUT}.{kind}": state for kind, state in noise.items()}
        for prefix, content in ((_MODEL, self.model.state_dict()), (_BEST, best)):
            tensors |= {prefix + name: tensor.detach().cpu().clone() for name, tensor in content.items()}
        for index, moments in self.stepper.state_dict()["state"].items():
            for kind, value in moments.items():
                if value is not None:
                    tensors[f"{_OPTIMISER}{index}.{kind}"] = value.detach().cpu().clone()
        rate = self.stepper.param_groups[0]["lr"]
        self.keeper.save(State(tensors, {**values, "learning_rate": rate, "source": source}), self.about)


def _is_noise(name: str) -> bool:
    return name.partition(".")[0] == _DROPOUT


def _under(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
