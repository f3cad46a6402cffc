"""Trained models are shared: one trains, the others have it, and a killed trainer's work is gone on with."""

from __future__ import annotations

import dataclasses
import importlib
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from lab.example_studies import environment
from lab.stores import results as stored_results
from lab.training_studies import Trainings, Wanted, recipe
from waiting import waited_for

import flipscope.lab as lab
from flipscope.basics.errors import InputError
from flipscope.lab.context import kept_in, results_folder
from flipscope.lab.keys import file_digest
from flipscope.lab.run.driver import run_study
from flipscope.lab.run.resources import one_thread
from flipscope.lab.run.runner import InProcess, Job, Pool, measured
from flipscope.lab.store import artefacts, locks
from flipscope.lab.store.artefacts import Models, listed
from flipscope.lab.store.store import Store
from flipscope.models.seal import fingerprint
from flipscope.training import artefact, checkpoints
from flipscope.training.checkpoints import Keeper
from flipscope.training.named import LossTerm
from flipscope.training.recipe import Trained

STEPS = 40


def weights(trained: Trained) -> str:
    return fingerprint(trained.model.state_dict().values())


def lines(path: Path) -> list[tuple[int, int]]:
    """Who did which step."""
    return [(int(pid), int(step)) for pid, step in (line.split() for line in path.read_text().splitlines())]


# ---------------------------------------------------------------- several who want one model


