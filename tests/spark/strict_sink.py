"""A sink that is strict: it takes no insert of a key that is there and no change of one that is not.

What is lost or doubled at any border between rows that were read and changes of the stream ends the test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streaming_source.rows.read_plan import FIRST_ORDINAL

if TYPE_CHECKING:
    from pyspark.sql import Row

    from tests.spark.queries import Shop


class StrictSink:
    """Rows by key."""

    def __init__(self) -> None:
        self.rows: dict[Any, Any] = {}
        self.reads = 0

    def apply(self, op: str, before: Any, after: Any) -> None:
        if before is not None:
            assert self.rows.pop(before[0], None) == before, (op, before, after)
        if after is not None:
            assert after[0] not in self.rows, (op, before, after)
            self.rows[after[0]] = after
        self.reads += op == "read"

    def apply_envelope(self, rows: list[Row]) -> None:
        for row in rows:
            self.apply(row.op, *(None if image is None else tuple(image) for image in (row.before, row.after)))

    def apply_flat(self, rows: list[Row]) -> None:
        before = None
        for row in rows:
            image = tuple(row)[:3]
            kind = row["_change_type"]
            if kind == "update_preimage":
                before = image
            elif kind == "delete":
                self.apply("delete", image, None)
            else:
                read = kind == "insert" and int(row["_sequence"].partition(".")[2]) >= FIRST_ORDINAL
                self.apply("read" if read else kind, before, image)
                before = None


def state(shop: Shop, table: str = "orders") -> dict[Any, Any]:
    return {row[0]: row for row in shop.sql(f"SELECT * FROM {shop.database}.{table}")}


def fill(shop: Shop, rows: int) -> None:
    shop.sql(
        f"INSERT INTO {shop.orders} SELECT seq, CONCAT('order ', seq), seq + 0.25 FROM {shop.database}.seq_1_to_{rows}"
    )
