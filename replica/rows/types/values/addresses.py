"""UUID, INET4 and INET6: bytes of fixed length that SELECT shows as text. The binlog logs them as BINARY."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from replica.protocol.constants import ColumnType
from replica.protocol.rows import values as v
from replica.rows.types.entry import ResultType, SqlName, Told, TypeEntry, WireType, WireValue, printed
from replica.rows.types.kinds import KeyForm, Kind, Transcoding

if TYPE_CHECKING:
    from collections.abc import Callable

    from replica.rows.types.entry import KindEntry


def _kind(kind: Kind, read: Callable[[bytes], Any]) -> KindEntry:
    return printed(kind, WireValue(lambda data, _: read(data), Told.LENGTH))


# Every version from 10.5 to 11.8 that has the type answers this cast with the stored bytes.
_AS_BYTES = ResultType("CAST({c} AS BINARY({n}))", (ColumnType.STRING,), ColumnType.STRING, Transcoding.TRIMMED)


def _type(word: str, kind: Kind, length: int, key: KeyForm) -> TypeEntry:
    return TypeEntry(
        declared=word,
        names=(SqlName.of(word.lower(), logged=length),),
        binlog=WireType((ColumnType.STRING,), f"1 + 0-{length}"),
        result_set=_AS_BYTES,
        key=key,
        kind=kind,
        remarks="Known from the catalog or the DDL only, else BINARY.",
    )


KINDS = (_kind(Kind.UUID, v.uuid), _kind(Kind.INET4, v.inet4), _kind(Kind.INET6, v.inet6))
TYPES = (
    _type("UUID", Kind.UUID, 16, KeyForm.UUID),
    _type("INET4", Kind.INET4, 4, KeyForm.PADDED),
    _type("INET6", Kind.INET6, 16, KeyForm.PADDED),
)
