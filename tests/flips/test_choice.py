"""Which path is taken where the fast one has to be compiled or loaded first: the same answers by either."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pytest
import torch

from flipscope.adapters.subject import Subject
from flipscope.basics.compiling import VARIABLE, compile_always, compiling
from flipscope.basics.errors import InputError
from flipscope.flips import choice, engine
from flipscope.flips.choice import LOADING_SECONDS, Needed, Patience, Work
from flipscope.flips.engine import open_engine
from flipscope.flips.fast import FastEngine
from flipscope.models import presets
from flipscope.models.transformer import Transformer
from flipscope.native.compiled import Loop
from flipscope.probes.sensitivity import acceptance_flips, sensitivities, sensitivity_profile, truth_table


@dataclass
class FakeLoop:
    """A loop that remembers whether it was compiled."""

    kept: bool
    readied: int = 0

    def is_compiled(self) -> bool:
        return self.kept

    def ready(self) -> None:
        self.kept, self.readied = True, self.readied + 1


def needing(*loops: FakeLoop, seconds: float = 10.0) -> Any:
    return lambda: [Needed(cast(Any, list(loops)), seconds)]


@pytest.fixture(autouse=True)
def _by_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule is at work, as for a user who has set nothing, and nothing has been measured in this process."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(engine, "PATIENCE", Patience())


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> list[Loop]:
    """No loop is in the cache; those that are made ready."""
    readied: list[Loop] = []
    monkeypatch.setattr(Loop, "is_compiled", lambda loop: loop in readied)
    monkeypatch.setattr(Loop, "ready", lambda loop, types=None: readied.append(loop))
    return readied


def model(width: int = 16, layers: int = 2) -> Transformer:
    return Transformer(presets.encoder(width=width, layers=layers, heads=2), scheme="xavier_normal", seed=1)


def strings(count: int, length: int) -> np.ndarray:
    return np.random.default_rng(5).integers(0, 2, (count, length), np.uint8)


def test_with_an_empty_cache_small_work_is_not_compiled_and_large_work_is() -> None:
    for seconds, compiled in ((19.9, False), (20.0, True)):
        first, second = FakeLoop(kept=False), FakeLoop(kept=False)
        objection = Patience().objection(seconds, needing(first, second))
        assert (objection is None, first.readied, second.readied) == (compiled, compiled, compiled)
        if objection is not None:
            assert objection == "this is about 19.9 s of work, and compiling the fast path takes about 20 s"


def test_only_what_is_missing_counts_and_is_compiled() -> None:
    kept, missing = FakeLoop(kept=True), FakeLoop(kept=False)
    assert Patience().objection(9.0, needing(kept, missing)) is not None
    assert Patience().objection(11.0, needing(kept, missing)) is None
    assert (kept.readied, missing.readied) == (0, 1)


def test_a_warm_cache_always_takes_the_fast_path() -> None:
    assert Patience().objection(1e-6, needing(FakeLoop(kept=True))) is None
    assert Patience().objection(1e-6, lambda: []) is None  # a model that needs no loop


def test_small_measurements_add_up_to_a_large_one() -> None:
    patience, loop = Patience(), FakeLoop(kept=False)
    told = [patience.objection(4.0, needing(loop)) is None for _ in range(4)]
    assert told == [False, False, True, True]
    assert loop.readied == 1


def test_what_takes_less_than_loading_machine_code_does_not_load_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "_is_loaded", lambda: False)

    def not_asked() -> list[Needed]:
        raise AssertionError("the engine was opened")

    found = Patience().objection(LOADING_SECONDS / 2, not_asked)
    assert found == "this is about 0.5 s of work, and loading the fast path takes about 1 s"
    assert Patience().objection(LOADING_SECONDS, needing(FakeLoop(kept=True))) is None


def test_a_user_and_a_study_can_overrule_it(monkeypatch: pytest.MonkeyPatch) -> None:
    large, small = 1e6, 1e-6
    with compile_always():
        assert Patience().objection(small, needing(FakeLoop(kept=False))) is None
    assert compiling() == "auto"
    monkeypatch.setenv(VARIABLE, "always")
    assert Patience().objection(small, needing(FakeLoop(kept=False))) is None
    monkeypatch.setenv(VARIABLE, "never")
    found = Patience().objection(large, needing(FakeLoop(kept=False)))
    assert found == "the fast path is not compiled, and FLIPSCOPE_COMPILE is never"
    assert Patience().objection(small, needing(FakeLoop(kept=True))) is None
    monkeypatch.setenv(VARIABLE, "sometimes")
    with pytest.raises(InputError, match=r"^FLIPSCOPE_COMPILE is 'sometimes': set it to always or never, or leave"):
        Patience().objection(small, needing())


def test_the_engine_is_chosen_by_that_rule_and_says_why(cold: list[Loop]) -> None:
    few, many = Work(10, 9), Work(10**9, 9)
    chosen = open_engine(model(), dtype=torch.float32, work=few)
    assert chosen.path == "general"
    assert chosen.why.startswith("this is about 0.1 s of work, and compiling the fast path takes about")
    assert cold == []
    fast = open_engine(model(), dtype=torch.float32, work=many)
    assert (fast.path, fast.why) == ("fast", "the model is flipscope's own transformer")
    assert {loop.py_func.__name__ for loop in cold} >= {"first_layer", "last_layer"}
    assert open_engine(model(), dtype=torch.float32, work=few).path == "fast"  # it is compiled now
    assert open_engine(model(), dtype=torch.float32, path="general", work=many).why == "path='general' was given"


def test_a_path_that_is_named_is_taken(cold: list[Loop]) -> None:
    assert open_engine(model(), dtype=torch.float32, path="fast", work=Work(1, 5)).path == "fast"
    assert open_engine(model(), dtype=torch.float32).path == "fast"  # of work that nobody knows
    assert cold == []  # compiled when they are called


def test_float64_needs_no_machine_code(cold: list[Loop]) -> None:
    assert open_engine(model(), dtype=torch.float64, work=Work(1, 5)).path == "fast"


@pytest.mark.parametrize("width", [16, 24, 144, 288])
@pytest.mark.parametrize("length", [9, 21])
def test_every_loop_that_is_called_is_among_those_needed(
    width: int, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a warm cache would not be one: what is called first would be compiled in the middle of the work."""
    called: set[str] = set()
    original = Loop._compile_for_args

    def noted(loop: Loop, *arguments: Any, **keywords: Any) -> Any:
        called.add(loop.py_func.__name__)
        return original(loop, *arguments, **keywords)

    monkeypatch.setattr(Loop, "_compile_for_args", noted)
    for layers in (1, 2, 3):
        fast = FastEngine(model(width, layers))
        for flips in (True, False):
            needed = {loop.py_func.__name__ for each in fast.needed(length, flips) for loop in each.loops}
            for name in ("flipscope.native.lanes", "flipscope.native.first_lanes", "flipscope.native.wide"):
                for loop in vars(sys.modules[name]).values():
                    if isinstance(loop, Loop):
                        loop.forget()
            called.clear()
            fast.flip_logits(strings(2, length)) if flips else fast.logits(strings(20, length))
            assert called <= needed, (layers, flips)