@pytest.mark.slow
def test_workers_share_a_model_and_go_on_after_a_death(folder: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    study = Trainings(*(Wanted(number, str(log), death=17) for number in range(3)))
    with Store(folder) as store:
        run_study(study, "smoke", store, Pool(2))
        results = stored_results(store, study, study.trials("smoke"))
    with one_thread():
        expected = weights(recipe().train())
    assert [result.outcome["weights"] for result in results] == [expected] * 3
    # Step 17 was done before its worker died, but not in the last checkpoint, which is of step 16.
    assert [step for _, step in lines(log)] == [*range(1, 18), *range(17, STEPS + 1)]
    assert len({pid for pid, _ in lines(log)}) == 2
    [path] = Models(folder).paths()
    assert weights(artefact.read(path)) == expected
    assert os.listdir(path.parent) == [path.name]


def test_the_folder_reaches_a_trial_wherever_it_runs(folder: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    study = Trainings(Wanted(1, str(log)), Wanted(2, str(log)))
    with Store(folder) as store:
        run_study(study, "smoke", store, InProcess())
    assert [step for _, step in lines(log)] == [*range(1, STEPS + 1)]
    assert results_folder() is None
    measured(Job("key", study, study.trials("smoke")[0]), lambda done, total: None)  # of nobody: it trains
    assert len(lines(log)) == 2 * STEPS
    measured(Job("key", study, study.trials("smoke")[0], str(tmp_path / "elsewhere")), lambda done, total: None)
    assert len(lines(log)) == 3 * STEPS
    assert not (tmp_path / "elsewhere").exists()


def test_threads_of_one_process_train_once(kept: Store, folder: Path) -> None:
    steps, found = [], []

    def ask() -> None:
        with kept_in(str(folder)):
            found.append(lab.trained(recipe(), lambda done, total: steps.append(done)))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(steps) == [*range(1, STEPS + 1)]
    assert len({weights(trained) for trained in found}) == 1


# ---------------------------------------------------------------- what is stored


def test_a_damaged_model_is_trained_again(kept: Store, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    models = Models(folder)
    first = models.get(recipe())
    path = models.path(recipe())
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(bytes(content))
    with caplog.at_level(logging.WARNING):
        again = models.get(recipe())
    [record] = caplog.records
    assert record.getMessage().endswith("is damaged: its content has changed, and the model is trained again")
    assert weights(again) == weights(first) == weights(models.get(recipe(), lambda *_: pytest.fail("trained")))


def test_a_file_with_the_name_of_another_is_told_and_never_measured(
    kept: Store, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    models = Models(folder)
    expected = [weights(models.get(recipe(seed))) for seed in range(2)]
    first, second = (models.path(recipe(seed)) for seed in range(2))
    first.write_bytes(second.read_bytes())
    with caplog.at_level(logging.WARNING):
        assert [weights(models.get(recipe(seed))) for seed in range(2)] == expected
    (record,) = caplog.records
    assert "other settings (seed is 1 there and 0 here), and the model is trained again" in record.getMessage()
    assert weights(artefact.read(first)) == expected[0]


def test_a_file_of_other_code_is_not_taken(
    kept: Store, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    models = Models(folder)
    models.get(recipe())
    old = models.path(recipe())
    monkeypatch.setattr(artefacts, "REVISION", -1)
    old.rename(models.path(recipe()))
    steps: list[int] = []
    with caplog.at_level(logging.WARNING):
        models.get(recipe(), lambda done, total: steps.append(done))
    assert len(steps) == STEPS
    assert "was trained by other code, and the model is trained again" in caplog.text


def test_other_recipes_and_other_code_are_other_models(
    kept: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = Models(folder)
    models.get(recipe())
    assert models.path(recipe(1)) != models.path(recipe())
    before = models.path(recipe())
    monkeypatch.setattr(artefacts, "REVISION", -1)
    assert models.path(recipe()) != before
    [model], trouble = listed(folder)
    assert not model.current
    assert not trouble


OWN_TERM = """
STRENGTH = 2.0


def pull(around):
    def term(model, batch, outputs):
        return STRENGTH * outputs.square().mean()

    return term
"""


def test_a_term_of_ones_own_counts_by_its_file(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    wanted = dataclasses.replace(
        recipe(), protocol=dataclasses.replace(recipe().protocol, terms=(LossTerm("own_terms:pull", 0.1),))
    )

    def path(text: str) -> Path:
        (tmp_path / "own_terms.py").write_text(text)
        sys.modules.pop("own_terms", None)
        importlib.invalidate_caches()
        file_digest.cache_clear()
        return Models(folder).path(wanted)

    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    first = path(OWN_TERM)
    assert path(OWN_TERM) == first
    assert path(OWN_TERM.replace("2.0", "3.0")) != first
    file_digest.cache_clear()


def test_the_list_has_finished_and_unfinished_models(
    kept: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = Models(folder)
    trained = models.get(recipe())
    unfinished = models.path(recipe(1))

    def stop(done: int, total: int) -> None:
        if done == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(checkpoints, "SECONDS", 0.0)
    with pytest.raises(KeyboardInterrupt):
        models.get(recipe(1), stop)
    (models.folder / "other.safetensors").write_bytes(b"no model")
    found, trouble = listed(folder)
    by_path = {each.path.name: each for each in found}
    done, begun = by_path[models.path(recipe()).name], by_path[unfinished.name + ".checkpoint"]
    assert (done.recipe, done.steps, done.accuracy, done.stopped) == (recipe(), STEPS, trained.accuracy, "epochs")
    assert done.finished is not None
    assert done.size == done.path.stat().st_size
    assert done.current
    assert begun.current
    assert (begun.recipe, begun.steps, begun.accuracy, begun.finished) == (recipe(1), 3, None, None)
    [sentence] = trouble
    assert "other.safetensors" in sentence
    seen: list[int] = []
    models.get(recipe(1), lambda done, total: seen.append(done))
    assert seen == [*range(4, STEPS + 1)]


def test_a_disk_that_is_full_loses_no_trial(
    kept: Store, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*arguments: object) -> None:
        raise InputError("the model cannot be written: No space left on device")

    monkeypatch.setattr(artefact, "save", full)
    with caplog.at_level(logging.WARNING):
        found = Models(folder).get(recipe())
    assert found.fitted.steps == STEPS
    assert "No space left on device; the model is not kept" in caplog.text
    monkeypatch.undo()
    again = Models(folder).get(recipe(), lambda *_: pytest.fail("the checkpoint has all of it"))
    assert weights(again) == weights(found)


def test_a_foreign_checkpoint_is_told_of_and_written_over(
    kept: Store, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    models = Models(folder)
    models.folder.mkdir()
    path = models.path(recipe())
    keeper = Keeper(path.with_name(path.name + ".checkpoint"), recipe(1).as_json())
    recipe(1).train(keeper=keeper)
    with caplog.at_level(logging.WARNING):
        found = models.get(recipe())
    assert "seed is 1 there and 0 here), and the training begins anew" in caplog.text
    assert weights(found) == weights(recipe().train())


# ---------------------------------------------------------------- locks

HOLDER = """
import sys, time
from pathlib import Path
from flipscope.lab.store.locks import alone
with alone(Path(sys.argv[1])) as mine:
    print(mine, flush=True)
    time.sleep(600)
"""


def test_a_killed_owner_frees_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "True\n"
        with locks.alone(path, seconds=0) as mine:
            assert not mine
        got = threading.Event()

        def wait() -> None:
            with locks.alone(path) as mine:
                assert mine
                got.set()

        waiter = threading.Thread(target=wait)
        waiter.start()
        assert not got.wait(0.3)
        owner.kill()
        waited_for(got.is_set)
        waiter.join()
    assert not path.exists()


def test_a_lock_is_no_link_and_needs_a_folder(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "precious")
    for path in (tmp_path / "lock", tmp_path / "missing" / "lock"):
        with pytest.raises(InputError, match="cannot be written"), locks.alone(path):
            pass
    assert not (tmp_path / "precious").exists()


@pytest.fixture(autouse=True)
def _usual_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The study changes them where it is measured, which may be here."""
    monkeypatch.setattr(checkpoints, "SECONDS", checkpoints.SECONDS)
