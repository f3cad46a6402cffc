from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor
from waiting import answered

from flipscope.basics import limits
from flipscope.basics.errors import InputError
from flipscope.models import (
    Transformer,
    encoder,
    fourier,
    gpt2,
    hardness,
    load,
    mingpt,
    recognizer,
    roberta,
    save,
    vit_small,
)
from flipscope.models.header import read_header
from flipscope.training import artefact, checkpoints

SMALL = [
    recognizer(8, 2, 3),
    encoder(16, 2, 4),
    hardness(9, width=16),
    fourier(9, bit_width=6),
    mingpt(9, width=16, heads=4),
    vit_small(8, 4, 1, width=12, layers=2, heads=3, ffn_width=20),
    roberta(11, 9, width=16, layers=2, heads=4),
    gpt2(11, 9, width=16, layers=2, heads=4),
]
KEY = "flipscope.transformer"


@pytest.fixture(name="path")
def _path(tmp_path: Path) -> Path:
    """A good file."""
    path = tmp_path / "model.safetensors"
    save(Transformer(encoder(8, 2, 2), seed=3), path)
    return path


def rewrite(path: Path, change: Callable[[dict[str, Tensor], dict[str, Any]], None]) -> None:
    """Change the tensors and the record of a file."""
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    with safe_open(path, framework="pt") as file:
        record = json.loads(file.metadata()[KEY])
    change(tensors, record)
    save_file(tensors, path, metadata={KEY: json.dumps(record)})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("config", SMALL)
def test_round_trip(config: Any, dtype: torch.dtype, tmp_path: Path) -> None:
    model = Transformer(config, seed=5, dtype=dtype)
    path = tmp_path / "model.safetensors"
    save(model, path)
    again = load(path)
    assert again.config == config
    assert not again.training
    assert [name for name, _ in again.named_parameters()] == [name for name, _ in model.named_parameters()]
    for name, parameter in model.named_parameters():
        other = again.get_parameter(name)
        assert torch.equal(parameter, other)
        assert other.dtype == dtype
        assert other.requires_grad
    assert [file.name for file in tmp_path.iterdir()] == ["model.safetensors"]


def test_overwrites(path: Path) -> None:
    save(Transformer(encoder(16, 1, 2)), path)
    assert load(path).config.width == 16


def test_a_loaded_model_outlives_its_file(path: Path) -> None:
    model = load(path)
    bits = torch.zeros(1, 4, dtype=torch.uint8)
    before = model(bits)
    path.write_bytes(b"")
    assert torch.equal(model(bits), before)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_does_not_save_broken_numbers(number: float, path: Path) -> None:
    good = path.read_bytes()
    model = Transformer(encoder(8, 2, 2))
    with torch.no_grad():
        model.head.weight[0, 1] = number
    with pytest.raises(InputError, match=r"NaN or infinite numbers in head\.weight"):
        save(model, path)
    assert path.read_bytes() == good
    assert len(list(path.parent.iterdir())) == 1


def test_a_failed_write_leaves_the_old_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("flipscope.models.checkpoint.os.fsync", full)
    with pytest.raises(InputError, match="cannot be written: No space left on device"):
        save(Transformer(encoder(16, 1, 2)), path)
    assert path.read_bytes() == good
    assert len(list(path.parent.iterdir())) == 1


def test_flipped_signs_are_noticed(path: Path) -> None:
    content = bytearray(path.read_bytes())
    for place in range(len(content) - 1, len(content) - 161, -4):  # the byte with the sign of a little-endian float
        content[place] ^= 0x80
    path.write_bytes(bytes(content))
    with pytest.raises(InputError, match=r"model\.safetensors is damaged: its content has changed"):
        load(path)


def test_changed_notes_and_configurations_are_noticed(path: Path) -> None:
    save(Transformer(encoder(8, 2, 2), seed=3), path, {"function": "majority(5)"})
    content = path.read_bytes()
    for old, new in ((b"majority(5)", b"majority(6)"), (rb"\"final_norm\": false", rb"\"final_norm\":  true")):
        assert old in content
        path.write_bytes(content.replace(old, new))
        with pytest.raises(InputError, match=r"damaged|lacks"):
            load(path)
    path.write_bytes(content)
    load(path)


def test_a_file_without_a_checksum_is_taken(path: Path) -> None:
    rewrite(path, lambda tensors, record: None)
    with safe_open(path, framework="pt") as file:
        assert list(file.metadata()) == [KEY]
    assert load(path).config.width == 8


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "model.safetensors"
    os.mkfifo(pipe)
    for call in (load, read_header, artefact.read, artefact.describe, checkpoints.read, checkpoints.about):
        found = answered(lambda call=call: call(pipe))
        assert isinstance(found, InputError)
        assert str(found) == f"{pipe} is not a file but a pipe or a device: give the name of a file."


def test_refuses_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        save(Transformer(encoder(8, 1, 2)), tmp_path / "no" / "model.safetensors")
    with pytest.raises(InputError, match="is not a file"):
        load(tmp_path / "model.safetensors")
    with pytest.raises(InputError, match="is not a file"):
        load(tmp_path)


def test_refuses_every_truncation(path: Path) -> None:
    whole = path.read_bytes()
    for size in [*range(0, 64), *range(64, len(whole), 997), len(whole) - 1]:
        path.write_bytes(whole[:size])
        with pytest.raises(InputError, match="cannot be read as safetensors"):
            load(path)