def measured(subject: Transformer, seed: int) -> tuple[str, tuple[Any, ...]]:
    """The path that was taken, and all answers and counts."""
    given = strings(12, 11)
    with torch.no_grad():
        median = float(subject(torch.from_numpy(given)).median())  # else a random model gives one answer everywhere
    found = sensitivities(Subject(subject, threshold=median), given)
    profile = sensitivity_profile(Subject(subject, threshold=median), 11, strings=9, seed=seed)
    accepted = acceptance_flips(subject, given, 0.01)
    counts = (found.counts.tolist(), found.flipped.tolist(), found.near_ties, profile.profile)
    others = (profile.influences, accepted.changed.tolist(), accepted.answers.tolist(), accepted.near_ties)
    return found.path, (*counts, *others, truth_table(Subject(subject, threshold=median), 7).table().tolist())


@pytest.mark.parametrize(("seed", "width", "layers"), [(0, 16, 2), (1, 24, 3), (2, 32, 2)])
def test_both_paths_give_the_same_answers(seed: int, width: int, layers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Transformer(presets.encoder(width=width, layers=layers, heads=2), scheme="xavier_normal", seed=seed)
    with compile_always():
        path, fast = measured(subject, seed)
        assert path == "fast"
    monkeypatch.setattr(Loop, "is_compiled", lambda loop: False)
    path, general = measured(subject, seed)
    assert path == "general"
    assert fast == general
    assert any(fast[0])  # some flips matter


def test_the_reason_for_the_general_path_names_what_stands_against_the_fast_one() -> None:
    linear = torch.nn.Linear(4, 1)
    assert "encoding" not in open_engine(linear, dtype=torch.float32).why
    assert "Linear" in open_engine(linear, dtype=torch.float32).why
    signs = open_engine(model(), dtype=torch.float32, encoding=lambda bits: bits)
    assert signs.why == "the model is given a function of bits instead of bits"
