"""The corruptions of CIFAR-10-C: their constants, and the laws that follow from their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter, zoom
from shared_data import needs_shared_data, tiny

from flipscope.basics.errors import InputError
from flipscope.basics.seeds import generators
from flipscope.data import corruptions
from flipscope.data.corruptions import CORRUPTIONS, corrupt

PILLOW = ("pixelate", "jpeg_compression")


def pictures(count: int = 6, side: int = 32, channels: int = 3) -> np.ndarray:
    """Smooth random images with an edge in each."""
    stream = np.random.default_rng(0)
    rows, columns = np.mgrid[:side, :side] / side
    found = np.empty((count, side, side, channels))
    for image in found:
        for channel in range(channels):
            a, b, c = stream.uniform(-3, 3, 3)
            image[..., channel] = 0.5 + 0.3 * np.sin(a + 4 * b * rows + 4 * c * columns) + 0.15 * (rows > columns)
    return (np.clip(found, 0, 1) * 255).astype(np.uint8)


def needs(name: str) -> None:
    if name in PILLOW:
        pytest.importorskip("PIL", reason="needs the extra vision")


def distance(name: str, severity: int, images: np.ndarray) -> float:
    return float(np.abs(corrupt(images, name, severity).astype(float) - images).mean())


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_images_stay_images_and_the_seed_decides(name: str) -> None:
    needs(name)
    images = pictures()
    for severity in (1, 5):
        found = corrupt(images, name, severity, seed=3)
        assert (found.dtype, found.shape) == (np.uint8, images.shape)
        np.testing.assert_array_equal(found, corrupt(images, name, severity, seed=3))
        # The first images of a longer array are corrupted alike, also where it is done in parts.
        np.testing.assert_array_equal(found[:2], corrupt(images[:2], name, severity, seed=3))
        assert (found != images).any()


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_parts_do_not_matter(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    needs(name)
    images = pictures()
    whole = corrupt(images, name, 2)
    monkeypatch.setattr(corruptions, "_CHUNK", 4)
    np.testing.assert_array_equal(corrupt(images, name, 2), whole)


# Of the others the constants do not grow in every respect from one severity to the next.
GROWING = sorted(set(CORRUPTIONS) - {"glass_blur", "elastic_transform", "snow", "motion_blur"})


@pytest.mark.parametrize("name", GROWING)
def test_each_severity_changes_more_than_the_one_before(name: str) -> None:
    needs(name)
    images = pictures(20)
    found = [distance(name, severity, images) for severity in (1, 2, 3, 4, 5)]
    assert found == sorted(found)
    assert found[0] < found[-1]


@pytest.mark.parametrize("name", sorted({*CORRUPTIONS} - {*GROWING} - {"elastic_transform"}))
def test_the_last_severity_changes_more_than_the_first(name: str) -> None:
    images = pictures(20)
    assert distance(name, 1, images) < distance(name, 5, images)


@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize(("side", "channels"), [(28, 1), (8, 1), (32, 1)])
def test_grey_and_smaller_images_can_be_corrupted(name: str, side: int, channels: int) -> None:
    needs(name)
    images = pictures(2, side, channels)
    assert corrupt(images, name, 3).shape == images.shape


# ---------------------------------------------------------------- against the definitions

GREY = np.full((20, 32, 32, 3), 128, np.uint8)


@pytest.mark.parametrize("severity", [1, 2])
def test_noise_has_the_published_size(severity: int) -> None:
    std = (0.04, 0.06)[severity - 1]
    values = corrupt(GREY, "gaussian_noise", severity) / 255
    assert values.std() == pytest.approx(std, rel=0.02)
    assert values.mean() == pytest.approx(128 / 255 - 0.5 / 255, abs=0.001)  # cut to whole levels, half of one lower
    photons = (500, 250)[severity - 1]
    assert (corrupt(GREY, "shot_noise", severity) / 255).std() == pytest.approx(np.sqrt(128 / 255 / photons), rel=0.02)
    share = (0.01, 0.02)[severity - 1]
    hit = corrupt(GREY, "impulse_noise", severity)
    assert np.mean(hit != 128) == pytest.approx(share, rel=0.1)
    assert set(np.unique(hit)) == {0, 128, 255}
    assert np.mean(hit == 255) == pytest.approx(share / 2, rel=0.15)


def test_contrast_and_brightness_by_hand() -> None:
    images = pictures(3)
    x = images / 255
    mean = x.mean(axis=(1, 2), keepdims=True)
    np.testing.assert_allclose(corrupt(images, "contrast", 2) / 255, (x - mean) * 0.5 + mean, atol=1 / 255)
    colorsys = pytest.importorskip("colorsys")
    brighter = corrupt(images, "brightness", 2) / 255
    for row, column in ((0, 0), (5, 20), (31, 31)):
        hue, saturation, value = colorsys.rgb_to_hsv(*x[0, row, column])
        wanted = colorsys.hsv_to_rgb(hue, saturation, min(value + 0.1, 1))
        np.testing.assert_allclose(brighter[0, row, column], wanted, atol=1.01 / 255)
    black = corrupt(np.zeros((1, 32, 32, 3), np.uint8), "brightness", 2)
    assert (black == 25).all()


@pytest.mark.parametrize(
    "name", ["gaussian_blur", "defocus_blur", "motion_blur", "zoom_blur", "glass_blur", "pixelate"]
)
def test_blurs_leave_an_even_image_even(name: str) -> None:
    needs(name)
    assert (np.abs(corrupt(GREY[:2], name, 5).astype(int) - 128) <= 1).all()


def point(side: int = 32) -> np.ndarray:
    image = np.zeros((1, side, side, 1), np.uint8)
    image[0, 16, 16] = 255
    return image


def test_blurs_spread_a_point_by_their_kernels() -> None:
    spread = corrupt(point(), "gaussian_blur", 5)[0, :, :, 0] / 255
    weights = np.exp(-(np.arange(-4, 5) ** 2) / 2)
    weights /= weights.sum()
    np.testing.assert_allclose(spread[12:21, 12:21], np.outer(weights, weights), atol=1 / 255)
    # A disk of radius 0.3 is a point, smoothed by 3 x 3 pixels of a Gaussian of 0.4.
    spread = corrupt(point(), "defocus_blur", 1)[0, :, :, 0] / 255
    edge = np.exp(-1 / (2 * 0.4**2))
    weights = np.array([edge, 1, edge]) / (1 + 2 * edge)
    np.testing.assert_allclose(spread[15:18, 15:18], np.outer(weights, weights), atol=1 / 255)
    assert spread.sum() == pytest.approx(1, abs=9 / 255)
    # A disk of radius 1.5 is a square of 3 x 3 pixels.
    spread = corrupt(point(), "defocus_blur", 5)[0, :, :, 0]
    assert (spread[15:18, 15:18] == 255 // 9).all()


def test_motion_blurs_along_one_line() -> None:
    drawn = corrupt(np.repeat(point(), 50, axis=0), "motion_blur", 2)[..., 0]
    for image in drawn:
        rows, columns = np.nonzero(image)
        assert image[16, 16] > 0
        assert (columns <= 16).all()  # to one side
        assert np.abs(rows - 16).max() <= np.abs(columns - 16).max() + 1  # at most 45 degrees from the horizontal
    assert len({image.tobytes() for image in drawn}) > 5  # each at an angle of its own
    weights = np.exp(-(np.arange(13) ** 2) / (2 * 1.5**2))  # half a Gaussian over twice the radius and one
    level = corruptions._moved(point() / 255, 6, 1.5, np.zeros(1))[0, 16, :, 0]
    np.testing.assert_allclose(level[4:17][::-1], weights / weights.sum())


def test_zoom_averages_the_published_numbers_of_factors() -> None:
    assert [len(each) for each in CORRUPTIONS["zoom_blur"].constants[:2]] == [7, 12]
    images = pictures(2)
    np.testing.assert_allclose(corruptions._enlarged(images / 255, 1.0), images / 255)
    for factor in (1.03, 1.1, 1.25, 1.75, 2.25):
        crop = int(np.ceil(32 / factor))
        start = (32 - crop) // 2
        large = zoom(images[0, start : start + crop, start : start + crop] / 255, (factor, factor, 1), order=1)
        trim = (len(large) - 32) // 2
        found = corruptions._enlarged(images / 255, factor)[0]
        np.testing.assert_allclose(found, large[trim : trim + 32, trim : trim + 32], atol=1e-12)


def test_glass_takes_colours_of_neighbours() -> None:
    ramp = np.arange(32, dtype=np.uint8)[None, :, None, None] * 8 + np.zeros((1, 32, 32, 3), np.uint8)
    moved = corrupt(ramp, "glass_blur", 1)  # whose filter of 0.05 pixels changes nothing
    steps = ramp.astype(int) - moved
    assert set(np.unique(steps[:, 2:, 2:])) == {0, 8}  # the same row or the one above
    assert (steps[:, :2] == 0).all()
    assert np.mean(steps[:, 2:, 2:] == 8) == pytest.approx(0.5, abs=0.06)


def test_glass_is_that_of_a_loop_over_pixels() -> None:
    """The loop from the last pixel to the first, in which a swap of numpy's views copies, as in the published code."""
    image = pictures(1)
    moves = generators(5, 3)[0].integers(-1, 1, (1, 2, 2, 30, 30))
    looped = np.floor(gaussian_filter(image / 255, (0, 0.25, 0.25, 0), mode="nearest") * 255 + 1e-6)[0]
    for step in range(2):
        for row in range(31, 1, -1):
            for column in range(31, 1, -1):
                down, right = moves[0, step, :, row - 2, column - 2]
                one, other = (row, column), (row + down, column + right)
                looped[one], looped[other] = looped[other], looped[one]
    wanted = gaussian_filter(looped, (0.25, 0.25, 0), mode="nearest")
    assert np.abs(corrupt(image, "glass_blur", 4, seed=5)[0] - np.floor(wanted + 1e-6)).max() <= 1


