"""Damaged, foreign and read-only stores, and full and distant disks."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shutil
import sqlite3
import sys
from pathlib import Path

import numpy as np
import pytest
from lab.stores import STUDY, Toss, files, put, refused, start
from waiting import LIMIT

from flipscope.lab.keys import trial_key
from flipscope.lab.store import schema, tables
from flipscope.lab.store.store import DATABASE, Store

pytestmark = pytest.mark.usefixtures("local_disk")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template") / "results"
    with Store(folder) as made:
        for number in range(80):
            put(made, f"k{number}", {"text": "x" * 500, "x": np.arange(number % 3)})
    return folder


@pytest.fixture
def filled(template: Path, folder: Path) -> Path:
    shutil.copytree(template, folder)
    return folder


@pytest.mark.parametrize("cut", [0, 1, 50, 99, 100, 512, 4095, 4096, 4097, 20_000, 5 * 4096, -4096, -513, -1])
def test_a_cut_off_database(filled: Path, cut: int) -> None:
    path = filled / DATABASE
    path.write_bytes(path.read_bytes()[:cut])
    before = files(filled)
    for create in (True, False):
        said = refused("is damaged .* move it away", Store, filled, create=create)
        assert str(path) in said
    after = files(filled)
    assert {name: after[name] for name in before} == before
    assert not set(after) - set(before) or not any(after[name] for name in set(after) - set(before))
    path.rename(path.with_suffix(".broken"))
    with Store(filled) as fresh:
        assert fresh.rows() == []
        assert len(list(fresh.arrays.names())) == 3


@pytest.mark.parametrize("garbage", [b"", b"not a database", bytes(8192), b"\xff" * 8192])
def test_an_overwritten_database(filled: Path, garbage: bytes) -> None:
    path = filled / DATABASE
    path.write_bytes(garbage)
    refused("is damaged", Store, filled)
    assert path.read_bytes() == garbage


@pytest.mark.parametrize("page", [1, 2, 5, 9])
def test_garbage_inside(filled: Path, page: int) -> None:
    path = filled / DATABASE
    content = path.read_bytes()
    path.write_bytes(content[: page * 4096] + b"\xa5" * 4096 + content[(page + 1) * 4096 :])
    refused("is damaged", Store, filled)


def test_a_cut_off_database_with_an_unmerged_log(filled: Path) -> None:
    copy = filled.with_name("copy")
    with Store(filled) as made:
        put(made, "new")
        shutil.copytree(filled, copy)  # as a killed process would leave it
    path, log = copy / DATABASE, copy / (DATABASE + "-wal")
    whole = path.read_bytes()
    for cut in (0, 4096, 5 * 4096, len(whole) // 8192 * 4096):
        path.write_bytes(whole[:cut])
        before = files(copy)
        assert before[log.name]
        refused("is damaged", Store, copy)
        assert files(copy) == before
    path.write_bytes(whole)
    with Store(copy) as found:
        assert len(found.rows()) == 81


def test_a_lost_database_with_an_unmerged_log(folder: Path) -> None:
    with Store(folder) as made:
        put(made)
        shutil.copytree(folder, folder.with_name("copy"))
    copy = folder.with_name("copy")
    (copy / DATABASE).unlink()
    refused("is missing but flipscope.sqlite-wal is there", Store, copy)


def test_no_database(folder: Path, tmp_path: Path) -> None:
    refused("there are no results in .*: run a study, or name another folder", Store, folder, create=False)
    assert not folder.exists()
    (tmp_path / "file").touch()
    refused("file cannot be used", Store, tmp_path / "file")


def test_newer_and_foreign_databases(folder: Path) -> None:
    Store(folder).close()
    path = folder / DATABASE
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA user_version = {tables.VERSION + 1}")
    before = path.read_bytes()
    refused("of a newer flipscope .* update flipscope", Store, folder)
    assert path.read_bytes() == before
    path.unlink()
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE t (a)")
    before = path.read_bytes()
    refused("is not a results database of flipscope", Store, folder)
    assert path.read_bytes() == before


@pytest.mark.parametrize("harm", ["missing", "changed"])
def test_damaged_arrays(kept: Store, harm: str) -> None:
    trial = Toss(5)
    key = trial_key(STUDY, trial)
    kept.put(key, "tosses", trial.content(), "c", STUDY.measure(trial, None), 1.0)
    put(kept, "other")
    (name,) = [name for name in kept.arrays.names() if "bits" in kept.arrays.read(name)]
    path = kept.arrays.path(name)
    if harm == "missing":
        path.unlink()
    else:
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 4]))
    found, damaged = kept.records([key, "other", "nothing"])
    assert (set(found), damaged) == ({"other"}, {key})
    for call in (lambda: kept.get(key), lambda: kept.results(STUDY, [trial])):
        said = refused("run tosses again to measure it anew", call)
        assert str(path) in said
        assert key[:12] in said
    kept.put(key, "tosses", trial.content(), "c", {"size": 6, "bits": np.arange(9)}, 1.0)
    (found,) = kept.results(STUDY, [trial])
    assert found.outcome["size"] == 6
    assert kept.records([key])[1] == set()
    assert len(kept.rows()) == 2


# ---------------------------------------------------------------- the disk


@pytest.mark.parametrize("call", ["write", "fsync"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk(kept: Store, folder: Path, call: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    put(kept, "old")

    def full(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        refused(f"the disk of {folder} is full: what was stored before is safe", put, kept, "new", {"x": np.arange(9)})
    assert kept.done(["old", "new"]) == {"old"}
    assert list(folder.rglob("*.part")) == []
    put(kept, "new", {"x": np.arange(9)})
    assert set(kept.records(["old", "new"])[0]) == {"old", "new"}


def test_arrays_that_cannot_be_read_are_not_taken_for_damaged(kept: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    put(kept, "k", {"x": np.arange(3)})

    def locked(self: Path, *_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))

    monkeypatch.setattr(Path, "open", locked)
    monkeypatch.setattr(Path, "read_bytes", locked)
    for call in (kept.records, lambda keys: kept.get("k"), lambda keys: put(kept, "k", {"x": np.arange(4)})):
        assert "arrays" in refused("cannot be read: Permission denied; solve this", call, ["k"])


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (errno.ENOSPC, "is full: what was stored before is safe"),
        (errno.EDQUOT, "is full: what was stored before is safe"),
        (errno.EROFS, "Read-only file system; use another --results"),
        (None, "cannot be used: disk I/O error"),
    ],
)
@pytest.mark.parametrize("primary", ["SQLITE_CANTOPEN", "SQLITE_IOERR"])
def test_a_full_disk_is_named_when_reading_too(
    kept: Store, code: int | None, said: str, primary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def file(**_: object) -> object:
        if code is None:
            return io.BytesIO()  # room for all
        raise OSError(code, os.strerror(code))

    class Full:
        def execute(self, *_: object) -> None:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = getattr(sqlite3, primary)
            raise error

        cursor = execute

    monkeypatch.setattr(schema.tempfile, "TemporaryFile", file)
    with monkeypatch.context() as patch:
        patch.setattr(kept, "_database", Full())
        refused(said, kept.rows)
        refused(said, kept.done, ["k"])


def test_a_full_database(kept: Store, folder: Path) -> None:
    put(kept, "old")
    ((pages,),) = kept._database.execute("PRAGMA page_count")
    kept._database.execute(f"PRAGMA max_page_count = {pages}")
    refused("is full: what was stored before is safe", put, kept, "new", {"text": "x" * 100_000, "x": np.arange(5)})
    refused("is full", kept.fail, "new", "tosses", {}, "c", "x" * 100_000, 1.0)
    assert kept.done(["old", "new"]) == {"old"}
    kept._database.execute("PRAGMA max_page_count = 1000000")
    put(kept, "new")
    with Store(folder) as again:
        assert set(again.records(["old", "new"])[0]) == {"old", "new"}
        assert len(again.rows()) == 2


# Root may write everywhere: this process gives that up first.
READ_ONLY = """
import ctypes, os, sys
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
ctypes.CDLL(None).capset(header, (ctypes.c_uint32 * 6)())
from flipscope.basics.errors import InputError
from flipscope.lab.store.store import Store

