"""docs/spark-reference.md names every option and row column, in the words of the code's tables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from replica.daemon.config import DaemonConfig
from replica.options.config import OPTIONS as REPLICA_HELP
from streaming_source.options.source_options import OPTIONS
from streaming_source.schema.row_schema import ABSENT, ENVELOPE, FLAT, IMAGE, SOURCE, TRANSACTION

PAGE = Path(__file__).parents[3] / "docs" / "spark-reference.md"
IMAGES = "VARIANT, or STRUCT of the table's columns"

OF_DAEMON = {
    o.name
    for o in OPTIONS
    if o.replica
    and (o.default, REPLICA_HELP[o.field]) == (DaemonConfig.default_text(o.field), DaemonConfig.help()[o.field])
}
"""Options that docs/daemon-reference.md describes: the page of the source only names them."""
OPTION_LINES = [
    f"| `{o.name}` | {f'`{o.default}`' if o.default else ''} | {o.help} |" for o in OPTIONS if o.name not in OF_DAEMON
]
SHAPES = (("", ENVELOPE), ("transaction.", TRANSACTION), ("source.", SOURCE), ("absent.", ABSENT), ("", FLAT))
COLUMN_LINES = [
    f"| `{prefix}{column.name}` | {IMAGES if column.type == IMAGE else column.type} | {column.help} |"
    for prefix, columns in SHAPES
    for column in columns
]


def test_the_page_names_the_options_that_the_daemons_page_describes() -> None:
    listed = PAGE.read_text(encoding="utf-8").partition("is `connect_retry_s` there): ")[2].partition(".\n\n")[0]
    assert set(re.findall(r"`(\w+)`", listed)) == OF_DAEMON
    assert len(OF_DAEMON) > 20


@pytest.mark.parametrize("line", OPTION_LINES + COLUMN_LINES, ids=lambda line: line.split("`")[1])
def test_the_page_has_the_line(line: str) -> None:
    assert line in PAGE.read_text(encoding="utf-8").splitlines(), line


def test_the_page_has_no_line_the_code_has_not() -> None:
    """An option or a column that was removed is removed from the page too, and none is missing."""
    tables = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    known = {line.split("`")[1] for line in OPTION_LINES + COLUMN_LINES}
    named = {name for line in tables for name in line.split("|")[1].split("`")[1::2]}
    assert {name for name in named if "=" not in name} == known
