"""Kernels that Python interprets give what compiled ones give, byte by byte: a program's first rows come of them."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pytest

from replica.commands.dump.outputs.count import write_counts
from replica.commands.dump.outputs.human import HumanDump
from replica.commands.dump.outputs.json_lines import write_json_rows
from replica.commands.dump.outputs.sql import SqlDump
from replica.native import memory
from replica.native.compile import Intrinsic
from replica.native.compiling.interpreted import _made
from tests.kit.kernels import interpret_all
from tests.kit.some import some
from tests.unit.commands.dump.files import reading, vector

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSIONS = ("10.5", "10.11", "11.8")
NAMES = ("compression", "metadata_full", "minimal_image", "transactions")


def dumps(*files: Any) -> Iterator[bytes]:
    """The four dumps that kernels make, of the same files."""
    for write in (
        lambda out: write_json_rows(reading(files), out),
        lambda out: SqlDump(reading(files), out, only_rows=False).write(),
        lambda out: HumanDump(reading(files), out, only_rows=False).write(),
        lambda out: write_counts(reading(files), out, as_json=True),
    ):
        out = io.BytesIO()
        write(out)
        yield out.getvalue()


@pytest.mark.parametrize(
    "version", [*(pytest.param(one, marks=pytest.mark.slow) for one in VERSIONS[:-1]), VERSIONS[-1]]
)
@pytest.mark.parametrize("name", NAMES)
def test_dumps_of_recorded_binlogs(name: str, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = list(dumps(vector(f"{version}/{name}")))
    interpret_all(monkeypatch)
    assert list(dumps(vector(f"{version}/{name}"))) == compiled
    assert len(compiled[0]) > 100


def test_python_has_all_that_kernels_are_made_of() -> None:
    for name, value in some(one for one in vars(memory).items() if isinstance(one[1], Intrinsic)):
        assert id(value) in _made, name
