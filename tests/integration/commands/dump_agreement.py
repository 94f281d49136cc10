"""Rows of `dump --json` beside those of `mariadb-binlog -vv`: read from files, compared row by row, value by value."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from replica.commands.dump.outputs.json_lines import program
from replica.commands.dump.rows.kernel_text import JSON
from replica.commands.dump.rows.rows_text import RangeOrigin, RowTexts
from replica.readers.rows.names import Names
from replica.readers.rows.progress import Notices
from replica.readers.rows.reading import OPTIONS, ChosenTransactions, Reading
from tests.integration.rows.vendor_rows import VendorRow, agrees, vendor_rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from replica.protocol.rows.table_map import ColumnDef
    from replica.rows.tables.plan import ColumnPlan
    from tests.fixtures.mariadb import MariaDb


class OurRow(NamedTuple):
    change: dict[str, Any]
    columns: list[tuple[ColumnPlan, ColumnDef]]


def reading(*files: Path) -> Reading:
    notices = Notices(io.StringIO())
    return Reading([str(file) for file in files], ChosenTransactions(), Names((), notices, OPTIONS.policy), notices)


def our_rows(*files: Path) -> Iterator[OurRow]:
    """What --json writes, and what the decoder knew of each row's columns."""
    read = reading(*files)
    texts = RowTexts(JSON, lambda table: program(table, "both", unnamed=read.names.is_unnamed(table.table_map)))
    for part in read.parts():
        for batch, shown, gtids in read.rows(part):
            data, _ = texts.write(batch, RangeOrigin(part.name, part.piece.offset), shown=shown, gtids=gtids)
            lines = bytes(data).splitlines()
            assert len(lines) == batch.rows
            assert batch.events is not None
            assert batch.slots is not None
            slots = batch.events["slot"][batch.event].tolist()
            for line, slot in zip(lines, slots, strict=True):
                table = batch.slots.table(slot)
                pairs = list(zip(table.layout.columns, table.table_map.columns, strict=True))
                yield OurRow(json.loads(line), pairs)


def check_image(ours: dict[str, Any] | None, theirs: list[Any], columns: list[tuple[ColumnPlan, ColumnDef]]) -> None:
    if ours is None:
        assert not theirs
        return
    known = {plan.name: (index, plan, column) for index, (plan, column) in enumerate(columns)}
    theirs = [value for value in theirs if not columns[value.column][0].hidden]
    assert [known[name][0] for name in ours] == [value.column for value in theirs], "the same columns are present"
    for (name, value), said in zip(ours.items(), theirs, strict=True):
        _, plan, column = known[name]
        assert agrees(value, said, column, plan), (name, value, said, plan.declared)


def check_rows(ours: list[OurRow], theirs: list[VendorRow]) -> None:
    assert len(ours) == len(theirs)
    for (change, columns), row in zip(ours, theirs, strict=True):
        assert (change["op"], change["database"], change["table"]) == (row.op, row.database, row.table)
        check_image(change["before"], row.before, columns)
        check_image(change["after"], row.after, columns)


def check_binlogs(server: MariaDb, *, without: bytes | None = None) -> None:
    """All that a server has logged so far; `without`: files that hold these bytes are left out."""
    server.sql("FLUSH BINARY LOGS")
    paths = [server.datadir / name for name in server.binlogs()[:-1]]
    files = [path for path in paths if without is None or without not in path.read_bytes()]
    check_rows(list(our_rows(*files)), vendor_rows(server, *files))
