from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from shared_data import FOLDER, needs_shared_data

from flipscope.basics.errors import InputError
from flipscope.data.bpe import load_bpe, trained_bpe
from flipscope.data.synthetic_paraphrases import SIZES
from flipscope.data.texts import load_texts

PLAIN = 'label\tsentence1\tsentence2\n1\tOne "here".\tOne there.\n0\tTwo.\tThree.\n'
MRPC = (
    "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"
    '1\t7\t8\tOne "here".\tOne there.\r\n0\t9\t10\tTwo.\tThree.\r\n'
)
QQP = (
    "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    '0\t1\t2\tOne "here".\tOne there.\t1\n1\t3\t4\tbroken by a\n2\t5\t6\tTwo.\tThree.\t0\n'
)
UNLABELLED = "index\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t1\t2\tOne.\tTwo.\n"


def write(folder: Path, **texts: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.tsv").write_bytes(text.encode())


def test_glue_and_plain_layouts_give_the_same_pairs(tmp_path: Path) -> None:
    write(tmp_path / "plain", mrpc_train=PLAIN, mrpc_test=PLAIN)
    write(tmp_path / "glue" / "MRPC", train=MRPC, test=MRPC)
    plain, glue = load_texts("mrpc", tmp_path / "plain"), load_texts("mrpc", tmp_path / "glue")
    assert plain.digest == glue.digest == load_texts("mrpc", tmp_path / "glue" / "MRPC").digest
    assert plain.train.first == ('One "here".', "Two.")
    assert plain.train.second == ("One there.", "Three.")
    assert plain.train.labels.tolist() == [1, 0]
    assert plain.dev is None
    assert plain.held_out is plain.test


def test_a_set_is_read_again_only_when_its_files_have_changed(tmp_path: Path) -> None:
    write(tmp_path, mrpc_train=PLAIN, mrpc_dev=PLAIN)
    first = load_texts("mrpc", tmp_path)
    assert load_texts("mrpc", tmp_path) is first
    write(tmp_path, mrpc_train=PLAIN + "1\tMore.\tMuch more.\n")
    assert len(load_texts("mrpc", tmp_path).train) == 3


def test_broken_rows_of_qqp_are_left_out_and_counted(tmp_path: Path) -> None:
    write(tmp_path / "QQP", train=QQP, dev=QQP, test="id\tquestion1\tquestion2\n0\tOne.\tTwo.\n")
    found = load_texts("qqp", tmp_path)
    assert found.left_out == 2
    assert found.train.labels.tolist() == [1, 0]
    assert found.test is None  # GLUE publishes no labels
    assert found.held_out is found.dev


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"mrpc_train": PLAIN.replace("sentence2", "other")}, "mrpc_train.tsv lacks the column 'sentence2'"),
        ({"mrpc_train": PLAIN.replace("label", "other")}, "mrpc_train.tsv lacks the column 'label'"),
        ({"mrpc_train": PLAIN[:-8]}, "has 2 columns in line 3 and 3 in its header"),
        ({"mrpc_train": PLAIN.replace("\n0", "\n2")}, "has the label '2' in line 3, and 0 or 1 is expected"),
        ({"mrpc_train": PLAIN.partition("\n")[0]}, "has no pairs of sentences"),
        ({"mrpc_train": ""}, "lacks the column '#1 String'"),
        ({"mrpc_train": UNLABELLED}, "has no column of labels"),
        ({"mrpc_train": PLAIN}, "has no dev or test set with labels beside mrpc_train.tsv"),
        ({"mrpc_train": PLAIN, "mrpc_test": UNLABELLED}, "has no dev or test set with labels"),
        ({"mrpc_test": PLAIN}, "has no files of mrpc: put mrpc_train.tsv"),
        ({"train": PLAIN, "test": PLAIN}, "has no files of mrpc"),  # of which set, nobody knows
    ],
)
def test_broken_files_are_refused_in_one_sentence(texts: dict[str, str], message: str, tmp_path: Path) -> None:
    write(tmp_path, **texts)
    with pytest.raises(InputError, match=message) as caught:
        load_texts("mrpc", tmp_path)
    assert "\n" not in str(caught.value)


def test_the_last_row_of_qqp_must_be_whole(tmp_path: Path) -> None:
    write(tmp_path, qqp_train=QQP[:-3], qqp_dev=QQP)
    with pytest.raises(InputError, match="has 5 columns in line 4 and 6 in its header"):
        load_texts("qqp", tmp_path)


def test_text_must_be_utf_8(tmp_path: Path) -> None:
    (tmp_path / "mrpc_train.tsv").write_bytes(PLAIN.encode() + b"1\t\xff\t\n")
    with pytest.raises(InputError, match="is not UTF-8 text: byte"):
        load_texts("mrpc", tmp_path)


