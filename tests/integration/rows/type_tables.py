"""Tables that have every type of type_cases.py, nullable and not, and what the server's SELECT says of their rows.

In: cases. Out: tables of some dozens of columns, statements that fill, change and empty them, and the SELECTs to
compare with. A case is two columns: `n…` may be NULL, `m…` may not. Row 0 has NULL in the first.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from replica.protocol.rows.values import format_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from replica.schema.table import ColumnSchema
    from tests.integration.rows.type_cases import Case

CASES_A_TABLE = 30  # two columns a case: as many as fit into the 65535 bytes of a row

Selected = dict[str, dict[str, str | None]]
"""By id and column what SELECT gives."""


@dataclass(frozen=True)
class TypeTable:
    """One table. `rows` is the largest number of values of its cases; the others begin again."""

    name: str
    cases: tuple[Case, ...]

    @property
    def rows(self) -> int:
        return max(len(case.values) for case in self.cases)

    @property
    def create(self) -> str:
        columns = [
            f"n{i} {case.declaration} NULL, m{i} {case.declaration} NOT NULL" for i, case in enumerate(self.cases)
        ]
        return f"CREATE TABLE {self.name} (id INT PRIMARY KEY, {', '.join(columns)})"

    @property
    def insert(self) -> str:
        rows = []
        for row in range(self.rows):
            values = [case.values[row % len(case.values)] for case in self.cases]
            pairs = [f"{'NULL' if row == 0 else value}, {value}" for value in values]
            rows.append(f"({row}, {', '.join(pairs)})")
        return f"INSERT INTO {self.name} VALUES {', '.join(rows)}"

    @property
    def updates(self) -> Iterator[str]:
        """Every nullable column gets the next value of its case."""
        for row in range(self.rows):
            changes = [f"n{i} = {case.values[(row + 1) % len(case.values)]}" for i, case in enumerate(self.cases)]
            yield f"UPDATE {self.name} SET {', '.join(changes)} WHERE id = {row}"

    @property
    def delete(self) -> str:
        return f"DELETE FROM {self.name} ORDER BY id"

    @property
    def nullable(self) -> frozenset[str]:
        return frozenset(f"n{i}" for i in range(len(self.cases)))

    @property
    def columns(self) -> frozenset[str]:
        return self.nullable | {f"m{i}" for i in range(len(self.cases))} | {"id"}

    def select(self, cursor: Any) -> Selected:
        """What the server says; the cursor's connection converts nothing."""
        columns = {"id": "id"}
        for i, case in enumerate(self.cases):
            columns |= {name: case.select.format(c=name) for name in (f"n{i}", f"m{i}")}
        cursor.execute(f"SELECT {', '.join(columns.values())} FROM {self.name} ORDER BY id")
        names = list(columns)
        rows = [[cell.decode() if isinstance(cell, bytes) else cell for cell in row] for row in cursor.fetchall()]
        return {str(row[0]): dict(zip(names, row, strict=True)) for row in rows}


def tables(cases: Sequence[Case], size: int = CASES_A_TABLE) -> list[TypeTable]:
    parts = [tuple(cases[start : start + size]) for start in range(0, len(cases), size)]
    return [TypeTable(f"t{number}", part) for number, part in enumerate(parts)]


def same(value: object, said: str | None, column: ColumnSchema) -> bool:
    """Whether a decoded value is what SELECT printed."""
    if value is None or said is None:
        return value is None and said is None
    if isinstance(value, list):
        return value == [struct.unpack("<f", struct.pack("<f", number))[0] for number in json.loads(said)]
    if isinstance(value, float):
        return value == float(said)
    return printed(value, column) == said


def printed(value: object, column: ColumnSchema) -> str:
    """A decoded value as SELECT prints it, by the plainest means."""
    fsp = column.fsp or 0
    match value:
        case timedelta():
            text = format_time(value, fsp)
        case bytes() | bytearray():
            text = bytes(value).hex().upper()
        case datetime():
            text = value.replace(tzinfo=None).isoformat(" ", "microseconds")
            text = text[:-6] + text[-6:][:fsp] if fsp else text[:-7]
        case Decimal():
            text = f"{value:f}"
        case str():
            text = value.replace("\N{REPLACEMENT CHARACTER}", "?")  # what SELECT says of a byte without a character
        case _:
            text = str(value)
    return text
