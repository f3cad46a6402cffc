"""Studies on data sets of the user: run with a folder, reported without it."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import Run, document
from data.image_sets import random_set, write_npz, write_svhn
from lab.data_studies import STUDY
from lab.stores import flat

import flipscope
from flipscope.basics.errors import InputError
from flipscope.data.finding import VARIABLE, data_in
from flipscope.data.images import load_images
from flipscope.lab.data_sets import available_sets, data_set, recorded
from flipscope.lab.findings import findings
from flipscope.lab.store.store import Store

ADDRESS = "lab.data_studies:STUDY"


@pytest.fixture(autouse=True)
def _no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_svhn(tmp_path / "data" / "svhn", random_set("svhn", train=100))
    return tmp_path / "data"


def table(results: Path) -> list[float]:
    with Store(results, create=False) as store:
        return [row["value"] for row in findings(STUDY, "smoke", store).table]


def test_a_run_on_a_pool_and_its_report_without_the_data(run: Run, data: Path, tmp_path: Path) -> None:
    results = str(tmp_path / "results")
    code, _, err = run("run", ADDRESS, "--scale", "smoke", "--data", str(data), "--workers", "2", "--results", results)
    assert code == 0, err
    with data_in(data):
        reference = data_set("svhn")
    with Store(results) as store:
        rows = flat(store, "bright")
    assert {row["trial.data"] for row in rows} == {reference}
    assert str(data) not in json.dumps(rows)  # which folder it was, no result knows
    assert os.getpid() not in {row["outcome.pid"] for row in rows}
    values = table(Path(results))
    (data / "svhn").rename(tmp_path / "elsewhere")
    assert table(Path(results)) == values
    page = tmp_path / "report.html"
    found = document(run("report", ADDRESS, "--results", results, "-o", str(page), "--json"))
    assert [claim["verdict"] for claim in found["claims"]] == ["reproduced"]
    assert reference in page.read_text()
    pack = str(tmp_path / "bright.flipscope")
    assert run("results", "pack", ADDRESS, "--scale", "smoke", "--results", results, "-o", pack)[0] == 0
    again = document(run("report", ADDRESS, "--from", pack, "-o", str(page), "--json"))
    assert [claim["measured"] for claim in again["claims"]] == [claim["measured"] for claim in found["claims"]]


def test_a_report_in_an_environment_without_the_data(data: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    flipscope.run(STUDY, "smoke", results=results, workers=0, data=data)
    os.rename(data, tmp_path / "gone")
    command = [sys.executable, "-m", "flipscope.cli", "report", ADDRESS, "--results", str(results)]
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [*command, "-o", str(tmp_path / "report.html"), "--json"], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (claim,) = json.loads(done.stdout)["claims"]
    assert claim["verdict"] == "reproduced"


def test_the_folder_may_be_named_in_the_environment(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(data))
    assert flipscope.run(STUDY, "smoke", results=tmp_path / "results", workers=1).done == 10


def test_without_a_folder_the_run_is_refused(run: Run, tmp_path: Path) -> None:
    code, _, err = run("run", ADDRESS, "--scale", "smoke", "--results", str(tmp_path / "results"))
    assert code == 2
    assert "the files of svhn are needed, and no folder of data sets is named: name one with --data DIR" in err
    assert not (tmp_path / "results").exists()
    nowhere = str(tmp_path / "nowhere")
    code, _, err = run("run", ADDRESS, "--scale", "smoke", "--data", nowhere, "--results", str(tmp_path / "results"))
    assert code == 2
    assert "nowhere does not exist on this machine" in err


def test_another_data_set_of_the_same_name_is_another_trial_and_says_so(run: Run, data: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    options = ["run", ADDRESS, "--scale", "smoke", "--workers", "0", "--results", str(results)]
    first = document(run(*options, "--data", str(data), "--json"))
    assert first["notes"] == []
    other = tmp_path / "other"
    other.mkdir()
    write_npz(other / "svhn.npz", random_set("svhn", train=100, seed=1))
    second = document(run(*options, "--data", str(other), "--json"))
    assert (second["done"], second["reused"]) == (10, 0)
    digest = load_images("svhn", data).digest[:16]
    assert second["notes"] == [
        f"10 trials on another set svhn (digest {digest}) are stored too: these are different trials and do not count "
        f"for the set here (digest {load_images('svhn', other).digest[:16]})."
    ]
    with Store(results) as store:
        assert [use.trials for use in store.data_sets("bright")] == [10, 10]
        assert store.data_sets("bright")[0].reference == load_images("svhn", other).reference
    # The report is of the set that was used last, or of the one in the folder that is named.
    page = str(tmp_path / "report.html")
    found = document(run("report", ADDRESS, "--results", str(results), "-o", page, "--json"), quiet=False)
    assert found["claims"][0]["measured"] == second["claims"][0]["measured"]
    named = ["--data", str(data)]
    found = document(run("report", ADDRESS, "--results", str(results), "-o", page, *named, "--json"), quiet=False)
    assert found["claims"][0]["measured"] == first["claims"][0]["measured"]


def test_a_trial_refuses_data_that_are_not_its_own(data: Path, tmp_path: Path) -> None:
    trial = None
    with data_in(data):
        trial = STUDY.trials("smoke")[0]
    write_svhn(data / "svhn", random_set("svhn", train=100, seed=2))
    with data_in(data), pytest.raises(InputError, match="the set svhn that is found here has the digest"):
        trial.measure(lambda done, total: None)


def test_a_worker_without_the_folder_uses_its_own(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with data_in(tmp_path / "of-another-machine"):
        with pytest.raises(InputError, match="of-another-machine does not exist on this machine"):
            load_images("svhn")
        monkeypatch.setenv(VARIABLE, str(data))
        assert load_images("svhn").x_train.shape == (100, 32, 32, 3)


def test_recorded_references_need_no_data() -> None:
    with recorded({"svhn": "svhn@0123456789abcdef"}):
        assert data_set("svhn") == "svhn@0123456789abcdef"
    with pytest.raises(InputError, match="no folder of data sets"):
        data_set("svhn")
    with pytest.raises(InputError, match="there is no data set 'imagenet'"):
        data_set("imagenet")
    assert data_set("synthetic-paraphrases").startswith("synthetic-paraphrases@")


def test_a_set_without_files_is_the_substitute_of_sets_that_need_a_folder(data: Path) -> None:
    digits, svhn = data_set("digits"), "svhn@0123456789abcdef"
    assert available_sets(["svhn"], "digits") == [digits]
    with data_in(data):
        assert available_sets(["svhn"], "digits") == [load_images("svhn").reference]
        with pytest.raises(InputError, match="has no files of mnist"):
            available_sets(["svhn", "mnist"], "digits")
    with recorded({"digits": digits, "svhn": svhn}):  # the last used first
        assert available_sets(["svhn"], "digits") == [digits]
    with recorded({"svhn": svhn, "digits": digits}):
        assert available_sets(["svhn"], "digits") == [svhn]
        assert available_sets(["mnist", "svhn"], "digits") == [f"mnist@{16 * '0'}", svhn]  # the first was not measured


@pytest.fixture
def address() -> Iterator[str]:
    distributed = pytest.importorskip("distributed", reason="needs the extra cluster")
    with distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=True,
        memory_limit="2GiB",
        dashboard_address=":0",
        silence_logs=logging.CRITICAL,
    ) as local:
        yield local.scheduler_address


@pytest.mark.slow
@pytest.mark.filterwarnings("default::ResourceWarning")  # Dask leaves sockets and loops to the sweep of memory
def test_a_run_on_dask_and_its_report_without_the_data(address: str, run: Run, data: Path, tmp_path: Path) -> None:
    results = {name: str(tmp_path / name) for name in ("dask", "here")}
    options = ["run", ADDRESS, "--scale", "smoke", "--data", str(data), "--json"]
    for where, runner in (("dask", ["--cluster", address]), ("here", ["--workers", "0"])):
        code, out, err = run(*options, *runner, "--results", results[where])
        assert (code, json.loads(out)["done"]) == (0, 10), err
    os.rename(data, tmp_path / "gone")
    assert table(Path(results["dask"])) == table(Path(results["here"]))
    page = str(tmp_path / "report.html")
    assert run("report", ADDRESS, "--results", results["dask"], "-o", page)[0] == 0
