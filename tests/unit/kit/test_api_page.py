from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from replica.errors import ReplicaError
from tools.pages.api import ERRORS, MEMBERS, PACKAGE, docstring, page, public

PAGE = Path(__file__).resolve().parents[3] / "docs" / "api.md"
CALLABLES = {
    name: told
    for public_name, found in public(PACKAGE).items()
    for name, told in {
        public_name: found,
        **{f"{public_name}.{member}": getattr(found, member) for member in MEMBERS.get(public_name, ())},
    }.items()
    if inspect.isroutine(told)
}


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m tools.pages.api > docs/api.md"


def test_the_page_has_every_public_name() -> None:
    named = set(re.findall(r"^#+ `([\w.]+)`$|^\| `(\w+Error)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    expected = {name for module in (PACKAGE, ERRORS) for name in public(module)} | {
        f"{name}.{member}" for name, members in MEMBERS.items() for member in members
    }
    assert {"".join(one) for one in named} - {PACKAGE.__name__, ERRORS.__name__} == expected


@pytest.mark.parametrize("name", CALLABLES)
def test_each_call_describes_its_arguments_and_what_comes_back(name: str) -> None:
    told = CALLABLES[name]
    signature = inspect.signature(told)
    sections = docstring(told).sections
    assert [argument for argument, _ in sections.get("Args", [])] == [
        parameter for parameter in signature.parameters if parameter != "self"
    ]
    assert ("Returns" in sections) == (signature.return_annotation not in ("None", None))
    for error, text in sections.get("Raises", []):
        assert error in public(ERRORS)
        assert text.endswith(".")


def test_all_errors_are_public() -> None:
    def below(kind: type[ReplicaError]) -> set[str]:
        return {kind.__name__}.union(*(below(child) for child in kind.__subclasses__()))

    ours = {name for name in below(ReplicaError) if not name.startswith("_")}
    assert set(public(ERRORS)) == ours
