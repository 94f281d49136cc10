from __future__ import annotations

import pytest

from replica.errors import SchemaError, UnsupportedColumnError
from replica.protocol.constants import ColumnType
from replica.rows.tables.plan import plan_column, skip_column
from replica.rows.types.kinds import Kind
from replica.rows.types.types import ValuePolicy
from replica.schema.table import ColumnSchema
from tests.kit.binlog.parsed import BINARY, LATIN1, UTF8MB4, column

NULL = ValuePolicy()


def bare(code: int, metadata: bytes = b"", **known: object) -> object:
    """A column as binlog_row_metadata=NO_LOG has it: no name."""
    return column(None, code, metadata, **known)  # type: ignore[arg-type]


def schema(data_type: str, **known: object) -> ColumnSchema:
    return ColumnSchema(name="c", data_type=data_type, column_type=data_type, **known)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("code", "metadata", "width", "prefix"),
    [
        (ColumnType.TINY, "", 1, 0),
        (ColumnType.LONGLONG, "", 8, 0),
        (ColumnType.NEWDECIMAL, "411e", 30, 0),
        (ColumnType.BIT, "0201", 2, 0),
        (ColumnType.BIT, "0008", 8, 0),
        (ColumnType.DATETIME2, "03", 7, 0),
        (ColumnType.TIMESTAMP2, "06", 7, 0),
        (ColumnType.TIME2, "01", 4, 0),
        (ColumnType.STRING, "feff", 0, 1),
        (ColumnType.STRING, "ee90", 0, 2),
        (ColumnType.VARCHAR, "ff00", 0, 1),
        (ColumnType.VARCHAR, "0001", 0, 2),
        (ColumnType.BLOB, "03", 0, 3),
        (ColumnType.GEOMETRY, "04", 0, 4),
        (ColumnType.BLOB_COMPRESSED, "02", 0, 2),
        (ColumnType.VARCHAR_COMPRESSED, "f501", 0, 2),
        (ColumnType.VARCHAR_COMPRESSED, "0a00", 0, 1),
        (ColumnType.JSON, "04", 0, 4),
        (ColumnType.STRING, "f702", 2, 0),
        (ColumnType.STRING, "f808", 8, 0),
    ],
)
def test_extents(code: int, metadata: str, width: int, prefix: int) -> None:
    plan = skip_column(column("c", code, bytes.fromhex(metadata)), "c")
    assert (plan.kind, plan.width, plan.prefix) == (Kind.OPAQUE, width, prefix)


def test_the_stream_is_believed_before_the_catalog() -> None:
    wire = column("new_name", ColumnType.LONG, unsigned=True)
    plan = plan_column(wire, schema("int", unsigned=False), NULL)
    assert (plan.name, plan.kind) == ("new_name", Kind.UINT32)


def test_the_catalog_tells_what_the_stream_does_not() -> None:
    labels = ("a", "ü")
    known = schema("enum", labels=labels, charset="latin1", nullable=False, key=True)
    plan = plan_column(bare(ColumnType.STRING, b"\xf7\x01"), known, NULL)  # type: ignore[arg-type]
    assert (plan.name, plan.kind, plan.labels, plan.key) == ("c", Kind.ENUM, labels, True)


