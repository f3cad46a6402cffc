"""The corruptions of CIFAR-10-C (Hendrycks and Dietterich 2019): noise, blur, weather and digital faults of images.

The constants are those published for 32 x 32 pixels, for severities 1 to 5; images of other sizes are corrupted with
the same ones. As published, pixels are computed from 0 to 1 and cut to whole levels. The random numbers are flipscope's
own, so that a corrupted image equals the one in CIFAR-10-C in distribution and not pixel by pixel.

`frost` is left out: it mixes in photographs that are part of the original code and not of flipscope. `gaussian_blur` is
one of the four additional corruptions; the low-sensitivity paper's code has it in the place of `defocus_blur`.
"""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from jaxtyping import Float, Float64, UInt8
from numpy.typing import NDArray

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.bits import as_array
from flipscope.basics.errors import InputError
from flipscope.basics.seeds import generators

Category = Literal["noise", "blur", "weather", "digital"]
Images: TypeAlias = Float64[np.ndarray, "image row column channel"]
Streams: TypeAlias = Sequence[np.random.Generator]
SEVERITIES = range(1, 6)
_CHUNK = 500  # images at a time, to bound the memory; the numbers do not depend on it
_STREAMS = 3  # random generators of a corruption, one for each kind of draw


@dataclass(frozen=True)
class Corruption:
    """A corruption by its name: its category, its constants for severities 1 to 5, and the function that applies it."""

    name: str
    category: Category
    constants: tuple[Any, ...]
    apply: Callable[[Images, Any, Streams], Images]


CORRUPTIONS: dict[str, Corruption] = {}


def _corruption(category: Category, *constants: Any) -> Callable[[Any], Any]:
    """Add the function below to the table, under its name."""

    def added(function: Callable[[Images, Any, Streams], Images]) -> Callable[[Images, Any, Streams], Images]:
        name = function.__name__
        CORRUPTIONS[name] = Corruption(name, category, constants, function)
        return function

    return added


@checked_arguments
def corrupt(
    images: UInt8[np.ndarray, "image row column channel"], name: str, severity: int = 1, seed: int = 0
) -> UInt8[np.ndarray, "image row column channel"]:
    """The images with a corruption of CIFAR-10-C at a severity of 1 to 5.

    The same seed gives the same corrupted images, and the first images of a longer array are corrupted alike.

    >>> import numpy as np
    >>> grey = np.full((1, 32, 32, 3), 100, np.uint8)
    >>> int(corrupt(grey, "brightness", severity=2)[0, 0, 0, 0])  # 0.1 of 255 levels brighter
    125
    """
    if name == "frost":
        raise InputError("frost needs the photographs of frost of CIFAR-10-C's code, which flipscope does not have")
    if name not in CORRUPTIONS:
        raise InputError(f"name={name!r} is not one of the corruptions {', '.join(CORRUPTIONS)}")
    if severity not in SEVERITIES:
        raise InputError(f"severity={severity} must be a whole number from 1 to 5")
    images = as_array(images, "images")
    if images.ndim != 4 or images.dtype != np.uint8 or images.shape[3] not in (1, 3) or min(images.shape[1:3]) < 8:
        raise InputError(
            f"images of shape {images.shape} and type {images.dtype} must be bytes [image, row, column, channel] of "
            "at least 8 x 8 pixels in 1 or 3 channels"
        )
    chosen, streams = CORRUPTIONS[name], generators(seed, _STREAMS)
    corrupted = np.empty_like(images)
    for start in range(0, len(images), _CHUNK):
        part = images[start : start + _CHUNK] / 255.0
        found = chosen.apply(part, chosen.constants[severity - 1], streams)
        # Cut, not rounded; what should be a whole level and is not by an error of rounding stays that level.
        corrupted[start : start + _CHUNK] = np.clip(found, 0, 1) * 255 + 1e-6
    return corrupted


# ---------------------------------------------------------------- noise


@_corruption("noise", 0.04, 0.06, 0.08, 0.09, 0.10)
def gaussian_noise(x: Images, std: float, streams: Streams) -> Images:
    """Normal noise of this standard deviation on every value."""
    return x + std * streams[0].standard_normal(x.shape)


@_corruption("noise", 500, 250, 100, 75, 50)
def shot_noise(x: Images, photons: int, streams: Streams) -> Images:
    """Poisson noise, as if white were so many photons."""
    return streams[0].poisson(x * photons) / photons


