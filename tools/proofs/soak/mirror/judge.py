"""Judges of a mirror at its end: the audit, and a comparison of all rows of each target with all rows of its table.

In: a driver, an idle server, its tables. Out: the number of compared rows. Raised: an AssertionError with the
differences of the audit, or with the first rows that only one side has. For the comparison, Spark writes the target as
plain Parquet, and Python reads both sides.
"""

from __future__ import annotations

import hashlib
import shutil
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import pyarrow.parquet as pq
from pymysql.cursors import SSCursor

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from tests.fixtures.mariadb import MariaDb
    from tools.proofs.soak.mirror.driver import MirrorDriver

SHOWN = 3


class Compared(NamedTuple):
    """What a comparison found: rows of the target, those that it lacks, and those that it has too often."""

    rows: int
    missing: Counter[tuple[str, ...]]
    extra: Counter[tuple[str, ...]]


def tables_of(server: MariaDb, databases: Collection[str]) -> list[str]:
    inside = ", ".join(f"'{database}'" for database in databases)
    name = "CONCAT(table_schema, '.', table_name)"
    found = server.sql(f"SELECT {name} FROM information_schema.tables WHERE table_schema IN ({inside})")
    return sorted(str(name) for (name,) in found)


def judged_rows(driver: MirrorDriver, server: MariaDb, tables: Collection[str]) -> dict[str, int]:
    """Check that both judges find every table equal; return how many rows each has."""
    found = driver.audit()
    differing = {table: one for table, one in found.tables.items() if not one.equal}
    assert not differing, f"the audit at {found.position} says: {differing}"
    assert not found.left_out, f"left out of the audit: {found.left_out}"
    assert sorted(found.tables) == sorted(tables), f"{sorted(found.tables)} were audited, {sorted(tables)} are there"
    return {table: compared_rows(driver, server, table) for table in sorted(tables)}


def compared_rows(driver: MirrorDriver, server: MariaDb, table: str) -> int:
    """Compare a table with its target; return how many rows there are."""
    names = [str(name) for (name, *_) in server.sql(f"SHOW COLUMNS FROM {table}")]
    out = driver.folder / "out" / table
    read = f"spark.read.format('delta').load({str(driver.place.target(table))!r})"
    driver.run(f"{read}.select(*{names!r}).write.mode('overwrite').parquet({str(out)!r})")
    found = compare(_server_rows(server, table, names), lambda: _file_rows(out, names))
    shutil.rmtree(out)
    for rows, what in ((found.missing, "not in the target"), (found.extra, "in the target alone, or too often")):
        assert not rows, f"{table}: {rows.total()} rows are {what}: {sorted(rows)[:SHOWN]}"
    return found.rows


def compare(source: Iterable[Sequence[object]], target: Callable[[], Iterable[Sequence[object]]]) -> Compared:
    """Compare rows by number; those of the target are read again where some are wrong."""
    left = Counter(_digest(_texts(row)) for row in target())
    rows = left.total()
    missing: Counter[tuple[str, ...]] = Counter()
    for row in source:
        texts = _texts(row)
        digest = _digest(texts)
        if left[digest]:
            left[digest] -= 1
        else:
            missing[texts] += 1
    left = +left
    wrong = (_texts(row) for row in target()) if left else ()
    shown = {digest: texts for texts in wrong if (digest := _digest(texts)) in left}
    return Compared(rows, missing, Counter({shown[digest]: count for digest, count in left.items()}))


def _server_rows(server: MariaDb, table: str, names: Sequence[str]) -> Iterator[Sequence[object]]:
    columns = ", ".join(f"`{name}`" for name in names)
    with server.connect(cursorclass=SSCursor) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT {columns} FROM {table}")
        yield from cursor


def _file_rows(folder: Path, names: Sequence[str]) -> Iterator[Sequence[object]]:
    for file in folder.glob("*.parquet"):
        for batch in pq.ParquetFile(file).iter_batches():
            yield from zip(*(batch.column(name).to_pylist() for name in names), strict=True)


def _texts(row: Sequence[object]) -> tuple[str, ...]:
    return tuple("\0" if value is None else str(value) for value in row)


def _digest(texts: tuple[str, ...]) -> bytes:
    return hashlib.blake2b("\x1f".join(texts).encode(), digest_size=16).digest()