def test_fog_brightens_in_patches() -> None:
    clouds = corruptions._plasma(50, 32, 3.0, np.random.default_rng(0))
    assert clouds.min(axis=(1, 2)).max() == 0
    assert clouds.max(axis=(1, 2)).min() == 1
    across = np.mean(np.abs(np.diff(clouds, axis=1)))
    shuffled = np.random.default_rng(1).permuted(clouds, axis=1)
    assert across < 0.5 * np.mean(np.abs(np.diff(shuffled, axis=1)))  # neighbours are alike
    rougher = corruptions._plasma(50, 32, 1.75, np.random.default_rng(0))
    assert np.mean(np.abs(np.diff(rougher, axis=1))) > across


def test_snow_adds_light() -> None:
    images = pictures(10)
    assert (corrupt(images, "snow", 1).astype(int) - images >= -1).all()
    assert corrupt(images, "snow", 5).mean() > corrupt(images, "snow", 1).mean() > images.mean()


def test_elastic_moves_pixels_by_little() -> None:
    rows, columns = np.mgrid[:32, :32]
    ramp = (np.stack([rows * 4, columns * 4, rows * 0 + 90], axis=2)[None]).astype(np.uint8)
    moved = corrupt(np.repeat(ramp, 30, axis=0), "elastic_transform", 1) / 4
    shift = np.abs(moved[:, 8:24, 8:24, :2] - ramp[:, 8:24, 8:24, :2] / 4)
    assert shift.max() < 4 * 0.08 * 32  # of corners by up to 0.08 of the side
    assert 0.3 < shift.mean() < 0.08 * 32
    still = corruptions._affine(32, 32, np.zeros((3, 2)))
    np.testing.assert_allclose(still, [[1, 0, 0], [0, 1, 0]], atol=1e-12)


