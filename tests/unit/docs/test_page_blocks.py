"""What a page tells users to run is run by a test, or a mark says why not; all other blocks are text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.kit.page_blocks import Block, blocks, documents
from tests.kit.tree import files

TESTS = Path(__file__).parents[2]
PROJECT = TESTS.parent
RUNNABLE = {"python", "sh", "sql", "toml", "yaml", "ini"}
SHOWN = {"text", "json"}
"""What a program prints, pictures, and lines of files that are no programs."""
WHOLE = {
    "docs/tutorial.md": "tests/system/test_tutorial.py",  # block after block
    "docs/api.md": "tests/integration/commands/test_api_page.py",  # made from docstrings; other blocks are signatures
}
"""Pages whose one test knows every block."""
OWN_WORDS = {
    "recipe": "tests/recipes/test_recipes.py",
    "mirror": "tests/mirroring/operations/test_page.py",
}
"""Pages with a word of their own, and the test that takes their blocks by name."""
ALL = [one for page in documents() for one in blocks(page)]
ASKED = {
    (page, name)
    for test in files(TESTS, "**/test_*.py")
    for page, name in re.findall(r'\bblock\("([^"]+)", "([^"]+)"\)', test.read_text(encoding="utf-8"))
}


def first_line(one: Block) -> str:
    return f"{one.page}: {one.code.partition(chr(10))[0]}"


def why_not(one: Block) -> str | None:
    """Tell what is missing of a block's mark."""
    if one.language in SHOWN or one.page in WHOLE:
        return None
    if one.language not in RUNNABLE:
        return f"the language {one.language!r} is neither run ({RUNNABLE}) nor shown ({SHOWN})"
    if one.word == "not run":
        return None
    if one.word == "run":
        return None if (one.page, one.value) in ASKED else f"no test asks for the block {one.value}"
    if one.word == "run by" or one.word in OWN_WORDS:
        test = PROJECT / (one.value if one.word == "run by" else OWN_WORDS[one.word])
        text = test.read_text(encoding="utf-8") if test.is_file() else ""
        wanted = one.page.rpartition("/")[2] if one.word == "run by" else f'"{one.value}"'
        return None if wanted in text else f"{test} does not name {wanted}"
    return "it has no mark: <!-- run: NAME -->, <!-- run by: FILE --> or <!-- not run: WHY -->"


def test_every_block_is_run_or_says_why_not() -> None:
    assert {first_line(one): why for one in ALL if (why := why_not(one))} == {}


def test_no_fence_is_left_out_of_the_rule() -> None:
    fences = {
        page.name: len(re.findall(r"^\s*```", page.read_text(encoding="utf-8"), re.MULTILINE)) for page in documents()
    }
    found = {page.name: 2 * sum(1 for _ in blocks(page)) for page in documents()}
    assert fences == found


def test_what_tests_ask_for_is_there() -> None:
    assert {(one.page, one.value) for one in ALL if one.word == "run"} >= ASKED


def test_pages_with_a_test_of_their_own_are_there() -> None:
    for page, test in WHOLE.items():
        assert (PROJECT / page).is_file()
        assert Path(page).name in (PROJECT / test).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (Block("README.md", "sh", "", "", "rm\n"), "no mark"),
        (Block("README.md", "bash", "not run", "so", "rm\n"), "neither run"),
        (Block("README.md", "sh", "run", "no such", "rm\n"), "no test asks for the block no such"),
        (Block("README.md", "sh", "run by", "tests/none.py", "rm\n"), "does not name"),
        (Block("README.md", "sh", "recipe", "no-such", "rm\n"), "does not name"),
    ],
)
def test_a_block_that_nothing_runs_is_found(one: Block, why: str) -> None:
    assert why in str(why_not(one))