folder = sys.argv[1]
assert not os.access(folder, os.W_OK)
with Store(folder, create=False) as store, Store(folder) as again:
    print(len(store.rows()), store.get("k0").outcome["x"].tolist(), len(again.done(["k1", "k2", "z"])))
    for call in (
        lambda: store.put("new", "s", {}, "c", {"x": 1}, 1.0),
        lambda: store.fail("new", "s", {}, "c", "", 1.0),
        lambda: store.forget(["k0"]),
        lambda: store.prune(),
        lambda: store.driving("s").__enter__(),
        lambda: store.begin_run("s", "smoke", "c", 1, ""),
        lambda: Store(folder + "/inside"),
    ):
        try:
            call()
        except InputError as error:
            print(error)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="capabilities are Linux's")
def test_a_read_only_folder_can_be_read(filled: Path) -> None:
    modes = [(path, 0o555 if path.is_dir() else 0o444) for path in (filled, *filled.rglob("*"))]
    for path, mode in reversed(modes):
        path.chmod(mode)
    try:
        with start(READ_ONLY, filled) as child:
            out = child.communicate(timeout=LIMIT)[0].splitlines()
    finally:
        for path, _ in modes:
            path.chmod(0o755)
    assert child.returncode == 0
    assert out[0] == "80 [] 2"
    assert len(out) == 8
    assert all("cannot be" in line and "use another --results" in line for line in out[1:])


