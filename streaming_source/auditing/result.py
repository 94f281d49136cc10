"""Outcome of an audit: the differences of each table, as values, as text and as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from replica.protocol.plain_text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

KINDS: Final = ("missing", "extra", "different", "doubled")
"""Kinds of a row: not in the copy, only in the copy, with other values in the copy, more often in the copy."""
VALUE_SHOWN: Final = 60
"""Characters of a value in a line of text. The JSON has all of them."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One row that differs.

    Attributes:
        kind: `missing` (not in the copy), `extra` (only in the copy), `different` (other values), or `doubled` (more
            often in the copy than in the table).
        key: the key's columns with their values as text. If whole rows are compared, all columns.
        source: the table's row as text, or None.
        target: the copy's row as text, or None.
        rows: the number of rows that this entry stands for. For a doubled row, the number of surplus rows.
    """

    kind: str
    key: Mapping[str, str | None]
    source: Mapping[str, str | None] | None
    target: Mapping[str, str | None] | None
    rows: int = 1

    def columns(self) -> list[str]:
        """Return the columns in which both rows differ.

        Returns:
            Their names; an empty list if only one side has the row.
        """
        if self.source is None or self.target is None:
            return []
        return [name for name, value in self.source.items() if self.target.get(name) != value]


@dataclass(frozen=True, slots=True)
class TableAudit:
    """The result of the audit of one table.

    Attributes:
        table: the table on the server, as database.table.
        target: the copy, as the caller or the control table names it.
        version: the version of the copy that was read, if it is a Delta table; the id of the snapshot, if it is an
            Iceberg table.
        position: the GTID position at which the table was read.
        source_rows: number of rows of the table at the position.
        target_rows: number of rows of the copy.
        source_hash: the hash of the table's values, 32 hexadecimal digits. It does not depend on the order of rows.
        target_hash: the hash of the copy's values.
        buckets: number of buckets of keys that were compared.
        differing_buckets: number of buckets that differ.
        counts: number of rows that are `missing`, `extra`, `different` and `doubled`.
        differences: some of the differing rows of each kind.
        keys: the columns that identify a row; empty if whole rows were compared.
        seconds: duration of the audit of this table.
        repair: whether the mirror was asked for a repair, or why not, as text; None if none was wanted or needed.
        cascaded: rows that differed only because foreign keys changed them on the server after the position.
        equal: whether the copy has exactly the table's rows.
    """

    table: str
    target: str
    version: int | None
    position: str
    source_rows: int
    target_rows: int
    source_hash: str
    target_hash: str
    buckets: int
    differing_buckets: int
    counts: Mapping[str, int]
    differences: tuple[Difference, ...]
    keys: tuple[str, ...]
    seconds: float
    repair: str | None = None
    cascaded: int = 0

    @property
    def equal(self) -> bool:
        """Whether the copy has exactly the table's rows."""
        return self.differing_buckets == 0


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A table that was not compared, and the reason."""

    table: str
    reason: str


@dataclass(frozen=True, slots=True)
class AuditResult:
    """The result of an audit. `print()` shows it as text.

    Attributes:
        position: the GTID position at which all tables were read.
        tables: a `TableAudit` for each table.
        left_out: the tables of a mirror that could not be compared, each with `table` and `reason`.
        equal: whether every table is equal to its copy and none was left out.
    """

    position: str
    tables: tuple[TableAudit, ...]
    left_out: tuple[LeftOut, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether every table is equal to its copy and none was left out."""
        return all(table.equal for table in self.tables) and not self.left_out

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def json(self) -> str:
        """Return the result as JSON.

        Returns:
            The text. docs/audit.md lists its fields.
        """
        return json.dumps(
            {
                "equal": self.equal,
                "position": self.position,
                "tables": [_table_json(table) for table in self.tables],
                "left_out": [{"table": one.table, "reason": one.reason} for one in self.left_out],
            },
            indent=2,
        )

    def _lines(self) -> Iterator[str]:
        rows = sum(table.source_rows for table in self.tables)
        verdict = "EQUAL" if self.equal else "NOT EQUAL" if not all(t.equal for t in self.tables) else "NOT COMPLETE"
        tables = f"{len(self.tables)} table{'s' * (len(self.tables) != 1)}"
        yield f"{verdict} at {self.position or 'the beginning'}: {tables}, {rows:,} rows"
        for table in self.tables:
            at = "" if table.version is None else f" version {table.version}"
            compared = f"{table.source_rows:,} rows, hash {table.source_hash}"
            if table.equal:
                later = f"; {table.cascaded:,} that foreign keys changed later" if table.cascaded else ""
                yield one_line(f"  equal      {table.table} = {table.target}{at}: {compared}{later}")
                continue
            counts = ", ".join(f"{count:,} {kind}" for kind, count in table.counts.items() if count)
            yield one_line(
                f"  NOT EQUAL  {table.table} and {table.target}{at}: {counts}; {table.source_rows:,} rows, "
                f"{table.target_rows:,} in the copy; {table.differing_buckets} of {table.buckets} buckets"
            )
            yield from (one_line(f"    {line}") for one in table.differences for line in _difference_lines(one))
            if table.repair is not None:
                yield one_line(f"    repair    {table.repair}")
        for left in self.left_out:
            yield one_line(f"  left out   {left.table}: {left.reason}")


def _difference_lines(one: Difference) -> Iterator[str]:
    more = f" ({one.rows} rows)" if one.rows > 1 else ""
    yield f"{one.kind:<9} {_values(one.key)}{more}"
    names = one.columns()
    if one.kind == "different":
        for title, row in (("table", one.source), ("copy", one.target)):
            yield f"          {title:<5} {_values({name: (row or {}).get(name) for name in names})}"


def _values(values: Mapping[str, str | None]) -> str:
    return ", ".join(f"{name}={_short(value)}" for name, value in values.items())


def _short(value: str | None) -> str:
    if value is None:
        return "NULL"
    return repr(value if len(value) <= VALUE_SHOWN else f"{value[:VALUE_SHOWN]}…")


def _table_json(table: TableAudit) -> dict[str, Any]:
    return {
        "table": table.table,
        "equal": table.equal,
        "target": table.target,
        "version": table.version,
        "position": table.position,
        "source_rows": table.source_rows,
        "target_rows": table.target_rows,
        "source_hash": table.source_hash,
        "target_hash": table.target_hash,
        "buckets": table.buckets,
        "differing_buckets": table.differing_buckets,
        "counts": dict(table.counts),
        "keys": list(table.keys),
        "seconds": round(table.seconds, 3),
        "repair": table.repair,
        "cascaded": table.cascaded,
        "differences": [
            {"kind": one.kind, "rows": one.rows, "key": one.key, "source": one.source, "target": one.target}
            for one in table.differences
        ],
    }
