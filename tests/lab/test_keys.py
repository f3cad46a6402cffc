"""The key of a result is its study, its trial and the study's revision; nothing else of the code counts."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
from lab.stores import STUDY, Toss, Tosses

from flipscope.basics.errors import InputError
from flipscope.lab import registry
from flipscope.lab.keys import file_digest, is_ours, older_revisions, source_digest, sources_digest, trial_key


def test_study_trial_and_revision_are_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    key = trial_key(STUDY, Toss(1))
    assert key == trial_key(Tosses(), Toss(1)) == trial_key(STUDY, Toss(1), 1)
    assert trial_key(STUDY, Toss(2)) != key
    assert trial_key(STUDY, Toss(1), 2) != key
    monkeypatch.setattr(Tosses, "revision", 2)
    assert trial_key(STUDY, Toss(1)) == trial_key(STUDY, Toss(1), 2)
    monkeypatch.setattr(Tosses, "name", "coins")
    assert trial_key(STUDY, Toss(1), 1) != key


def test_keys_are_those_of_every_machine() -> None:
    """Committed packs are found by them."""
    assert trial_key(STUDY, Toss(1)) == "38ef6d09252e30fd072a5f57efc978054a3e2c95df2dae705a366178b701f40f"


def test_the_version_of_a_file_is_its_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def version(text: str) -> str:
        (tmp_path / "versioned.py").write_text(text, "utf-8")
        sys.modules.pop("versioned", None)
        importlib.invalidate_caches()
        file_digest.cache_clear()
        return file_digest("versioned")

    first = version("x = 1\n")
    assert version("x = 1\n") == first
    assert version("x = 1  # one\n") != first
    assert len(first) == 64
    with pytest.raises(InputError, match="the source of the module sys cannot be read"):
        file_digest("sys")


def test_ours_are_told_from_those_of_others() -> None:
    assert is_ours(registry.find("low-variance"))
    assert not is_ours(STUDY)
    assert source_digest(STUDY) == file_digest(Tosses.__module__)


def test_a_package_is_all_of_its_sources() -> None:
    assert sources_digest("flipscope.figures") != sources_digest("flipscope.basics")


def test_older_revisions_are_counted() -> None:
    assert older_revisions(STUDY, {1: 5, 2: 3}) == []
    (sentence,) = older_revisions(STUDY, {0: 5, 1: 3})
    assert sentence.startswith("5 stored results of tosses are of its revision 0, which is now 1")