@needs_shared_data
def test_real_files_are_read() -> None:
    mrpc, qqp = load_texts("mrpc", FOLDER), load_texts("qqp", FOLDER)
    assert mrpc.dev is not None
    assert mrpc.test is not None
    assert (len(mrpc.train), len(mrpc.dev), len(mrpc.test)) == (3_668, 408, 1_725)
    assert mrpc.train.labels.mean() == pytest.approx(0.674, abs=0.001)
    assert (len(qqp.train), qqp.dev, len(qqp.held_out)) == (18_212, None, 2_000)
    assert qqp.train.labels.mean() == pytest.approx(0.377, abs=0.001)


def test_synthetic_paraphrases_are_balanced_and_share_no_sentence() -> None:
    found = load_texts("synthetic-paraphrases")
    parts = {"train": found.train, "dev": found.dev, "test": found.test}
    sentences = {}
    for name, part in parts.items():
        assert part is not None
        assert len(part) == SIZES[name]
        assert part.labels.mean() == 0.5
        sentences[name] = set(part.sentences)
    assert not sentences["train"] & (sentences["dev"] | sentences["test"])


def test_no_word_of_a_synthetic_sentence_tells_the_label() -> None:
    """Only comparing the two sentences does: the words alone are equally frequent under both labels."""
    train = load_texts("synthetic-paraphrases").train
    for side in (train.first, train.second):
        for word in ("purchased", "hidden", "bicycle", "was", "guard"):
            has = np.array([word in text.split() for text in side])
            one, other = (int(has[train.labels == label].sum()) for label in (0, 1))
            assert abs(one - other) < 4 * np.sqrt(one + other)


# ---------------------------------------------------------------- byte-level BPE


def test_pairs_are_encoded_with_padding_and_mask() -> None:
    pytest.importorskip("tokenizers")
    texts = load_texts("synthetic-paraphrases").dev
    assert texts is not None
    bpe = trained_bpe(texts.sentences, 500)
    assert bpe.vocabulary <= 500
    ids, mask = bpe.encode(texts.first, texts.second, length=40)
    assert ids.shape == mask.shape == (1000, 40)
    assert ids.max() < bpe.vocabulary
    assert (ids[~mask] == bpe.pad).all()
    assert (ids[:, 0] == 0).all()
    assert ((ids == 2).sum(axis=1) == 3).all()  # <s> A </s></s> B </s>
    assert (np.diff(mask.astype(int), axis=1) <= 0).all()
    for row, first, second in zip(ids[:5], texts.first, texts.second, strict=False):
        inner = [token for token in row if token > 4]
        assert bpe.tokenizer.decode(inner).replace("Ġ", " ").split() == [*first.split(), *second.split()]
    assert bpe.encode(texts.first).ids.shape[1] < 40
    cut = bpe.encode(texts.first, texts.second, length=12)
    assert cut.mask.all()
    assert cut.ids.shape == (1000, 12)
    assert trained_bpe(texts.sentences, 500).digest == bpe.digest


@needs_shared_data
def test_published_vocabularies_give_published_ids() -> None:
    pytest.importorskip("tokenizers")
    roberta, gpt2 = load_bpe("roberta", FOLDER), load_bpe("gpt2", FOLDER)
    assert (roberta.vocabulary, gpt2.vocabulary) == (50_265, 50_257)
    assert roberta.encode(["Hello world"]).ids.tolist() == [[0, 31414, 232, 2]]
    assert roberta.encode(["Hello"], ["world"]).ids.tolist() == [[0, 31414, 2, 2, 8331, 2]]
    assert gpt2.encode(["Hello world"]).ids.tolist() == [[15496, 995, 50256]]


def test_vocabulary_files_that_are_missing_or_broken(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    with pytest.raises(InputError, match="has no files of roberta: put vocab"):
        load_bpe("roberta", tmp_path)
    (tmp_path / "vocab.json").write_text('{"a": 0')
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    with pytest.raises(InputError, match="are no vocabulary with its merges"):
        load_bpe("roberta", tmp_path)
    (tmp_path / "vocab.json").write_text('{"a": 0}')
    with pytest.raises(InputError, match="is not the vocabulary of roberta: it lacks the token <s>"):
        load_bpe("roberta", tmp_path)
    with pytest.raises(InputError, match="second has 1 texts and first has 2"):
        trained_bpe(["text"], 300).encode(["one", "two"], ["one"])
    with pytest.raises(InputError, match="texts must not be empty"):
        trained_bpe([])