def journal(found: Store) -> str:
    ((mode,),) = found._database.execute("PRAGMA journal_mode")
    return str(mode)


def test_no_write_ahead_log_on_a_network(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store(folder) as found:
        assert journal(found) == "wal"
        put(found)
    monkeypatch.setattr(schema, "on_local_disk", lambda _: False)
    for _ in range(2):
        with Store(folder) as found, Store(folder) as other:
            assert journal(found) == "delete"
            ((level,),) = found._database.execute("PRAGMA synchronous")
            assert level >= 2
            put(found, "l")
            put(other, "m")
            assert found.done("klm") == set("klm")
            assert not (folder / (DATABASE + "-wal")).exists()
    with Store(folder.with_name("another")) as found:
        assert journal(found) == "delete"
    monkeypatch.setattr(schema, "on_local_disk", lambda _: True)
    with Store(folder) as found:
        assert journal(found) == "wal"
        assert found.done("klm") == set("klm")


@pytest.mark.skipif(not Path("/proc/mounts").exists(), reason="mounts are listed there on Linux")
def test_this_machine_is_looked_at() -> None:
    assert schema.file_system(Path("/proc/self"), Path("/proc/mounts").read_bytes()) == "proc"


MOUNTS = rb"""/dev/sda1 / ext4 rw 0 0
proc /proc proc rw 0 0
server:/home /home nfs4 rw 0 0
/dev/sdb1 /home/me/disk xfs rw 0 0
scratch /scratch lustre rw 0 0
me@host: /mnt/my\040files fuse.sshfs rw 0 0
/dev/sdc1 /data ext4 rw 0 0
nas:/data /data nfs rw 0 0
broken
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/tmp/x", "ext4"),
        ("/home/me/results", "nfs4"),
        ("/home/me/disk/results", "xfs"),
        ("/homes/me", "ext4"),
        ("/scratch", "lustre"),
        ("/mnt/my files/x", "fuse.sshfs"),
        ("/data/x", "nfs"),
    ],
)
def test_file_systems_by_mount_point(path: str, kind: str) -> None:
    assert schema.file_system(Path(path), MOUNTS) == kind
    assert (kind in schema._LOCAL) == (kind in ("ext4", "xfs"))
    assert schema.file_system(Path(path), b"") == ""
