"""The trainings of the geometry paper."""

from __future__ import annotations

import numpy as np

from flipscope.training.recipes.geometry import random_setting


def test_random_setting_is_the_papers_distribution() -> None:
    settings = [random_setting(seed) for seed in range(2_000)]
    batches = np.array([setting.batch for setting in settings])
    rates = np.log10([setting.learning_rate for setting in settings])
    for values, low, high in ((batches, 128, 4096), (rates, -4, -2)):
        assert low <= values.min() < low + 0.02 * (high - low)
        assert high - 0.02 * (high - low) < values.max() <= high
        shares = np.histogram(values, bins=4, range=(low, high))[0] / 2_000
        assert abs(shares - 0.25).max() < 0.05
    assert abs(np.corrcoef(batches, rates)[0, 1]) < 0.1
    assert random_setting(7) == settings[7]
