"""flipscope tokens: texts, images and arrays as in Python, and one sentence for what goes wrong."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import Run, document

import flipscope
from flipscope.models import presets, save

MODELS = """
import torch
from torch import nn


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head = nn.Embedding(128, 8), nn.Linear(8, 3)

    def forward(self, input_ids, attention_mask):
        mask = attention_mask[..., None]
        return 5 * self.head((self.embed(input_ids) * mask).sum(dim=1) / mask.sum(dim=1))


class Pixels(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.head = nn.Linear(3 * 4 * 4, 2)

    def forward(self, x):
        return self.head(x.flatten(1))


def letters(texts):
    return [[ord(letter) for letter in text] for text in texts]


def folded(texts):
    return [[ord(letter) % 128 for letter in text] for text in texts]


def giant(texts):
    return [[10**30] for text in texts]


def below(texts):
    return [[-1] for text in texts]


def half(texts):
    return [[1.5] for text in texts]


def ragged(texts):
    return {"input_ids": [[1, 2] for text in texts], "attention_mask": [[1] for text in texts]}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "token_models.py").write_text(MODELS)
    (tmp_path / "texts.txt").write_text("good\nvery bad\nno\n")
    yield tmp_path
    sys.modules.pop("token_models", None)


TEXTS = ("tokens", "token_models.py:Reader", "--texts", "texts.txt", "--tokenizer", "token_models.py:letters")


def test_texts_by_a_tokenizer_of_ones_own(folder: Path, run: Run) -> None:
    found = document(run(*TEXTS, "--at", "embed", "--variance", "9", "--draws", "3", "--json"))
    changed = np.array(found["changed"], float)
    assert np.isnan(changed).tolist() == [[False] * 4 + [True] * 4, [False] * 8, [False] * 2 + [True] * 6]
    assert found["names"] == ["good", "very bad", "no"]
    assert found["definition"]["value"] == pytest.approx(np.mean(np.nanmean(changed, axis=1)))
    code, out, err = run(*TEXTS, "--how", "replace", "--count", "2", "--plot", "picture.svg", "--draws", "9")
    assert (code, err) == (0, "wrote picture.svg\n")
    assert "one of 128" in out
    assert "2 with 4 to 8 tokens" in out
    assert (folder / "picture.svg").read_text().startswith("<svg")


def test_only_line_feeds_separate_texts(folder: Path, run: Run) -> None:
    lines = ["one\u2028two\u2029three", "four\x0cfive\x85six\x1cseven", "eight"]
    (folder / "odd.txt").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode() + b"\n")
    options = ("--texts", "odd.txt", "--tokenizer", "token_models.py:folded")
    found = document(run("tokens", "token_models.py:Reader", *options, "--how", "replace", "--json"))
    assert found["names"] == lines


@pytest.mark.parametrize(
    ("tokenizer", "said"),
    [
        ("giant", "gives the token 1e+30, and ids are whole numbers from 0"),
        ("below", "gives the token -1, and ids are whole numbers from 0"),
        ("half", "failed with TypeError: 'float' object cannot be interpreted as an integer"),
        ("ragged", "must give an attention_mask of zeros and ones, one for each token"),
    ],
)
def test_a_tokenizer_gives_ids_or_is_refused(folder: Path, run: Run, tokenizer: str, said: str) -> None:
    code, out, err = run(*TEXTS[:-1], f"token_models.py:{tokenizer}", "--how", "replace")
    assert (code, out) == (2, "")
    assert f"the tokenizer token_models.py:{tokenizer} {said}" in err
    assert err.count("\n") == 1


def test_arrays_and_a_flipscope_file(folder: Path, run: Run) -> None:
    model = flipscope.Transformer(presets.encoder(width=8, layers=1, heads=2), seed=1)
    save(model, folder / "model.safetensors")
    bits = np.random.default_rng(0).integers(0, 2, (6, 5))
    mask = np.ones((6, 5), bool)
    mask[0, 3:] = False
    np.savez(folder / "strings.npz", bits=bits, mask=mask)
    found = document(run("tokens", "model.safetensors", "--inputs", "strings.npz", "--how", "flip", "--json"))
    expected = flipscope.token_sensitivity(model, bits, mask=mask, how="flip")
    assert np.array_equal(np.array(found["changed"], float), expected.changed, equal_nan=True)
    assert expected.changed[1:].sum() == flipscope.sensitivity(model, bits)[1:].sum()