def test_pixelate_and_jpeg_are_those_of_pillow() -> None:
    Image = pytest.importorskip("PIL.Image", reason="needs the extra vision")
    images = pictures(1)
    small = Image.fromarray(images[0]).resize((28, 28), Image.Resampling.BOX)
    np.testing.assert_array_equal(
        corrupt(images, "pixelate", 2)[0], np.asarray(small.resize((32, 32), Image.Resampling.BOX))
    )
    assert len(np.unique(corrupt(GREY[:1], "jpeg_compression", 1))) == 1


def test_categories_are_those_of_the_benchmark() -> None:
    found = {name: each.category for name, each in CORRUPTIONS.items()}
    assert {category: sum(each == category for each in found.values()) for category in found.values()} == {
        "noise": 3,
        "blur": 5,
        "weather": 3,
        "digital": 4,
    }
    assert all(len(each.constants) == 5 for each in CORRUPTIONS.values())


def test_what_cannot_be_corrupted_is_refused() -> None:
    images = pictures(1)
    with pytest.raises(InputError, match="frost needs the photographs"):
        corrupt(images, "frost")
    with pytest.raises(InputError, match="'rain' is not one of the corruptions gaussian_noise, shot_noise"):
        corrupt(images, "rain")
    with pytest.raises(InputError, match="severity=6 must be a whole number from 1 to 5"):
        corrupt(images, "fog", 6)
    with pytest.raises(InputError, match="must be bytes"):
        corrupt(images / 255, "fog")
    with pytest.raises(InputError, match="at least 8 x 8 pixels"):
        corrupt(images[:, :4], "fog")
    with pytest.raises(InputError, match="square images, not 16 x 32"):
        corrupt(images[:, :16], "zoom_blur")


@needs_shared_data
@pytest.mark.parametrize("name", GROWING)
def test_real_images_are_changed_more_by_each_severity(name: str) -> None:
    needs(name)
    images = tiny("cifar-10")["x_test"][:60]
    found = [distance(name, severity, images) for severity in (1, 2, 3, 4, 5)]
    assert found == sorted(found)