def test_binary_labels_are_read_as_utf8_and_never_two_as_one() -> None:
    def planned(*labels: bytes) -> tuple[str, ...]:
        wire = column("c", ColumnType.STRING, b"\xf7\1", labels=labels, collation=BINARY)
        return plan_column(wire, None, NULL).labels

    assert planned(b"a", "é".encode(), b"b ", b"\xff") == ("a", "é", "b ", "\ufffd")
    with pytest.raises(UnsupportedColumnError, match="differ only in bytes that are not UTF-8"):
        planned(b"a", b"\xff", b"\xfe")
    lost = schema("enum", labels=("\ufffd", "\ufffd"), charset="binary")
    with pytest.raises(UnsupportedColumnError, match="differ only in bytes"):
        plan_column(bare(ColumnType.STRING, b"\xf7\1"), lost, NULL)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("charset", "kind"),
    [
        ("utf8", Kind.TEXT),
        ("utf8mb4", Kind.TEXT),
        ("latin1", Kind.LATIN1),
        ("ascii", Kind.ENCODED_TEXT),
        ("gbk", Kind.ENCODED_TEXT),
        ("cp1251", Kind.ENCODED_TEXT),
    ],
)
def test_text_kinds(charset: str, kind: Kind) -> None:
    plan = plan_column(bare(ColumnType.BLOB, b"\2"), schema("text", charset=charset), NULL)  # type: ignore[arg-type]
    assert plan.kind == kind


@pytest.mark.parametrize(
    ("code", "metadata", "data_type", "kind", "length"),
    [
        (ColumnType.STRING, b"\xfe\x10", "uuid", Kind.UUID, 16),
        (ColumnType.STRING, b"\xfe\x10", "inet6", Kind.INET6, 16),
        (ColumnType.STRING, b"\xfe\x04", "inet4", Kind.INET4, 4),
        (ColumnType.STRING, b"\xfe\x05", "binary", Kind.PADDED_BYTES, 5),
        (ColumnType.VARCHAR, b"\x05\0", "varbinary", Kind.BYTES, 0),
    ],
)
def test_what_only_the_catalog_can_tell(code: int, metadata: bytes, data_type: str, kind: Kind, length: int) -> None:
    plan = plan_column(column("c", code, metadata, collation=BINARY), schema(data_type), NULL)
    assert (plan.kind, plan.length) == (kind, length)


@pytest.mark.parametrize(
    ("code", "metadata", "collation", "kind"),
    [
        (ColumnType.STRING, b"\xfe\x10", BINARY, Kind.PADDED_BYTES),
        (ColumnType.STRING, b"\xfe\x10", UTF8MB4, Kind.TEXT),
        (ColumnType.VARCHAR, b"\x10\0", BINARY, Kind.BYTES),
        (ColumnType.VARCHAR, b"\x10\0", LATIN1, Kind.LATIN1),
        (ColumnType.BLOB, b"\1", BINARY, Kind.BYTES),
        (ColumnType.BLOB, b"\1", UTF8MB4, Kind.TEXT),
        (ColumnType.GEOMETRY, b"\4", BINARY, Kind.BYTES),
    ],
)
def test_from_the_stream_alone_the_collation_tells_bytes_from_text(
    code: int, metadata: bytes, collation: int, kind: Kind
) -> None:
    assert plan_column(column("c", code, metadata, collation=collation), None, NULL).kind == kind


def test_a_known_vector_is_floats_and_an_unknown_one_is_bytes() -> None:
    wire = column("v", ColumnType.VARCHAR, b"\x0c\0", collation=BINARY)
    assert plan_column(wire, None, NULL).kind == Kind.BYTES
    plan = plan_column(wire, schema("vector", octets=12), NULL, table="shop.a")
    assert (plan.kind, plan.spark, plan.prefix) == (Kind.VECTOR, "ARRAY<FLOAT>", 1)


@pytest.mark.parametrize(
    ("code", "metadata", "data_type", "charset", "kind"),
    [
        (ColumnType.VARCHAR_COMPRESSED, b"\xf5\1", "varchar", "latin1", Kind.LATIN1),
        (ColumnType.VARCHAR_COMPRESSED, b"\xf5\1", "varbinary", None, Kind.BYTES),
        (ColumnType.BLOB_COMPRESSED, b"\2", "text", "utf8mb4", Kind.TEXT),
        (ColumnType.BLOB_COMPRESSED, b"\1", "tinyblob", None, Kind.BYTES),
        (ColumnType.JSON, b"\4", "json", None, Kind.TEXT),
    ],
)
@pytest.mark.parametrize("from_catalog", [True, False])
def test_rewritten_values_are_planned_as_what_they_hold(
    code: int, metadata: bytes, data_type: str, charset: str | None, kind: Kind, *, from_catalog: bool
) -> None:
    collation = {"latin1": LATIN1, "utf8mb4": UTF8MB4, None: BINARY}[charset]
    known = {} if from_catalog or code == ColumnType.JSON else {"collation": collation}
    told = schema(data_type, charset=charset) if from_catalog else None
    plan = plan_column(column("c", code, metadata, **known), told, NULL)
    assert (plan.kind, plan.prefix, plan.width) == (kind, 4, 0)


