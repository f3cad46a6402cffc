"""`flipscope data check`: which sets a folder has, and whether they are what they claim."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
from pathlib import Path

import pytest
from commands import Run, document
from data.image_sets import random_set, write_cifar, write_idx, write_npz, write_svhn
from shared_data import FOLDER, needs_shared_data

from flipscope.basics.errors import InputError
from flipscope.data import images
from flipscope.data.checking import check_data
from flipscope.data.images import load_images
from flipscope.data.photos import load_photos


def test_every_set_is_found_with_its_numbers(tmp_path: Path) -> None:
    cifar = random_set("cifar-10")
    write_idx(tmp_path / "mnist", random_set("mnist"))
    write_cifar(tmp_path, cifar, "binary")
    write_npz(tmp_path / "cifar10.npz", cifar)
    (tmp_path / "qqp_train.tsv").write_text("label\tsentence1\tsentence2\n1\tA?\tB?\n0\tC?\tD?\n")
    (tmp_path / "qqp_test.tsv").write_text("label\tsentence1\tsentence2\n1\tB?\tA?\n0\tE?\tD?\n1\tF?\tG?\n")
    found = {(each.name, each.format): each for each in check_data(tmp_path)}
    assert list(found) == [
        ("mnist", "idx"),
        ("cifar-10", "CIFAR-10 binary version"),
        ("cifar-10", ".npz"),
        ("qqp", "TSV"),
    ]
    binary, packed = found["cifar-10", "CIFAR-10 binary version"], found["cifar-10", ".npz"]
    assert binary.reference == packed.reference == load_images("cifar-10", tmp_path).reference
    assert binary.sizes == {"train": 20, "test": 10}
    assert sum(binary.class_counts["train"]) == 20
    assert not binary.complete
    assert found["mnist", "idx"].files[0] == "mnist/train-images-idx3-ubyte.gz"
    assert found["qqp", "TSV"].notes == (
        "2 of 3 test pairs have a sentence of the training set; 1 of 3 are in it as a pair, in either order",
    )


def test_images_that_training_and_test_share_are_counted(tmp_path: Path) -> None:
    arrays = random_set("svhn")
    arrays["x_test"][:3] = arrays["x_train"][5:8]
    write_svhn(tmp_path, arrays)
    (found,) = check_data(tmp_path)
    assert found.notes == ("3 of 10 test images are among the training images",)


def test_published_files_are_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_svhn(tmp_path, random_set("svhn"))
    (found,) = check_data(tmp_path)
    assert found.published is False  # other files under the published names
    sums = {file.name: hashlib.md5(file.read_bytes()).hexdigest() for file in tmp_path.iterdir()}
    monkeypatch.setitem(images.KINDS, "svhn", dataclasses.replace(images.KINDS["svhn"], sums=sums, train=20, test=10))
    (found,) = check_data(tmp_path)
    assert found.published is True
    assert found.complete


def test_idx_files_in_the_folder_itself_may_be_of_two_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_idx(tmp_path, random_set("mnist"))
    names = [(each.name, len(each.notes)) for each in check_data(tmp_path)]
    assert names == [("mnist", 2), ("fashion-mnist", 2)]
    digest = load_images("mnist", tmp_path).digest
    monkeypatch.setitem(images.KINDS, "mnist", dataclasses.replace(images.KINDS["mnist"], digest=digest))
    (found,) = check_data(tmp_path)
    assert (found.name, found.published, len(found.notes)) == ("mnist", True, 1)


def test_a_broken_set_is_named_beside_the_others(run: Run, tmp_path: Path) -> None:
    write_svhn(tmp_path, random_set("svhn"))
    (tmp_path / "mnist.npz").write_bytes(b"no archive")
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(b"")
    (tmp_path / "mrpc_train.tsv").write_text("label\tsentence1\n")
    code, out, err = run("data", "check", str(tmp_path))
    assert (code, err) == (1, "")
    text = " ".join(out.replace("│", " ").split())
    assert "the set is incomplete" in text
    assert "lacks the column 'sentence2'" in text
    assert "svhn, SVHN .mat" in text
    assert "20 examples" in text


def test_photographs_are_decoded_and_counted(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = pytest.importorskip("PIL.Image")
    folder = tmp_path / "imagenet_sample"
    folder.mkdir()
    for name in ("0207.jpg", "0207_b.jpg", "0011.png"):
        image.new("RGB", (30, 20), (200, 10, 90)).save(folder / name)
    (found,) = document(run("data", "check", str(tmp_path), "--json"))["sets"]
    assert (found["name"], found["sizes"], found["complete"]) == ("imagenet-sample", {"photographs": 3}, None)
    assert found["reference"] == load_photos(folder=tmp_path).reference
    assert found["notes"] == ["Photographs of 2 of 1,000 classes", "All of them can be read as images"]
    with monkeypatch.context() as without_pillow:
        without_pillow.setattr("importlib.util.find_spec", lambda name: None)
        assert "is not checked without Pillow" in check_data(tmp_path)[0].notes[1]
    (folder / "0300.jpg").write_bytes((folder / "0207.jpg").read_bytes()[:100])  # cut off
    code, out, _ = run("data", "check", str(tmp_path))
    assert code == 1
    assert "0300.jpg cannot be read as an image" in " ".join(out.replace("│", " ").split())
    (folder / "0300.jpg").rename(folder / "1000.jpg")
    assert "called after the class 1000" in check_data(tmp_path)[0].problem


def test_an_empty_folder_is_said_to_be_one(run: Run, tmp_path: Path) -> None:
    code, _, err = run("data", "check", str(tmp_path))
    assert code == 2
    assert "has no files of mnist, fashion-mnist, cifar-10, svhn, imagenet-sample, mrpc, qqp" in err
    with pytest.raises(InputError, match="does not exist"):
        check_data(tmp_path / "nowhere")


@needs_shared_data
def test_shared_sentences_of_real_texts_are_counted(run: Run, tmp_path: Path) -> None:
    for part in ("train", "dev", "test"):
        shutil.copy(FOLDER / f"mrpc_{part}.tsv", tmp_path / f"mrpc_{part}.tsv")
    shutil.copy(FOLDER / "qqp_train.tsv", tmp_path / "qqp_train.tsv")
    shutil.copy(FOLDER / "qqp_balanced.tsv", tmp_path / "qqp_test.tsv")
    mrpc, qqp = document(run("data", "check", str(tmp_path), "--json"))["sets"]
    assert mrpc["complete"]
    assert mrpc["notes"][0].startswith("43 of 408 dev pairs have a sentence of the training set; 0 of 408")
    shared = int(qqp["notes"][0].split()[0].replace(",", ""))
    assert 0 < shared < 18_855  # single questions occur in both files
