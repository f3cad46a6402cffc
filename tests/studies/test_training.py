"""Which models the studies of trained transformers train."""

from __future__ import annotations

from collections import Counter

from studies.trained import trainings

from flipscope.studies.geometry.training import strings_of


def test_the_paper_scale_has_the_papers_counts() -> None:
    trials = [trial.content() for trial in trainings("paper")]
    models = {
        kind: sum(trial["language"] == kind for trial in trials)
        for kind in ("first", "majority", "parity", "sparse_majority", "sparse_parity", "random")
    }
    assert models == {
        "first": 10,
        "majority": 10,
        "parity": 10,
        "sparse_majority": 10 * 4 * 10,
        "sparse_parity": 10 * 4 * 10,
        "random": 100,
    }
    for trial in trials:
        assert (trial["train"], trial["test"]) == (10_000, 1_000)
        assert trial["length"] == (40 if trial["language"] == "random" else 100)
        assert trial["init"] == ("xavier_normal" if trial["language"] == "random" else "uniform")
        assert 128 <= trial["batch"] <= 4096
        assert 1e-4 <= trial["learning_rate"] <= 1e-2
        assert 2 <= trial["layers"] <= 6
        assert trial["heads"] in (1, 2, 4, 8)
        assert trial["head_size"] in (16, 32, 64, 128)
        assert trial["ffn_multiple"] in (2, 4, 8)
    assert len({(trial["language"], trial["relevant"], trial["instance"]) for trial in trials}) == 93
    assert len({trial["seed"] for trial in trials}) == 930  # every setting drawn anew, in whichever study


def test_the_laptop_scale_has_every_language() -> None:
    kinds = Counter((trial.language, trial.relevant, trial.length) for trial in trainings("laptop"))
    assert kinds == {
        ("first", 0, 100): 6,
        ("majority", 0, 100): 6,
        ("parity", 0, 100): 6,
        **{(f"sparse_{kind}", m, 100): 3 for kind in ("majority", "parity") for m in (5, 10, 20, 50)},
        ("random", 0, 40): 40,
    }
    digests = {trial.recipe.digest for trial in trainings("laptop")}
    assert len(digests) == kinds.total()


def test_strings_of_a_language() -> None:
    for trial in (trial for trial in trainings("laptop") if not trial.seed):
        data, f = strings_of(trial), trial.recipe.data.language()
        assert len(data["train"]) == trial.train
        if f is None:
            assert data["test"] is data["train"]  # App. F.2: evaluated on the training set
            assert 0.45 < data["train"].ones / trial.train < 0.55
        else:
            assert (f(data["test"].bits) == data["test"].labels).all()
            assert len(f.support) == (trial.relevant or {"first": 1}.get(trial.language, 100))
