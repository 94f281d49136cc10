"""DATE, DATETIME, TIMESTAMP and TIME, in the current format and in the format of servers before 10.1.2."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from replica.protocol.constants import ColumnType
from replica.protocol.rows import values as v
from replica.rows.types.entry import (
    Json,
    KernelFacts,
    KindEntry,
    Parentheses,
    ResultType,
    Sql,
    SqlName,
    TypeEntry,
    Variant,
    WireType,
    WireValue,
    printed,
)
from replica.rows.types.kinds import KeyForm, Kind, Transcoding

if TYPE_CHECKING:
    from collections.abc import Callable

    from replica.rows.types.entry import ColumnFacts

    Read = Callable[[bytes, ColumnFacts], Any]

_DAY = (pa.date32(), "DATE", Variant.DATE)
_LOCAL = (pa.timestamp("us"), "TIMESTAMP_NTZ", Variant.TIMESTAMP_NTZ)
_INSTANT = (pa.timestamp("us", tz="UTC"), "TIMESTAMP", Variant.TIMESTAMP)
_LENGTH = (pa.duration("us"), "INTERVAL DAY TO SECOND", Variant.TEXT)


def _utc(value: Any) -> object:
    return None if value is None else v.EPOCH.replace(tzinfo=UTC) + value


def _kind(
    kind: Kind,
    facts: KernelFacts,
    out: tuple[pa.DataType, str, Variant],
    read: Read,
    *,
    as_text: Kind | None = None,
    json: Json = Json.TEXT,
) -> KindEntry:
    arrow, spark, variant = out
    return KindEntry(
        kind=kind,
        binlog=WireValue(read, facts),
        arrow=arrow,
        spark=spark,
        variant=variant,
        json=json,
        sql=Sql.QUOTED,
        as_text=as_text,
    )


KINDS = (
    _kind(Kind.DATE, KernelFacts.CALENDAR, _DAY, lambda d, _: v.as_date(v.date_parts(d)), as_text=Kind.DATE_TEXT),
    _kind(
        Kind.DATETIME,
        KernelFacts.FRACTION,
        _LOCAL,
        lambda d, _: v.as_datetime(v.datetime_parts(d)),
        as_text=Kind.DATETIME_TEXT,
    ),
    _kind(
        Kind.OLD_DATETIME,
        KernelFacts.CALENDAR,
        _LOCAL,
        lambda d, _: v.as_datetime(v.old_datetime_parts(d)),
        as_text=Kind.OLD_DATETIME_TEXT,
    ),
    _kind(
        Kind.TIMESTAMP,
        KernelFacts.FRACTION,
        _INSTANT,
        lambda d, _: _utc(v.timestamp(d)),
        as_text=Kind.TIMESTAMP_TEXT,
        json=Json.UTC,
    ),
    _kind(
        Kind.OLD_TIMESTAMP,
        KernelFacts.CALENDAR,
        _INSTANT,
        lambda d, _: _utc(v.old_timestamp(d)),
        as_text=Kind.OLD_TIMESTAMP_TEXT,
        json=Json.UTC,
    ),
    _kind(Kind.TIME, KernelFacts.FRACTION_TEXT, _LENGTH, lambda d, _: v.time(d)),
    _kind(Kind.OLD_TIME, KernelFacts.NOTHING, _LENGTH, lambda d, _: v.old_time(d)),
    printed(Kind.DATE_TEXT, WireValue(lambda d, _: v.format_date(v.date_parts(d)), KernelFacts.NOTHING)),
    printed(
        Kind.DATETIME_TEXT,
        WireValue(lambda d, column: v.format_datetime(v.datetime_parts(d), column.fsp), KernelFacts.FRACTION_TEXT),
    ),
    printed(
        Kind.OLD_DATETIME_TEXT,
        WireValue(lambda d, _: v.format_datetime(v.old_datetime_parts(d), 0), KernelFacts.NOTHING),
    ),
    printed(
        Kind.TIMESTAMP_TEXT,
        WireValue(lambda d, column: v.format_timestamp(v.timestamp(d), column.fsp), KernelFacts.FRACTION_TEXT),
        json=Json.UTC,
    ),
    printed(
        Kind.OLD_TIMESTAMP_TEXT,
        WireValue(lambda d, _: v.format_timestamp(v.old_timestamp(d), 0), KernelFacts.NOTHING),
        json=Json.UTC,
    ),
)


def _type(sql_name: str, result_set: ResultType, kind: Kind, width: int, remarks: str) -> TypeEntry:
    return TypeEntry(
        declared=f"{sql_name}(f)",
        names=(SqlName.of(sql_name.lower(), Parentheses.FRACTION),),
        binlog=WireType((result_set.image,), f"{width} + (f+1)/2"),
        result_set=result_set,
        key=KeyForm.STORED,
        kind=kind,
        written=lambda column, _: sql_name + (f"({column.fsp})" if column.fsp else ""),
        remarks=remarks,
    )


def _old(sql_name: str, code: ColumnType, kind: Kind, width: int, remarks: str, key: KeyForm) -> TypeEntry:
    return TypeEntry(
        declared=f"{sql_name}, old format",
        names=(SqlName.of(sql_name.lower(), Parentheses.FRACTION),),
        binlog=WireType((code,), str(width)),
        result_set=None,
        key=key,
        kind=kind,
        remarks=remarks,
    )


_DATETIME = ResultType.plain(ColumnType.DATETIME, Transcoding.DATETIME, ColumnType.DATETIME2)
_TIMESTAMP = ResultType.plain(ColumnType.TIMESTAMP, Transcoding.TIMESTAMP, ColumnType.TIMESTAMP2)
_TIME = ResultType.plain(ColumnType.TIME, Transcoding.TIME, ColumnType.TIME2)
_CALENDAR = "Zero, partial and impossible dates follow `invalidDates`."
_SECONDS = "Seconds since 1970 UTC, unsigned: reaches 2106. The zero timestamp follows `invalidDates`."
# The order matters: a lookup by name must find the new format first, because the catalog does not name the format.
TYPES = (
    TypeEntry(
        declared="DATE",
        names=(SqlName.of("date"),),
        binlog=WireType((ColumnType.DATE,), "3"),
        result_set=ResultType.plain(ColumnType.DATE, Transcoding.DATE),
        key=KeyForm.UNSIGNED,
        kind=Kind.DATE,
        remarks=_CALENDAR,
    ),
    _type("DATETIME", _DATETIME, Kind.DATETIME, 5, _CALENDAR),
    _type("TIMESTAMP", _TIMESTAMP, Kind.TIMESTAMP, 4, _SECONDS),
    _type("TIME", _TIME, Kind.TIME, 3, "-838:59:59.999999 to 838:59:59.999999."),
    _old("DATETIME", ColumnType.DATETIME, Kind.OLD_DATETIME, 8, _CALENDAR, KeyForm.OLD_DATETIME),
    _old("TIMESTAMP", ColumnType.TIMESTAMP, Kind.OLD_TIMESTAMP, 4, _SECONDS, KeyForm.UNSIGNED),
    _old("TIME", ColumnType.TIME, Kind.OLD_TIME, 3, "As TIME, whole seconds.", KeyForm.OLD_TIME),
)