def test_a_folder_of_transformers(folder: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    transformers = pytest.importorskip("transformers", reason="needs the extra 'language'")
    tokenizers = pytest.importorskip("tokenizers", reason="needs the extra 'language'")
    vocabulary = {word: n for n, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "very", "bad", "no"])}
    plain = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    plain.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    special = [("[CLS]", 2), ("[SEP]", 3)]
    plain.post_processor = tokenizers.processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=special)
    plain.save(str(folder / "tokenizer.json"))
    config = transformers.BertConfig(
        vocab_size=8, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    torch.manual_seed(0)
    transformers.BertForSequenceClassification(config).save_pretrained(folder / "bert")
    wrapped = transformers.PreTrainedTokenizerFast(
        tokenizer_object=plain, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    )
    wrapped.save_pretrained(folder / "bert")
    capsys.readouterr()  # saving shows a bar
    options = ("--texts", "texts.txt", "--at", "bert.embeddings", "--variance", "15", "--json")
    first = document(run("tokens", "bert", *options))
    assert first["words"][1] == ["[CLS]", "very", "bad", "[SEP]"]
    assert first["disturbance"]["norm_before"] == "bert.embeddings.LayerNorm"
    assert [each is None for each in first["changed"][0]] == [False, False, False, True]
    second = document(run("tokens", "bert", *options, "--tokenizer", "tokenizer.json"))
    assert second["changed"] == first["changed"]
    replaced = document(run("tokens", "bert", "--texts", "texts.txt", "--how", "replace", "--json"))
    assert [each is None for each in replaced["changed"][1]] == [True, False, False, True]


def test_a_causal_language_model(folder: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    transformers = pytest.importorskip("transformers", reason="needs the extra 'language'")
    torch.manual_seed(0)
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 16}
    config = transformers.GPT2Config(vocab_size=128, bos_token_id=0, eos_token_id=0, **sizes)
    transformers.GPT2LMHeadModel(config).save_pretrained(folder / "gpt")
    capsys.readouterr()
    options = ("tokens", "gpt", "--texts", "texts.txt", "--tokenizer", "token_models.py:letters", "--how", "replace")
    found = document(run(*options, "--label-words", "any", "--json"))
    assert [len(row) - row.count(None) for row in found["changed"]] == [4, 8, 2]
    assert document(run(*options, "--label-words", "5,9", "--json"))["answers"] != found["answers"]
    assert "must be token ids such as 31,57, or any" in run(*options, "--label-words", "good,bad")[2]


def test_images_of_a_folder(folder: Path, run: Run) -> None:
    image = pytest.importorskip("PIL.Image", reason="needs the extra 'vision'")
    (folder / "photos").mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (2, 8, 8, 3), np.uint8)
    for number, each in enumerate(pixels):
        image.fromarray(each).save(folder / "photos" / f"{number}.png")
    options = ("tokens", "token_models.py:Pixels", "--images", "photos", "--size", "4")
    found = document(run(*options, "--patch", "2", "--draws", "4", "--json"))
    assert np.array(found["changed"]).shape == (2, 4)
    assert found["names"] == ["0.png", "1.png"]
    assert run(*options)[2] == "flipscope: say how many pixels a side of a patch has: --patch 16.\n"
    assert "cannot be cut into patches of 3 x 3" in run(*options, "--patch", "3")[2]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            ("token_models.py:Reader",),
            "give the inputs by one of --images DIR, --texts FILE, --inputs FILE.npz and --test-set.",
        ),
        (("token_models.py:Reader", "--texts", "texts.txt"), "texts need a tokenizer: give --tokenizer"),
        (("token_models.py:Reader", "--texts", "empty.txt", "--tokenizer", "a:b"), "line 2 of empty.txt is empty"),
        (("token_models.py:Reader", "--texts", "no.txt"), "no.txt cannot be read"),
        (("token_models.py:Reader", "--images", "no"), "no is not a folder of images"),
        (("token_models.py:Reader", "--images", ".", "--count", "0"), "count"),
        (("token_models.py:Reader", "--images", "."), ". has no images: files must end in"),
        (("token_models.py:Reader", "--inputs", "no.npz"), "no.npz does not exist"),
        (("token_models.py:Reader", "--inputs", "texts.txt"), "texts.txt cannot be read as a file of arrays"),
        (("token_models.py:Reader", "--inputs", "x.npz", "--texts", "texts.txt"), "give the inputs by one of"),
        (("token_models.py:Reader", "--inputs", "x.npz", "--tokenizer", "a:b"), "--tokenizer is for --texts"),
        ((*TEXTS[1:], "--at", "embeds"), "at='embeds' is no module of the model"),
        ((*TEXTS[1:], "--patch", "3"), "--patch is for images"),
        ((*TEXTS[1:], "--at", "embed", "--variance", "-1"), "variance"),
        ((*TEXTS[1:], "--at", "embed", "--plot", "picture.doc"), "picture.doc"),
    ],
)
def test_what_goes_wrong_is_said_in_one_sentence(folder: Path, run: Run, given: Any, said: str) -> None:
    (folder / "empty.txt").write_text("a\n\nb\n")
    code, out, err = run("tokens", *given)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
