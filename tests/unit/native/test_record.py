"""A record has one layout for kernels and for numpy, and docs/records.md lists every record."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from replica.native.arrays import address
from replica.native.compile import kernel
from replica.native.memory import load_u8, store_u8
from replica.native.record import Layout, Record, half, part, unsigned, word
from tools.pages.records import declared_records, main, page

PAGE = Path(__file__).resolve().parents[3] / "docs" / "records.md"


class Inner(Record):
    """A record inside of another."""

    place = word("where")
    size = word("how much")


class Outer(Record):
    """One of everything."""

    number = word("a number")
    table = word("numbers", count=3)
    inner = part(Inner, "a record")
    pair = part(Inner, "two of them", count=2)
    last = word("the end")


class Packed(Record):
    """Numbers as a file has them."""

    length = half("four bytes")
    flags = half("four more")
    end = unsigned("eight without a sign")
    moved = word("eight with one")
    last = half("four at the end")


@kernel
def write_all(record: int, count: int) -> int:
    """Write into every field where the kernel finds it; returns the sum of the first."""
    total = 0
    for _ in range(count):
        total += load_u8(record + Outer.number)
        store_u8(record + Outer.table + 16, 7)
        store_u8(record + Outer.inner + Inner.size, 8)
        store_u8(record + Outer.pair + Inner.BYTES + Inner.place, 9)
        store_u8(record + Outer.last, 10)
        record += Outer.BYTES
    return total


@kernel
def misspelt(record: int) -> int:
    return load_u8(record + Outer.numbers)  # type: ignore[attr-defined,no-any-return]


def test_a_kernel_and_numpy_mean_the_same_bytes() -> None:
    records = np.zeros(3, Outer.dtype)
    records["number"] = 1, 2, 3
    assert write_all(address(records), len(records)) == 6
    assert records["table"].tolist() == [[0, 0, 7]] * 3
    assert records["inner"]["size"].tolist() == [8] * 3
    assert records["pair"]["place"].tolist() == [[0, 9]] * 3
    assert records["last"].tolist() == [10] * 3
    assert records["number"].tolist() == [1, 2, 3]


def test_fields_follow_each_other() -> None:
    assert (Outer.number, Outer.table, Outer.inner, Outer.pair, Outer.last, Outer.BYTES) == (0, 8, 32, 48, 80, 88)


def test_a_misspelt_field_is_an_error_on_both_sides() -> None:
    with pytest.raises(ValueError, match="numbers"):
        np.zeros(1, Outer.dtype)["numbers"]
    with pytest.raises(AttributeError, match="numbers"):
        misspelt(0)


def test_one_record_is_packed_as_numpy_has_it() -> None:
    assert (Packed.flags, Packed.end, Packed.moved, Packed.last, Packed.BYTES) == (4, 8, 16, 24, 28)
    values = (1, 2**32 - 1, 2**64 - 1, -1, 5)
    packed = Packed.packing().pack(*values)
    assert np.frombuffer(packed, Packed.dtype)[0].item() == values
    assert Packed.packing().unpack(packed) == values


def test_a_number_that_does_not_begin_at_a_multiple_of_its_size_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Wrong\.late begins at byte 4"):
        Layout("Wrong", (Record,), {"early": half("four bytes"), "late": word("eight")})


@pytest.mark.parametrize("name", ["BYTES", "FIELDS", "dtype", "packing", "mro", "__class__"])
def test_a_field_cannot_take_the_name_of_something_else(name: str) -> None:
    with pytest.raises(TypeError, match=name):
        Layout("Wrong", (Record,), {name: word("taken")})


def test_a_field_of_nothing_is_refused() -> None:
    with pytest.raises(TypeError, match="empty"):
        Layout("Wrong", (Record,), {"empty": word("nothing", count=0)})


@pytest.mark.parametrize("record", declared_records(), ids=lambda record: record.__name__)
def test_every_record_is_laid_out_as_numpy_has_it(record: type[Record]) -> None:
    assert record.__doc__
    offset = 0
    for name, field in record.FIELDS.items():
        kind, at = record.dtype.fields[name][:2]  # type: ignore[index]
        assert (at, kind.itemsize) == (offset, field.size) == (getattr(record, name), field.size)
        assert field.meaning
        offset += field.size
    assert offset == record.BYTES == record.dtype.itemsize


def test_the_page_is_what_the_layouts_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tools.pages.records > docs/records.md"


def test_the_command_prints_the_fields_of_a_record(capsys: pytest.CaptureFixture[str]) -> None:
    main(["DomainRow"])
    title, blank, *fields = capsys.readouterr().out.splitlines()
    assert title.startswith("DomainRow, 16 bytes: ")
    assert blank == ""
    assert [line.split()[:3] for line in fields] == [
        ["0", "domain", "uint32"],
        ["4", "server", "uint32"],
        ["8", "sequence", "uint64"],
    ]


def test_the_command_refuses_a_record_that_does_not_exist() -> None:
    with pytest.raises(SystemExit, match="no record Missing"):
        main(["Missing"])
