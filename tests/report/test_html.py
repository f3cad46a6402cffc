"""The report as a document: whole, closed to the network, safe against what studies say, readable by everyone."""

from __future__ import annotations

import base64
import errno
import hashlib
import itertools
import json
import math
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report.colours import contrast
from report.pages import FIGURE, claim, page, study
from waiting import LIMIT

from flipscope.basics import wording
from flipscope.basics.errors import InputError
from flipscope.basics.estimates import Estimate
from flipscope.figures import Figure, TextPanel
from flipscope.lab.verdict import Judgement, at_least, at_most, between, consistent_with
from flipscope.report import html
from flipscope.report.html import html_report, write_report
from flipscope.report.views import MAX_ROWS

VOID = {"meta", "img", "br", "hr", "input", "link", "line", "circle", "rect", "mspace"}
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&{{ 97 * 89 }}"
REPRODUCED = Judgement("reproduced", "share of strings", 0.93, 0.90, 0.955, "8000 strings")
CONTRADICTED = Judgement("contradicted", "largest mean", 31.25, 27.5, 35.0)


class Document(HTMLParser):
    """The tags, texts and nesting of a page."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == [], f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, f"</{tag}> is out of place at {self.getpos()}"
        if tag in ("td", "th", "dt", "dd", "a", "h4", "i", "button"):
            self.texts.append(("", " "))

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def text(self) -> str:
        return " ".join("".join(data for tag, data in self.texts if tag not in ("script", "style")).split())


def shown(*arguments: Any, **options: Any) -> Document:
    return Document(html_report(*arguments, **options))


@pytest.fixture(scope="module")
def usual() -> Document:
    first = page(
        [(claim(), REPRODUCED), (claim("far below"), CONTRADICTED)],
        [{"init": "uniform", "average": 0.25}, {"init": "gaussian", "average": None}],
        figures=[FIGURE],
    )
    second = page(
        [(claim("open question", exploratory=True), Judgement.without("no trial is done"))],
        of=study("zero-strings", "Zero strings"),
        done=70,
        failed=3,
        notes=["A note."],
    )
    return shown([first, second], [("old-study", "no such study is installed")], made="2026-07-01")


# ---------------------------------------------------------------- content


def test_everything_about_a_study_is_said(usual: Document) -> None:
    for text in (
        "2 studies, 3 claims, 2 h 13 min of computing time",
        "most strings have sensitivity 0 (Fig 3)",
        "share of strings: 0.93 [0.9, 0.955]",
        "the share is at least 0.5",
        "8000 strings",
        "Kövér et al. 2026",
        "Scale laptop: 20 models · 80 trials · 1 h 6 min of computing",
        "Spectra",
        "Most strings have sensitivity 0. Corresponds to Fig 3 of the paper.",
        "layers: 2, 3",
        "model_seed: 0 to 19",
        "flipscope run random-init --scale laptop",
        "revision 1 of the study",
        "a processor, 2 cores",
        "2026-07-01 12:30 UTC",
        "7 of 80 trials have not been measured yet: verdicts are interim.",
        "3 trials failed; flipscope results zero-strings --failed lists the errors.",
        "A note.",
        "old-study: no such study is installed",
        "beyond the paper",
        "no number",
    ):
        assert text in usual.text, text


def test_every_claim_is_at_a_glance_and_leads_to_its_details(usual: Document) -> None:
    targets = [attributes["href"] for attributes in usual.all("a")]
    ids = [attributes["id"] for _, attributes in usual.tags if "id" in attributes]
    assert len(set(ids)) == len(ids)
    details = [attributes["id"] for attributes in usual.all("article")]
    assert len(details) == 3
    assert {f"#{name}" for name in details} <= set(targets)
    assert all(target[1:] in ids for target in targets if target and target.startswith("#"))


def test_a_verdict_is_a_word_and_a_sign_not_only_a_colour(usual: Document) -> None:
    chips = re.findall(r"(✓|✗|\?) (?:\d+ )?(reproduced|contradicted|undecided)", usual.text)
    assert sorted(chips) == sorted(
        [("✓", "reproduced"), ("✗", "contradicted"), ("?", "undecided")] * 5
    )  # contents, meanings
    assert "✓ 1 reproduced ✗ 1 contradicted ? 1 undecided" in usual.text


def test_headings_go_down_one_level_at_a_time_and_pictures_have_words(usual: Document) -> None:
    levels = [int(tag[1]) for tag, _ in usual.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert [attributes["alt"] for attributes in usual.all("img")] == [
        "Spectra. All: strings against sensitivity for uniform, gaussian."
    ]
    assert usual.all("html") == [{"lang": "en"}]
    assert all("scope" in attributes for attributes in usual.all("th"))
    assert len(usual.all("figcaption")) == len(usual.all("figure")) == 1


def test_a_figure_carries_its_files_and_its_data(usual: Document) -> None:
    image, held = usual.all("img")[0]["src"], usual.all("figure")[0]
    assert image is not None
    assert base64.b64decode(image.removeprefix("data:image/svg+xml;base64,")).startswith(b"<svg")
    assert base64.b64decode(held["data-pdf"] or "").startswith(b"%PDF")
    assert held["data-stem"] == "random-init-spectra"
    data = json.loads(next(text for tag, text in usual.texts if tag == "script"))
    (line,) = [layer for layer in data["concat"][0]["layer"] if layer["mark"]["type"] == "line"]
    assert [row["y"] for row in line["data"]["values"]] == [8, None, 2]


def test_nothing_is_an_empty_report_that_says_so() -> None:
    assert "No study has results." in shown([]).text
    bare = shown([page(of=study(paper="https://example.org/paper"), settings={}, machines=[], finished="")])
    assert "This study makes no claims." in bare.text
    assert "https://example.org/paper" in [attributes["href"] for attributes in bare.all("a")]


def test_what_was_decided_comes_first() -> None:
    unknown = Judgement.without("no trial is done")
    first = page([(claim("all open"), unknown)], of=study("a", "Study a"))
    second = page([(claim("half open"), unknown), (claim("false"), CONTRADICTED), (claim("true"), REPRODUCED)])
    text = shown([first, second]).text.partition("All claims at a glance ✓")[2]
    order = [text.index(f"{name} ") for name in ("false", "true", "half open", "Study a", "all open")]
    assert sorted(order) == order


def test_progress_counts_the_studies() -> None:
    steps: list[tuple[int, int]] = []
    html_report(
        [page(of=study(f"study-{i}")) for i in range(3)], progress=lambda done, total: steps.append((done, total))
    )
    assert steps == [(1, 3), (2, 3), (3, 3)]


def test_thirty_studies() -> None:
    pages = [page([(claim(f"claim {i}"), REPRODUCED)], of=study(f"study-{i}", f"Study {i}")) for i in range(30)]
    document = shown(pages)
    assert len(document.all("section")) == 32  # with the table of claims and the glossary
    assert all(document.text.count(f"claim {i} ") >= 2 for i in range(30))


# ---------------------------------------------------------------- contents, glossary, formulas


def test_the_contents_list_every_study_and_the_glossary(usual: Document) -> None:
    place = usual.tags.index(("nav", {"id": "contents", "aria-label": "Contents"}))
    rest = itertools.takewhile(lambda tag: tag[0] != "section", usual.tags[place:])
    assert [attributes["href"] for tag, attributes in rest if tag == "a"] == [
        "#glance", "#study-0", "#study-1", "#glossary",
    ]  # fmt: skip
    assert "Transformers at initialisation random-init ✓ 1 reproduced ✗ 1 contradicted Zero strings" in usual.text


def test_the_glossary_has_every_term_of_its_file(usual: Document) -> None:
    documented = (Path(html.__file__).parent / "glossary.md").read_text("utf-8")
    words = html.glossary()
    assert list(words) == [line[3:] for line in documented.splitlines() if line.startswith("## ")]
    assert len(re.findall(r"^\| (?!word \|)", documented, re.MULTILINE)) == sum(map(len, words.values()))
    meanings = dict(words["Experiments"])
    assert "a judgement of part of the planned trials" in meanings["interim"]
    assert meanings["trial"] in usual.text


def test_formulas_are_typeset_and_still_escaped() -> None:
    made = page([(claim("grows", f"at least N^2 strings {HOSTILE}"), REPRODUCED)])
    text = html_report([made])
    assert '<math alttext="N^2"><msup><mi>N</mi><mn>2</mn></msup></math> strings &lt;/script&gt;' in text
    assert "alert(1)</script><img" not in text
    assert Document(text).all("math")


# ---------------------------------------------------------------- tables


def test_a_long_table_is_folded_and_cut() -> None:
    table = [{"i": i, "square": i * i} for i in range(MAX_ROWS + 1234)]
    document = shown([page(table=table)])
    assert document.all("details") == [{}]
    assert f"{MAX_ROWS + 1234:,} rows, 2 columns" in document.text
    assert "… 1,234 more rows; export: flipscope results random-init --export random-init.csv" in document.text
    assert len(document.all("tr")) == MAX_ROWS + 4  # with its head and the table of claims


def test_a_short_table_is_open_and_whole() -> None:
    document = shown([page(table=[{"a": 1}, {"b": True}])])
    assert document.all("details") == [{"open": None}]
    assert "1 – – yes" in document.text
    assert "… 1 more row" not in document.text
    assert "export:" not in document.text


@pytest.mark.parametrize(
    ("value", "text", "sorted_as"),
    [
        (None, "–", ""),
        (math.nan, "not a number", ""),
        (-math.inf, "−∞", "-Infinity"),
        (True, "yes", ""),
        (np.bool_(False), "no", ""),
        (-3, "−3", "-3.0"),
        (0.1 + 0.2, "0.3", "0.30000000000000004"),
        (np.float32(-0.5), "−0.5", "-0.5"),
        (2**64, "18446744073709551616", "1.8446744073709552e+19"),
        (10**30, "10^30.00", "1e+30"),
        (-(10**5000), "−10^5000.00", "-Infinity"),
        ("text", "text", ""),
        ((1, "a", None), "(1, a, –)", ""),
        (tuple(range(500)), "(0, 1, 2, … 500 values)", ""),
        ("x" * 1000, "x" * 299 + "…", ""),
    ],
    ids=itertools.count(),
)
def test_values_of_tables(value: Any, text: str, sorted_as: str) -> None:
    assert wording.cell_text(value) == text
    assert wording.sort_value(value) == sorted_as
    assert text in shown([page(table=[{"value": value, "other": "z"}], settings={"setting": [value]})]).text


# ---------------------------------------------------------------- safety


def test_nothing_is_fetched_from_anywhere(usual: Document) -> None:
    for tag, attributes in usual.tags:
        for name in ("src", "href", "srcset", "action", "poster", "data"):
            value = attributes.get(name)
            if value is not None and not (tag == "a" and value.startswith("https://arxiv.org/abs/")):
                assert value.startswith(("#", "data:image/svg+xml;base64,")), (tag, name, value[:80])
    policy = next(attributes["content"] for attributes in usual.all("meta") if "http-equiv" in attributes)
    assert policy is not None
    assert policy.startswith("default-src 'none'; img-src data: blob:;")
    assert policy.endswith("; base-uri 'none'; form-action 'none'")  # which default-src does not cover
    assert "@import" not in "".join(text for tag, text in usual.texts if tag == "style")
    assert "url(" not in "".join(text for tag, text in usual.texts if tag == "style")


def test_only_the_scripts_of_the_page_may_run() -> None:
    text = html_report([page(figures=[FIGURE])])
    scripts = re.findall(r'<script type="module">(.*?)</script>', text, re.DOTALL)
    assert len(scripts) == 2
    assert (
        len(re.findall(r'<script type="module">', html_report([page()]))) == 1
    )  # nothing draws where there is no figure
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    policy = next(attributes["content"] for attributes in Document(text).all("meta") if "http-equiv" in attributes)
    assert policy is not None
    allowed = policy.partition("script-src ")[2].partition(";")[0]
    assert allowed == " ".join(f"'sha256-{digest}'" for digest in digests)
    assert "unsafe-eval" not in policy  # Vega interprets its expressions


def test_what_a_study_says_is_text_and_nothing_else() -> None:
    drawn = replace(
        FIGURE,
        name=HOSTILE,
        title=HOSTILE,
        caption=HOSTILE,
        where=HOSTILE,
        panels=[replace(FIGURE.panels[0], title=HOSTILE, x_label=HOSTILE)],
    )
    judged = Judgement("reproduced", HOSTILE, 1.0, 0.5, 1.5, HOSTILE + " note")
    hostile = page(
        [(claim(HOSTILE, HOSTILE), judged)],
        [{HOSTILE: HOSTILE, "n": 1}],
        of=study(title=HOSTILE, paper="javascript:alert(1)//" + HOSTILE),
        figures=[drawn],
        settings={HOSTILE: [HOSTILE]},
        machines=[HOSTILE],
        command=HOSTILE,
        notes=[HOSTILE],
    )
    document = shown([hostile], [(HOSTILE, HOSTILE)], title=HOSTILE)
    assert len(document.all("script")) == 4
    assert [attributes.get("alt", "")[:8] for attributes in document.all("img")] == ["</script"]  # type: ignore[index]
    assert not any(name.startswith("on") for _, attributes in document.tags for name in attributes)
    assert not any((attributes["href"] or "").startswith("javascript") for attributes in document.all("a"))
    assert document.text.count(" ".join(HOSTILE.split())) >= 15
    assert "8633" not in document.text
    assert HOSTILE[:30] in next(text for tag, text in document.texts if tag == "script").replace(
        "\\u003c", "<"
    ).replace("\\u003e", ">")


def test_characters_that_have_no_encoding_are_replaced(tmp_path: Path) -> None:
    target = write_report(tmp_path / "r.html", [page(notes=["a lone \ud800 surrogate"])])
    assert "a lone ? surrogate" in target.read_text("utf-8")


# ---------------------------------------------------------------- files


def test_the_same_pages_give_the_same_file(tmp_path: Path) -> None:
    texts = [write_report(tmp_path / name, [page(figures=[FIGURE])]).read_text("utf-8") for name in "ab"]
    # The dictionaries of a PDF are in no order.
    first, second = (re.sub(r'data-pdf="[^"]*"', "", text) for text in texts)
    assert first == second


def test_a_missing_folder_is_one_sentence(tmp_path: Path) -> None:
    target = tmp_path / "none" / "r.html"
    with pytest.raises(InputError) as caught:
        write_report(target, [])
    assert str(caught.value) == f"the report cannot be written to {target}: the folder does not exist."


def test_a_full_disk_leaves_the_old_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "r.html"
    target.write_text("old", encoding="utf-8")

    def full(self: Path, content: bytes) -> int:
        self.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError, match=r"the report cannot be written to .*: No space left on device\."):
        write_report(target, [])
    assert target.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [target]


# ---------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (9.94, "9.9 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (61, "1 min 1 s"),
        (3600, "1 h"),
        (90_061, "1 d 1 h"),
    ],
)
def test_times(seconds: float, text: str) -> None:
    assert wording.time_text(seconds) == text


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([2, 3], "2, 3"),
        (list(range(80)), "0 to 79"),
        ([i / 2 for i in range(10)], "0 to 4.5, 10 values"),
        ([2 * i for i in range(10)], "0 to 18, 10 values"),
        ([f"v{i}" for i in range(10)], "v0, v1, v2, v3, v4, v5, v6, v7 … (10 values)"),
    ],
)
def test_lists_of_settings(values: list[Any], text: str) -> None:
    assert wording.values_text(values) == text


def test_settings_are_collected_once_each_and_numbers_in_order() -> None:
    trials = [{"n": 3, "kind": "b"}, {"n": 1, "kind": "a"}, {"n": 3, "kind": "b", "late": None}]
    assert wording.settings_of(trials) == {"n": [1, 3], "kind": ["b", "a"], "late": [None]}
    assert wording.settings_of([{"x": 1}, {"x": True}, {"x": 1.0}])["x"] == [1, True, 1.0]


@pytest.mark.parametrize(
    ("measured", "low", "high", "expected"),
    [
        (0.93, 0.90, 0.955, ("0", "1", 119.3, 115.1, 122.9)),
        (-1.02, -1.06, -0.97, ("−2", "0", 64.8, 61.8, 68.4)),
        (0.0, 0.0, 0.0004, ("0", "0.0005", 4.0, 3.5, 103.7)),
        (5.0, -math.inf, math.inf, ("0", "5", 128.0, 3.5, 128.5)),
        (-3.0, None, None, ("−5", "0", 53.6, None, None)),
        (0.0, 0.0, 0.0, ("0", "1", 4.0, 3.5, 4.5)),
    ],
)
def test_small_pictures_of_intervals(
    measured: float, low: float | None, high: float | None, expected: tuple[Any, ...]
) -> None:
    places = wording.interval_places(measured, low, high)
    assert places is not None
    assert [places[name] for name in ("start", "end")] == list(expected[:2])
    assert [places[name] for name in ("at", "low", "high")] == pytest.approx(list(expected[2:]), abs=0.051)


@pytest.mark.parametrize(
    ("limit", "limits", "allowed", "end"),
    [
        ("≥ 0.9", [115.6], (115.6, 128.0), "1"),
        ("≤ 2", [128.0], (4.0, 128.0), "2"),
        ("from −1 to 1", [4.0, 128.0], (4.0, 128.0), "1"),
        ("0.5 ± 0.25", [35.0, 97.0], (35.0, 97.0), "1"),
        ("≤ 1, to within 0.05 as it is sharp", [128.0], (4.0, 128.0), "1"),
        ("≥ 1e−05", [4.0], (4.0, 128.0), "1"),
        ("≥ 12,000", [78.4], (78.4, 128.0), "20,000"),
        ("at least one", [4.0], (4.0, 128.0), "1"),
        ("", [], None, "1"),
        ("≥ 0.5 of N", [], None, "1"),
        ("≤ ∞", [], None, "1"),
    ],
)
def test_the_limit_is_drawn_on_the_same_scale(limit: str, limits: list[float], allowed: Any, end: str) -> None:
    places = wording.interval_places(0.93, 0.9, 0.955, limit)
    assert places is not None
    assert (places["limits"], places["allowed"], places["end"]) == (pytest.approx(limits), allowed, end)
    text = html_report([page([(claim(), replace(REPRODUCED, limit=limit))])]).partition("</style>")[2]
    assert text.count('class="bound"') == len(limits)
    assert text.count('class="allowed"') == bool(limits)


def test_every_kind_of_comparison_has_a_limit_that_can_be_drawn() -> None:
    found = Estimate(0.5, 0.4, 0.6, 0.95, 100)
    judged = [
        at_most(found, 0.7, "q"), at_least(found, 0.3, "q"), between(found, 0.1, 0.9, "q"),
        consistent_with(found, 0.5, 0.2, "q"),
    ]  # fmt: skip
    ends = [wording.limit_ends(each.limit) for each in judged]
    assert ends == [(None, 0.7), (0.3, None), (0.1, 0.9), (pytest.approx(0.3), pytest.approx(0.7))]


@pytest.mark.parametrize("measured", [None, math.inf, 1e200])
def test_no_picture_without_a_place(measured: float | None) -> None:
    assert wording.interval_places(measured, None, None) is None
    found = Judgement("undecided", "q", measured, None, None)
    assert "bar-of-interval" not in html_report([page([(claim(), found)])]).partition("</style>")[2]


# ---------------------------------------------------------------- looks


def colours() -> tuple[dict[str, str], dict[str, str]]:
    """The colours of the page on light and on dark."""
    style = html_report([]).partition("</style>")[0]
    light, dark = (dict(re.findall(r"(--[a-z0-9-]+): (#[0-9a-f]{6});", part)) for part in re.split("@media", style)[:2])
    return light, dark


def test_text_can_be_read_on_light_and_dark() -> None:
    light, dark = colours()
    assert set(light) == set(dark)
    for theme in (light, dark):
        for text in ("--ink", "--soft", "--accent"):
            assert contrast(theme[text], theme["--paper"]) >= 4.5
            assert contrast(theme[text], theme["--raised"]) >= 4.5
        for chip in ("--good", "--bad", "--open"):
            assert contrast(theme[chip], theme[f"{chip}-back"]) >= 4.5


PROBE = """<script>
window.problems = [];
addEventListener("error", (event) => problems.push(event.message));
addEventListener("unhandledrejection", (event) => problems.push(String(event.reason)));
</script>"""
ACT = """<script type="module">{
const said = {}, figure = document.querySelector("figure"), all = (what) => [...figure.querySelectorAll(what)];
const pause = (time) => new Promise((done) => setTimeout(done, time));
while (!figure.classList.contains("live")) await pause(50);
const point = (mark, ...names) => names.forEach((name) => mark.dispatchEvent(
  new MouseEvent(name, { bubbles: true, cancelable: true, view: window })));
const bars = all(".mark-rect path");
said.bars = bars.length;
point(bars[0], "pointerover", "mouseover", "pointermove", "mousemove");
await pause(100);
said.tip = document.querySelector("#vg-tooltip-element").innerText.replace(/\\s+/g, " ");
point(all(".role-legend-symbol path")[1], "pointerdown", "mousedown", "pointerup", "mouseup", "click");
await pause(100);
said.faded = all(".mark-rect path[opacity='0.12']").length;
said.fits = figure.querySelector(".drawing svg").getBoundingClientRect().width <= figure.clientWidth;
const heads = document.querySelectorAll("th button"), table = document.querySelector("table.sortable");
const column = () => [...table.tBodies[0].rows].map((row) => row.cells[0].textContent).join(" ");
heads[0].click();
said.up = column();
heads[0].click();
said.down = column();
const words = document.querySelectorAll("figure")[1].querySelectorAll(".mark-text text");
const places = [...words].filter((word) => /^w\\d/.test(word.textContent)).map((word) => word.getBoundingClientRect());
said.lines = new Set(places.map((place) => Math.round(place.top))).size;
said.inside = places.every((place) => place.right <= document.documentElement.clientWidth);
point(words[1], "pointerover", "mouseover", "pointermove", "mousemove");
await pause(100);
said.word = document.querySelector("#vg-tooltip-element").innerText.replace(/\\s+/g, " ");
document.querySelector("button[data-verdict=contradicted]").click();
said.chosen = [...document.querySelectorAll("tr.claim")].filter((row) => row.offsetHeight).length;
said.live = document.querySelectorAll("figure.live").length;
said.wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
const out = document.createElement("output");
out.textContent = JSON.stringify({ ...said, problems });
document.body.append(out);
}</script></body>"""


@pytest.mark.skipif(shutil.which("chromium") is None, reason="there is no Chromium to open the page with")
def test_the_page_works_in_a_browser(tmp_path: Path) -> None:
    table = [{"n": n} for n in (3, None, 20, -1)]
    strip = TextPanel("", [f"w{number:02}" for number in range(90)], [0.01 * number for number in range(90)], "share")
    words = Figure("words", "Words", "A long text.", [strip], columns=1)
    pages = [page([(claim(), REPRODUCED), (claim("no"), CONTRADICTED)], table, figures=[FIGURE, words])]
    policy = '<meta http-equiv="Content-Security-Policy" content="script-src \'unsafe-inline\'">'  # and no eval
    text = re.sub(r"<meta http-equiv=[^>]*>", policy + PROBE, html_report(pages))
    text = ACT.join(text.rsplit("</body>", 1))
    (tmp_path / "r.html").write_text(text, encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
    flags += ["--disable-background-networking", "--disable-component-update", f"--user-data-dir={tmp_path / 'user'}"]
    command = [
        "chromium",
        *flags,
        "--window-size=500,900",
        "--virtual-time-budget=20000",
        "--dump-dom",
        (tmp_path / "r.html").as_uri(),
    ]
    run = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=True)
    found = re.search(r"<output>(.*?)</output>", run.stdout)
    assert found is not None
    assert json.loads(found[1].replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&")) == {
        "bars": 3,
        "tip": "uniform sensitivity 0 strings 10",
        "faded": 3,
        "fits": True,
        "up": "−1 3 20 –",
        "down": "20 3 −1 –",
        "lines": 7,  # wrapped to fit the window: on paper there are 5
        "inside": True,
        "word": "word w01 share 0.01",
        "chosen": 1,
        "live": 2,
        "wide": 0,
        "problems": [],
    }