@_corruption("noise", 0.01, 0.02, 0.03, 0.05, 0.07)
def impulse_noise(x: Images, share: float, streams: Streams) -> Images:
    """A share of the values set to 0 or 1, with equal probability."""
    hit = streams[0].random(x.shape) < share
    return np.where(hit, streams[1].random(x.shape) < 0.5, x)


# ---------------------------------------------------------------- blur


@_corruption("blur", 0.4, 0.6, 0.7, 0.8, 1.0)
def gaussian_blur(x: Images, std: float, streams: Streams) -> Images:
    """A Gaussian filter of this standard deviation in pixels."""
    from scipy.ndimage import gaussian_filter

    blurred: Images = gaussian_filter(x, (0, std, std, 0), mode="nearest")
    return blurred


@_corruption("blur", (0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1))
def defocus_blur(x: Images, constants: tuple[float, float], streams: Streams) -> Images:
    """A filter with a disk of a radius, whose edge is smoothed by a Gaussian of 3 x 3 pixels."""
    from scipy.ndimage import convolve

    radius, std = constants
    across = np.arange(-3, 4)
    disk = (across[:, None] ** 2 + across**2 <= radius**2).astype(float)
    smooth = np.exp(-(np.arange(-1, 2) ** 2) / (2 * std**2))
    kernel = convolve(disk, np.outer(smooth, smooth), mode="constant")
    blurred: Images = convolve(x, (kernel / kernel.sum())[None, :, :, None], mode="mirror")
    return blurred


@_corruption("blur", (0.05, 1), (0.25, 1), (0.4, 1), (0.25, 2), (0.4, 2))
def glass_blur(x: Images, constants: tuple[float, int], streams: Streams) -> Images:
    """Each pixel takes the colour of itself or of a neighbour above or to the left, between two Gaussian filters.

    The published code means to swap the two pixels, but a swap of numpy's views copies one of them; CIFAR-10-C was made
    by it. The first two rows and columns stay.
    """
    std, times = constants
    count, rows, columns, _ = x.shape
    x = np.floor(gaussian_blur(x, std, streams) * 255 + 1e-6) / 255
    moves = streams[0].integers(-1, 1, (count, times, 2, rows - 2, columns - 2))
    row, column = np.arange(2, rows)[:, None], np.arange(2, columns)
    for step in range(times):
        down, right = moves[:, step, 0], moves[:, step, 1]
        x = x.copy()
        x[:, 2:, 2:] = x[np.arange(count)[:, None, None], row + down, column + right]
    found: Images = gaussian_blur(x, std, streams)
    return found


@_corruption("blur", (6, 1.0), (6, 1.5), (6, 2.0), (8, 2.0), (9, 2.5))
def motion_blur(x: Images, constants: tuple[int, float], streams: Streams) -> Images:
    """A blur to one side along a line, at an angle of up to 45 degrees from the horizontal."""
    return _moved(x, *constants, streams[0].uniform(-45, 45, len(x)))


@_corruption("blur", *(np.arange(1, most, 0.01) for most in (1.06, 1.11, 1.16, 1.21, 1.26)))
def zoom_blur(x: Images, factors: NDArray[np.float64], streams: Streams) -> Images:
    """The mean of the image and of the image enlarged by each of these factors."""
    found: Images = (x + sum(_enlarged(x, float(factor)) for factor in factors)) / (len(factors) + 1)
    return found


# ---------------------------------------------------------------- weather


@_corruption(
    "weather",
    (0.1, 0.2, 1.0, 0.6, 8, 3.0, 0.95),
    (0.1, 0.2, 1.0, 0.5, 10, 4.0, 0.9),
    (0.15, 0.3, 1.75, 0.55, 10, 4.0, 0.9),
    (0.25, 0.3, 2.25, 0.6, 12, 6.0, 0.85),
    (0.3, 0.3, 1.25, 0.65, 14, 12.0, 0.8),
)
def snow(x: Images, constants: tuple[float, float, float, float, int, float, float], streams: Streams) -> Images:
    """Flakes, which are large values of noise, blurred by falling, over a paler image."""
    mean, std, factor, least, radius, blur, share = constants
    flakes = _enlarged(mean + std * streams[0].standard_normal((*x.shape[:3], 1)), factor)
    flakes = np.where(flakes < least, 0, flakes)
    flakes = np.floor(np.clip(flakes, 0, 1) * 255) / 255
    flakes = _moved(flakes, radius, blur, streams[1].uniform(-135, -45, len(x)))
    pale = np.maximum(x, 1.5 * _grey(x) + 0.5)
    found: Images = share * x + (1 - share) * pale + flakes + flakes[:, ::-1, ::-1]
    return found


