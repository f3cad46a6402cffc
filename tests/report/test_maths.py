"""Formulas in sentences: which are found, how they are read, and that nothing else is touched."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipscope.lab import registry
from flipscope.report.maths import formulas, typeset


def found(text: str) -> list[str]:
    return [text[start:end] for start, end, _ in formulas(text)]


def plain(text: str) -> str:
    """What a reader sees of a formula, with powers and indices in braces."""
    document = ElementTree.fromstring(f"<p>{typeset(text)}</p>")

    def said(node: ElementTree.Element) -> str:
        parts = [said(each) for each in node]
        if node.tag in ("msup", "msub"):
            return f"{parts[0]}{'^' if node.tag == 'msup' else '_'}{{{parts[1]}}}"
        inside = "".join(parts) if parts else node.text or ""
        return f"√{{{inside}}}" if node.tag == "msqrt" else inside

    return " ".join(said(each) for each in document)


@pytest.mark.parametrize(
    ("text", "formula", "read"),
    [
        ("at least N^((D-1)/2L - 5) strings", "N^((D-1)/2L - 5)", "N^{(D−1)/2L−5}"),
        ("exceeds t with probability t^-(D-1)", "t^-(D-1)", "t^{−(D−1)}"),
        ("at most (1 + 1/sqrt(eps))^L.", "(1 + 1/sqrt(eps))^L", "(1+1/√{ε})^{L}"),
        ("the class |F_N| grows", "|F_N|", "|F_{N}|"),
        ("since ||W_Q|| grows", "||W_Q||", "‖W_{Q}‖"),
        ("where s(x, T) is C^2 Blowup(x)^2 J / 4", "C^2 Blowup(x)^2 J / 4", "C^{2}Blowup(x)^{2}J/4"),
        ("it is O(1/N) at best", "O(1/N)", "O(1/N)"),
        ("hidden in O(.)", "O(.)", "O(·)"),
        ("grows as ln^3 T", "ln^3 T", "ln^{3}T"),
        ("with m = 10^6 strings", "m = 10^6", "m=10^{6}"),
        ("σ* about 2.27e-3", "2.27e-3", "2.27·10^{−3}"),
        ("in the cube [-1, 1]^M", "[-1, 1]^M", "[−1,1]^{M}"),
        ("critical m = a + b log T, less", "m = a + b log T", "m=a+blogT"),
        ("the product d_2 B_inf suffices", "d_2 B_inf", "d_{2}B_{∞}"),
        ("for s(x) ≤ N/20 of them", "s(x) ≤ N/20", "s(x)≤N/20"),
        ("where K_0(N) < 2^N", "K_0(N) < 2^N", "K_{0}(N)<2^{N}"),
        ("E[Blowup^2] is finite", "E[Blowup^2]", "E[Blowup^{2}]"),
        ("two logarithms, log² T", "log² T", "log^{2}T"),
        ("some N-bit strings", "N", "N"),
        ("the string x^(n) with bit n flipped", "x^(n)", "x^{(n)}"),
    ],
)
def test_formulas_are_found_and_read(text: str, formula: str, read: str) -> None:
    assert formula in found(text)
    assert plain(formula) == read


def test_a_long_formula_can_be_broken_before_its_relation() -> None:
    text = "P(variance(y + Z) < eta^2) <= V_(D-1) (sqrt(D) eta/(sigma sqrt(2 pi)))^(D-1)"
    assert found(f"so {text} for Z normal")[0] == text
    assert str(typeset(text)).count("<math>") == 2
    assert plain(text) == "P(variance(y+Z)<η^{2}) ≤V_{D−1}(√{D}η/(σ√{2π}))^{D−1}"


@pytest.mark.parametrize(
    "text",
    [
        "A claim is judged by a rule",
        "E.3.1 and App. F.2, then App. G",
        "more than 0.2 s and 3 d",
        "xavier_uniform, log10_beta, equal_layers=True, nn.TransformerEncoder",
        "the sign of max and min, log-log slopes, 10-fold",
        "maj(x1..x5) ^ (x6 & x7)",
        "PARITY's strings don't and/or can't: 4/3, 95 %, 1,000 to 2,000 (paper)",
        "share at least 0.5 of 12 models, 2 of 3",
        "(1 for any exponential, 0.26 for any power",
    ],
)
def test_prose_stays_prose(text: str) -> None:
    assert found(text) == []


@given(st.text(max_size=60) | st.from_regex(r"[A-Za-z0-9 ^_()/+<=>|*.,εσ√²-]{0,40}", fullmatch=True))
def test_every_sentence_becomes_well_formed_and_keeps_its_prose(text: str) -> None:
    text = re.sub(r"[^\t\n\x20-\ud7ff\ue000-\ufffd]", " ", text)  # XML has no other characters
    document = ElementTree.fromstring(f"<p>{typeset(text)}</p>")
    prose, done = "", 0
    for start, end, _ in formulas(text):
        prose += text[done:start]
        done = end
    kept = (document.text or "") + "".join(each.tail or "" for each in document)
    assert "".join(kept.split()) == "".join((prose + text[done:]).split())


def test_the_formulas_of_all_studies_are_read_to_their_end() -> None:
    """Exponents and indices that were not read would stay as ASCII in the report."""
    left = []
    for name in registry.names():
        study = registry.find(name)
        texts = [study.title, *(text for each in study.claims for text in (each.name, each.statement, each.criterion))]
        texts += [text for each in study.deviations for text in (each.what, each.paper, each.ours, each.why)]
        for text in texts:
            prose = text
            for start, end, _ in reversed(formulas(text)):
                prose = prose[:start] + prose[end:]
            left += [f"{name}: {text}" for _ in re.findall(r"\w\^[\w(]|sqrt\(|<=|>=", prose)[:1]]
    assert left == []