@pytest.mark.parametrize(
    ("policy", "kind"), [(NULL, Kind.BYTES), (ValuePolicy(geometry="spark"), Kind.GEOMETRY)], ids=["binary", "spark"]
)
def test_geometries_follow_the_policy(policy: ValuePolicy, kind: Kind) -> None:
    assert plan_column(column("g", ColumnType.GEOMETRY, b"\4", collation=BINARY), None, policy).kind == kind


@pytest.mark.parametrize(
    ("wire", "message"),
    [
        (bare(ColumnType.LONG, unsigned=False), r"Column 3 of table t\.a has no known name"),
        (column("c", ColumnType.LONG), r"Column c of table t\.a is signed or unsigned: neither"),
        (column("c", ColumnType.VARCHAR, b"\5\0"), "no known character set"),
        (column("c", ColumnType.STRING, b"\xf7\1"), "labels that are neither"),
        (column("c", ColumnType.DATETIME), "old temporal format"),
    ],
)
def test_what_neither_side_tells_is_an_error_with_the_setting_to_change(wire: object, message: str) -> None:
    with pytest.raises(SchemaError, match=message) as caught:
        plan_column(wire, None, NULL, position=2, table="t.a")  # type: ignore[arg-type]
    assert "binlog_row_metadata=FULL" in caught.value.hint or "old temporal" in message


def test_the_old_temporal_formats_need_their_digits_from_the_catalog() -> None:
    wire = column("c", ColumnType.TIME)
    assert plan_column(wire, schema("time", fsp=0), NULL).kind == Kind.OLD_TIME
    with pytest.raises(UnsupportedColumnError, match=r"old temporal format.*FORCE"):
        plan_column(wire, schema("time", fsp=3), NULL)


@pytest.mark.parametrize(
    ("code", "widths"),
    [
        (ColumnType.TIMESTAMP, (4, 5, 5, 6, 6, 7, 7)),
        (ColumnType.DATETIME, (8, 6, 6, 7, 7, 7, 8)),
        (ColumnType.TIME, (3, 4, 4, 5, 5, 5, 6)),
    ],
)
def test_an_old_temporal_format_that_nobody_asks_for_is_stepped_over(code: int, widths: tuple[int, ...]) -> None:
    wire = column("c", code)
    assert tuple(skip_column(wire, "c", schema("x", fsp=fsp)).width for fsp in range(7)) == widths
    with pytest.raises(SchemaError, match=r"Column c of table t\.a .*old temporal format"):
        skip_column(wire, "c", table="t.a")


def test_a_catalog_of_another_type_is_an_error() -> None:
    with pytest.raises(SchemaError, match=r"Column c is .*BOOL in the binlog and bigint in the catalog"):
        plan_column(column("c", ColumnType.TINY, unsigned=False), schema("bigint"), NULL)


def test_unknown_collations_and_type_codes_name_the_column() -> None:
    with pytest.raises(UnsupportedColumnError, match=r"Column c: The collation id 4999"):
        plan_column(column("c", ColumnType.BLOB, b"\1", collation=4999), None, NULL)
    with pytest.raises(UnsupportedColumnError, match=r"Column c has the type code 242 \(VECTOR\)"):
        plan_column(column("c", ColumnType.VECTOR, b"\4"), None, NULL)