@_corruption("weather", (0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75))
def fog(x: Images, constants: tuple[float, float], streams: Streams) -> Images:
    """A fractal of this strength, which is rougher the slower its steps decay, added to the image."""
    strength, decay = constants
    brightest = x.max(axis=(1, 2, 3), keepdims=True)
    rows, columns = x.shape[1:3]
    clouds = _plasma(len(x), 1 << (max(rows, columns) - 1).bit_length(), decay, streams[0])
    found: Images = (x + strength * clouds[:, :rows, :columns, None]) * brightest / (brightest + strength)
    return found


@_corruption("weather", 0.05, 0.1, 0.15, 0.2, 0.3)
def brightness(x: Images, more: float, streams: Streams) -> Images:
    """The value of each pixel raised, at the same hue and saturation."""
    value = x.max(axis=3, keepdims=True)
    raised = np.minimum(value + more, 1)
    # At a fixed hue and saturation a colour is proportional to its value; black has none and becomes grey.
    found: Images = np.where(value > 0, x * (raised / np.where(value > 0, value, 1)), raised)
    return found


# ---------------------------------------------------------------- digital


@_corruption("digital", 0.75, 0.5, 0.4, 0.3, 0.15)
def contrast(x: Images, factor: float, streams: Streams) -> Images:
    """The differences from the mean of each channel, reduced by a factor."""
    mean = x.mean(axis=(1, 2), keepdims=True)
    found: Images = (x - mean) * factor + mean
    return found


