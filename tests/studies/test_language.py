from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from shared_data import FOLDER, needs_shared_data
from studies.harness import smoke_run
from studies.traps.texts import readers

from flipscope.basics.errors import InputError
from flipscope.data.batches import ByLength
from flipscope.data.finding import data_in
from flipscope.data.texts import load_texts
from flipscope.lab.data_sets import recorded
from flipscope.models.baselines.config import LSTMConfig
from flipscope.models.config import TransformerConfig
from flipscope.models.transformer import Transformer
from flipscope.probes.tokens import token_sensitivity
from flipscope.studies.low_sensitivity.language import NAMES, PLACES, STUDY, Reader, ends_of_texts, pairs_seen


def test_smoke() -> None:
    table, judgements, figures = smoke_run(STUDY)
    assert {judgement.verdict for _, judgement in judgements} == {"undecided"}  # synthetic sentences
    assert STUDY.provenance(table)[0].startswith("measured on synthetic sentences")
    assert [figure.name for figure in figures][:2] == ["language", "language-levels"]
    assert figures[-1].name == "language-words"
    for model in NAMES:
        own = table.where(model=model, kind="noise", variance=15.0)
        assert {(row["part"], row["place"]) for row in own.where(moment="end")} == {
            (part, place) for part in ("training", "validation") for place in PLACES
        }
        assert len(own.where(moment="start", place="after")) == 1
    ends = table.where(moment="positions")
    lines = STUDY.provenance(table)
    assert sum("in units of each token's size: 3.9 times" in line for line in lines) == 1  # GPT-2's kind
    assert sum("times after and" in line for line in lines) == len(NAMES) - 1
    assert any("% of the training pairs" in line and "more than 16 tokens and are cut" in line for line in lines)
    assert all(0 <= row[name] <= 1 for row in ends for name in ("first", "early", "late", "others"))


def test_rows_have_the_training_accuracy_at_the_end_and_the_pairs_seen() -> None:
    table, _, _ = smoke_run(STUDY)
    for model in NAMES:
        own = table.where(model=model)
        (end,) = {row["accuracy"] for row in own.where(moment="end", part="training")}
        assert {row["end_accuracy"] for row in own} == {end}
        assert {row["seen"] for row in own.where(moment="end")} == {128}


def test_pairs_seen_are_those_of_the_batches_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = _trial(train=80, epochs=3)  # batches of 32, 32 and 16 pairs, in a random order
    texts, sizes = trial.texts_of(), []
    batch = ByLength._batch
    with monkeypatch.context() as patch:
        patch.setattr(ByLength, "_batch", lambda self, rows: (sizes.append(len(rows)), batch(self, rows))[1])
        steps = replace(trial.recipe, log=()).train().fitted.steps
    assert sorted(sizes[:3]) == [16, 32, 32]
    assert pairs_seen(trial.recipe, texts, steps) == [0, *np.cumsum(sizes[:steps]).tolist()]
    assert pairs_seen(trial.recipe, texts, steps)[-1] == 240


def test_shown_texts_are_rows_of_the_set() -> None:
    (row,) = smoke_run(STUDY)[0].where(moment="positions", model="lstm")
    texts = STUDY.trials("smoke")[0].texts_of()
    pairs = load_texts(texts.texts).held_out
    assert len(pairs) > texts.test  # so that a row of the set is no place among the chosen
    bpe = texts.bpe()
    for number, shares in zip(row["shown_rows"], row["shown_shares"], strict=True):
        found = bpe.encode([pairs.first[number]], [pairs.second[number]], length=texts.length)
        assert int(found.mask.sum()) == sum(share >= 0 for share in shares)


def _trial(scale: str = "smoke", **change: Any) -> Reader:
    return replace(STUDY.trials(scale)[0], **change)


def test_models_are_trained_with_all_parameters_unless_the_released_variant_is_asked_for() -> None:
    for trained, moving in (("all", True), ("recurrent", False)):
        config = _trial(model="lstm", trained=trained).recipe.model
        assert isinstance(config, LSTMConfig)
        weights = dict(config.network(seed=0).named_parameters())
        assert weights["embedding.symbol.weight"].requires_grad is moving
        assert weights["recurrent.weight_ih_l0"].requires_grad
    with pytest.raises(InputError, match="leave it out"):  # a setting that changes nothing is an error
        STUDY.checked_trials(STUDY.scale_name("smoke+models=roberta", {"trained": "recurrent"}))


