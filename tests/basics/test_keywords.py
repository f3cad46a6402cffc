"""Keywords that functions share are spelled out where `help` looks for them."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from typing import Annotated, Any, TypedDict, Unpack

import pytest

import flipscope
from flipscope.basics.arguments import Keyword, checked_arguments
from flipscope.basics.errors import InputError


class Options(TypedDict, total=False):
    """Keywords of a function."""

    times: Annotated[int, Keyword(2, "how often")]
    silent: bool


@checked_arguments
def repeated(text: str, *, end: str = "", **options: Unpack[Options]) -> str:
    """The text again and again."""
    return text * options.get("times", 2) + end


def test_the_signature_has_them_with_their_defaults() -> None:
    found = inspect.signature(repeated).parameters
    assert list(found) == ["text", "end", "times", "silent"]
    assert (found["times"].default, found["times"].annotation) == (2, int)
    assert found["silent"].default is ...  # nothing is said of it
    assert all(found[name].kind is inspect.Parameter.KEYWORD_ONLY for name in ("end", "times", "silent"))


def test_the_docstring_says_what_they_mean() -> None:
    assert inspect.getdoc(repeated) == "The text again and again.\n\nKeywords:\n    times: how often (default 2)"


def test_calls_are_as_before() -> None:
    assert repeated("ab", end="!") == "abab!"
    assert repeated("ab", times=3) == "ababab"
    with pytest.raises(InputError, match=r"times must be a whole number, not 2\.5\."):
        repeated("ab", times=2.5)  # type: ignore[arg-type]


def functions_with_options() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every function of the public rooms whose source takes an unpacked TypedDict."""
    for room in ("cube", "probes"):
        package = importlib.import_module(f"flipscope.{room}")
        for module in pkgutil.iter_modules(package.__path__, f"flipscope.{room}."):
            home = importlib.import_module(module.name)
            for name, found in vars(home).items():
                if inspect.isfunction(found) and found.__module__ == home.__name__ and not name.startswith("_"):
                    inner = inspect.unwrap(found)
                    if any("Unpack[" in str(each) for each in inner.__annotations__.values()):
                        yield f"{room}.{name}", found


def test_no_public_function_hides_its_keywords() -> None:
    checked = set()
    for name, function in functions_with_options():
        parameters = inspect.signature(function).parameters.values()
        assert all(one.kind is not one.VAR_KEYWORD for one in parameters), name
        assert all(one.default is not ... for one in parameters), name
        assert "Keywords:" in str(function.__doc__), name
        checked.add(name)
    assert {"probes.sensitivity", "probes.sensitivity_profile", "probes.sharpness", "cube.influences"} <= checked


@pytest.mark.parametrize(
    "name", ["sensitivity", "sensitivities", "sensitivity_profile", "sharpness", "curvature", "blowup", "influences"]
)
def test_help_shows_the_keywords_of_what_a_user_types_first(name: str) -> None:
    parameters = inspect.signature(getattr(flipscope, name)).parameters.values()
    assert not [one.name for one in parameters if one.kind in (one.VAR_KEYWORD, one.VAR_POSITIONAL)]