@_corruption("digital", (0.0, 0.0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03))
def elastic_transform(x: Images, constants: tuple[float, float, float], streams: Streams) -> Images:
    """A random affine map, then smooth random shifts; the constants are shares of the side of an image."""
    from scipy.ndimage import gaussian_filter, map_coordinates

    count, rows, columns, _ = x.shape
    strength, std, affine = (min(rows, columns) * each for each in constants)
    grid = np.stack(np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij")).astype(float)
    corners = streams[0].uniform(-affine, affine, (count, 3, 2))
    noise = streams[1].uniform(-1, 1, (count, 2, rows, columns))
    moved = np.empty_like(x)
    for image, result, shift, draw in zip(x, moved, corners, noise, strict=True):
        at = _affine(rows, columns, shift) @ np.concatenate([grid.reshape(2, -1), np.ones((1, rows * columns))])
        for channel in range(x.shape[3]):
            turned = map_coordinates(image[..., channel], at, order=1, mode="mirror").reshape(rows, columns)
            if strength > 0:
                smooth = gaussian_filter(draw, (0, std, std), mode="reflect", truncate=3)
                turned = map_coordinates(turned, grid + strength * smooth, order=1, mode="reflect")
            result[..., channel] = turned
    return moved


@_corruption("digital", 0.95, 0.9, 0.85, 0.75, 0.65)
def pixelate(x: Images, factor: float, streams: Streams) -> Images:
    """The image made smaller by a factor and larger again, each time by means over boxes."""
    pillow = _pillow()
    rows, columns = x.shape[1:3]
    small = (int(columns * factor), int(rows * factor))

    def resized(image: Any) -> Any:
        return image.resize(small, pillow.Resampling.BOX).resize((columns, rows), pillow.Resampling.BOX)

    return _by_pillow(x, resized)


@_corruption("digital", 80, 65, 58, 50, 40)
def jpeg_compression(x: Images, quality: int, streams: Streams) -> Images:
    """The image after JPEG compression at this quality."""
    pillow = _pillow()

    def compressed(image: Any) -> Any:
        file = io.BytesIO()
        image.save(file, "JPEG", quality=quality)
        return pillow.open(file)

    return _by_pillow(x, compressed)


# ---------------------------------------------------------------- parts of several


def _grey(x: Images) -> Float64[np.ndarray, "image row column 1"]:
    """The luminance of the images, in one channel."""
    found: Images = x if x.shape[3] == 1 else x @ np.array([[0.299], [0.587], [0.114]])
    return found


def _enlarged(x: Images, factor: float) -> Images:
    """The middle of square images, enlarged by a factor to their own size, with linear interpolation."""
    side, columns = x.shape[1:3]
    if side != columns:
        raise InputError(f"zoom_blur and snow need square images, not {side} x {columns}")
    crop = int(np.ceil(side / factor))
    first = (side - crop) // 2
    large = round(crop * factor)
    # The corners of the crop are those of the enlarged image, which is trimmed to the size.
    trim = (large - side) // 2
    places = first + np.arange(trim, trim + side) * (crop - 1) / (large - 1)
    weights = np.maximum(0, 1 - np.abs(places[:, None] - np.arange(side)))
    found: Images = np.einsum("ir,brcd,jc->bijd", weights, x, weights, optimize=True)
    return found


def _moved(x: Images, radius: int, std: float, degrees: Float64[np.ndarray, " image"]) -> Images:
    """The images blurred to one side along a line at an angle of their own, with the weights of half a Gaussian."""
    count, rows, columns, _ = x.shape
    steps = np.arange(2 * radius + 1)
    weights = np.exp(-(steps**2) / (2 * std**2))
    angle = np.radians(degrees)[:, None]
    down, right = (np.ceil(steps * part - 0.5).astype(int) for part in (np.sin(angle), np.cos(angle)))
    image = np.arange(count)[:, None, None]
    blurred = np.zeros_like(x)
    for step, weight in enumerate(weights / weights.sum()):
        row = np.clip(np.arange(rows)[None, :, None] + down[:, step, None, None], 0, rows - 1)
        column = np.clip(np.arange(columns)[None, None, :] + right[:, step, None, None], 0, columns - 1)
        blurred += weight * x[image, row, column]
    return blurred


def _plasma(count: int, side: int, decay: float, stream: np.random.Generator) -> Float[np.ndarray, "image side side"]:
    """Fractals from 0 to 1 by the diamond-square algorithm on a torus; `side` is a power of two.

    A new point is the mean of four neighbours plus noise, whose spread decays from one step to the next.
    """
    found = np.zeros((count, side, side))
    draws = stream.spawn(count)
    spread, step = 100.0, side
    while step >= 2:
        half = step // 2
        corners = found[:, ::step, ::step]
        sums = corners + np.roll(corners, -1, axis=1)
        sums = sums + np.roll(sums, -1, axis=2)
        found[:, half::step, half::step] = sums / 4 + _wobble(draws, spread, corners.shape[1])
        middles = found[:, half::step, half::step]
        across = middles + np.roll(middles, 1, axis=1) + corners + np.roll(corners, -1, axis=2)
        along = middles + np.roll(middles, 1, axis=2) + corners + np.roll(corners, -1, axis=1)
        found[:, ::step, half::step] = across / 4 + _wobble(draws, spread, corners.shape[1])
        found[:, half::step, ::step] = along / 4 + _wobble(draws, spread, corners.shape[1])
        step, spread = half, spread / decay
    found -= found.min(axis=(1, 2), keepdims=True)
    found /= found.max(axis=(1, 2), keepdims=True)
    return found


def _wobble(draws: Streams, spread: float, side: int) -> Float64[np.ndarray, "image side side"]:
    """Noise of the published size, which is the square of the spread, from a stream for each image."""
    return spread * np.stack([stream.uniform(-spread, spread, (side, side)) for stream in draws])


def _affine(rows: int, columns: int, shift: Float64[np.ndarray, "3 2"]) -> Float64[np.ndarray, "2 3"]:
    """The map from places in the result to places in the image, (row, column, 1) to (row, column).

    It is the inverse of the affine map that shifts three corners of a square in the middle, given as (x, y).
    """
    middle, size = np.array([columns // 2, rows // 2]), min(rows, columns) // 3
    corners = middle + size * np.array([[1, 1], [1, -1], [-1, -1]], float)
    there = np.concatenate([corners + shift, np.ones((3, 1))], axis=1)
    back = np.linalg.solve(there, corners).T  # (x, y, 1) of the result to (x, y) of the image
    return back[::-1][:, [1, 0, 2]]


def _by_pillow(x: Images, change: Callable[[Any], Any]) -> Images:
    """Images changed by Pillow, one by one."""
    pillow = _pillow()

    def changed() -> Iterator[NDArray[Any]]:
        for each in np.rint(x * 255).astype(np.uint8):
            image = change(pillow.fromarray(each[..., 0] if each.shape[2] == 1 else each))
            yield np.asarray(image).reshape(each.shape)

    return np.stack(list(changed())) / 255.0


def _pillow() -> Any:
    try:
        return importlib.import_module("PIL.Image")
    except ImportError as error:
        raise InputError("pixelate and jpeg_compression need Pillow: pip install 'flipscope[vision]'") from error
