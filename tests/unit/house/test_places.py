"""Every module has its tests where its name or tests/places.toml says, and every kernel is compared with a twin."""

from __future__ import annotations

import pytest

from tests.kit.places import PROJECT, is_kernel, matching, mirrored, modules, reached, read_places
from tests.kit.tree import files

PLACES = read_places()
KERNELS = [module for module in modules() if is_kernel(module)]
ELSEWHERE = [module for module in modules() if not is_kernel(module) and not (PROJECT / mirrored(module)).exists()]


@pytest.mark.parametrize("module", ELSEWHERE)
def test_a_module_without_a_test_file_of_its_name_is_tested_where_the_table_says(module: str) -> None:
    pattern = matching(PLACES.elsewhere, module)
    assert pattern, f"write {mirrored(module)}, or name in tests/places.toml the file that has its tests"
    test = PLACES.elsewhere[pattern]
    assert (PROJECT / test).is_file(), test
    assert module in reached(test), f"{test} does not import {module}"


@pytest.mark.parametrize("module", KERNELS)
def test_a_kernel_is_compared_with_a_twin_that_shares_no_kernel_with_it(module: str) -> None:
    pattern = matching(PLACES.kernels, module)
    assert pattern, f"name in tests/places.toml the twin of {module}, and the test that compares them"
    twin, test = PLACES.kernels[pattern]
    assert {twin, module} <= reached(test), f"{test} does not import both"
    if twin != test:
        assert not [other for other in reached(twin) if is_kernel(other) and other != "replica/native/crc32.py"]


def test_the_folders_are_those_of_the_source() -> None:
    source = {mirrored(module).rpartition("/")[0] for module in modules()}
    folders = {str(path.parent.relative_to(PROJECT)) for path in files(PROJECT / "tests" / "unit", "**/test_*.py")}
    assert folders - source == {f"tests/unit/{name}" for name in ("demo", "docs", "fuzz", "house", "kit")}


def test_no_line_of_the_table_says_nothing() -> None:
    used = {matching(PLACES.elsewhere, module) for module in ELSEWHERE}
    used |= {matching(PLACES.kernels, module) for module in KERNELS}
    assert [pattern for pattern in (*PLACES.elsewhere, *PLACES.kernels) if pattern not in used] == []