def test_refuses_other_files(path: Path) -> None:
    path.write_bytes(b"PK\x03\x04 not a model" * 100)
    with pytest.raises(InputError, match="cannot be read as safetensors"):
        load(path)
    save_file({"a": torch.zeros(2)}, path)
    with pytest.raises(InputError, match="is not a flipscope model"):
        load(path)


def drop_tensor(tensors: dict[str, Tensor], _: dict[str, Any]) -> None:
    del tensors["head.bias"]


def add_tensor(tensors: dict[str, Tensor], _: dict[str, Any]) -> None:
    tensors["blocks.2.mlp.up.weight"] = torch.zeros(2)


def bend_tensor(tensors: dict[str, Tensor], _: dict[str, Any]) -> None:
    tensors["head.weight"] = torch.zeros(1, 9)


def break_number(tensors: dict[str, Tensor], _: dict[str, Any]) -> None:
    tensors["blocks.1.norm2.bias"][3] = float("nan")


def mix_types(tensors: dict[str, Tensor], _: dict[str, Any]) -> None:
    tensors["head.bias"] = tensors["head.bias"].double()


def integers(tensors: dict[str, Tensor], _: dict[str, Any]) -> None:
    for name, tensor in tensors.items():
        tensors[name] = tensor.int()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (drop_tensor, r"lacks the tensors head\.bias"),
        (add_tensor, r"does not know: blocks\.2\.mlp\.up\.weight"),
        (bend_tensor, r"head\.weight .* shape \(1, 9\), but its configuration says \(1, 8\)"),
        (break_number, r"NaN or infinite numbers in blocks\.1\.norm2\.bias"),
        (mix_types, "float32, torch.float64"),
        (integers, "int32"),
        (lambda _, record: record.update(version=2), "format version 2"),
        (lambda _, record: record.update(version=0), "damaged metadata"),
        (lambda _, record: record.update(version="x"), "damaged metadata"),
        (lambda _, record: record.update(config=[]), "damaged metadata"),
        (lambda _, record: record.pop("config"), "damaged metadata"),
        (lambda _, record: record["config"].update(colour="red"), "not valid: .* unknown fields colour"),
        (lambda _, record: record["config"].update(heads=3), "not valid: .* multiple of heads=3"),
        (lambda _, record: record["config"].update(layers=1), r"does not know: blocks\.1\."),
        (lambda _, record: record["config"].update(width=10**6, heads=1), "but its configuration says"),
        (lambda _, record: record["config"].update(width=10**12, heads=1), "far too small"),
        (lambda _, record: record["config"].update(width=10**30, heads=1), "far too small"),
        (lambda _, record: record["config"].update(layers=10**12), "layers=1000000000000 must be at most 10000"),
        (lambda _, record: record["config"].update(layers=10**4), "far too small"),
    ],
)
def test_refuses_changed_files(path: Path, change: Callable[..., None], message: str) -> None:
    rewrite(path, change)
    with pytest.raises(InputError, match=message) as error:
        load(path)
    assert "\n" not in str(error.value)


def test_refuses_a_record_that_is_not_json(path: Path) -> None:
    save_file(load_file(path), path, metadata={KEY: "{"})
    with pytest.raises(InputError, match="damaged metadata"):
        load(path)


def test_refuses_more_layers_than_the_file_has_tensors_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a single layer is made: each takes some milliseconds, and a line of the file is soon written."""

    def swell(tensors: dict[str, Tensor], record: dict[str, Any]) -> None:
        record["config"].update(layers=9_000)
        tensors.update({f"t{number}": torch.zeros(1) for number in range(9_001)})

    rewrite(path, swell)
    monkeypatch.setattr("flipscope.models.checkpoint.Transformer", None)
    with pytest.raises(InputError, match="far too small for the sizes in its configuration"):
        load(path)


def test_refuses_nested_metadata(path: Path) -> None:
    save_file(load_file(path), path, metadata={KEY: "[" * 200_000 + "]" * 200_000})
    with pytest.raises(InputError, match="damaged metadata"):
        load(path)


def test_refuses_a_file_larger_than_the_memory(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "machine_memory", lambda: path.stat().st_size)
    load(path)
    monkeypatch.setattr(limits, "machine_memory", lambda: path.stat().st_size - 1)
    with pytest.raises(InputError, match=r"would take .* of memory"):
        load(path)


@pytest.mark.parametrize(("name", "reason"), [("m" * 10_000, "File name too long"), ("loop", "not a file")])
def test_names_that_are_no_good(name: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(InputError, match=reason):
        load(tmp_path / name)
    with pytest.raises(InputError, match="cannot be written"):
        save(Transformer(encoder(8, 1, 2)), tmp_path / name / "model.safetensors")
    if name != "loop":  # which a file may well replace
        with pytest.raises(InputError, match="cannot be written"):
            save(Transformer(encoder(8, 1, 2)), tmp_path / name)


def test_a_name_that_is_not_unicode(path: Path) -> None:
    odd = path.rename(path.with_name(os.fsdecode(b"m\xff.safetensors")))
    with pytest.raises(InputError, match=r"cannot be read as safetensors: .* is not valid UTF-8"):
        load(odd)
