"""Trained models are shared: one trains, the others have it, and a killed trainer's work is gone on with."""

from __future__ import annotations

import dataclasses
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from lab.example_studies import environment
from lab.training_studies import Trainings, Wanted, recipe
from waiting import waited_for

import flipscope.lab as lab
from flipscope.basics.errors import InputError
from flipscope.lab import version
from flipscope.lab.context import kept_in, results_folder
from flipscope.lab.run.driver import run_study
from flipscope.lab.run.resources import one_thread
from flipscope.lab.run.runner import InProcess, Job, Pool, measured
from flipscope.lab.store import artefacts, locks
from flipscope.lab.store.artefacts import Models, listed
from flipscope.lab.store.store import Store
from flipscope.models.seal import fingerprint
from flipscope.training import artefact, checkpoints
from flipscope.training.checkpoints import Keeper
from flipscope.training.recipe import Recipe, Trained

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
        results = store.results(study, study.trials("smoke"))
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


def _forbidden(*_: object) -> None:
    pytest.fail("trained")


def test_files_with_each_others_names_are_renamed(kept: Store, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A cycle of three: none is measured in place of another, and none is lost."""
    models = Models(folder)
    expected = [weights(models.get(recipe(seed))) for seed in range(3)]
    paths = [models.path(recipe(seed)) for seed in range(3)]
    contents = [path.read_bytes() for path in paths]
    for path, content in zip(paths, [*contents[1:], contents[0]], strict=True):
        path.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert weights(models.get(recipe(), _forbidden)) == expected[0]
    assert "other settings (seed is 1 there and 0 here): it is renamed to " + paths[1].name in caplog.text
    assert [path.read_bytes() for path in paths] == contents
    assert sorted(os.listdir(models.folder)) == sorted(path.name for path in paths)


@pytest.mark.parametrize("there", [True, False])
def test_a_file_with_the_name_of_another_is_trained_again(
    there: bool, kept: Store, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether it is a copy, or the only file of its recipe, which is kept."""
    models = Models(folder)
    models.get(recipe(1))
    first, second = models.path(recipe()), models.path(recipe(1))
    content = second.read_bytes()
    first.write_bytes(content)
    if not there:
        second.unlink()
    with caplog.at_level(logging.WARNING):
        found = models.get(recipe())
    assert weights(found) == weights(recipe().train()) == weights(artefact.read(first))
    assert caplog.records[-1].getMessage().endswith(", and the model is trained again")
    assert second.read_bytes() == content


def test_a_file_of_other_code_is_not_taken(
    kept: Store, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    models = Models(folder)
    models.get(recipe())
    old = models.path(recipe())
    monkeypatch.setattr(artefacts, "definition_version", lambda module, name: "another")
    old.rename(models.path(recipe()))
    steps: list[int] = []
    with caplog.at_level(logging.WARNING):
        models.get(recipe(), lambda done, total: steps.append(done))
    assert len(steps) == STEPS
    assert f"was trained by other code: it is renamed to {old.name}" in caplog.text
    assert old.exists()


def test_a_place_that_is_in_use_is_left_alone(kept: Store, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    models = Models(folder)
    expected = [weights(models.get(recipe(seed))) for seed in range(2)]
    first, second = (models.path(recipe(seed)) for seed in range(2))
    first.write_bytes(second.read_bytes())
    second.unlink()
    with locks.alone(second.with_name(second.name + ".lock")), caplog.at_level(logging.WARNING):
        assert weights(models.get(recipe())) == expected[0]
    assert "and the model is trained again" in caplog.text
    assert not second.exists()


def test_other_recipes_and_other_code_are_other_models(
    kept: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = Models(folder)
    models.get(recipe())
    assert models.path(recipe(1)) != models.path(recipe())
    before = models.path(recipe())
    monkeypatch.setattr(artefacts, "definition_version", lambda module, name: "another")
    assert models.path(recipe()) != before
    [model], trouble = listed(folder)
    assert not model.current
    assert not trouble


def test_other_masks_of_dropout_are_other_models(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one layer with dropout, whose masks are drawn apart; all others are kept."""
    wanted = [recipe(), *(_with(dropout=0.1, layers=layers) for layers in (1, 2))]
    before = [Models(folder).path(each) for each in wanted]
    monkeypatch.setattr(artefacts, "MASKS_REVISION", -1)
    after = [Models(folder).path(each) for each in wanted]
    assert [one != other for one, other in zip(before, after, strict=True)] == [False, True, False]


def _with(**changes: Any) -> Recipe:
    return dataclasses.replace(recipe(), model=dataclasses.replace(recipe().model, **changes))


def test_training_reaches_its_loop_and_its_data() -> None:
    reach = version.Reach("flipscope")
    reach.add("flipscope.training.recipe", "Recipe")
    modules = {name.partition(":")[0] for name in reach.found()}
    assert {"flipscope.training.fit", "flipscope.data.languages", "flipscope.models.transformer"} <= modules


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
