"""Key bytes: the compiled form gives those of the plain one, for every form; and they sort as they should."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.errors import SchemaError
from replica.native.arrays import address
from replica.native.compile import kernel
from replica.protocol.constants import ColumnType as T
from replica.protocol.rows import values as v
from replica.protocol.rows.table_map import ColumnDef
from replica.rows.types.kernels.kernel_keys import key_room, write_key
from replica.rows.types.keys import KeyPart, key_bytes_of, key_part, key_records
from replica.rows.types.kinds import KeyForm
from replica.schema.table import ColumnSchema

if TYPE_CHECKING:
    from collections.abc import Callable

SIGNED = [KeyPart(0, KeyForm.SIGNED, width, width, ordered=True) for width in (1, 2, 3, 4, 8)]
UNSIGNED = [KeyPart(0, KeyForm.UNSIGNED, width, width, ordered=True) for width in (1, 2, 3, 4, 8)]
STORED = [KeyPart(0, KeyForm.STORED, width, width, ordered=True) for width in (1, 5, 8, 30)]
PADDED = KeyPart(0, KeyForm.PADDED, -1, 16, ordered=True)
UUID = KeyPart(0, KeyForm.UUID, -1, 16, ordered=True)
BYTES = KeyPart(0, KeyForm.BYTES, -2, 0, ordered=True)
DATETIMES = (v.old_datetime_parts, v.datetime_parts)
OLD_DATETIME = KeyPart(0, KeyForm.OLD_DATETIME, 8, 5, ordered=True)
OLD_TIME = KeyPart(0, KeyForm.OLD_TIME, 3, 3, ordered=True)
PARTS = [*SIGNED, *UNSIGNED, *STORED, PADDED, UUID, BYTES, KeyPart(0, KeyForm.TEXT, -1, 0, ordered=False),
         OLD_DATETIME, OLD_TIME]  # fmt: skip
ZEROS = st.lists(st.sampled_from((b"\0", b"\xff", b"a")), max_size=20).map(b"".join)


def values(part: KeyPart) -> st.SearchStrategy[bytes]:
    if part.form == KeyForm.OLD_DATETIME:
        numbers = st.builds(lambda *p: int("{:04}{:02}{:02}{:02}{:02}{:02}".format(*p)), st.integers(0, 9999),
                            st.integers(0, 12), st.integers(0, 31), st.integers(0, 23),
                            *[st.integers(0, 59)] * 2)  # fmt: skip
        return numbers.map(lambda n: n.to_bytes(8, "little"))
    if part.form == KeyForm.OLD_TIME:
        times = st.builds(lambda h, m, s, sign: sign * (h * 10000 + m * 100 + s), st.integers(0, 838),
                          *[st.integers(0, 59)] * 2, st.sampled_from((1, -1)))  # fmt: skip
        return times.map(lambda n: n.to_bytes(3, "little", signed=True))
    if part.width > 0:
        return st.binary(min_size=part.width, max_size=part.width)
    return st.binary(max_size=part.size or 40) | ZEROS.map(lambda data: data[: part.size or 40])


@kernel
def call_room(records: int, count: int, spots: int) -> int:
    return key_room(records, count, spots)


@kernel
def call_write(records: int, count: int, spots: int, out: int) -> int:
    return write_key(records, count, spots, out)


def by_kernel(parts: list[KeyPart], data: list[bytes]) -> bytes:
    records = key_records(parts)
    held = [np.frombuffer(value + b"\xee", np.uint8) for value in data]
    spots = np.array([[address(array), len(value)] for array, value in zip(held, data, strict=True)], np.int64)
    room = call_room(address(records), len(parts), address(spots))
    out = np.full(room, 0xEE, np.uint8)
    end = call_write(address(records), len(parts), address(spots), address(out))
    return out[: end - address(out)].tobytes()


@given(st.data())
def test_the_compiled_form_is_the_plain_one(data: st.DataObject) -> None:
    parts = data.draw(st.lists(st.sampled_from(PARTS), min_size=1, max_size=4))
    found = [data.draw(values(part)) for part in parts]
    assert by_kernel(parts, found) == key_bytes_of(parts, found)


@given(st.lists(st.tuples(ZEROS, st.integers(-128, 127)), min_size=2, max_size=6))
def test_composite_keys_sort_by_their_parts(keys: list[tuple[bytes, int]]) -> None:
    parts = [BYTES, SIGNED[0]]
    made = {key: key_bytes_of(parts, [key[0], key[1].to_bytes(1, "little", signed=True)]) for key in keys}
    assert sorted(made) == sorted(made, key=made.__getitem__)
    assert len(set(made.values())) == len(made)


def test_a_uuid_with_a_time_is_stored_node_first_and_one_of_version_7_as_it_is() -> None:
    first = bytes.fromhex("00112233445516778899aabbccddeeff")
    assert UUID.bytes_of(first) == bytes.fromhex("aabbccddeeff88991677445500112233")
    seventh = bytes.fromhex("01890a5dac96774bbcceb302099a8057")
    assert UUID.bytes_of(seventh) == seventh
    assert UUID.bytes_of(b"") == bytes(16)


def declared(data_type: str, **more: object) -> ColumnSchema:
    return ColumnSchema(name="k", data_type=data_type, column_type=str(more.pop("column_type", data_type)), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("old", "new", "data_type", "stored", "reads"),
    [
        (T.DATETIME, T.DATETIME2, "datetime", (20240229235959).to_bytes(8, "little"), DATETIMES),
        (T.DATETIME, T.DATETIME2, "datetime", bytes(8), DATETIMES),
        (T.TIMESTAMP, T.TIMESTAMP2, "timestamp", (1700000000).to_bytes(4, "little"), (v.old_timestamp, v.timestamp)),
        (T.TIME, T.TIME2, "time", (-8385959).to_bytes(3, "little", signed=True), (v.old_time, v.time)),
        (T.TIME, T.TIME2, "time", (105959).to_bytes(3, "little", signed=True), (v.old_time, v.time)),
    ],
)  # fmt: skip
def test_old_formats_of_a_time_give_the_key_of_the_new_ones(
    old: T, new: T, data_type: str, stored: bytes, reads: tuple[Callable[[bytes], object], Callable[[bytes], object]]
) -> None:
    column = declared(data_type, fsp=0)
    before = key_part(3, ColumnDef(type=old, metadata=b"", length=len(stored)), column)
    made = before.bytes_of(stored)
    after = key_part(3, ColumnDef(type=new, metadata=b"\0", length=len(made)), column)
    assert (before.column, before.size) == (3, len(made))
    assert after.bytes_of(made) == made
    assert reads[0](stored) == reads[1](made)


def test_the_sign_is_the_definitions() -> None:
    wire = ColumnDef(type=T.LONG, metadata=b"", length=4)
    assert key_part(0, wire, declared("int")).form == KeyForm.SIGNED
    assert key_part(0, wire, declared("int", unsigned=True)).form == KeyForm.UNSIGNED


@pytest.mark.parametrize(
    ("column", "ordered"),
    [
        (declared("uuid"), True),
        (declared("uuid", column_type="uuid /* old */"), False),
        (declared("varchar", charset="utf8mb4"), False),
        (declared("varbinary"), True),
    ],
    ids=str,
)
def test_only_what_sorts_as_the_server_sorts_is_ordered(column: ColumnSchema, *, ordered: bool) -> None:
    code = T.STRING if column.data_type == "uuid" else T.VARCHAR
    assert key_part(0, ColumnDef(type=code, metadata=b"", length=16), column).ordered is ordered


@pytest.mark.parametrize(("code", "data_type"), [(T.DOUBLE, "double"), (T.BLOB, "blob"), (T.LONG, "varchar")])
def test_what_no_key_is_read_by_is_refused(code: T, data_type: str) -> None:
    with pytest.raises(SchemaError, match="cannot be read as a part of the key"):
        key_part(0, ColumnDef(type=code, metadata=b"", length=4), declared(data_type))
