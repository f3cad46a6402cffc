"""An interrupted training goes on and ends as if nothing had happened; what is not its checkpoint is refused."""

from __future__ import annotations

import dataclasses
import logging
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import flipscope.training.checkpoints as module
import flipscope.training.fit as loop
from flipscope.basics.errors import InputError
from flipscope.cube.functions import majority
from flipscope.data.batches import Fresh, Shuffled
from flipscope.data.languages import draw
from flipscope.models import Transformer, encoder, save
from flipscope.models.seal import NotWhole, fingerprint
from flipscope.training.checkpoints import Keeper, read
from flipscope.training.fit import Moment, fit

N = 7
F = majority(N)
DATA = draw(F, N, {"train": 70, "validation": 40})

Outcome = tuple[Any, ...]


class Small(nn.Module):
    """Small and quick, and dropout draws in every step."""

    def __init__(self, seed: int = 1) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.random.manual_seed(seed)
            self.layers = nn.Sequential(nn.Linear(N, 6), nn.ReLU(), nn.Dropout(0.2), nn.Linear(6, 1))

    def forward(self, bits: Tensor) -> Tensor:
        out: Tensor = self.layers(bits.float())
        return out


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


class Interrupted(Small):
    """Is interrupted in the middle of its forward, dropout drawn, at a call of its choice."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self.calls = calls

    def forward(self, bits: Tensor) -> Tensor:
        out = super().forward(bits)
        self.calls -= 1
        if self.calls == 0:
            raise KeyboardInterrupt
        return out


def run(
    keeper: Keeper | None = None, *, source: str = "set", model: nn.Module | None = None, **settings: Any
) -> Outcome:
    """All that a training gives, except seconds; five steps an epoch, the last of a set smaller than the others."""
    model = Small() if model is None else model
    train, batch = (DATA["train"], 15) if source == "set" else (Fresh(F, N, 8, 5, 3), None)
    given: dict[str, Any] = {"learning_rate": 0.05, "max_epochs": 5, "decay_after": 1, "stop_after": 4, "seed": 5}
    fitted = fit(model, train, DATA["validation"], batch=batch, keeper=keeper, **(given | settings))
    history = [dataclasses.replace(epoch, seconds=0) for epoch in fitted.history]
    weights = fingerprint(model.state_dict().values())
    return weights, history, fitted.kept_epoch, fitted.steps, fitted.strings, fitted.stopped


def dying(step: int, error: type[BaseException]) -> Callable[[Moment], None]:
    def callback(moment: Moment) -> None:
        if moment.step == step:
            raise error

    return callback


# ---------------------------------------------------------------- going on


@pytest.mark.parametrize("source", ["set", "fresh"])
@pytest.mark.parametrize("optimiser", ["adam", "adamw", "sgd"])
def test_goes_on_as_if_never_interrupted(path: Path, source: str, optimiser: str) -> None:
    settings: dict[str, Any] = {"source": source, "optimiser": optimiser}
    whole = run(**settings)
    # The first call finds out how the model takes bits; the sixth is that of the first epoch's last batch, the seventh
    # its validation.
    for call in (5, 6, 7, 21):
        path.unlink(missing_ok=True)
        with pytest.raises(KeyboardInterrupt):
            run(Keeper(path), model=Interrupted(call), **settings)
        keeper = Keeper(path)
        assert run(keeper, **settings) == whole
        assert keeper.resumed_at == {5: 3, 6: 4, 7: 5, 21: 16}[call]


def test_several_deaths_between_checkpoints(path: Path) -> None:
    whole = run(source="fresh")
    for step in (3, 9, 10, 16):  # as by kill -9: nothing is saved on the way out
        with pytest.raises(RuntimeError):
            run(Keeper(path, seconds=0), callback=dying(step, RuntimeError), source="fresh")
        assert read(path)[0].values["steps"] == step - 1  # saved after the callback of the step before
    assert run(Keeper(path), source="fresh") == whole
    finished: list[int] = []
    assert run(Keeper(path), callback=lambda moment: finished.append(moment.step), source="fresh") == whole
    assert not finished


def test_the_end_is_where_it_was_to_be_however_close_it_was_interrupted(path: Path) -> None:
    def stop(moment: Moment) -> bool:
        return moment.step == 8

    for settings in ({"callback": stop}, {"max_steps": 8}):
        whole = run(**settings)
        path.unlink(missing_ok=True)
        with pytest.raises(KeyboardInterrupt):  # in the validation after the last step
            run(Keeper(path, seconds=0), model=Interrupted(10), **settings)
        assert run(Keeper(path), **settings) == whole
        assert whole[3] == 8


def test_the_plateau_is_remembered(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def scripted() -> None:
        losses = iter([2.0, 1.0, 3.0, 3.0, 3.0, 3.0, 3.0])
        monkeypatch.setattr(loop, "_ask", lambda model, bits, labels, kind, forward: (next(losses) * len(bits), 0))

    scripted()
    whole = run(max_epochs=9)
    assert (whole[3], whole[-1]) == (30, "patience")
    scripted()
    with pytest.raises(RuntimeError):
        run(Keeper(path, seconds=0), max_epochs=9, callback=dying(18, RuntimeError))
    assert run(Keeper(path), max_epochs=9) == whole


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_middle_of_a_step_waits_for_its_end(path: Path, number: signal.Signals) -> None:
    def heard(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    whole, seen = run(), []

    def callback(moment: Moment) -> None:  # which is told of a step before it is settled
        if moment.step == 7:
            signal.raise_signal(number)
            seen.append(moment.step)

    before = signal.signal(number, heard)
    try:
        with pytest.raises(KeyboardInterrupt):
            run(Keeper(path), callback=callback)
        assert signal.getsignal(number) is heard
    finally:
        signal.signal(number, before)
    assert seen == [7]
    keeper = Keeper(path)
    assert run(keeper) == whole
    assert keeper.resumed_at == 7


def test_an_interrupt_in_a_callback_leaves_the_checkpoint_before(path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(Keeper(path, seconds=0), callback=dying(7, KeyboardInterrupt))
    assert read(path)[0].values["steps"] == 6
    seen: list[int] = []
    assert run(Keeper(path), callback=lambda moment: seen.append(moment.step)) == run()
    assert seen[0] == 7


@pytest.mark.parametrize(
    "settings", [{"max_steps": 8}, {"until": lambda epoch: epoch.number == 2}, {"restore": "last"}]
)
def test_every_end_is_the_same(path: Path, settings: dict[str, Any]) -> None:
    whole = run(**settings)
    with pytest.raises(KeyboardInterrupt):
        run(Keeper(path, seconds=0), callback=dying(7, KeyboardInterrupt), **settings)
    assert run(Keeper(path), **settings) == whole
    assert run(Keeper(path), **settings) == whole


def test_divergence_is_kept_too(path: Path) -> None:
    settings: dict[str, Any] = {"optimiser": "sgd", "loss": "mse", "learning_rate": 1e30}
    whole = run(**settings)
    assert whole[-1] == "diverged"
    assert run(Keeper(path), **settings) == whole == run(Keeper(path), **settings)


class Normed(Small):
    """With statistics that change in every forward."""

    def __init__(self) -> None:
        super().__init__()
        self.layers[2] = nn.BatchNorm1d(6)


def test_running_statistics_are_never_of_half_a_step(path: Path) -> None:
    whole = run(model=Normed())
    with pytest.raises(KeyboardInterrupt):
        run(Keeper(path), model=Normed(), callback=dying(7, KeyboardInterrupt), every=7)
    assert not path.exists()
    with pytest.raises(KeyboardInterrupt):
        run(Keeper(path, seconds=0), model=Normed(), callback=dying(7, KeyboardInterrupt))
    assert run(Keeper(path), model=Normed()) == whole


@pytest.mark.parametrize("given", [0, 1, 4, 5])
def test_sources_go_on_within_an_epoch(given: int) -> None:
    for make in (lambda: Shuffled(DATA["train"], 15, 2), lambda: Fresh(F, N, 8, 5, 2)):
        whole = make()
        batches = [bits for _ in range(2) for bits, _ in whole]
        first, second = make(), make()
        passing = iter(first)
        for _ in range(given):
            next(passing)
        second.resume(first.state())
        found = [bits for bits, _ in second] + [bits for bits, _ in second]
        expected = batches[given:]
        assert len(found) == len(expected)
        assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


# ---------------------------------------------------------------- what is refused


@pytest.fixture
def unfinished(path: Path) -> Path:
    with pytest.raises(KeyboardInterrupt):
        run(Keeper(path, {"name": "one"}, seconds=0), callback=dying(7, KeyboardInterrupt))
    return path


def test_another_training_is_refused(unfinished: Path) -> None:
    with pytest.raises(InputError, match=r"name is one there and two here.*remove it to start again"):
        run(Keeper(unfinished, {"name": "two"}))
    keeper = Keeper(unfinished, {"name": "one"})
    for settings, word in (
        ({"learning_rate": 0.1}, "learning_rate is 0.05 there and 0.1 here"),
        ({"max_epochs": 6}, "max_epochs is 5 there and 6 here"),
        ({"seed": 6}, "settings.dropout"),
        ({"model": Small(2)}, "another initial weights"),
        ({"source": "fresh"}, "batch is 15"),
    ):
        with pytest.raises(InputError, match=word):
            run(keeper, **settings)
    assert run(keeper) == run()


def test_whatever_is_not_whole_is_refused_or_begun_anew(unfinished: Path, caplog: pytest.LogCaptureFixture) -> None:
    about = {"name": "one"}
    content, whole = unfinished.read_bytes(), run()
    flipped = bytearray(content)
    flipped[-3] ^= 1  # of a weight
    renamed = content.replace(b'"one', b'"two', 1).replace(b'\\"one', b'\\"two', 1)
    for damaged in (b"", b"no checkpoint", content[:-1], content[: len(content) // 2], bytes(flipped), renamed):
        unfinished.write_bytes(damaged)
        with pytest.raises(InputError, match=r"damaged|not a checkpoint|other settings"):
            run(Keeper(unfinished, about))
        assert unfinished.read_bytes() == damaged
        with caplog.at_level(logging.WARNING):
            assert run(Keeper(unfinished, about, lenient=True)) == whole
        assert "begins anew" in caplog.text
        caplog.clear()


def test_a_model_file_is_no_checkpoint(path: Path) -> None:
    save(Transformer(encoder(4, 1, 1)), path)
    with pytest.raises(InputError, match="not a checkpoint of a training: remove it"):
        run(Keeper(path))


def test_a_source_that_cannot_go_on_is_refused(path: Path) -> None:
    batches = [(DATA["train"].bits, DATA["train"].labels)]
    with pytest.raises(InputError, match="list of batches cannot be resumed"):
        fit(Small(), batches, DATA["validation"], learning_rate=0.1, keeper=Keeper(path))


def test_bad_seconds_are_refused(path: Path) -> None:
    for seconds in (-1.0, float("nan")):
        with pytest.raises(InputError, match="between checkpoints"):
            Keeper(path, seconds=seconds)


# ---------------------------------------------------------------- trouble with the disk


def test_a_full_disk_does_not_stop_the_training(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(RuntimeError):
        run(Keeper(path, seconds=0), callback=dying(4, RuntimeError))
    before = path.read_bytes()

    def full(*arguments: Any) -> None:
        raise InputError(f"{path} cannot be written: No space left on device")

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(module, "write_tensors", full)
        keeper = Keeper(path, seconds=0)
        assert run(keeper) == run()
        assert keeper.kept_at == 3
    assert [record.message for record in caplog.records] == [
        f"{path} cannot be written: No space left on device; the training continues without a new checkpoint"
    ]
    assert path.read_bytes() == before


def test_clear_removes_what_was_left_half_written(path: Path) -> None:
    left = path.with_name(f".{path.name}.0123.part")
    other = path.with_name(".another.0123.part")
    for each in (path, left, other):
        each.write_bytes(b"half")
    Keeper(path).clear()
    assert sorted(path.parent.iterdir()) == [other]


def test_a_missing_file_and_a_damaged_one_differ(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read(path)
    path.write_bytes(b"x" * 100)
    with pytest.raises(NotWhole):
        read(path)
