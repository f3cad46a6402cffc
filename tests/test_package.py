"""The package as a whole: light to import, one version, every dependency pinned."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import flipscope

ROOT = Path(__file__).parent.parent


def run_python(code: str) -> str:
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return run.stdout.strip()


def normalised(requirement: str) -> str:
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name is not None
    return re.sub(r"[-_.]+", "-", name.group()).lower()


def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = "{'torch', 'numba', 'numpy', 'scipy', 'vl_convert', 'lark'}"
    code = f"import sys, flipscope, flipscope.cube; print(sorted({heavy} & set(sys.modules)))"
    assert run_python(code) == "[]"


def test_every_public_name_resolves_to_its_home() -> None:
    from flipscope.basics.errors import InputError
    from flipscope.cube.expression import parse
    from flipscope.cube.functions import BooleanFunction

    assert flipscope.parse is parse
    assert flipscope.BooleanFunction is BooleanFunction
    assert flipscope.InputError is InputError
    assert set(flipscope.__all__) <= set(dir(flipscope))
    for name in flipscope.__all__:
        assert getattr(flipscope, name) is not None


LAZY = sorted(
    ".".join(path.parent.relative_to(ROOT / "src").parts)
    for path in (ROOT / "src").rglob("__init__.py")
    if "lazily(" in path.read_text(encoding="utf-8")
)


def test_importing_a_package_reads_no_source() -> None:
    assert len(LAZY) == 9
    assert run_python(f"import sys, {', '.join(LAZY)}; print('ast' in sys.modules)") == "False"


def test_every_name_is_what_a_type_checker_takes_it_for_also_when_all_modules_are_loaded() -> None:
    """A module becomes an attribute of its package when it is loaded: in the place of a function of the same name.

    Then each package is executed again with TYPE_CHECKING set, which imports all its names at once.
    """
    rooms = LAZY[1:]  # names of flipscope itself may be modules
    code = f"""
import importlib, pkgutil, types, typing, {", ".join(LAZY)}
hidden = []
for room in [{", ".join(rooms)}]:
    for found in pkgutil.iter_modules(room.__path__):
        importlib.import_module(f"{{room.__name__}}.{{found.name}}")
    hidden += [name for name in room.__all__ if isinstance(getattr(room, name), types.ModuleType)]
others = []
for room in [{", ".join(LAZY)}]:
    lazy = {{name: getattr(room, name) for name in room.__all__}}
    assert set(room.__all__) <= set(dir(room))
    for name in room.__all__:
        del room.__dict__[name]
    typing.TYPE_CHECKING = True
    with open(room.__file__, encoding="utf-8") as file:
        exec(compile(file.read(), room.__file__, "exec"), room.__dict__)
    typing.TYPE_CHECKING = False
    others += [f"{{room.__name__}}.{{name}}" for name in room.__all__ if room.__dict__[name] != lazy[name]]
print(hidden, others)
"""
    assert run_python(code) == "[] []"


def test_the_readme_lists_every_public_name_and_no_other() -> None:
    rows = re.findall(r"^\| `([A-Za-z]\w*)[^`/]*` \| ", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(rows) == sorted(set(flipscope.__all__) - {"__version__"})


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        _ = flipscope.no_such_name  # type: ignore[attr-defined]


def test_using_the_cube_does_not_load_torch() -> None:
    code = "import sys, flipscope; flipscope.parse('x1 ^ x2'); print('torch' in sys.modules)"
    assert run_python(code) == "False"


def test_the_citation_names_this_version() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {flipscope.__version__}\n" in citation


def test_constraints_are_exact_neutral_and_cover_every_dependency() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    for pin in pins:
        assert re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*", pin), pin
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    wanted = {normalised(r) for group in [project["dependencies"], *extras] for r in group}
    assert wanted <= {pin.split("==")[0] for pin in pins}
    assert "torch==2.13.0" in pins