@pytest.mark.parametrize(("scale", "heads"), [("smoke", 4), ("laptop", 4), ("paper", 8)])
def test_models_differ_in_their_architecture_only(scale: str, heads: int) -> None:
    for model in NAMES:
        config = _trial(scale, model=model).recipe.model
        assert isinstance(config, LSTMConfig | TransformerConfig)
        assert config.dropout == 0.1  # the presets of small transformers have none
        if isinstance(config, TransformerConfig):
            assert config.heads == heads


def test_noise_enters_before_and_after_the_norm() -> None:
    trial = _trial(model="roberta")
    ids, config = trial.texts_of().training_set().bits[:8], trial.recipe.model
    assert isinstance(config, TransformerConfig)
    network = Transformer(config, seed=1)
    found = {place: token_sensitivity(network, ids, at=at, tokens=1) for place, at in PLACES.items()}
    assert found["after"].disturbance.norm_before == "embedding.norm"
    assert found["before"].disturbance.norm_after == "embedding.norm"


def test_ends_of_texts() -> None:
    changed = np.array([[1.0, 0.5, 0, 0, 0, 0, 0, 0, 1], [0, 1, 0, 0.5, 0.5, np.nan, np.nan, np.nan, np.nan]])
    # The first text has eight tokens after <s>, a quarter of which is two; the second has four.
    assert ends_of_texts(changed, ~np.isnan(changed)) == pytest.approx(
        {"first": 0.5, "early": (0.25 + 1) / 2, "late": (0.5 + 0.5) / 2, "others": (1.5 / 8 + 2 / 4) / 2}
    )


def test_models_of_a_seed_share_their_texts_and_noise() -> None:
    trials = STUDY.trials("smoke")
    assert {trial.model for trial in trials} == set(NAMES)
    logs = {trial.recipe.log[0].settings for trial in trials if not trial.normalise}
    assert len(logs) == 1
    assert len({trial.texts_of() for trial in trials}) == 1


def test_depths_are_varied_for_two_models_on_qqp() -> None:
    with recorded({"mrpc": "mrpc@0123456789abcdef", "qqp": "qqp@0123456789abcdef"}):
        trials = STUDY.trials("paper")
        assert {(trial.model, trial.data[:3]) for trial in trials if trial.sweep} == {
            ("lstm", "qqp"), ("roberta", "qqp")
        }  # fmt: skip
        assert {trial.layers for trial in trials if not trial.sweep} == {4}
        laptop = STUDY.checked_trials("laptop")
    assert len(laptop) == 6 * len(NAMES) * 2
    assert 100 not in {trial.content()["seed"] for trial in laptop}  # with which sizes were chosen


def test_the_paper_scale_starts() -> None:
    trial = _trial("paper", model="roberta", train=4, test=4, inputs=4, levels=(1.0,))
    assert trial.encoder == "trained"  # synthetic sentences have no RoBERTa vocabulary
    recipe = trial.recipe
    assert (recipe.model.width, recipe.model.layers, recipe.init) == (256, 4, "gaussian")  # type: ignore[union-attr]
    recipe = replace(recipe, protocol=replace(recipe.protocol, max_steps=1), log=())  # sensitivity takes longer
    assert recipe.train().fitted.steps == 1
    assert {each.recipe.model.layers for each in STUDY.trials("paper")[:2]} == {4}  # type: ignore[union-attr]


@needs_shared_data
def test_real_sentences() -> None:
    pytest.importorskip("tokenizers", reason="needs the extra 'language'")
    with data_in(FOLDER):
        trials = STUDY.trials("laptop")
        assert {trial.data.split("@")[0] for trial in trials} == {"mrpc", "qqp"}
        sample = replace(trials[0], train=40, test=20)
        data = sample.texts_of()
        ids = data.training_set().bits
        assert ids.shape == (40, 96)
        assert {trial.length for trial in trials if trial.data.startswith("qqp")} == {64}
        assert bool((ids[:, 0] == ids[0, 0]).all())  # <s>
        assert (replace(sample, seed=sample.seed + 1).texts_of().training_set().bits[:5] != ids[:5]).any()
        with torch.random.fork_rng(devices=[]):
            assert replace(sample, encoder="roberta", vocabulary=50_265).texts_of().vocabulary == 50_265


def test_unknown_models_are_refused() -> None:
    with pytest.raises(InputError, match="no model 'bert' in this study"):
        STUDY.checked_trials(STUDY.scale_name("smoke", {"models": ("bert",)}))


def test_figures_without_rows() -> None:
    table = readers()
    assert list(STUDY.draw(type(table)())) == []
