"""Comparison of the rows that a stream delivered with the changes that were written.

In: rows as the job wrote them (identity columns, images as JSON text) and a workload. Every row identity has to occur
once, the changes have to equal those of the model, and their replay has to give the server's tables. Out: nothing, or
an AssertionError that names the first difference. This module uses no decoder of the project. It compares the JSON that
Spark prints with the model's values in the same form.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.fixtures.load.workload import Row, Table, Workload

Image = dict[str, Any]


class DeliveredChange(NamedTuple):
    """One output row of the job."""

    op: str
    database: str
    table: str
    domain_id: int
    server_id: int
    sequence_number: int
    ordinal: int
    before: str | None
    after: str | None

    @property
    def gtid(self) -> str:
        return f"{self.domain_id}-{self.server_id}-{self.sequence_number}"

    @property
    def identity(self) -> tuple[int, int, int, int]:
        return self.domain_id, self.server_id, self.sequence_number, self.ordinal


def comparable(value: Any) -> Any:
    """Return a value of the model in the form that `parsed` gives the value in JSON."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, int | float | Decimal):
        return Decimal(str(value))
    if isinstance(value, dt.datetime):
        return value.isoformat(sep=" ", timespec="microseconds")
    if isinstance(value, dt.date):
        return value.isoformat()
    raise AssertionError(f"the workload has no type {type(value)}")


def parsed(image: str | None, table: Table) -> Image | None:
    """Parse the JSON text of an image, with exact numbers and with six digits of a second in datetimes."""
    if image is None:
        return None
    values: Image = json.loads(image, parse_int=Decimal, parse_float=Decimal)
    for name, kind in table.columns:
        text = values.get(name)
        if kind.startswith("DATETIME") and text is not None:
            values[name] = dt.datetime.fromisoformat(text).isoformat(sep=" ", timespec="microseconds")
    return values


def expected(row: Row | None, table: Table) -> Image | None:
    return None if row is None else dict(zip(table.names, map(comparable, row), strict=True))


def _same(image: Image | None, full: Image | None, *, partial: bool) -> bool:
    """Return True if the image is that of the row. A partial image may lack columns of the row."""
    if image is None or full is None or not partial:
        return image == full
    return image.items() <= full.items()


def check(delivered: Iterable[DeliveredChange], work: Workload, *, partial: bool = False) -> int:
    """Check that each change was delivered once with its images, and that their replay gives the server's tables.

    Args:
        delivered: the rows of the sink.
        work: the changes that were written.
        partial: whether images may lack columns (binlog_row_image=MINIMAL). The replay then keeps the values of these
            columns.

    Returns:
        The number of changes.

    Raises:
        AssertionError: with the first difference.
    """
    tables = {table.name: table for table in work.tables}
    rows = sorted(delivered, key=lambda change: change.identity)
    twice = [identity for identity, count in Counter(row.identity for row in rows).items() if count > 1]
    assert not twice, f"{len(twice)} row identities arrived more than once, the first: {twice[0]}"

    wanted = {
        (*map(int, gtid.split("-")), ordinal): change
        for gtid, changes in work.transactions.items()
        for ordinal, change in enumerate(changes)
    }
    missing = wanted.keys() - {row.identity for row in rows}
    assert not missing, f"{len(missing)} of {len(wanted)} row changes never arrived, the first: {min(missing)}"
    state: dict[str, dict[Any, Image]] = {name: {} for name in tables}
    for row in rows:
        change = wanted.get(row.identity)
        assert change is not None, f"no transaction wrote this row: {row}"
        table = tables[row.table]
        before, after = parsed(row.before, table), parsed(row.after, table)
        assert (row.table, row.op) == (change.table, change.op), f"{row.identity}: {row} instead of {change}"
        for name, image, written in (("before", before, change.before), ("after", after, change.after)):
            same = _same(image, expected(written, table), partial=partial)
            assert same, f"{row.identity}: the {name} image is {image}, written was {written}"
        gone: Image = {}
        if before is not None:
            gone = state[row.table].pop(before["id"], {})
            assert _same(before, gone, partial=partial), f"{row.identity}: the replay held {gone}, not {before}"
        if after is not None:
            whole = gone | after
            state[row.table][whole["id"]] = whole
    for table in work.tables:
        server = {Decimal(key): expected(row, table) for key, row in work.server_rows(table.name).items()}
        assert state[table.name] == server, f"the replay of {table.name} is not the table on the server"
    return len(rows)
