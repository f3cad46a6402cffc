"""Which path is taken where the fast one has to be compiled or loaded first: the same answers by either."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from flipscope.adapters.subject import Subject
from flipscope.basics.compiling import VARIABLE, compile_always, compiling
from flipscope.basics.errors import InputError
from flipscope.flips import choice, engine, lanes
from flipscope.flips.choice import LOADING_SECONDS, Patience, Work
from flipscope.flips.engine import open_engine
from flipscope.flips.fast import FastEngine
from flipscope.models import presets
from flipscope.models.transformer import Transformer
from flipscope.native.cache import is_kept
from flipscope.probes.sensitivity import acceptance_flips, sensitivities, sensitivity_profile, truth_table

NARROW, WIDE = presets.encoder(width=16, layers=2, heads=2), presets.encoder(width=512, layers=2, heads=2)
ALL_SECONDS = choice.COMPILE_SECONDS * len(choice.LOOPS)


def objection(seconds: float, patience: Patience | None = None) -> str | None:
    return (patience or Patience()).objection(seconds, NARROW, torch.float32)


@pytest.fixture(autouse=True)
def _by_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule is at work, as for a user who has set nothing, and nothing has been measured in this process."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(engine, "PATIENCE", Patience())


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of the loops that are in the cache: none."""
    names: set[str] = set()
    monkeypatch.setattr(choice, "is_kept", lambda name: name in names)
    return names


def model(width: int = 16, layers: int = 2) -> Transformer:
    return Transformer(presets.encoder(width=width, layers=layers, heads=2), scheme="xavier_normal", seed=1)


def strings(count: int, length: int) -> np.ndarray:
    return np.random.default_rng(5).integers(0, 2, (count, length), np.uint8)


def test_with_an_empty_cache_small_work_is_not_compiled_and_large_work_is(kept: set[str]) -> None:
    assert objection(ALL_SECONDS) is None
    assert objection(ALL_SECONDS - 0.1) == "this is about 20.9 s of work, and compiling the fast path takes about 21 s"


def test_only_what_is_missing_counts(kept: set[str]) -> None:
    kept.update(choice.LOOPS[1:])
    assert objection(choice.COMPILE_SECONDS - 0.1) is not None
    assert objection(choice.COMPILE_SECONDS) is None


def test_a_warm_cache_always_takes_the_fast_path(kept: set[str]) -> None:
    kept.update(choice.LOOPS)
    assert objection(1e-6) is None


def test_a_model_without_loops_never_waits(kept: set[str]) -> None:
    assert Patience().objection(1e-6, WIDE, torch.float32) is None
    assert Patience().objection(1e-6, NARROW, torch.float64) is None


def test_small_measurements_add_up_to_a_large_one(kept: set[str]) -> None:
    patience = Patience()
    told = [objection(0.4 * ALL_SECONDS, patience) is None for _ in range(4)]
    assert told == [False, False, True, True]


def test_what_takes_less_than_loading_machine_code_does_not_load_it(
    kept: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "_is_loaded", lambda: False)
    kept.update(choice.LOOPS)
    found = objection(LOADING_SECONDS / 2)
    assert found == "this is about 0.5 s of work, and loading the fast path takes about 1 s"
    assert objection(LOADING_SECONDS) is None


def test_who_declines_has_not_loaded_numba(tmp_path: Path) -> None:
    code = """
import sys, numpy as np
from flipscope import sensitivities
from flipscope.models import Transformer, presets
for width, path in ((16, "general"), (512, "fast")):
    found = sensitivities(Transformer(presets.encoder(width=width, layers=2, heads=2)), np.zeros((3, 8), np.uint8))
    assert found.path == path, found
assert "numba" not in sys.modules
"""
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    subprocess.run([sys.executable, "-c", code], env={**environment, "NUMBA_CACHE_DIR": str(tmp_path)}, check=True)


def test_a_user_and_a_study_can_overrule_it(kept: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with compile_always():
        assert objection(1e-6) is None
    assert compiling() == "auto"
    monkeypatch.setenv(VARIABLE, "always")
    assert objection(1e-6) is None
    monkeypatch.setenv(VARIABLE, "never")
    assert objection(1e6) == "the fast path is not compiled, and FLIPSCOPE_COMPILE is never"
    kept.update(choice.LOOPS)
    assert objection(1e-6) is None
    monkeypatch.setenv(VARIABLE, "sometimes")
    with pytest.raises(InputError, match=r"^FLIPSCOPE_COMPILE is 'sometimes': set it to always or never, or leave"):
        objection(1e-6)


def test_the_engine_is_chosen_by_that_rule_and_says_why(kept: set[str]) -> None:
    few, many = Work(10, 9), Work(10**9, 9)
    chosen = open_engine(model(), work=few)
    assert chosen.path == "general"
    assert chosen.why.startswith("this is about 0.1 s of work, and compiling the fast path takes about")
    fast = open_engine(model(), work=many)
    assert (fast.path, fast.why) == ("fast", "the model is flipscope's own transformer")
    kept.update(choice.LOOPS)
    assert open_engine(model(), work=few).path == "fast"  # it is compiled now
    assert open_engine(model(), path="general", work=many).why == "path='general' was given"


@pytest.mark.usefixtures("kept")
def test_a_path_that_is_named_is_taken() -> None:
    assert open_engine(model(), path="fast", work=Work(1, 5)).path == "fast"
    assert open_engine(model()).path == "fast"  # of work that nobody knows


def test_the_loops_that_are_looked_for_are_those_that_are_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a warm cache would not be one: what is called first would be compiled in the middle of the work."""
    called: set[str] = set()
    for module, name in (loop.split(".") for loop in choice.LOOPS):
        original = getattr(lanes, name)

        def noted(*given: Any, loop: str = f"{module}.{name}", original: Any = original) -> Any:
            called.add(loop)
            return original(*given)

        monkeypatch.setattr(lanes, name, noted)
    fast = FastEngine(model(16, 3))
    fast.flip_logits(strings(2, 21))
    assert called == set(choice.LOOPS)
    assert all(map(is_kept, called))


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
    monkeypatch.setattr(choice, "is_kept", lambda name: False)
    path, general = measured(subject, seed)
    assert path == "general"
    assert fast == general
    assert any(fast[0])  # some flips matter


def test_the_reason_for_the_general_path_names_what_stands_against_the_fast_one() -> None:
    linear = torch.nn.Linear(4, 1)
    assert "encoding" not in open_engine(linear).why
    assert "Linear" in open_engine(linear).why
    signs = open_engine(Subject(model(), encoding=lambda bits: bits))
    assert signs.why == "the model is given a function of bits instead of bits"
