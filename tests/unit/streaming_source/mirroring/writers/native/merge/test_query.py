"""Versions take what images lack from the target's valid version, in columns of any type."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from streaming_source.mirroring.writers.native.delta_rows import TargetShape, merge_rows
from streaming_source.mirroring.writers.native.merge.partial_images import KEPT
from streaming_source.mirroring.writers.target_format import Commit

if TYPE_CHECKING:
    from pathlib import Path

VALUES: dict[str, tuple[pa.DataType, Any]] = {
    "text": (pa.string(), "é😀" * 10),
    'odd "name`': (pa.int16(), -7),
    "truth": (pa.bool_(), True),
    "exact": (pa.decimal128(38, 0), Decimal(10**37)),
    "single": (pa.float32(), -0.0),
    "bytes": (pa.binary(), b"\0\xff"),
    "day": (pa.date32(), dt.date(1, 1, 1)),
    "time": (pa.timestamp("us", "UTC"), dt.datetime(2024, 1, 1, tzinfo=dt.UTC)),
    "local": (pa.timestamp("us"), dt.datetime(9999, 12, 31, 23, 59, 59)),  # noqa: DTZ001
    "vector": (pa.list_(pa.float32()), [0.5, -0.0]),
    "nothing": (pa.string(), None),
}
OWN = {
    **dict.fromkeys(("_valid_from", "_valid_to"), pa.timestamp("us", "UTC")),
    **dict.fromkeys(("_from_gtid", "_to_gtid", "_from_sequence", "_to_sequence"), pa.string()),
    "_current": pa.bool_(),
}
SCHEMA = pa.schema({"id": pa.int64(), "part": pa.string()} | {name: kind for name, (kind, _) in VALUES.items()} | OWN)
TARGET = TargetShape("history", tuple(SCHEMA.names), ("id", "part"), ())
KEYS = [(1, "a"), (1, "b"), (2, "a")]


def test_values_of_all_types_come_from_the_valid_version(tmp_path: Path) -> None:
    folder = str(tmp_path)
    there = {name: [value] * 2 for name, (_, value) in VALUES.items()}
    own = {name: [None, None] for name in OWN} | {"_from_gtid": ["0-1-1", "0-1-2"], "_current": [True, False]}
    own |= {"_from_sequence": own["_from_gtid"], "_to_gtid": [None, "0-1-3"]}
    first = pa.table({"id": [1, 1], "part": ["a", "b"], **there, **own}, SCHEMA)
    write_deltalake(folder, first)
    rows: dict[str, list[Any]] = {name: [None] * len(KEYS) for name in SCHEMA.names}
    rows |= {"id": [key for key, _ in KEYS], "part": [part for _, part in KEYS], "_current": [True] * len(KEYS)}
    rows |= dict.fromkeys(("_from_gtid", "_from_sequence"), ["0-1-9"] * len(KEYS))
    opening = pa.table(rows, SCHEMA).rename_columns([*map(str, range(len(SCHEMA)))])
    opening = opening.append_column(str(len(SCHEMA)), pa.array([False] * len(KEYS)))
    for name in VALUES:
        opening = opening.append_column(f"{KEPT}{SCHEMA.names.index(name)}", pa.array([True] * len(KEYS)))
    for mirror in ("m", "other"):
        merge_rows(folder, opening, TARGET, Commit(mirror, 1, ""))
    found = pa.table(DeltaTable(folder).to_pyarrow_table()).to_pylist()
    made = {(row["id"], row["part"]): [row[name] for name in VALUES] for row in found if row["_from_gtid"] == "0-1-9"}
    assert len(found) == 2 + len(KEYS)
    whole = repr([value for _, value in VALUES.values()])
    nothing = repr([None] * len(VALUES))
    shown = {key: repr([_plain(value) for value in values]) for key, values in made.items()}
    assert shown == {(1, "a"): whole, (1, "b"): nothing, (2, "a"): nothing}, "only of the version that is valid"


def _plain(value: Any) -> Any:
    return value.replace(tzinfo=dt.UTC) if isinstance(value, dt.datetime) and value.tzinfo is not None else value
